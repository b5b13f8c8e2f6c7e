//! Memory limits that the recording does not contain.
//!
//! The model itself writes these recordings, with limits that the check has to infer. That the model behaves as PyTorch
//! does is shown by real recordings: `tests/exactness.rs`.

use makeroom_core::{Event, StreamId};

use crate::{Device, Driver, Refused};

use super::*;

const MIB: u64 = 1 << 20;

/// A device that records what an allocator does.
struct Recorder {
    device: Device,
    trace: DeviceTrace,
}

impl Recorder {
    fn push(&mut self, action: Action, address: u64, size: u64, stream: u64) {
        self.trace.events.push(Event { stream: StreamId(stream), ..Event::new(action, address, size) });
    }
}

impl Driver for Recorder {
    fn allocate_segment(&mut self, size: u64, stream: u64) -> Result<u64, Refused> {
        let address = self.device.allocate_segment(size, stream)?;
        self.push(Action::SegmentAlloc, address, size, stream);
        Ok(address)
    }

    fn release(&mut self, address: u64, size: u64) {
        self.device.release(address, size);
        self.push(Action::SegmentFree, address, size, 0);
    }

    fn reserve(&mut self, stream: u64, is_small: bool) -> u64 {
        self.device.reserve(stream, is_small)
    }

    fn map(&mut self, address: u64, size: u64, page: u64) -> Result<(), Refused> {
        self.device.map(address, size, page)?;
        self.push(Action::SegmentMap, address, size, 0);
        Ok(())
    }

    fn unmap(&mut self, address: u64, size: u64, page: u64) {
        self.device.unmap(address, size, page);
        self.push(Action::SegmentUnmap, address, size, 0);
    }

    fn synchronize(&mut self) -> Vec<u32> {
        self.device.synchronize()
    }
}

fn recording(settings: &Settings, limit: Option<u64>, seed: u64) -> DeviceTrace {
    recording_from(Pytorch::new(settings.clone(), limit), seed, None)
}

/// A program that changes its sizes from time to time, so that cached segments become garbage. Failed requests are
/// dropped. In the middle, the threshold of garbage collection may change.
fn recording_from(mut allocator: Pytorch, seed: u64, second_threshold: Option<u64>) -> DeviceTrace {
    let mut recorder = Recorder { device: Device::new(None), trace: DeviceTrace::default() };
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut sizes = [0; 6];
    let mut live: Vec<(u32, u64)> = Vec::new();
    for number in 0..1500 {
        if number == 750 && second_threshold.is_some() {
            allocator.set_garbage_threshold(second_threshold);
        }
        if number % 150 == 0 {
            sizes = std::array::from_fn(|kind| draw((1 + 16 * kind as u64) * MIB) + 1);
        }
        if live.len() > 16 || (!live.is_empty() && draw(5) < 2) {
            let (freed, size) = live.swap_remove(draw(live.len() as u64) as usize);
            let address = allocator.address(freed).unwrap();
            recorder.push(Action::FreeRequested, address, size, 0);
            recorder.push(Action::FreeCompleted, address, size, 0);
            allocator.free(freed);
            continue;
        }
        let size = sizes[draw(6) as usize];
        let request = Request { size, stream: 0, pool: PoolId::DEFAULT };
        match allocator.allocate_block(&mut recorder, number, request) {
            Ok(address) => {
                recorder.push(Action::Alloc, address, size, 0);
                live.push((number, size));
            }
            Err(Refused) => recorder.push(Action::OutOfMemory, 0, size, 0),
        }
    }
    recorder.trace
}

fn checked(settings: &Settings, trace: &DeviceTrace, limit: Option<u64>) -> Check {
    check(trace, &Stacks::default(), settings.clone(), limit)
}

#[test]
fn the_limit_follows_from_the_garbage_that_was_collected() {
    for text in [
        "garbage_collection_threshold:0.2",
        "garbage_collection_threshold:0.5",
        "garbage_collection_threshold:0.8",
        "garbage_collection_threshold:0.6,max_split_size_mb:64",
    ] {
        let settings = Settings::parse(text).unwrap();
        for seed in 0..8 {
            let limit = 700 * MIB + 12_345 + seed;
            let trace = recording(&settings, Some(limit), seed);
            let inferred = checked(&settings, &trace, None);
            assert_eq!(inferred.mismatched, 0, "{text}, {seed}: {:?}", inferred.first_mismatch);
            assert_eq!(inferred.assumed_pools, 0, "{text}, {seed}");
            let &[bounds] = inferred.inferred_limits.as_slice() else { panic!("{text}, {seed}") };
            let at_most = bounds.at_most.unwrap();
            assert!((bounds.at_least..=at_most).contains(&limit), "{text}, {seed}: {bounds:?}");
            // A given limit is used as is.
            let given = checked(&settings, &trace, Some(limit));
            assert_eq!((given.mismatched, given.inferred_limits.len()), (0, 0), "{text}, {seed}");
            // The bounds are tight: a higher limit contradicts the recording, unless a memory pool is assumed.
            let wrong = checked(&settings, &trace, Some(at_most + 16));
            assert!(wrong.mismatched + wrong.assumed_pools > 0, "{text}, {seed}: {bounds:?}");
        }
    }
}

#[test]
fn no_limit_is_inferred_where_nothing_was_collected() {
    let settings = Settings::parse("garbage_collection_threshold:0.5").unwrap();
    let result = checked(&settings, &recording(&settings, None, 1), None);
    assert_eq!((result.mismatched, result.inferred_limits.len()), (0, 0));
}

#[test]
fn a_limit_that_changes_is_inferred_as_two() {
    let settings = Settings::parse("garbage_collection_threshold:0.5").unwrap();
    let mut changes = 0;
    for (first, second) in [(1400, 500), (500, 1400)] {
        for seed in 0..8 {
            let mut allocator = Pytorch::new(settings.clone(), None);
            allocator.set_garbage_threshold(Some(first * MIB / 2));
            let trace = recording_from(allocator, seed, Some(second * MIB / 2));
            let inferred = checked(&settings, &trace, None);
            assert_eq!(inferred.mismatched, 0, "{seed}: {:?}", inferred.first_mismatch);
            // A change is detected where the garbage contradicts the first limit, which does not happen with every
            // seed.
            assert!((1..=2).contains(&inferred.inferred_limits.len()), "{seed}");
            changes += inferred.inferred_limits.len() - 1;
        }
    }
    assert!(changes > 4, "{changes}");
}

/// The limit fails requests that free memory in an expandable segment could serve, if `max_split_size_mb` rules out
/// that block: PyTorch compares before it looks for a segment to grow.
#[test]
fn an_unknown_limit_fails_expandable_segments_that_need_not_grow() {
    let settings = Settings::parse("expandable_segments:True,max_split_size_mb:32").unwrap();
    for seed in 0..8 {
        let trace = recording(&settings, Some(700 * MIB), seed);
        assert!(trace.events.actions().contains(&Action::SegmentUnmap), "{seed}");
        let unknown = checked(&settings, &trace, None);
        assert_eq!(unknown.mismatched, 0, "{seed}: {:?}", unknown.first_mismatch);
    }
}
