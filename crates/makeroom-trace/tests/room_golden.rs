//! Golden files, which every version must read, and the worked example of the specification.

use crate::support::content::{Content, Part, check_golden, golden};
use crate::support::rooms;
use makeroom_core::{Address, Bytes, DeviceIndex, StreamId};
use makeroom_trace::room::{
    Compacted, ContextHandle, DeviceDefinition, DeviceSample, DropReason, Dropped, End, EndReason, Event,
    EventKind, FrameDefinition, FrameNumber, Header, NameNumber, Note, Origin, PoolHandle, Record, Sample,
    Severity, StackNumber, ThreadNumber,
};

/// The worked example of the specification.
fn example() -> Content {
    let header = Header {
        wall_ns: 1_731_600_000_000_000_000,
        monotonic_ns: 1_000_000_000,
        pid: 4711,
        parent_pid: 4710,
        word_size: 8,
        run: *b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10",
        recorder: b"makeroom 0.1.0".to_vec(),
        host: b"node7".to_vec(),
        executable: b"/bin/solver".to_vec(),
        working_directory: Vec::new(),
        command_line: vec![b"./solver".to_vec(), b"-v".to_vec()],
        rest: Vec::new(),
    };
    let definitions = vec![
        Record::Name { number: NameNumber(1), text: b"solve".to_vec() },
        Record::Name { number: NameNumber(2), text: b"solver.cpp".to_vec() },
        Record::Frame {
            number: FrameNumber(1),
            frame: FrameDefinition {
                function: NameNumber(1),
                file: NameNumber(2),
                line: 300,
                ..FrameDefinition::default()
            },
        },
        Record::Stack { number: StackNumber(1), frames: vec![FrameNumber(1)] },
    ];
    let first = Event {
        kind: EventKind::DeviceAlloc,
        time_ns: 1_000_002_000,
        address: Address(0x7f00_0000_0000),
        size: Bytes::mib(2),
        stack: StackNumber(1),
        ..Event::default()
    };
    let second =
        Event { time_ns: first.time_ns + 100, address: Address(first.address.0 + (2 << 20)), ..first };
    let free = Event {
        kind: EventKind::DeviceFree,
        time_ns: second.time_ns + 100,
        address: first.address,
        stack: StackNumber(0),
        ..first
    };
    let refused = Event {
        time_ns: free.time_ns + 100,
        address: Address(0),
        size: Bytes::new(1000),
        stack: StackNumber(1),
        result: 2,
        ..first
    };
    let sample = Sample {
        time_ns: refused.time_ns + 50,
        device: Some(DeviceSample { device: DeviceIndex(0), free: Bytes::new(512), total: Bytes::gib(8) }),
        ..Sample::default()
    };
    let events = vec![
        Record::Event(first),
        Record::Event(second),
        Record::Event(free),
        Record::Event(refused),
        Record::Sample(sample),
    ];
    Content {
        version: 1,
        header,
        frames: vec![
            Part::Records { thread: ThreadNumber(0), records: definitions },
            Part::Records { thread: ThreadNumber(4711), records: events },
        ],
    }
}

/// Every kind of record and event, and the limits of every range.
fn everything() -> Content {
    let mut records = vec![
        Record::Name { number: NameNumber(1), text: b"caf\xc3\xa9 \xff".to_vec() },
        Record::Name { number: NameNumber(u32::MAX), text: Vec::new() },
        Record::Frame { number: FrameNumber(1), frame: FrameDefinition::default() },
        Record::Frame {
            number: FrameNumber(u32::MAX),
            frame: FrameDefinition {
                origin: Origin::Python,
                function: NameNumber(u32::MAX),
                file: NameNumber(1),
                line: u32::MAX,
                library: NameNumber(1),
                offset: u64::MAX,
            },
        },
        Record::Stack {
            number: StackNumber(u32::MAX),
            frames: vec![FrameNumber(u32::MAX), FrameNumber(1), FrameNumber(1)],
        },
        Record::Stack { number: StackNumber(1), frames: Vec::new() },
        Record::Device(DeviceDefinition {
            device: DeviceIndex(1),
            uuid: b"GPU-00000000-1111-2222-3333-444444444444".to_vec(),
            name: b"NVIDIA H200".to_vec(),
            total: Bytes::gib(140),
        }),
        Record::Sample(Sample {
            time_ns: u64::MAX,
            device: Some(DeviceSample { device: DeviceIndex(1), free: Bytes::ZERO, total: Bytes::MAX }),
            resident: Some(Bytes::mib(1)),
            cgroup_usage: Some(Bytes::mib(2)),
            cgroup_limit: Some(Bytes::mib(3)),
            pinned: Some(Bytes::mib(4)),
        }),
        Record::Sample(Sample { time_ns: 0, resident: Some(Bytes::new(1)), ..Sample::default() }),
        Record::Dropped(Dropped { time_ns: 3, events: u64::MAX, reason: DropReason::Output }),
        Record::Dropped(Dropped { time_ns: 4, events: 1, reason: DropReason::Nested }),
        Record::Note(Note { time_ns: 2, severity: Severity::Warning, text: b"no Python frames".to_vec() }),
        Record::End(End { time_ns: 9, reason: EndReason::Signal, status: 15 }),
    ];
    let largest = Event {
        kind: EventKind::DeviceAlloc,
        time_ns: 1 << 63,
        device: DeviceIndex(u32::MAX),
        context: ContextHandle(u64::MAX),
        address: Address(1 << 63),
        size: Bytes::MAX,
        stream: StreamId(u64::MAX),
        pool: PoolHandle(u64::MAX),
        stack: StackNumber(u32::MAX),
        result: u32::MAX,
        extra: u64::MAX,
    };
    records.push(Record::Event(largest));
    records.extend(events(0..KINDS_OF_FIRST));
    let thread = ThreadNumber(u64::MAX);
    Content { version: 1, header: rooms::header(), frames: vec![Part::Records { thread, records }] }
}

/// Number of event kinds in version 1.
const KINDS_OF_FIRST: usize = 45;

/// An event of each kind with these numbers.
fn events(numbers: std::ops::Range<usize>) -> Vec<Record> {
    let kinds = EventKind::ALL.iter().enumerate().skip(numbers.start).take(numbers.len());
    kinds
        .map(|(index, &kind)| {
            let number = index as u64;
            Record::Event(Event {
                kind,
                time_ns: 10_000 + number * 1000,
                device: DeviceIndex((number / 20) as u32),
                context: ContextHandle(0x5555_0000_1000 + number / 10),
                address: Address(0x7f00_0000_0000 + (number % 7) * 512 + number % 3),
                size: Bytes::new(number * 256),
                stream: StreamId(number % 4),
                pool: PoolHandle(number / 8),
                stack: StackNumber(number as u32 % 2),
                result: if index % 5 == 4 { 2 } else { 0 },
                extra: number % 3,
            })
        })
        .collect()
}

/// Added in version 3: event kinds.
fn third() -> Content {
    let records = events(KINDS_OF_FIRST..KINDS_OF_FIRST + 8);
    let frames = vec![Part::Records { thread: ThreadNumber(1), records }];
    Content { version: 3, header: rooms::header(), frames }
}

/// Added in version 4: an event kind.
fn fourth() -> Content {
    let records = events(KINDS_OF_FIRST + 8..KINDS_OF_FIRST + 9);
    let frames = vec![Part::Records { thread: ThreadNumber(1), records }];
    Content { version: 4, header: rooms::header(), frames }
}

/// Added in version 5: event kinds.
fn fifth() -> Content {
    let records = events(KINDS_OF_FIRST + 9..KINDS_OF_FIRST + 12);
    let frames = vec![Part::Records { thread: ThreadNumber(1), records }];
    Content { version: 5, header: rooms::header(), frames }
}

/// Added in version 6: environment variables.
fn sixth() -> Content {
    let variable =
        |name: &[u8], value: &[u8]| Record::Variable { name: name.to_vec(), value: value.to_vec() };
    let records = vec![
        variable(b"PYTORCH_ALLOC_CONF", b"max_split_size_mb:64,expandable_segments:True"),
        variable(b"EMPTY", b""),
        variable(b"", b"\xff"),
    ];
    let frames = vec![Part::Records { thread: ThreadNumber(0), records }];
    Content { version: 6, header: rooms::header(), frames }
}

/// Added in version 7: the place in a job, and what was left out.
fn seventh() -> Content {
    let field = |number: u64, value: &[u8]| (number, value.to_vec());
    let records = vec![
        Record::Job(vec![field(1, b"3"), field(3, b"8"), field(8, b"4711"), field(6, b"caf\xc3\xa9")]),
        Record::Job(vec![field(0, b""), field(1, b"nine"), field(u64::MAX, b"\xff")]),
        Record::Job(Vec::new()),
        Record::Compacted(Compacted { time_ns: 5_000_000_300, events: 300, failures: 2 }),
        Record::Compacted(Compacted { time_ns: u64::MAX, events: u64::MAX, failures: 0 }),
    ];
    let frames = vec![Part::Records { thread: ThreadNumber(0), records }];
    Content { version: 7, header: rooms::header(), frames }
}

/// Added in version 8: figures of paged memory.
fn eighth() -> Content {
    let pages = |device, figures: &[(u64, u64)]| Record::Pages { device, figures: figures.to_vec() };
    let records = vec![
        pages(
            0,
            &[(1, 3 << 30), (2, 3_300_000_000), (3, 0), (4, 4 << 30), (5, 700), (6, 16), (7, 158_000_000)],
        ),
        pages(u64::MAX, &[(0, 0), (8, 1), (u64::MAX, u64::MAX)]),
        pages(1, &[]),
    ];
    let frames = vec![Part::Records { thread: ThreadNumber(0), records }];
    Content { version: 8, header: rooms::header(), frames }
}

/// A file of a hypothetical later version.
fn later() -> Content {
    let header = Header { rest: b"what version 9 has to say".to_vec(), ..rooms::header() };
    let records = vec![
        Record::Unknown { kind: 100, body: b"kept".to_vec() },
        Record::Event(Event { kind: EventKind::Other(62), time_ns: 1, ..Event::default() }),
        Record::Event(Event { kind: EventKind::Other(63), time_ns: 2, ..Event::default() }),
        Record::Event(Event { kind: EventKind::Other(255), time_ns: 3, extra: 7, ..Event::default() }),
        Record::Unknown { kind: 127, body: Vec::new() },
        Record::Note(Note { time_ns: 4, severity: Severity::Other(9), text: b"!".to_vec() }),
        Record::Dropped(Dropped { time_ns: 5, events: 1, reason: DropReason::Other(200) }),
        Record::End(End { time_ns: 6, reason: EndReason::Other(4), status: 0 }),
    ];
    let thread = ThreadNumber(1);
    Content {
        version: 9,
        header,
        frames: vec![
            Part::Unknown { kind: 77, payload: b"a whole frame".to_vec() },
            Part::Records { thread, records },
            Part::Unknown { kind: 255, payload: Vec::new() },
        ],
    }
}

/// Added in version 2.
fn second() -> Content {
    let records = vec![Record::Limit(Bytes::gib(8)), Record::Limit(Bytes::MAX), Record::Limit(Bytes::ZERO)];
    let frames = vec![Part::Records { thread: ThreadNumber(0), records }];
    Content { version: 2, header: rooms::header(), frames }
}

#[test]
fn golden_files_are_read_and_written_to_the_byte() {
    check_golden("second.room", &second(), 0);
    check_golden("third.room", &third(), 0);
    check_golden("fourth.room", &fourth(), 0);
    check_golden("fifth.room", &fifth(), 0);
    check_golden("sixth.room", &sixth(), 0);
    check_golden("seventh.room", &seventh(), 0);
    check_golden("eighth.room", &eighth(), 0);
    check_golden("example.room", &example(), 0);
    check_golden("everything.room", &everything(), 0);
    check_golden("later.room", &later(), 0);
    // A preallocated file, and a process that was killed.
    check_golden("zeros_behind.room", &example(), 4096);
    check_golden("header_only.room", &Content { frames: Vec::new(), ..example() }, 0);
}

/// The bytes of the worked example, as the specification lists them: hexadecimal, then their meaning.
#[test]
fn the_worked_example_of_the_specification_is_the_golden_file() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/room.md");
    let specification = std::fs::read_to_string(path).unwrap();
    let mut bytes = Vec::new();
    for block in specification.split("```room\n").skip(1) {
        for line in block.split("```").next().unwrap().lines() {
            let hexadecimal = line.split("  ").next().unwrap();
            bytes.extend(hexadecimal.split(' ').map(|byte| u8::from_str_radix(byte, 16).expect(line)));
        }
    }
    let shown: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let expected: Vec<String> = golden("example.room").iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(shown, expected);
}
