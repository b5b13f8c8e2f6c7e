//! What is a segment and what is allocated: memory with tensors in it, of the pool, of a context.

use makeroom_core::{Action, Address, Bytes, TraceKind};
use makeroom_trace::room::{ContextHandle, Event, EventKind};

use super::recording::{NCCL, PYTHON, Recording, TORCH, actions, by, event, refused};
use crate::support::rooms;

#[test]
fn without_tensors_driver_memory_is_what_is_allocated() {
    use EventKind::{ArrayAlloc, ArrayFree, DeviceAlloc, DeviceFree, ManagedAlloc, Map, PitchedAlloc, Unmap};
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                by(TORCH, event(DeviceAlloc, 0x1000, 100)),
                event(PitchedAlloc, 0x2000, 200),
                event(ManagedAlloc, 0x3000, 300),
                event(ArrayAlloc, 0x5555, 400),
                event(Map, 0x8000, 0x1000),
                event(Map, 0x9000, 0x1000),
                // The driver does not report the size of freed memory.
                event(DeviceFree, 0x2000, 0),
                event(ArrayFree, 0x5555, 0),
                event(Unmap, 0x8000, 0x2000),
            ],
        )
        .read();
    assert_eq!(trace.kind, TraceKind::Room);
    assert_eq!(
        actions(&trace),
        [
            (Action::Alloc, 0x1000, 100),
            (Action::Alloc, 0x2000, 200),
            (Action::Alloc, 0x3000, 300),
            (Action::Alloc, 0x5555, 400),
            (Action::Alloc, 0x8000, 0x1000),
            (Action::Alloc, 0x9000, 0x1000),
            (Action::FreeRequested, 0x2000, 200),
            (Action::FreeCompleted, 0x2000, 200),
            (Action::FreeRequested, 0x5555, 400),
            (Action::FreeCompleted, 0x5555, 400),
            (Action::FreeRequested, 0x8000, 0x1000),
            (Action::FreeCompleted, 0x8000, 0x1000),
            (Action::FreeRequested, 0x9000, 0x1000),
            (Action::FreeCompleted, 0x9000, 0x1000),
        ]
    );
    let first = trace.devices[0].events.get(0).unwrap();
    assert_eq!(first.time_us, rooms::header().wall_ns / 1000 + 10);
    let outer = trace.stacks.frame_at(trace.stacks.frames_of(first.stack)[1]);
    assert_eq!((trace.stacks.name_text(outer.file), outer.line), ("train.py", 12));
    assert!(!trace.process.unwrap().sees_tensors);
    assert_eq!(trace.notes, [""; 0]);
}

#[test]
fn with_tensors_what_their_allocator_took_are_segments() {
    use EventKind::{DeviceAlloc, DeviceFree, Map, TensorAlloc, TensorFree, Unmap};
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                by(TORCH, event(DeviceAlloc, 0x10_0000, 0x8_0000)),
                by(PYTHON, event(TensorAlloc, 0x10_0000, 512)),
                by(NCCL, event(DeviceAlloc, 0x40_0000, 700)),
                by(TORCH, event(Map, 0x80_0000, 0x20_0000)),
                by(PYTHON, event(TensorAlloc, 0x80_0000, 1024)),
                event(TensorFree, 0x10_0000, 512),
                event(DeviceFree, 0x10_0000, 0),
                event(DeviceFree, 0x40_0000, 0),
                event(TensorFree, 0x80_0000, 1024),
                event(Unmap, 0x80_0000, 0x20_0000),
            ],
        )
        .read();
    assert_eq!(
        actions(&trace),
        [
            (Action::SegmentAlloc, 0x10_0000, 0x8_0000),
            (Action::Alloc, 0x10_0000, 512),
            (Action::Alloc, 0x40_0000, 700),
            (Action::SegmentMap, 0x80_0000, 0x20_0000),
            (Action::Alloc, 0x80_0000, 1024),
            (Action::FreeRequested, 0x10_0000, 512),
            (Action::FreeCompleted, 0x10_0000, 512),
            (Action::SegmentFree, 0x10_0000, 0x8_0000),
            (Action::FreeRequested, 0x40_0000, 700),
            (Action::FreeCompleted, 0x40_0000, 700),
            (Action::FreeRequested, 0x80_0000, 1024),
            (Action::FreeCompleted, 0x80_0000, 1024),
            (Action::SegmentUnmap, 0x80_0000, 0x20_0000),
        ]
    );
    assert!(trace.process.unwrap().sees_tensors);
}

#[test]
fn tensors_that_are_never_freed_end_with_their_segment() {
    use EventKind::{DeviceAlloc, DeviceFree, TensorAlloc, TensorFree};
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                by(TORCH, event(DeviceAlloc, 0x10_0000, 0x8_0000)),
                by(PYTHON, event(TensorAlloc, 0x10_0000, 512)),
                by(PYTHON, event(TensorAlloc, 0x11_0000, 1024)),
                event(DeviceFree, 0x10_0000, 0),
                // The framework drops a tensor after its memory: that frees nothing again.
                event(TensorFree, 0x11_0000, 1024),
            ],
        )
        .read();
    assert_eq!(
        actions(&trace)[3..],
        [
            (Action::FreeRequested, 0x10_0000, 512),
            (Action::FreeCompleted, 0x10_0000, 512),
            (Action::FreeRequested, 0x11_0000, 1024),
            (Action::FreeCompleted, 0x11_0000, 1024),
            (Action::SegmentFree, 0x10_0000, 0x8_0000),
        ]
    );
}

#[test]
fn host_memory_that_is_mapped_takes_none_of_the_device() {
    use EventKind::{Map, PhysicalCreate, Unmap};
    let extra = |extra, event| Event { extra, ..event };
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                extra(1, event(PhysicalCreate, 0x77, 4096)),
                extra(0x77, event(Map, 0x10_0000, 4096)),
                event(Unmap, 0x10_0000, 4096),
                // The same handle again, now for device memory.
                event(PhysicalCreate, 0x77, 4096),
                extra(0x77, event(Map, 0x20_0000, 4096)),
                refused(event(PhysicalCreate, 0, 8192)),
                event(PhysicalCreate, 0x78, 8192),
            ],
        )
        .read();
    assert_eq!(actions(&trace), [(Action::Alloc, 0x20_0000, 4096)]);
    let process = trace.process.unwrap();
    assert_eq!((process.refused_then_served, process.refused_as_reported), (1, 1));
}

#[test]
fn without_native_stacks_segments_are_told_by_the_tensors_in_them() {
    use EventKind::{DeviceAlloc, DeviceFree, TensorAlloc};
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                event(DeviceAlloc, 0x10_0000, 0x1000),
                by(PYTHON, event(DeviceAlloc, 0x20_0000, 0x1000)),
                event(TensorAlloc, 0x10_0800, 512),
                event(DeviceFree, 0x20_0000, 0),
            ],
        )
        .read();
    let found: Vec<Action> = actions(&trace).iter().map(|&(action, ..)| action).collect();
    assert_eq!(
        found,
        [Action::SegmentAlloc, Action::Alloc, Action::Alloc, Action::FreeRequested, Action::FreeCompleted]
    );
}

#[test]
fn whoever_asked_memory_with_tensors_in_it_is_a_segment_for_as_long_as_it_is_there() {
    use EventKind::{DeviceAlloc, DeviceFree, Map, TensorAlloc, TensorFree, Unmap};
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                by(NCCL, event(DeviceAlloc, 0x10_0000, 0x1000)),
                by(PYTHON, event(TensorAlloc, 0x10_0800, 512)),
                event(TensorFree, 0x10_0800, 512),
                by(NCCL, event(DeviceFree, 0x10_0000, 0)),
                // The same addresses again, now without a tensor.
                by(NCCL, event(DeviceAlloc, 0x10_0000, 0x1000)),
                // A tensor across two mappings.
                by(NCCL, event(Map, 0x80_0000, 0x1000)),
                by(NCCL, event(Map, 0x80_1000, 0x1000)),
                by(PYTHON, event(TensorAlloc, 0x80_0800, 0x1000)),
                event(TensorFree, 0x80_0800, 0x1000),
                event(Unmap, 0x80_0000, 0x2000),
                by(NCCL, event(Map, 0x80_0000, 0x1000)),
            ],
        )
        .read();
    let taken: Vec<_> = actions(&trace)
        .into_iter()
        .filter(|(action, address, _)| {
            let is_of_driver = address.is_multiple_of(0x1000);
            is_of_driver && matches!(action, Action::Alloc | Action::SegmentAlloc | Action::SegmentMap)
        })
        .collect();
    assert_eq!(
        taken,
        [
            (Action::SegmentAlloc, 0x10_0000, 0x1000),
            (Action::Alloc, 0x10_0000, 0x1000),
            (Action::SegmentMap, 0x80_0000, 0x1000),
            (Action::SegmentMap, 0x80_1000, 0x1000),
            (Action::Alloc, 0x80_0000, 0x1000),
        ]
    );
}

#[test]
fn what_nobody_gave_back_ends_with_its_context() {
    use EventKind::{ContextDestroy, DeviceAlloc, DeviceFree, PrimaryReset, PrimaryRetain};
    let within = |context, event| Event { context: ContextHandle(context), ..event };
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                within(0xa, event(PrimaryRetain, 0, 0)),
                within(0xa, event(DeviceAlloc, 0x1000, 10)),
                within(0xb, event(DeviceAlloc, 0x2000, 20)),
                within(0xb, event(DeviceAlloc, 0x3000, 30)),
                event(DeviceFree, 0x3000, 0),
                within(0xb, event(ContextDestroy, 0, 0)),
                within(0xa, event(DeviceAlloc, 0x2000, 40)),
                event(PrimaryReset, 0, 0),
            ],
        )
        .read();
    assert_eq!(
        actions(&trace)[4..],
        [
            (Action::FreeCompleted, 0x3000, 30),
            (Action::FreeRequested, 0x2000, 20),
            (Action::FreeCompleted, 0x2000, 20),
            (Action::Alloc, 0x2000, 40),
            (Action::FreeRequested, 0x1000, 10),
            (Action::FreeCompleted, 0x1000, 10),
            (Action::FreeRequested, 0x2000, 40),
            (Action::FreeCompleted, 0x2000, 40),
        ]
    );
    assert_eq!(trace.process.unwrap().freed_with_contexts, Bytes::new(70));
}

/// A handle as marked by makeroom's own pool.
const POOL_HANDLE: u64 = 0x6d << 48 | 7;

#[test]
fn what_the_pool_mapped_are_segments_and_what_it_handed_out_counts_once() {
    use Action::{Alloc, FreeCompleted, FreeRequested, SegmentMap, SegmentUnmap};

    let own = |kind, address, size, extra| Event {
        kind,
        address: Address(address),
        size: Bytes::new(size),
        extra,
        ..Event::default()
    };
    let events = [
        own(EventKind::PhysicalCreate, POOL_HANDLE, 4 << 20, 0),
        own(EventKind::Map, 0x10_0000_0000, 4 << 20, POOL_HANDLE),
        own(EventKind::StreamAlloc, 0x10_0000_0000, 1 << 20, 0),
        own(EventKind::StreamAlloc, 0x10_0010_0000, 1 << 20, 0),
        own(EventKind::TensorAlloc, 0x10_0010_0000, 1 << 20, 0),
        own(EventKind::PhysicalCreate, POOL_HANDLE + 1, 2 << 20, 1),
        own(EventKind::Map, 0x10_0040_0000, 2 << 20, POOL_HANDLE + 1),
        own(EventKind::StreamAlloc, 0x10_0040_0000, 1 << 20, 0),
        own(EventKind::StreamAlloc, 0x10_0050_0000, 1 << 20, 0),
        own(EventKind::TensorAlloc, 0x10_0050_0000, 1 << 20, 0),
        own(EventKind::TensorFree, 0x10_0050_0000, 1 << 20, 0),
        own(EventKind::StreamFree, 0x10_0050_0000, 1 << 20, 0),
        own(EventKind::StreamFree, 0x10_0040_0000, 1 << 20, 0),
        own(EventKind::TensorFree, 0x10_0010_0000, 1 << 20, 0),
        own(EventKind::StreamFree, 0x10_0010_0000, 1 << 20, 0),
        own(EventKind::StreamFree, 0x10_0000_0000, 1 << 20, 0),
        own(EventKind::Unmap, 0x10_0040_0000, 2 << 20, 0),
        own(EventKind::Unmap, 0x10_0000_0000, 4 << 20, 0),
    ];
    let trace = Recording::new().events(1, 10, &events).read();
    let actions: Vec<(Action, u64)> =
        trace.devices[0].events.iter().map(|event| (event.action, event.size.get() >> 20)).collect();
    assert_eq!(
        actions,
        [
            (SegmentMap, 4),
            (Alloc, 1),
            (Alloc, 1),
            (FreeRequested, 1),
            (FreeCompleted, 1),
            (FreeRequested, 1),
            (FreeCompleted, 1),
            (SegmentUnmap, 4),
        ]
    );
    let process = trace.process.unwrap();
    assert_eq!((process.pools.len(), process.pools[0].spilled_peak), (1, Bytes::mib(2)));
    assert_eq!(process.pools[0].spilled_blocks, 2, "they are not live on the device");
    assert_eq!(process.pools[0].other_allocations, [1], "the second block is a tensor");
    assert!(
        process.pools[0].ranges.contains(0x10_0000_0000) && !process.pools[0].ranges.contains(0x20_0000_0000)
    );
    assert!(process.stream_frees.is_empty(), "the driver's pools were not asked");
}
