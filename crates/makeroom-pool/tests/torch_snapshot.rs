//! A pool's snapshot in PyTorch's format, read back by the parser for PyTorch's.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use makeroom_core::{Action, Address, BlockState, Bytes, DeviceIndex, StreamId, Trace};
use makeroom_pool::layers::{Happened, History, PastEvent, Recorded};
use makeroom_pool::{
    Allocator as _, DeviceBuffer, Options, Pool, PoolStream, Site, SnapshotOf, write_torch_snapshot,
};
use makeroom_trace::Input;

type Recorder = Arc<Recorded<Pool>>;

fn recorded(most: usize) -> (std::sync::MutexGuard<'static, common::Gpu>, Recorder) {
    let gpu = common::gpu("torch_snapshot");
    let history = History::new(most);
    let options = Options { watcher: Some(history.clone()), ..Options::default() };
    let pool = Pool::new(gpu.driver, 0, options).unwrap();
    pool.make_current().unwrap();
    (gpu, Arc::new(Recorded::new(pool, history)))
}

fn read_back(pools: &[SnapshotOf<'_>]) -> Trace {
    let mut bytes = Vec::new();
    write_torch_snapshot(&mut bytes, pools).unwrap();
    let Input::Trace(trace) = makeroom_trace::read(bytes.as_slice()).unwrap() else { panic!("no trace") };
    assert!(trace.notes.is_empty(), "{:?}", trace.notes);
    trace
}

fn snapshot_of(recorder: &Recorder) -> SnapshotOf<'_> {
    SnapshotOf { pool: recorder.upstream(), history: Some(recorder.history()), id: (0, 0) }
}

#[test]
fn blocks_and_segments_are_the_pools() {
    let (_gpu, recorder) = recorded(100);
    let stream = PoolStream::new(recorder.clone()).unwrap();
    let _kept = DeviceBuffer::<u8>::uninitialized(&stream, 1000).unwrap();
    let asked_at = line!() - 1;
    let large = DeviceBuffer::<u8>::uninitialized(&stream, 5 << 20).unwrap();
    drop(DeviceBuffer::<u8>::uninitialized(&stream, 3 << 20).unwrap());
    let trace = read_back(&[snapshot_of(&recorder)]);
    let device = trace.device(None).unwrap();
    let reserved: u64 = device.segments.iter().map(|segment| segment.size.get()).sum();
    let stats = recorder.stats();
    let spare: u64 = recorder.upstream().snapshot().unmapped.iter().map(|piece| piece.size).sum();
    assert_eq!(reserved, stats.reserved - spare);
    let blocks = device.segments.iter().flat_map(|segment| &segment.blocks);
    let live: Vec<_> = blocks.filter(|block| block.state == BlockState::Live).collect();
    let mut sizes: Vec<u64> = live.iter().map(|block| block.requested.unwrap().get()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1000, 5 << 20]);
    assert!(live.iter().any(|block| block.address == large.address()));
    let small = live.iter().find(|block| block.requested == Some(Bytes::new(1000))).unwrap();
    let frame = trace.stacks.frame_at(trace.stacks.frames_of(small.stack)[0]);
    assert!(trace.stacks.name_text(frame.file).ends_with("torch_snapshot.rs"));
    assert_eq!(frame.line, asked_at);
}

#[test]
fn events_tell_how_the_memory_came_to_be() {
    let (_gpu, recorder) = recorded(100);
    let stream = PoolStream::new(recorder.clone()).unwrap();
    let kept = DeviceBuffer::<u8>::uninitialized(&stream, 4 << 20).unwrap();
    drop(DeviceBuffer::<u8>::uninitialized(&stream, 3 << 20).unwrap());
    assert!(DeviceBuffer::<u8>::uninitialized(&stream, 4 << 30).unwrap_err().is_out_of_memory());
    let trace = read_back(&[snapshot_of(&recorder)]);
    let events: Vec<_> = trace.device(None).unwrap().events.iter().collect();
    let of_blocks: Vec<_> = events
        .iter()
        .filter(|event| !matches!(event.action, Action::SegmentMap | Action::SegmentUnmap))
        .map(|event| (event.action, event.size.get()))
        .collect();
    assert_eq!(
        of_blocks,
        [
            (Action::Alloc, 4 << 20),
            (Action::Alloc, 3 << 20),
            (Action::FreeRequested, 3 << 20),
            (Action::FreeCompleted, 3 << 20),
            (Action::OutOfMemory, 4 << 30),
        ]
    );
    let mapped = |action| -> u64 {
        events.iter().filter(|event| event.action == action).map(|event| event.size.get()).sum()
    };
    let segments = recorder.upstream().snapshot().segments;
    let there: u64 = segments.iter().map(|segment| segment.size).sum();
    assert_eq!(mapped(Action::SegmentMap) - mapped(Action::SegmentUnmap), there);
    let first = events.iter().find(|event| event.action == Action::Alloc).unwrap();
    assert_eq!((first.address, first.stream), (kept.address(), stream.id()));
    assert!(events.iter().any(|event| event.device_free().is_some()));
}

#[test]
fn a_full_ring_keeps_the_end() {
    let (_gpu, recorder) = recorded(5);
    let stream = PoolStream::new(recorder.clone()).unwrap();
    for size in 1..=20 {
        drop(DeviceBuffer::<u8>::uninitialized(&stream, size).unwrap());
    }
    let (events, dropped) = recorder.history().events(|_| false);
    assert_eq!(events.len(), 5);
    assert!(dropped >= 55);
    let last_free = events.iter().rev().find(|event| event.what == Happened::FreeCompleted).unwrap();
    assert_eq!(last_free.bytes, 20);
}

#[test]
fn a_free_that_waits_for_a_stream_completes_when_its_memory_is_used_again() {
    let (_gpu, recorder) = recorded(100);
    let (here, there) = (StreamId(0), PoolStream::new(recorder.clone()).unwrap());
    let address = recorder.allocate(1 << 20, here, Site::here()).unwrap();
    recorder.record_stream(address, there.id()).unwrap();
    // SAFETY: nothing uses the memory.
    unsafe { recorder.free(address, here, Site::here()) }.unwrap();
    let still_waiting = |place: Address| place == address;
    let count = |events: Vec<PastEvent>, what| events.iter().filter(|event| event.what == what).count();
    let (events, _) = recorder.history().events(still_waiting);
    assert_eq!(count(events, Happened::FreeCompleted), 0);
    let (events, _) = recorder.history().events(|_| false);
    assert_eq!(count(events, Happened::FreeCompleted), 1);
}

/// To understand an OOM, a reader needs the limit that caused it.
#[test]
fn the_limit_of_each_device_is_in_the_settings() {
    let gpu = common::gpu("torch_snapshot");
    let limited =
        |device, limit| Pool::new(gpu.driver, device, Options { limit, ..Options::default() }).unwrap();
    let (first, second) = (limited(0, None), limited(1, Some(Bytes::mib(512))));
    let settings = |pools: &[&Pool]| {
        let pools: Vec<_> = pools.iter().map(|pool| SnapshotOf::pool(pool)).collect();
        let settings = read_back(&pools).settings;
        (settings.pool_limits.is_some(), [0, 1].map(|device| settings.pool_limit(DeviceIndex(device))))
    };
    assert_eq!(settings(&[&first]), (true, [None, None]));
    assert_eq!(settings(&[&second, &first]), (true, [None, Some(Bytes::mib(512))]));
    first.set_limit(Some(Bytes::mib(64))).unwrap();
    assert_eq!(settings(&[&first]), (true, [Some(Bytes::mib(64)), None]));
    // Pools that share a limit each have the rest of it.
    let beside = limited(0, Some(Bytes::mib(32)));
    assert_eq!(settings(&[&first, &beside]), (true, [None, None]));
}

#[test]
fn several_devices_have_a_trace_each() {
    let gpu = common::gpu("torch_snapshot");
    let make = |device| {
        let history = History::new(10);
        let options = Options { watcher: Some(history.clone()), ..Options::default() };
        Arc::new(Recorded::new(Pool::new(gpu.driver, device, options).unwrap(), history))
    };
    let (first, second) = (make(0), make(1));
    let address = second.allocate(100, StreamId(0), Site::Code(0x1234)).unwrap();
    let trace = read_back(&[snapshot_of(&second), snapshot_of(&first)]);
    let busy: Vec<_> = trace.devices.iter().filter(|device| !device.segments.is_empty()).collect();
    assert_eq!(busy.len(), 1);
    assert_eq!(busy[0].device, makeroom_core::DeviceIndex(1));
    // SAFETY: nothing uses the memory.
    unsafe { second.free(address, StreamId(0), Site::here()) }.unwrap();
}
