//! How fast recordings are replayed: events per second on one core, for each allocator.
//!
//! Only the replay is timed, not the reading. Events are those of the recording, segments and second halves of
//! frees included, so the figure says how fast a file is answered. Each figure is the best of many runs; `bench/replay`
//! starts this.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use makeroom_core::{Start, Trace};
use makeroom_sim::{AllocatorSpec, Program, parse};
use makeroom_trace::Input;

const ALLOCATORS: [&str; 8] = [
    "pytorch",
    "pytorch:expandable_segments:True",
    "cuda-async",
    "bfc",
    "cupy",
    "rmm-pool",
    "makeroom",
    "ideal",
];
/// How long each figure is measured.
const PATIENCE: Duration = Duration::from_millis(500);

fn main() {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths = own_recordings();
    }
    println!("{:<28}{:<34}{:>10}{:>10}{:>16}", "recording", "allocator", "events", "ms", "events/s");
    for path in &paths {
        let Some(trace) = read(path) else {
            println!("{} is not a recording", path.display());
            continue;
        };
        for device in &trace.devices {
            let program = Program::new(device, &trace.stacks, &Start::new(device));
            for spec in ALLOCATORS.iter().filter_map(|name| parse(name).ok()) {
                let seconds = best(&program, &spec).as_secs_f64();
                let events = device.events.len();
                println!(
                    "{:<28}{:<34}{events:>10}{:>10.3}{:>16.0}",
                    name_of(path),
                    spec.name(),
                    seconds * 1e3,
                    events as f64 / seconds
                );
            }
        }
    }
}

fn best(program: &Program, spec: &AllocatorSpec) -> Duration {
    let begin = Instant::now();
    let mut best = Duration::MAX;
    while begin.elapsed() < PATIENCE {
        let start = Instant::now();
        std::hint::black_box(spec.run(program, None));
        best = best.min(start.elapsed());
    }
    best
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
