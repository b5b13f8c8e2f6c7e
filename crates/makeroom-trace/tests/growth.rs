//! Reading a recording takes time as n log n and memory as a multiple of the file, whatever it has most of.
//!
//! Times are compared with those of an eighth of the recording, as in `makeroom-sim/tests/growth.rs`.

use std::time::{Duration, Instant};

use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};
use makeroom_trace::Input;
use makeroom_trace::room::{ContextHandle, DeviceSample, Event, EventKind, Sample};

use self::rooms::Recorder;

#[path = "support/rooms.rs"]
mod rooms;

const PAGE: u64 = 2 << 20;
const FACTOR: u64 = 8;
const MOST: f64 = 24.0;
const FLOOR: Duration = Duration::from_millis(4);

fn event(number: u64, kind: EventKind) -> Event {
    Event { kind, time_ns: 6_000_000_000 + number, context: ContextHandle(1), ..Event::default() }
}

fn at(number: u64, kind: EventKind, address: u64, size: u64) -> Event {
    Event { address: Address(address), size: Bytes::new(size), ..event(number, kind) }
}

/// Frees on as many streams, then waits for streams and for the context that cover none of them.
fn waits(count: u64) -> Vec<u8> {
    let mut recorder = Recorder::new();
    for number in 0..count {
        let stream = StreamId(10 + number);
        recorder.event(&Event { stream, ..at(number, EventKind::StreamAlloc, (1 + number) * PAGE, PAGE) });
        recorder.event(&Event { stream, ..at(number, EventKind::StreamFree, (1 + number) * PAGE, 0) });
    }
    for number in count..2 * count {
        let stream = StreamId(10 + number);
        recorder.event(&Event { stream, ..event(number, EventKind::StreamWait) });
        recorder.event(&Event { extra: 1 << 40, ..event(number, EventKind::ContextWait) });
    }
    recorder.finish()
}

/// As many requests, each larger than the one before, while frees wait.
fn requests_meanwhile(count: u64) -> Vec<u8> {
    let mut recorder = Recorder::new();
    for number in 0..count {
        recorder.event(&at(number, EventKind::StreamAlloc, (1 + number) * PAGE, PAGE));
    }
    for number in 0..count {
        recorder.event(&at(count + number, EventKind::StreamFree, (1 + number) * PAGE, 0));
    }
    for number in 0..count {
        let address = (1 << 50) + number * PAGE;
        recorder.event(&at(2 * count + number, EventKind::DeviceAlloc, address, 512 + number));
    }
    recorder.finish()
}

/// Streams with a free each, all destroyed.
fn destroyed_streams(count: u64) -> Vec<u8> {
    let mut recorder = Recorder::new();
    for number in 0..count {
        let stream = StreamId(10 + number);
        recorder.event(&Event { stream, ..at(number, EventKind::StreamFree, (1 + number) * PAGE, 512) });
        recorder.event(&Event { stream, ..event(number, EventKind::StreamDestroy) });
    }
    recorder.finish()
}

/// Contexts with a block each, destroyed one after the other.
fn contexts(count: u64) -> Vec<u8> {
    let mut recorder = Recorder::new();
    for number in 0..count {
        let context = ContextHandle(1 + number);
        recorder.event(&Event { context, ..event(number, EventKind::ContextCreate) });
        recorder.event(&Event { context, ..at(number, EventKind::DeviceAlloc, (1 + number) * PAGE, 512) });
    }
    for number in 0..count {
        let context = ContextHandle(1 + number);
        recorder.event(&Event { context, ..event(count + number, EventKind::ContextDestroy) });
    }
    recorder.finish()
}

/// Physical memory that is mapped nowhere, and measurements.
fn samples(count: u64) -> Vec<u8> {
    let mut recorder = Recorder::new();
    for number in 0..count {
        recorder.event(&at(number, EventKind::PhysicalCreate, 1 + number, PAGE));
    }
    for number in 0..count {
        let device = DeviceSample { device: DeviceIndex(0), free: Bytes::mib(1), total: Bytes::gib(1) };
        recorder.encoder.sample(&Sample {
            time_ns: 6_000_000_000 + count + number,
            device: Some(device),
            ..Sample::default()
        });
    }
    recorder.finish()
}

/// Driver memory that overlaps, and tensors that lie in all of it.
fn overlapping(count: u64) -> Vec<u8> {
    let mut recorder = Recorder::new();
    for number in 0..count {
        recorder.event(&at(number, EventKind::DeviceAlloc, PAGE + number, 1 << 40));
    }
    for number in 0..count {
        recorder.event(&at(count + number, EventKind::TensorAlloc, (1 << 30) + number * 512, 512));
    }
    recorder.finish()
}

fn read(file: &[u8]) -> usize {
    match makeroom_trace::read(file).expect("a recording") {
        Input::Trace(trace) => trace.event_count(),
        Input::Text(_) => panic!("not a text"),
    }
}

fn time(file: &[u8]) -> Duration {
    let once = || {
        let start = Instant::now();
        read(file);
        start.elapsed()
    };
    std::iter::repeat_with(once).take(3).min().unwrap_or_default()
}

#[test]
fn eight_times_as_much_takes_about_eight_times_as_long() {
    type Make = fn(u64) -> Vec<u8>;
    let cases: [(&str, Make, u64); 6] = [
        ("waits", waits, 3_000),
        ("requests while frees wait", requests_meanwhile, 3_000),
        ("destroyed streams", destroyed_streams, 5_000),
        ("contexts", contexts, 5_000),
        ("samples", samples, 5_000),
        ("overlapping memory", overlapping, 5_000),
    ];
    for (what, make, count) in cases {
        let (part, whole) = (make(count), make(FACTOR * count));
        let growth = || time(&whole).max(FLOOR).as_secs_f64() / time(&part).max(FLOOR).as_secs_f64();
        let mut least = f64::MAX;
        for _ in 0..5 {
            least = least.min(growth());
            if least < MOST {
                break;
            }
        }
        assert!(least < MOST, "{what}: {FACTOR} times as much took {least:.1} times as long");
    }
}
