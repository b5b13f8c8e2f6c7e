//! JAX's device memory profiles: a real one, made ones, and damaged ones.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use makeroom_core::{Trace, TraceKind};
use makeroom_trace::{Error, Input};
use proptest::prelude::*;

/// A profile of a program that holds six arrays.
fn real() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/jax_memory.prof.gz");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn trace(bytes: &[u8]) -> Trace {
    match makeroom_trace::read(bytes).unwrap() {
        Input::Trace(trace) => trace,
        Input::Text(_) => panic!("taken for text"),
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn message(field: u64, content: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(content.len() as u64), content.to_vec()].concat()
}

/// A profile with these samples: count, bytes, and the name of the device.
fn made(samples: &[(u64, u64, &str)]) -> Vec<u8> {
    let mut texts: Vec<&str> =
        vec!["", "allocations", "count", "space", "bytes", "device", "step", "train.py"];
    let mut bytes = [
        message(1, &[number(1, 1), number(2, 2)].concat()),
        message(1, &[number(1, 3), number(2, 4)].concat()),
    ]
    .concat();
    for &(count, size, device) in samples {
        let label = message(3, &[number(1, 5), number(2, texts.len() as u64)].concat());
        texts.push(device);
        let values = message(2, &[varint(count), varint(size)].concat());
        // One value of a repeated field may stand alone.
        bytes.extend(message(2, &[number(1, 9), values, label].concat()));
    }
    bytes.extend(message(4, &[number(1, 9), message(4, &[number(1, 3), number(2, 42)].concat())].concat()));
    bytes.extend(message(5, &[number(1, 3), number(2, 6), number(4, 7)].concat()));
    bytes.extend(texts.iter().flat_map(|text| message(6, text.as_bytes())));
    bytes
}

/// Live bytes and buffers of each device.
fn live(trace: &Trace) -> BTreeMap<u32, (u64, usize)> {
    let sum = |device: &makeroom_core::DeviceTrace| {
        let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
        (blocks.clone().map(|block| block.size.get()).sum(), blocks.count())
    };
    trace.devices.iter().map(|device| (device.device.0, sum(device))).collect()
}

#[test]
fn a_real_profile_has_its_buffers_and_lines() {
    let trace = trace(&real());
    assert_eq!((trace.kind, trace.event_count()), (TraceKind::JaxProfile, 0));
    // Two arrays of 1 MiB, two of 2 MiB, a million numbers, and a product of 256 x 256.
    assert_eq!(live(&trace), BTreeMap::from([(0, ((6 << 20) + 4_000_000 + (256 << 10), 6))]));
    let functions: Vec<&str> =
        trace.stacks.frames().iter().map(|frame| trace.stacks.name_text(frame.function)).collect();
    assert!(functions.contains(&"layer") && functions.contains(&"train"), "{functions:?}");
}

#[test]
fn buffers_are_counted_by_device() {
    let trace = trace(&made(&[
        (3, 300, "cuda:0"),
        (1, 50, "cuda:1"),
        (2, 7, "cuda:0"),
        (0, 9, "cuda:2"),
        (4, 0, ""),
    ]));
    // Seven bytes are not two buffers of one size, so they are one.
    assert_eq!(live(&trace), BTreeMap::from([(0, (307, 4)), (1, (50, 1))]));
    let frames = trace.stacks.frames_of(trace.devices[0].segments[0].stack);
    let frame = trace.stacks.frame_at(frames[0]);
    let names = (trace.stacks.name_text(frame.function), trace.stacks.name_text(frame.file), frame.line);
    assert_eq!(names, ("step", "train.py", 42));
    assert_eq!(trace.notes, Vec::<String>::new());
}

#[test]
fn host_memory_is_noted() {
    assert_eq!(
        trace(&made(&[(1, 8, "TFRT_CPU_0")])).notes,
        ["the buffers of TFRT_CPU_0 are in host memory, not on a GPU"]
    );
}

#[test]
fn absurd_counts_cost_nothing() {
    let trace = trace(&made(&[(1 << 62, 1 << 62, "cuda:0"), (1 << 40, 1 << 41, "cuda:0")]));
    assert_eq!(live(&trace), BTreeMap::from([(0, ((1 << 62) + (1 << 41), 2))]));
    let error =
        makeroom_trace::read(&made(&[(1, u64::MAX, "cuda:0"), (1, u64::MAX, "cuda:0")])[..]).unwrap_err();
    assert!(matches!(error, Error::Profile { .. }), "{error}");
}

#[test]
fn a_profile_of_something_else_is_named() {
    let mut other = made(&[(1, 8, "cuda:0")]);
    let place = other.windows(5).position(|window| window == b"space").unwrap();
    other[place..place + 5].copy_from_slice(b"times");
    let error = makeroom_trace::read(&other[..]).unwrap_err();
    assert!(error.to_string().contains("not one of live memory"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_is_written_is_read(
        samples in prop::collection::vec((1_u64..50, 1_u64..1 << 30, 0_u32..4), 0..40),
    ) {
        let names = ["cuda:0", "cuda:1", "cuda:2", "cuda:3"];
        let rows: Vec<_> =
            samples.iter().map(|&(count, each, device)| (count, count * each, names[device as usize])).collect();
        let mut expected: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
        for &(count, each, device) in &samples {
            let entry = expected.entry(device).or_default();
            *entry = (entry.0 + count * each, entry.1 + count as usize);
        }
        prop_assert_eq!(live(&trace(&made(&rows))), expected);
    }

    #[test]
    fn damage_is_an_error_or_a_result(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = real();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            match makeroom_trace::read(bytes) {
                Ok(Input::Trace(trace)) => {
                    let blocks: usize = live(&trace).values().map(|&(_, count)| count).sum();
                    prop_assert!(blocks <= (1 << 20) + bytes.len());
                }
                Ok(Input::Text(text)) => prop_assert!(text.len() <= 2 * bytes.len()),
                Err(error) => {
                    if let Error::Profile { offset, .. } = error {
                        prop_assert!(offset <= bytes.len() as u64);
                    }
                    prop_assert!(error.hint().is_some());
                }
            }
        }
    }
}
