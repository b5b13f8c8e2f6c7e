//! The cost of the `.room` format per event, for writing and reading: `cargo bench -p makeroom-trace`. The figures of
//! divan are per recording; items are events. Also prints the size of an event in the file.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints and may panic")]

use std::hint::black_box;
use std::path::Path;
use std::sync::LazyLock;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use makeroom_trace::Input;
use makeroom_trace::room::{Encoder, Event, Frame, Reader, ThreadNumber, seal};

#[path = "../tests/support/rooms.rs"]
mod rooms;

/// Approximate length at which a recorder passes a batch to the writer.
const BATCH: usize = 64 << 10;

/// Events, and the file that a recorder writes for them.
struct Recording {
    name: &'static str,
    events: Vec<Event>,
    file: Vec<u8>,
}

/// A synthetic recording, and one of a real PyTorch run.
static RECORDINGS: LazyLock<[Recording; 2]> = LazyLock::new(|| {
    let events = rooms::synthetic(1_000_000);
    let mut recorder = rooms::Recorder::new();
    rooms::define_synthetic_stacks(&mut recorder);
    for event in &events {
        recorder.event(event);
    }
    let synthetic = Recording { name: "synthetic", events, file: recorder.finish() };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/gpt2_varlen.pickle.gz");
    let Ok(Input::Trace(trace)) = makeroom_trace::open(&path) else {
        panic!("{} is a trace", path.display())
    };
    let (events, file) = (rooms::as_tensor_events(&trace), rooms::record_snapshot(&trace).0);
    [synthetic, Recording { name: "gpt2_varlen", events, file }]
});

const NAMES: [&str; 2] = ["synthetic", "gpt2_varlen"];

fn recording(name: &str) -> &'static Recording {
    RECORDINGS.iter().find(|recording| recording.name == name).unwrap()
}

fn main() {
    for Recording { name, events, file } in &*RECORDINGS {
        let each = file.len() as f64 / events.len() as f64;
        println!("{name}: {} events, {each:.2} bytes per event with definitions", events.len());
    }
    divan::main();
}

fn encoded(events: &[Event]) -> Vec<u8> {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::with_capacity(events.len() * 24));
    for event in events {
        encoder.event(black_box(event));
    }
    encoder.replace(Vec::new())
}

#[divan::bench(args = NAMES, sample_count = 20)]
fn encode(bencher: Bencher<'_, '_>, name: &str) {
    let events = &recording(name).events;
    bencher.counter(ItemsCount::new(events.len())).bench(|| encoded(events));
}

#[divan::bench(args = NAMES, sample_count = 20)]
fn seal_batches(bencher: Bencher<'_, '_>, name: &str) {
    let events = &recording(name).events;
    let batch = encoded(events);
    bencher
        .counter(ItemsCount::new(events.len()))
        .with_inputs(|| Vec::with_capacity(2 * batch.len()))
        .bench_values(|mut output| {
            batch.chunks(BATCH).for_each(|part| _ = seal(part, &mut output));
            output
        });
}

#[divan::bench(args = NAMES, sample_count = 20)]
fn read(bencher: Bencher<'_, '_>, name: &str) {
    let Recording { events, file, .. } = recording(name);
    bencher.counter(ItemsCount::new(events.len())).counter(BytesCount::new(file.len())).bench(|| {
        let mut reader = Reader::new(file.as_slice()).unwrap();
        while let Some(frame) = reader.next_frame().unwrap() {
            if let Frame::Records(records) = frame {
                records.for_each(|record| _ = black_box(record.unwrap()));
            }
        }
    });
}

#[divan::bench(args = NAMES, sample_count = 20)]
fn import(bencher: Bencher<'_, '_>, name: &str) {
    let Recording { events, file, .. } = recording(name);
    bencher
        .counter(ItemsCount::new(events.len()))
        .counter(BytesCount::new(file.len()))
        .bench(|| makeroom_trace::read(file.as_slice()).unwrap());
}
