//! Reserved memory over live memory for every recording, under makeroom's pool and its peers, with the share of the
//! recorded time that the pool's driver calls would take, in all and in the second half; `bench/pool` starts this.
//!
//! The table is Markdown. Shares are shown for runs of more than five seconds: in shorter ones the pool is still taking
//! its first memory.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::path::{Path, PathBuf};

use makeroom_core::{Start, Trace};
use makeroom_sim::{Outcome, Program, parse};
use makeroom_trace::Input;

/// Those that are compared, and their headings.
const ALLOCATORS: [(&str, &str); 5] = [
    ("pytorch", "native"),
    ("pytorch:expandable_segments:True", "expandable"),
    ("cuda-async", "cudaMallocAsync (estimate)"),
    ("makeroom", "makeroom"),
    ("ideal", "ideal"),
];
/// Shorter runs show no shares.
const LONG_RUN_US: u64 = 5_000_000;

fn main() {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths = own_recordings();
    }
    let headings = ALLOCATORS.map(|(_, heading)| heading).join(" | ");
    println!("| recording | peak live | {headings} | driver time | in the second half |");
    println!("|---|---|{}---|---|", "---|".repeat(ALLOCATORS.len()));
    for path in &paths {
        let Some(trace) = read(path) else { continue };
        for device in &trace.devices {
            row(path, &Program::new(device, &trace.stacks, &Start::new(device)));
        }
    }
}

fn row(path: &Path, program: &Program) {
    let mut cells = Vec::new();
    let mut pool = Outcome::default();
    for (name, _) in ALLOCATORS {
        let Ok(spec) = parse(name) else { continue };
        let outcome = spec.run(program, None);
        cells.push(format!("{:.4}", outcome.peak_reserved as f64 / outcome.peak_live.max(1) as f64));
        if name == "makeroom" {
            pool = outcome;
        }
    }
    let share = |nanoseconds: u64, of_us: u64| match program.recorded_us {
        LONG_RUN_US.. => format!("{:.2} %", nanoseconds as f64 / of_us as f64 / 10.0),
        _ => "–".to_owned(),
    };
    println!(
        "| {} | {:.3} GB | {} | {} | {} |",
        name_of(path),
        program.peak_live() as f64 / 1e9,
        cells.join(" | "),
        share(pool.driver_nanoseconds, program.recorded_us),
        share(pool.late_driver_nanoseconds, program.recorded_us / 2)
    );
}

fn read(path: &Path) -> Option<Trace> {
    match makeroom_trace::open(path) {
        Ok(Input::Trace(trace)) => Some(trace),
        _ => None,
    }
}

fn own_recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('.').next().unwrap_or_default().to_owned()
}
