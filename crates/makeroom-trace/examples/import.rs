//! Reads a recording, prints a summary and the time it took: `cargo run --release --example import FILE`.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::time::Instant;

use makeroom_core::Action;
use makeroom_trace::{Error, Input};

fn main() -> Result<(), Error> {
    for name in std::env::args().skip(1) {
        let start = Instant::now();
        let input = makeroom_trace::open(Path::new(&name))?;
        let seconds = start.elapsed().as_secs_f64();
        match input {
            Input::Text(text) => println!("{name}: text of {} bytes", text.len()),
            Input::Trace(trace) => {
                let actions = trace.devices.iter().flat_map(|device| device.events.actions());
                let allocations = actions.filter(|&&action| action == Action::Alloc).count();
                let segments: usize = trace.devices.iter().map(|device| device.segments.len()).sum();
                println!(
                    "{name}: {} events, {allocations} allocations, {segments} segments, {} stacks, {seconds:.3} s",
                    trace.event_count(),
                    trace.stacks.len(),
                );
                for note in &trace.notes {
                    println!("  note: {note}");
                }
            }
        }
    }
    Ok(())
}
