//! Two complete recordings, as a recorder writes them, kept as golden files: a program that calls the driver
//! directly, and a training run under PyTorch. `makeroom why` is also tested on them.

use crate::support::content::{self, Content, Part, check_golden};
use crate::support::rooms;
use makeroom_core::{Action, Address, Bytes, DeviceIndex, Trace};
use makeroom_trace::Input;
use makeroom_trace::room::{
    ContextHandle, DeviceSample, End, EndReason, Event, EventKind, FrameDefinition, FrameNumber, Header,
    NameNumber, Origin, Record, Sample, StackNumber, ThreadNumber,
};

/// Base address of device memory.
const BASE: u64 = 0x7f20_0000_0000;

/// A recording of one thread with one event per millisecond.
struct Story {
    definitions: Vec<Record>,
    records: Vec<Record>,
    time_ns: u64,
}

impl Story {
    /// Defines frames as origin, function, file, line and library, and stacks as lists of frames.
    fn new(frames: &[(Origin, &str, &str, u32, &str)], stacks: &[&[u32]]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut definitions = Vec::new();
        let mut defined = Vec::new();
        for &(origin, function, file, line, library) in frames {
            let mut number = |text| {
                let position = names.iter().position(|&name| name == text).unwrap_or_else(|| {
                    names.push(text);
                    names.len() - 1
                });
                NameNumber(if text.is_empty() { 0 } else { position as u32 + 1 })
            };
            let frame = FrameDefinition {
                origin,
                function: number(function),
                file: number(file),
                line,
                library: number(library),
                offset: 0,
            };
            defined.push(Record::Frame { number: FrameNumber(defined.len() as u32 + 1), frame });
        }
        for (position, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
            let number = NameNumber(position as u32 + 1);
            definitions.push(Record::Name { number, text: name.as_bytes().to_vec() });
        }
        definitions.extend(defined);
        for (position, frames) in stacks.iter().enumerate() {
            let frames = frames.iter().map(|&frame| FrameNumber(frame)).collect();
            definitions.push(Record::Stack { number: StackNumber(position as u32 + 1), frames });
        }
        Self { definitions, records: Vec::new(), time_ns: rooms::header().monotonic_ns }
    }

    fn event(&mut self, kind: EventKind, stack: u32, address: u64, size: Bytes) -> &mut Event {
        self.time_ns += 1_000_000;
        let context = ContextHandle(0x5581_0000_2000);
        let stack = StackNumber(stack);
        let time_ns = self.time_ns;
        let address = Address(address);
        let event = Event { kind, time_ns, context, address, size, stack, ..Event::default() };
        self.records.push(Record::Event(event));
        match self.records.last_mut() {
            Some(Record::Event(event)) => event,
            _ => unreachable!("it was just pushed"),
        }
    }

    fn refusal(&mut self, kind: EventKind, stack: u32, size: Bytes) {
        self.event(kind, stack, 0, size).result = 2;
    }

    fn sample(&mut self, free: Bytes) {
        self.time_ns += 10_000;
        let device = Some(DeviceSample { device: DeviceIndex(0), free, total: Bytes::gib(8) });
        self.records.push(Record::Sample(Sample { time_ns: self.time_ns, device, ..Sample::default() }));
    }

    fn end(mut self, command_line: &[&str], status: u32) -> Content {
        self.time_ns += 1_000_000;
        let end = End { time_ns: self.time_ns, reason: EndReason::Exit, status };
        self.records.push(Record::End(end));
        let command_line = command_line.iter().map(|word| word.as_bytes().to_vec()).collect();
        Content {
            version: 1,
            header: Header { command_line, ..rooms::header() },
            frames: vec![
                Part::Records { thread: ThreadNumber(0), records: self.definitions },
                Part::Records { thread: ThreadNumber(4711), records: self.records },
            ],
        }
    }
}

/// A solver that never frees its grids and fails to allocate a fourth one.
fn solver() -> Content {
    let program = "/home/anna/solver";
    let mut story = Story::new(
        &[
            (Origin::Native, "cudaMalloc", "", 0, "/usr/local/cuda/lib64/libcudart.so.12"),
            (Origin::Native, "Grid::resize(unsigned long)", "", 0, program),
            (Origin::Native, "refine(Grid&)", "", 0, program),
            (Origin::Native, "main", "", 0, program),
        ],
        &[&[1, 2, 4], &[1, 2, 3, 4]],
    );
    story.event(EventKind::ContextCreate, 0, 0, Bytes::ZERO);
    for (number, stack) in [(0, 1), (1, 2), (2, 2)] {
        story.event(EventKind::DeviceAlloc, stack, BASE + (number << 31), Bytes::gib(2));
    }
    story.event(EventKind::DeviceAlloc, 1, BASE + (3 << 31), Bytes::mib(64));
    story.event(EventKind::DeviceFree, 1, BASE + (3 << 31), Bytes::ZERO);
    story.refusal(EventKind::DeviceAlloc, 2, Bytes::gib(2));
    story.sample(Bytes::mib(1500));
    story.end(&["./solver", "--levels", "4"], 1)
}

/// A training run whose segments are half empty when it requests a large block.
fn training() -> Content {
    let allocator = "/opt/torch/lib/libc10_cuda.so";
    let mut story = Story::new(
        &[
            (Origin::Native, "cudaMalloc", "", 0, "/opt/nvidia/libcudart.so.12"),
            (Origin::Native, "c10::cuda::CUDACachingAllocator::malloc", "", 0, allocator),
            (Origin::Native, "ncclCommInitRank", "", 0, "/opt/nccl/libnccl.so.2"),
            (Origin::Python, "forward", "model.py", 31, ""),
            (Origin::Python, "train", "train.py", 12, ""),
        ],
        &[&[1, 2, 4, 5], &[1, 3, 5], &[4, 5], &[5]],
    );
    let (block, segment) = (Bytes::mib(512), Bytes::gib(1));
    story.event(EventKind::DeviceAlloc, 2, BASE - (1 << 30), Bytes::mib(256));
    for number in 0..6 {
        let start = BASE + (number << 30);
        story.event(EventKind::DeviceAlloc, 1, start, segment);
        story.event(EventKind::TensorAlloc, 3, start, block);
        story.event(EventKind::TensorAlloc, 4, start + block.get(), block);
    }
    for number in 0..6 {
        story.event(EventKind::TensorFree, 0, BASE + (number << 30), block);
    }
    // The driver fails, no cached memory can be freed, PyTorch reports the failure.
    story.refusal(EventKind::DeviceAlloc, 1, Bytes::mib(1536));
    story.sample(Bytes::mib(700));
    story.refusal(EventKind::DeviceAlloc, 1, Bytes::mib(1536));
    story.refusal(EventKind::TensorAlloc, 3, Bytes::mib(1536));
    story.end(&["python3", "train.py"], 1)
}

fn read(name: &str) -> Trace {
    match makeroom_trace::read(&content::golden(name)[..]) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn whole_recordings_are_read_and_written_to_the_byte() {
    check_golden("solver.room", &solver(), 0);
    check_golden("training.room", &training(), 0);
}

#[test]
fn their_refusals_know_what_was_free() {
    for (name, size, free) in [("solver.room", 2048, 1500), ("training.room", 1536, 700)] {
        let trace = read(name);
        let refusals: Vec<_> =
            trace.devices[0].events.iter().filter(|event| event.action == Action::OutOfMemory).collect();
        assert_eq!(refusals.len(), 1, "{name}");
        assert_eq!(refusals[0].size, Bytes::mib(size), "{name}");
        assert_eq!(refusals[0].device_free(), Some(Bytes::mib(free)), "{name}");
    }
}
