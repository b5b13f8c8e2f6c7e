//! Cost of the `.room` format: bytes and nanoseconds per event, for writing and reading.
//!
//! ```text
//! cargo run --release -p makeroom-trace --example room_cost -- traces/gpt2_varlen.pickle.gz
//! ```
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use makeroom_trace::room::{Encoder, Event, Frame, Reader, ThreadNumber, seal};
use makeroom_trace::{Error, Input};

#[path = "../tests/support/rooms.rs"]
mod rooms;

/// Each figure is the best of this many runs: other load on the machine can only add time.
const RUNS: usize = 7;

fn main() -> Result<(), Error> {
    let events = rooms::synthetic(1_000_000);
    let mut recorder = rooms::Recorder::new();
    rooms::define_synthetic_stacks(&mut recorder);
    for event in &events {
        recorder.event(event);
    }
    report("synthetic", &events, &recorder.finish())?;
    for name in std::env::args().skip(1) {
        if let Input::Trace(trace) = makeroom_trace::open(Path::new(&name))? {
            report(&name, &rooms::as_tensor_events(&trace), &rooms::record_snapshot(&trace).0)?;
        }
    }
    Ok(())
}

fn report(name: &str, events: &[Event], file: &[u8]) -> Result<(), Error> {
    let count = events.len() as f64;
    let (mut encode, mut sealing, mut read, mut import) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
    for _ in 0..RUNS {
        let mut encoder = Encoder::new(ThreadNumber(1), Vec::with_capacity(count as usize * 24));
        let start = Instant::now();
        for event in events {
            encoder.event(black_box(event));
        }
        encode = encode.min(start.elapsed().as_nanos() as f64 / count);

        let batch = encoder.replace(Vec::new());
        let mut output = Vec::with_capacity(2 * batch.len());
        let start = Instant::now();
        for part in batch.chunks(64 << 10) {
            seal(part, &mut output);
        }
        sealing = sealing.min(start.elapsed().as_nanos() as f64 / count);

        let start = Instant::now();
        let mut reader = Reader::new(file)?;
        while let Some(frame) = reader.next_frame()? {
            if let Frame::Records(records) = frame {
                for record in records {
                    black_box(record?);
                }
            }
        }
        read = read.min(start.elapsed().as_nanos() as f64 / count);

        let start = Instant::now();
        black_box(makeroom_trace::read(file)?);
        import = import.min(start.elapsed().as_nanos() as f64 / count);
    }
    println!(
        "{name}: {} events, {:.2} bytes/event with definitions; ns/event: encode {encode:.1}, seal {sealing:.1}, \
         read {read:.1}, import {import:.1}",
        events.len(),
        file.len() as f64 / count,
    );
    Ok(())
}
