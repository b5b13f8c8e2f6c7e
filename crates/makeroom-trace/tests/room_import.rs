//! Import of `.room` recordings into the trace model.

#[path = "support/rooms.rs"]
mod rooms;

use makeroom_core::{Action, Address, Bytes, DeviceIndex, StreamId, Trace, TraceKind};
use makeroom_trace::room::{
    ContextHandle, DeviceSample, Encoder, Event, EventKind, FrameDefinition, FrameNumber, NameNumber, Origin,
    Sample, StackNumber, ThreadNumber, beginning, seal,
};
use makeroom_trace::{Error, Input};

/// A stack through PyTorch's allocator, one through NCCL, and one with only Python frames.
const TORCH: StackNumber = StackNumber(1);
const NCCL: StackNumber = StackNumber(2);
const PYTHON: StackNumber = StackNumber(3);

/// A recording of several threads.
struct Recording {
    file: Vec<u8>,
}

impl Recording {
    fn new() -> Self {
        let mut recording = Self { file: beginning(&rooms::header()) };
        let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
        for (number, text) in ["libc10_cuda.so", "libnccl.so.2", "train.py", "step"].iter().enumerate() {
            encoder.name(NameNumber(number as u32 + 1), text.as_bytes());
        }
        let native = |library| FrameDefinition { library: NameNumber(library), ..FrameDefinition::default() };
        let python = FrameDefinition {
            origin: Origin::Python,
            function: NameNumber(4),
            file: NameNumber(3),
            line: 12,
            ..FrameDefinition::default()
        };
        for (number, frame) in [native(1), native(2), python].iter().enumerate() {
            encoder.frame(FrameNumber(number as u32 + 1), frame);
        }
        encoder.stack(TORCH, &[FrameNumber(1), FrameNumber(3)]);
        encoder.stack(NCCL, &[FrameNumber(2), FrameNumber(3)]);
        encoder.stack(PYTHON, &[FrameNumber(3)]);
        recording.batch(encoder);
        recording
    }

    fn batch(&mut self, mut encoder: Encoder) {
        assert!(seal(&encoder.replace(Vec::new()), &mut self.file));
    }

    /// Events of a thread, one microsecond apart, starting at `start_us`.
    fn events(mut self, thread: u64, start_us: u64, events: &[Event]) -> Self {
        let mut encoder = Encoder::new(ThreadNumber(thread), Vec::new());
        for (number, event) in events.iter().enumerate() {
            encoder.event(&Event { time_ns: at(start_us + number as u64), ..*event });
        }
        self.batch(encoder);
        self
    }

    fn free(mut self, time_us: u64, free: u64) -> Self {
        let mut encoder = Encoder::new(ThreadNumber(9), Vec::new());
        let device =
            Some(DeviceSample { device: DeviceIndex(0), free: Bytes::new(free), total: Bytes::gib(8) });
        encoder.sample(&Sample { time_ns: at(time_us), device, ..Sample::default() });
        self.batch(encoder);
        self
    }

    /// One thread allocates, is sampled and frees, with this many nanoseconds in between.
    fn sampled_while_allocated(mut self, time_us: u64, step_ns: u64) -> Self {
        let mut encoder = Encoder::new(ThreadNumber(7), Vec::new());
        let begin = at(time_us);
        encoder.event(&Event { time_ns: begin, ..event(EventKind::DeviceAlloc, 0x100, 16) });
        let device =
            Some(DeviceSample { device: DeviceIndex(0), free: Bytes::new(84), total: Bytes::new(100) });
        encoder.sample(&Sample { time_ns: begin + step_ns, device, ..Sample::default() });
        encoder.event(&Event { time_ns: begin + 2 * step_ns, ..event(EventKind::DeviceFree, 0x100, 0) });
        self.batch(encoder);
        self
    }

    fn read(self) -> Trace {
        read(&self.file)
    }
}

fn at(time_us: u64) -> u64 {
    rooms::header().monotonic_ns + time_us * 1000
}

fn read(bytes: &[u8]) -> Trace {
    match makeroom_trace::read(bytes) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

fn event(kind: EventKind, address: u64, size: u64) -> Event {
    Event { kind, address: Address(address), size: Bytes::new(size), ..Event::default() }
}

fn by(stack: StackNumber, event: Event) -> Event {
    Event { stack, ..event }
}

fn refused(event: Event) -> Event {
    Event { result: 2, address: Address(0), ..event }
}

fn actions(trace: &Trace) -> Vec<(Action, u64, u64)> {
    let [device] = &trace.devices[..] else { panic!("{} devices", trace.devices.len()) };
    device.events.iter().map(|event| (event.action, event.address.0, event.size.get())).collect()
}

#[test]
fn a_sample_keeps_its_place_among_events_of_the_same_microsecond() {
    for step_ns in [1, 300, 5000] {
        let trace = Recording::new()
            .free(5, 1)
            .sampled_while_allocated(10, step_ns)
            .events(7, 50, &[event(EventKind::DeviceAlloc, 0x200, 3)])
            .free(50, 2)
            .read();
        let samples = &trace.process.unwrap().device_samples;
        let before: Vec<_> = samples.iter().map(|sample| sample.events_before).collect();
        // A free is two events: requested and completed. An event at the same nanosecond comes first.
        assert_eq!(before, [Some(0), Some(1), Some(4)], "{step_ns} ns");
    }
}

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
fn stream_ordered_frees_complete_at_once_unless_a_record_says_when() {
    use EventKind::{StreamAlloc, StreamFree, StreamFreeCompleted};
    let on = |stream, event| Event { stream: StreamId(stream), ..event };
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                on(1, event(StreamAlloc, 0x1000, 10)),
                on(2, event(StreamFree, 0x1000, 0)),
                on(1, event(StreamAlloc, 0x1000, 20)),
                on(1, event(StreamFree, 0x1000, 0)),
                on(1, event(StreamAlloc, 0x2000, 30)),
                event(StreamFreeCompleted, 0x1000, 0),
            ],
        )
        .read();
    assert_eq!(
        actions(&trace),
        [
            (Action::Alloc, 0x1000, 10),
            (Action::FreeRequested, 0x1000, 10),
            (Action::FreeCompleted, 0x1000, 10),
            (Action::Alloc, 0x1000, 20),
            (Action::FreeRequested, 0x1000, 20),
            (Action::Alloc, 0x2000, 30),
            (Action::FreeCompleted, 0x1000, 20),
        ]
    );
    assert_eq!(trace.devices[0].events.get(1).unwrap().stream, StreamId(2));
}

#[test]
fn frees_in_stream_order_wait_until_they_are_known_to_be_back() {
    use EventKind::{DeviceAlloc, StreamAlloc, StreamFree, StreamFreeCompleted};
    let on = |stream, event| Event { stream: StreamId(stream), ..event };
    let trace = Recording::new()
        .events(
            7,
            10,
            &[
                on(1, event(StreamAlloc, 0x1000, 0x100)),
                on(2, event(StreamAlloc, 0x2000, 0x200)),
                on(3, event(StreamAlloc, 0x3000, 0x400)),
                on(3, event(StreamAlloc, 0x4000, 0x800)),
                on(1, event(StreamFree, 0x1000, 0)),
                on(2, event(StreamFree, 0x2000, 0)),
                on(3, event(StreamFree, 0x3000, 0)),
                by(PYTHON, event(DeviceAlloc, 0x9000, 0x5000)),
                by(PYTHON, event(DeviceAlloc, 0xf000, 0x10)),
                // Reused in two parts, and recorded as complete.
                on(2, event(StreamAlloc, 0x2000, 0x80)),
                event(StreamFreeCompleted, 0x3000, 0),
                refused(event(DeviceAlloc, 0, 0x9000)),
                on(3, event(StreamFree, 0x4000, 0)),
            ],
        )
        .read();
    let pending =
        |bytes, frees, streams| makeroom_core::PendingFrees { bytes: Bytes::new(bytes), frees, streams };
    let [frees] = trace.process.as_ref().unwrap().stream_frees[..] else { panic!("one device has some") };
    assert_eq!(frees.at_end, pending(0x900, 2, 2));
    assert_eq!(frees.at_refusal, Some(pending(0x100, 1, 1)));
    let asked = frees.asked.unwrap();
    assert_eq!((asked.size, asked.pending), (Bytes::new(0x5000), pending(0x700, 3, 3)));
    assert_eq!(trace.stacks.frames_of(asked.stack).len(), 1);
}

/// Each synchronization covers the frees on its stream from before it began, and no others.
#[test]
fn a_wait_ends_what_was_freed_before_it_began() {
    use EventKind::{ContextCreate, ContextWait, StreamAlloc, StreamDestroy, StreamFree, StreamWait};
    let on = |stream, event| Event { stream: StreamId(stream), ..event };
    let within = |context, event| Event { context: ContextHandle(context), ..event };
    let ago = |extra, event| Event { extra, ..event };
    let left_after = |contexts: &[u64], thread, last: &[Event]| {
        let mut events: Vec<Event> =
            contexts.iter().map(|&context| within(context, event(ContextCreate, 0, 0))).collect();
        for (number, stream) in [0, 1, 2, 0x50, 0x60].into_iter().enumerate() {
            let block = 0x1000 << number;
            events.push(on(stream, within(0xa, event(StreamAlloc, block, 1 << number))));
            events.push(on(stream, within(0xa, event(StreamFree, block, 0))));
        }
        let recording = Recording::new().events(7, 10, &events).events(thread, 1000, last);
        let frees = recording.read().process.unwrap().stream_frees;
        frees.first().map_or(0, |frees| frees.at_end.bytes.get())
    };
    let left = |contexts: &[u64], thread, last: Event| left_after(contexts, thread, &[last]);
    let stream = |handle, context| on(handle, within(context, event(StreamWait, 0, 0)));
    let one = [0xa];
    assert_eq!(left(&one, 7, stream(0x50, 0xa)), 0b10111);
    assert_eq!(left(&one, 8, stream(0x50, 0xb)), 0b10111, "a made stream is the same everywhere");
    assert_eq!(left(&one, 8, stream(0, 0xa)), 0b11100, "0 and 1 are one stream");
    assert_eq!(left(&one, 8, stream(0, 0xb)), 0b11111, "and another in another context");
    assert_eq!(left(&one, 7, stream(2, 0xa)), 0b11011);
    assert_eq!(left(&one, 8, stream(2, 0xa)), 0b11111, "another thread has another");
    assert_eq!(left(&one, 7, stream(0x70, 0xa)), 0b11111);
    assert_eq!(left(&one, 7, ago(990_000, stream(0x50, 0xa))), 0b11111, "it began before the free");
    let context = |context| within(context, event(ContextWait, 0, 0));
    assert_eq!(left(&one, 8, context(0xa)), 0);
    assert_eq!(left(&[0xa, 0xb], 8, context(0xa)), 0b11000, "made streams may be another context's");
    assert_eq!(left(&[0xa, 0xb], 8, context(0xb)), 0b11111);
    let gone = on(0x50, event(StreamDestroy, 0, 0));
    assert_eq!(left_after(&one, 7, &[gone, stream(0x50, 0xa)]), 0b11111, "that is another stream");
    assert_eq!(left_after(&one, 7, &[gone, context(0xa)]), 0);
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

#[test]
fn a_limit_of_the_recorder_is_kept() {
    let mut recording = Recording::new();
    let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
    encoder.limit(Bytes::gib(8));
    recording.batch(encoder);
    assert_eq!(recording.read().process.unwrap().limit, Some(Bytes::gib(8)));
}

/// Many programs call `cudaFree(0)` to create their context.
#[test]
fn freeing_nothing_is_no_free() {
    use EventKind::{DeviceAlloc, DeviceFree, StreamFree, TensorAlloc, TensorFree};
    let nothing = [event(DeviceFree, 0, 0), event(StreamFree, 0, 0), event(TensorFree, 0, 0)];
    let trace = Recording::new().events(7, 0, &nothing).read();
    assert_eq!(actions(&trace), []);
    let taken = [event(DeviceAlloc, 0x1000, 64), by(PYTHON, event(TensorAlloc, 0x1000, 64))];
    let trace = Recording::new().events(7, 0, &nothing).events(7, 10, &taken).events(7, 20, &nothing).read();
    assert!(actions(&trace).iter().all(|&(_, address, _)| address != 0), "{:?}", actions(&trace));
    assert_eq!(trace.process.unwrap().calls.iter().map(|call| call.done).sum::<u64>(), 8);
}

#[test]
fn a_refusal_has_the_free_memory_that_was_sampled_closest() {
    let refusal = refused(event(EventKind::DeviceAlloc, 0, 999));
    let trace = Recording::new()
        .free(5, 5000)
        .free(1_000, 300)
        .events(7, 990, &[event(EventKind::DeviceAlloc, 64, 1), refusal])
        .read();
    assert_eq!(actions(&trace), [(Action::Alloc, 64, 1), (Action::OutOfMemory, 300, 999)]);
    let unknown = Recording::new().events(7, 10, &[refusal]).read();
    assert_eq!(unknown.devices[0].events.get(0).unwrap().device_free(), None);
}

#[test]
fn sizes_that_add_up_to_more_than_64_bits_are_read() {
    use EventKind::{DeviceAlloc, GraphAlloc, PinnedAlloc, StreamAlloc, StreamFree, TensorAlloc};
    for kind in [StreamAlloc, GraphAlloc, DeviceAlloc, PinnedAlloc, TensorAlloc] {
        let huge = [event(kind, 0x1000, u64::MAX), event(kind, 0x2000, u64::MAX), event(kind, 0x1000, 3)];
        let freed = [event(StreamFree, 0x2000, 0)];
        let trace =
            Recording::new().events(7, 0, &huge).free(5, 300).events(7, 10, &freed).free(20, 300).read();
        assert!(trace.process.is_some(), "{kind:?}");
    }
}

#[test]
fn only_the_last_answer_to_a_request_counts() {
    use EventKind::{DeviceAlloc, DeviceFree, TensorAlloc};
    let segment = by(TORCH, event(DeviceAlloc, 0x10_0000, 0x10_0000));
    let tensor = by(PYTHON, event(TensorAlloc, 0x10_0000, 0x8_0000));
    let first = Recording::new().events(7, 0, &[segment, tensor]);
    // The cache is freed, and the retry succeeds.
    let served = Event { address: Address(0x40_0000), ..segment };
    let again = Event { address: Address(0x40_0000), ..tensor };
    let trace = Recording { file: first.file.clone() }
        .events(7, 10, &[refused(segment), event(DeviceFree, 0x10_0000, 0), served, again])
        .read();
    assert!(!actions(&trace).iter().any(|&(action, ..)| action == Action::OutOfMemory));
    assert_eq!(trace.process.as_ref().unwrap().refused_then_served, 1);
    assert_eq!(trace.notes, [""; 0]);

    // The retry fails, and PyTorch reports the failure: only PyTorch's counts.
    let trace = Recording { file: first.file.clone() }
        .events(7, 10, &[refused(segment), refused(segment), refused(tensor)])
        .read();
    assert_eq!(actions(&trace)[2..], [(Action::OutOfMemory, u64::MAX, 0x8_0000)]);
    assert_eq!(trace.process.unwrap().refused_unasked, []);

    // PyTorch fails without calling the driver.
    let trace = Recording { file: first.file.clone() }.events(7, 10, &[refused(tensor)]).read();
    assert_eq!(trace.process.unwrap().refused_unasked, [(DeviceIndex(0), 2)]);

    // An allocation of another thread is not a retry.
    let trace =
        Recording { file: first.file }.events(7, 10, &[refused(segment)]).events(8, 20, &[tensor]).read();
    assert_eq!(actions(&trace)[2].0, Action::OutOfMemory);
}

#[test]
fn a_framework_that_asks_through_another_library_gives_up_once() {
    use EventKind::{DeviceAlloc, TensorAlloc};
    let (segment, tensor) = (event(DeviceAlloc, 0, 0x20_0000), event(TensorAlloc, 0, 0x18_0000));
    let given_up = [refused(by(NCCL, segment)), refused(by(PYTHON, tensor))];
    let trace = Recording::new().events(7, 10, &given_up).read();
    assert_eq!(actions(&trace).len(), 1);
    assert_eq!(actions(&trace)[0].2, 0x18_0000);
    // A library's own failed request is unrelated to the tensor after it.
    let large = refused(by(NCCL, event(DeviceAlloc, 0, 1 << 30)));
    let trace = Recording::new().events(7, 10, &[large, refused(by(PYTHON, tensor))]).read();
    assert_eq!(actions(&trace).len(), 2);
    let served = by(PYTHON, event(TensorAlloc, 0x10_0000, 0x18_0000));
    let trace = Recording::new().events(7, 10, &[refused(by(NCCL, segment)), served]).read();
    assert_eq!(actions(&trace).len(), 2);
}

#[test]
fn a_program_that_asks_in_a_loop_is_refused_each_time() {
    let request = refused(by(NCCL, event(EventKind::DeviceAlloc, 0, 0x20_0000)));
    let trace = Recording::new().events(7, 10, &[request; 3]).read();
    assert_eq!(actions(&trace).len(), 3);
    // A program that frees memory in between retries the same request.
    let held = by(NCCL, event(EventKind::DeviceAlloc, 0x10_0000, 64));
    let makes_room = [held, request, event(EventKind::DeviceFree, 0x10_0000, 0), request];
    let trace = Recording::new().events(7, 10, &makes_room).read();
    let refusals = actions(&trace).into_iter().filter(|&(action, ..)| action == Action::OutOfMemory);
    assert_eq!(refusals.count(), 1);
}

#[test]
fn a_wait_that_comes_first_in_the_file_hides_no_device() {
    let trace = Recording::new()
        .events(8, 100, &[event(EventKind::StreamWait, 0, 0)])
        .events(7, 10, &[event(EventKind::DeviceAlloc, 64, 5)])
        .read();
    assert_eq!(actions(&trace), [(Action::Alloc, 64, 5)]);
}

#[test]
fn batches_of_threads_are_merged_by_time() {
    let trace = Recording::new()
        .events(8, 100, &[event(EventKind::DeviceFree, 64, 0)])
        .events(7, 10, &[event(EventKind::DeviceAlloc, 64, 5)])
        .read();
    let found: Vec<Action> = actions(&trace).iter().map(|&(action, ..)| action).collect();
    assert_eq!(found, [Action::Alloc, Action::FreeRequested, Action::FreeCompleted]);
}

#[test]
fn the_clock_may_wrap_during_the_recording() {
    let header = makeroom_trace::room::Header { monotonic_ns: u64::MAX - 5_000, ..rooms::header() };
    let mut file = beginning(&header);
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    for time_ns in [5_000, u64::MAX - 1_000] {
        let kind = if time_ns < 10_000 { EventKind::DeviceFree } else { EventKind::DeviceAlloc };
        encoder.event(&Event { time_ns, ..event(kind, 64, 5) });
        assert!(seal(&encoder.replace(Vec::new()), &mut file));
    }
    let trace = read(&file);
    let times: Vec<u64> =
        trace.devices[0].events.iter().map(|event| event.time_us - header.wall_ns / 1000).collect();
    assert_eq!(actions(&trace)[0].0, Action::Alloc);
    assert_eq!(times, [4, 10, 10]);
}

#[test]
fn other_failures_and_undefined_stacks_are_noted() {
    let invalid = Event { result: 201, ..event(EventKind::DeviceAlloc, 0, 5) };
    let lost = by(StackNumber(77), event(EventKind::DeviceAlloc, 64, 5));
    let trace = Recording::new().events(7, 10, &[invalid, lost]).read();
    assert_eq!(actions(&trace), [(Action::Alloc, 64, 5)]);
    assert_eq!(
        trace.notes,
        [
            "events whose stack is missing from the file: 1",
            "calls that failed for reasons other than memory: 1; the first: device_alloc with error 201",
        ]
    );
}

#[test]
fn a_file_that_names_every_device_is_refused() {
    let events: Vec<Event> = (0..2000)
        .map(|device| Event { device: DeviceIndex(device), ..event(EventKind::DeviceAlloc, 64, 5) })
        .collect();
    let file = Recording::new().events(7, 10, &events).file;
    match makeroom_trace::read(&file[..]) {
        Err(Error::TooMany { offset, what: "devices", limit: 1024 }) => assert!(offset < file.len() as u64),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_real_run_recorded_again_has_the_same_memory() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/streams-expandable.pickle.gz");
    let Ok(Input::Trace(snapshot)) = makeroom_trace::open(path.as_ref()) else { panic!() };
    let trace = read(&rooms::record_snapshot(&snapshot).0);
    let count = |trace: &Trace, wanted| {
        trace.devices[0].events.actions().iter().filter(|&&action| action == wanted).count()
    };
    for action in [Action::Alloc, Action::FreeCompleted, Action::SegmentMap, Action::SegmentUnmap] {
        assert_eq!(count(&trace, action), count(&snapshot, action), "{action:?}");
    }
    let stacks = |trace: &Trace| {
        let allocations = trace.devices[0].events.iter().filter(|event| event.action == Action::Alloc);
        allocations.map(|event| trace.stacks.frames_of(event.stack).len()).sum::<usize>()
    };
    assert_eq!(stacks(&trace), stacks(&snapshot));
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
