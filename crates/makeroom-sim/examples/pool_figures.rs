//! Reserved memory over live memory for every recording, under makeroom's pool and others, with what driver calls cost.
#![expect(clippy::print_stdout, reason = "a table is what this program is for")]

use std::path::{Path, PathBuf};

use makeroom_core::{Start, Trace};
use makeroom_sim::{Program, parse};
use makeroom_trace::Input;

fn main() {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    for path in &paths {
        let Some(trace) = read(path) else { continue };
        for device in &trace.devices {
            let program = Program::new(device, &trace.stacks, &Start::new(device));
            let Ok(spec) = parse("makeroom") else { return };
            let outcome = spec.run(&program, None);
            let time = program.recorded_us as f64 * 1e3;
            println!(
                "{:<42} {:>8.3} GB {:>8.4}  calls {:>6}  {:>6.1} ms {:>5.2} %  late {:>6.2} ms {:>5.2} %",
                path.file_name().unwrap_or_default().to_string_lossy(),
                outcome.peak_live as f64 / 1e9,
                outcome.peak_reserved as f64 / outcome.peak_live as f64,
                outcome.driver_calls,
                outcome.driver_nanoseconds as f64 / 1e6,
                outcome.driver_nanoseconds as f64 / time * 100.0,
                outcome.late_driver_nanoseconds as f64 / 1e6,
                outcome.late_driver_nanoseconds as f64 / time * 200.0
            );
        }
    }
}

fn read(path: &Path) -> Option<Trace> {
    match makeroom_trace::open(path) {
        Ok(Input::Trace(trace)) => Some(trace),
        _ => None,
    }
}
