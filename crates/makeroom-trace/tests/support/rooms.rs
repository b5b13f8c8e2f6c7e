//! Recordings for measurements and tests: a synthetic one, and one from a real PyTorch run.
#![allow(dead_code, unreachable_pub, reason = "each test compiles its own copy and uses part of it")]

use makeroom_core::{Action, Address, Bytes, DeviceIndex, StackId, Trace};
use makeroom_trace::room::{
    Encoder, Event, EventKind, FrameDefinition, FrameNumber, Header, NameNumber, Origin, StackNumber,
    ThreadNumber, beginning, seal,
};

/// Approximate length at which a recorder passes a batch to the writer.
const BATCH: usize = 64 << 10;

/// A header for tests: process 4711, in November 2024.
pub fn header() -> Header {
    Header {
        run: *b"0123456789abcdef",
        wall_ns: 1_731_600_000_000_000_000,
        monotonic_ns: 5_000_000_000,
        pid: 4711,
        parent_pid: 4710,
        word_size: 8,
        recorder: b"makeroom 0.1.0".to_vec(),
        host: b"node7".to_vec(),
        executable: b"/usr/bin/python3".to_vec(),
        working_directory: b"/home/anna".to_vec(),
        command_line: vec![b"python3".to_vec(), b"train.py".to_vec()],
        rest: Vec::new(),
    }
}

/// A file in memory, written as a recorder does: definitions first, events in batches.
pub struct Recorder {
    pub file: Vec<u8>,
    pub encoder: Encoder,
}

impl Recorder {
    pub fn new() -> Self {
        let file = beginning(&header());
        Self { file, encoder: Encoder::new(ThreadNumber(4711), Vec::with_capacity(BATCH + 4096)) }
    }

    pub fn event(&mut self, event: &Event) {
        self.encoder.event(event);
        if self.encoder.len() >= BATCH {
            self.flush();
        }
    }

    pub fn flush(&mut self) {
        let batch = self.encoder.replace(Vec::with_capacity(BATCH + 4096));
        assert!(seal(&batch, &mut self.file));
    }

    pub fn finish(mut self) -> Vec<u8> {
        if !self.encoder.is_empty() {
            self.flush();
        }
        self.file
    }
}

/// Defines the names, frames and stacks of a trace under the same numbers, plus one because 0 is none.
fn define_stacks(recorder: &mut Recorder, trace: &Trace) {
    let mut names: Vec<String> = vec![String::new()];
    let mut number_of = |encoder: &mut Encoder, text: &str| {
        let known = names.iter().position(|name| name == text);
        let number = NameNumber(known.unwrap_or(names.len()) as u32);
        if known.is_none() {
            names.push(text.to_owned());
            encoder.name(number, text.as_bytes());
        }
        number
    };
    let mut is_defined = vec![false; trace.stacks.frame_count()];
    let mut stacks: Vec<StackId> =
        trace.devices.iter().flat_map(|device| device.events.iter().map(|event| event.stack)).collect();
    stacks.sort_unstable();
    stacks.dedup();
    for stack in stacks.into_iter().filter(|&stack| stack != StackId::NONE) {
        let mut frames = Vec::new();
        for &frame in trace.stacks.frames_of(stack) {
            let number = FrameNumber(frame.index() as u32 + 1);
            frames.push(number);
            if !std::mem::replace(&mut is_defined[frame.index()], true) {
                let frame = trace.stacks.frame_at(frame);
                let definition = FrameDefinition {
                    origin: Origin::Python,
                    function: number_of(&mut recorder.encoder, trace.stacks.name_text(frame.function)),
                    file: number_of(&mut recorder.encoder, trace.stacks.name_text(frame.file)),
                    line: frame.line,
                    ..FrameDefinition::default()
                };
                recorder.encoder.frame(number, &definition);
            }
        }
        recorder.encoder.stack(StackNumber(stack.index() as u32), &frames);
        if recorder.encoder.len() >= BATCH {
            recorder.flush();
        }
    }
}

/// The allocations and frees of a PyTorch snapshot as the tensor hook would record them, and driver calls as calls.
pub fn as_tensor_events(trace: &Trace) -> Vec<Event> {
    let mut events = Vec::new();
    for device in &trace.devices {
        for event in device.events.iter() {
            let kind = match event.action {
                Action::Alloc => EventKind::TensorAlloc,
                Action::FreeCompleted => EventKind::TensorFree,
                Action::SegmentAlloc => EventKind::DeviceAlloc,
                Action::SegmentFree => EventKind::DeviceFree,
                Action::SegmentMap => EventKind::Map,
                Action::SegmentUnmap => EventKind::Unmap,
                _ => continue,
            };
            events.push(Event {
                kind,
                time_ns: event.time_us * 1000,
                device: DeviceIndex(device.device.0),
                address: event.address,
                // The hook sees block sizes, which are multiples of 512 bytes.
                size: Bytes::new(event.size.get().next_multiple_of(512)),
                stack: StackNumber(event.stack.index() as u32),
                ..Event::default()
            });
        }
    }
    events
}

/// Records a PyTorch snapshot again as with the tensor hook: stacks, then events.
pub fn record_snapshot(trace: &Trace) -> (Vec<u8>, usize) {
    let mut recorder = Recorder::new();
    define_stacks(&mut recorder, trace);
    let events = as_tensor_events(trace);
    for event in &events {
        recorder.event(event);
    }
    (recorder.finish(), events.len())
}

/// Stacks for [`synthetic`]: 3000 of 25 frames each, out of 2000 frames of 500 functions.
pub fn define_synthetic_stacks(recorder: &mut Recorder) {
    for name in 1..=500 {
        let text = format!("torch/nn/modules/module_{name}.py: forward");
        recorder.encoder.name(NameNumber(name), text.as_bytes());
    }
    for frame in 1..=2000 {
        let function = NameNumber(1 + frame % 500);
        let definition =
            FrameDefinition { function, file: function, line: frame, ..FrameDefinition::default() };
        recorder.encoder.frame(FrameNumber(frame), &definition);
    }
    for stack in 1..=3000 {
        let frames: Vec<FrameNumber> =
            (0..25).map(|depth| FrameNumber(1 + stack * (depth + 1) % 2000)).collect();
        recorder.encoder.stack(StackNumber(stack), &frames);
    }
    recorder.flush();
}

/// A long sequence of events like that of a mixed program: tensors of many sizes on a few stacks, and occasional
/// driver calls on various streams, microseconds apart.
pub fn synthetic(count: usize) -> Vec<Event> {
    let mut seed = 7_u64;
    let mut next = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut live: Vec<Event> = Vec::new();
    let mut events = Vec::with_capacity(count);
    let mut time_ns = 5_000_000_000;
    while events.len() < count {
        time_ns += 500 + next(40_000);
        let is_free = live.len() > 4000 || !live.is_empty() && next(2) == 0;
        let event = if is_free {
            let position = next(live.len() as u64) as usize;
            let event = live.swap_remove(position);
            let kind = match event.kind {
                EventKind::StreamAlloc => EventKind::StreamFree,
                EventKind::DeviceAlloc => EventKind::DeviceFree,
                _ => EventKind::TensorFree,
            };
            Event { kind, time_ns, stack: StackNumber(0), ..event }
        } else {
            let kind = match next(50) {
                0 => EventKind::DeviceAlloc,
                1..5 => EventKind::StreamAlloc,
                _ => EventKind::TensorAlloc,
            };
            let magnitude = next(18);
            let is_ordered = kind == EventKind::StreamAlloc;
            Event {
                kind,
                time_ns,
                device: DeviceIndex(0),
                address: Address(0x7f12_0000_0000 + next(40 << 20) * 512),
                size: Bytes::new((1 + next(1 << magnitude)) * 512),
                stream: makeroom_core::StreamId(if is_ordered { 0x5581_2345_6780 + next(3) * 64 } else { 0 }),
                stack: StackNumber(1 + next(3000) as u32),
                ..Event::default()
            }
        };
        if !is_free {
            live.push(event);
        }
        events.push(event);
    }
    events
}
