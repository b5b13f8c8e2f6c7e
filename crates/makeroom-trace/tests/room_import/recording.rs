//! A recording of several threads, written event by event.

use makeroom_core::{Action, Address, Bytes, DeviceIndex, Trace};
use makeroom_trace::Input;
use makeroom_trace::room::{
    DeviceSample, Encoder, Event, EventKind, FrameDefinition, FrameNumber, NameNumber, Origin, Sample,
    StackNumber, ThreadNumber, beginning, seal,
};

use crate::support::rooms;

/// A stack through PyTorch's allocator, one through NCCL, and one with only Python frames.
pub(crate) const TORCH: StackNumber = StackNumber(1);
pub(crate) const NCCL: StackNumber = StackNumber(2);
pub(crate) const PYTHON: StackNumber = StackNumber(3);

/// A recording of several threads.
pub(crate) struct Recording {
    pub(crate) file: Vec<u8>,
}

impl Recording {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn batch(&mut self, mut encoder: Encoder) {
        assert!(seal(&encoder.replace(Vec::new()), &mut self.file));
    }

    /// Events of a thread, one microsecond apart, starting at `start_us`.
    pub(crate) fn events(mut self, thread: u64, start_us: u64, events: &[Event]) -> Self {
        let mut encoder = Encoder::new(ThreadNumber(thread), Vec::new());
        for (number, event) in events.iter().enumerate() {
            encoder.event(&Event { time_ns: at(start_us + number as u64), ..*event });
        }
        self.batch(encoder);
        self
    }

    pub(crate) fn free(mut self, time_us: u64, free: u64) -> Self {
        let mut encoder = Encoder::new(ThreadNumber(9), Vec::new());
        let device =
            Some(DeviceSample { device: DeviceIndex(0), free: Bytes::new(free), total: Bytes::gib(8) });
        encoder.sample(&Sample { time_ns: at(time_us), device, ..Sample::default() });
        self.batch(encoder);
        self
    }

    /// One thread allocates, is sampled and frees, with this many nanoseconds in between.
    pub(crate) fn sampled_while_allocated(mut self, time_us: u64, step_ns: u64) -> Self {
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

    pub(crate) fn read(self) -> Trace {
        read(&self.file)
    }
}

pub(crate) fn at(time_us: u64) -> u64 {
    rooms::header().monotonic_ns + time_us * 1000
}

pub(crate) fn read(bytes: &[u8]) -> Trace {
    match makeroom_trace::read(bytes) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn event(kind: EventKind, address: u64, size: u64) -> Event {
    Event { kind, address: Address(address), size: Bytes::new(size), ..Event::default() }
}

pub(crate) fn by(stack: StackNumber, event: Event) -> Event {
    Event { stack, ..event }
}

pub(crate) fn refused(event: Event) -> Event {
    Event { result: 2, address: Address(0), ..event }
}

pub(crate) fn actions(trace: &Trace) -> Vec<(Action, u64, u64)> {
    let [device] = &trace.devices[..] else { panic!("{} devices", trace.devices.len()) };
    device.events.iter().map(|event| (event.action, event.address.0, event.size.get())).collect()
}
