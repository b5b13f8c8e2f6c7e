//! A recording that was cut anywhere, and starts with its live set, has the same live bytes by line as the full one.

use crate::support::rooms;
use std::collections::BTreeMap;

use makeroom_core::{Address, Bytes, DeviceIndex, StackId, StreamId, Trace, lifetimes};
use makeroom_trace::Input;
use makeroom_trace::room::{
    Compacted, ContextHandle, DeviceSample, Encoder, Event, EventKind, FrameDefinition, FrameNumber, LiveSet,
    NameNumber, PoolHandle, Sample, StackNumber, ThreadNumber, beginning, seal,
};
use proptest::prelude::*;

const THREADS: u64 = 3;
const STACKS: u32 = 6;
const ON_HOST: u64 = 1;
/// How late events arrive at most, in nanoseconds; a program makes one every ten.
const LAG: u64 = 60;

fn definitions() -> Vec<u8> {
    let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
    for number in 1..=STACKS {
        encoder.name(NameNumber(number), format!("line_{number}").as_bytes());
        let frame =
            FrameDefinition { function: NameNumber(number), line: number, ..FrameDefinition::default() };
        encoder.frame(FrameNumber(number), &frame);
        encoder.stack(StackNumber(number), &[FrameNumber(number)]);
    }
    let mut file = beginning(&rooms::header());
    assert!(seal(encoder.bytes(), &mut file));
    file
}

/// A program that takes and gives memory of every kind, from several threads, on two devices.
fn program(choices: &[(u8, u8, u16)]) -> Vec<(ThreadNumber, Event)> {
    let pairs = [
        (EventKind::TensorAlloc, EventKind::TensorFree),
        (EventKind::DeviceAlloc, EventKind::DeviceFree),
        (EventKind::StreamAlloc, EventKind::StreamFree),
        (EventKind::ManagedAlloc, EventKind::DeviceFree),
        (EventKind::ArrayAlloc, EventKind::ArrayFree),
        (EventKind::PinnedAlloc, EventKind::PinnedFree),
        (EventKind::HostRegister, EventKind::HostUnregister),
        (EventKind::GraphAlloc, EventKind::GraphFree),
        (EventKind::ModuleLoad, EventKind::ModuleUnload),
    ];
    let mut events = Vec::new();
    let mut live: Vec<(usize, Event)> = Vec::new();
    let mut mapped: Vec<Event> = Vec::new();
    let mut free_addresses: Vec<u64> = (1..200).map(|number| 0x7f00_0000_0000 + number * (1 << 21)).collect();
    for (index, &(action, choice, size)) in choices.iter().enumerate() {
        let thread = ThreadNumber(1 + u64::from(choice) % THREADS);
        let base = Event {
            time_ns: rooms::header().monotonic_ns + 10 + index as u64 * 10,
            device: DeviceIndex(u32::from(choice) % 2),
            context: ContextHandle(1 + u64::from(choice) % 2),
            stack: StackNumber(1 + u32::from(choice) % STACKS),
            stream: StreamId(u64::from(choice % 3)),
            pool: PoolHandle(0),
            size: Bytes::new(512 * (1 + u64::from(size))),
            ..Event::default()
        };
        let event = match action % 16 {
            0..7 => {
                let Some(address) = free_addresses.pop() else { continue };
                let which = usize::from(choice) % pairs.len();
                let event = Event { kind: pairs[which].0, address: Address(address), ..base };
                live.push((which, event));
                event
            }
            7..12 => {
                if live.is_empty() {
                    continue;
                }
                let (which, taken) = live.swap_remove(usize::from(size) % live.len());
                // The address can be reused at once.
                free_addresses.push(taken.address.0);
                // A framework knows the device of a tensor; the driver frees memory of any device.
                let device = if which == 0 { taken.device } else { base.device };
                let (kind, address) = (pairs[which].1, taken.address);
                Event { kind, address, device, stack: StackNumber(0), size: taken.size, ..base }
            }
            12 => {
                let Some(address) = free_addresses.pop() else { continue };
                let handle = 0x9000 + u64::from(choice);
                let create = Event {
                    kind: EventKind::PhysicalCreate,
                    address: Address(handle),
                    extra: u64::from(choice % 5 == 0) * ON_HOST,
                    ..base
                };
                let map = Event {
                    kind: EventKind::Map,
                    address: Address(address),
                    extra: handle,
                    time_ns: base.time_ns + 1,
                    ..base
                };
                let release = Event {
                    kind: EventKind::PhysicalRelease,
                    address: Address(handle),
                    time_ns: base.time_ns + 2,
                    ..base
                };
                mapped.push(map);
                events.extend([create, map, release].map(|event| (thread, event)));
                continue;
            }
            13 => {
                if mapped.is_empty() {
                    continue;
                }
                let map = mapped.swap_remove(usize::from(size) % mapped.len());
                free_addresses.push(map.address.0);
                Event { kind: EventKind::Unmap, address: map.address, size: map.size, extra: 0, ..base }
            }
            14 => Event { kind: EventKind::TensorAlloc, result: 2, ..base },
            _ => {
                // A context ends, and with it the memory that was taken in it.
                let context = base.context;
                if choice % 8 != 0 {
                    continue;
                }
                live.retain(|(which, taken)| {
                    let stays = taken.context != context || matches!(*which, 0 | 5 | 6 | 8);
                    if !stays {
                        free_addresses.push(taken.address.0);
                    }
                    stays
                });
                Event { kind: EventKind::ContextDestroy, ..base }
            }
        };
        events.push((thread, event));
    }
    events
}

/// Events in the order in which a writer receives them: each thread's in order, threads mixed within a short time.
fn arrival(mut events: Vec<(ThreadNumber, Event)>, delays: &[u8]) -> Vec<(ThreadNumber, Event)> {
    let delay = |thread: ThreadNumber| u64::from(delays[(thread.0 % THREADS) as usize]);
    events.sort_by_key(|(thread, event)| event.time_ns + delay(*thread));
    events
}

fn file_of(start: &[u8], events: &[(ThreadNumber, Event)]) -> Vec<u8> {
    let mut file = start.to_vec();
    for batch in events.chunk_by(|one, next| one.0 == next.0) {
        let mut encoder = Encoder::new(batch[0].0, Vec::new());
        for (_, event) in batch {
            encoder.event(event);
        }
        assert!(seal(encoder.bytes(), &mut file));
    }
    file
}

fn read(file: &[u8]) -> Trace {
    match makeroom_trace::read(file) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

/// Live bytes and blocks at the end, by device and line; device −1 is pinned host memory.
fn live(trace: &Trace) -> BTreeMap<(i64, String), (u64, u64)> {
    let mut lines: BTreeMap<(i64, String), (u64, u64)> = BTreeMap::new();
    let name = |stack: StackId| {
        let frame = trace.stacks.frames_of(stack).first().map(|&frame| trace.stacks.frame_at(frame));
        frame.map_or(String::new(), |frame| trace.stacks.name_text(frame.function).to_owned())
    };
    let mut add = |device: i64, stack: StackId, size: Bytes| {
        let line = lines.entry((device, name(stack))).or_default();
        *line = (line.0 + size.get(), line.1 + 1);
    };
    for device in &trace.devices {
        for block in lifetimes(device).iter().filter(|block| block.freed.is_none()) {
            add(i64::from(device.device.0), block.stack, block.size);
        }
    }
    for block in trace.process.iter().flat_map(|process| &process.pinned.live) {
        add(-1, block.stack, block.size);
    }
    lines
}

fn code(trace: &Trace) -> usize {
    trace.process.iter().flat_map(|process| &process.code).filter(|code| code.unloaded_us.is_none()).count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_recording_cut_anywhere_has_the_live_memory_of_the_full_one(
        choices in prop::collection::vec((any::<u8>(), any::<u8>(), 0..64_u16), 1..300),
        delays in prop::collection::vec(0..LAG as u8, THREADS as usize),
        cut in any::<prop::sample::Index>(),
        torn in any::<prop::sample::Index>(),
    ) {
        let events = arrival(program(&choices), &delays);
        prop_assume!(!events.is_empty());
        let cut = cut.index(events.len() + 1);
        let (before, after) = events.split_at(cut);
        let mut set = LiveSet::default();
        for (index, (thread, event)) in before.iter().enumerate() {
            set.see(*thread, event);
            // As a writer does, turn by turn, with a lag that is longer than any delay.
            if index % 7 == 0 {
                set.settle(event.time_ns.saturating_sub(LAG));
            }
        }
        let mut start = definitions();
        set.write(&mut start);
        // The rest may end anywhere, too: the process was killed.
        let after = &after[..torn.index(after.len() + 1)];
        let full = read(&file_of(&definitions(), &events[..cut + after.len()]));
        let ring = read(&file_of(&start, after));
        // A torn end can separate a free from its allocation in another thread's batch. What arrived is the same in
        // both files, so are the results.
        prop_assert_eq!(live(&ring), live(&full));
        prop_assert_eq!(code(&ring), code(&full));
        let left_out = set.left_out();
        prop_assert!(left_out.events <= cut as u64);
        let failures = before.iter().filter(|(_, event)| event.result == 2).count();
        prop_assert!(left_out.failures <= failures as u64);
    }
}

#[test]
fn the_start_of_a_long_recording_takes_little() {
    let mut set = LiveSet::default();
    let events = rooms::synthetic(200_000);
    for event in &events {
        set.see(ThreadNumber(1), event);
    }
    set.settle(u64::MAX);
    let mut start = Vec::new();
    set.write(&mut start);
    let full = file_of(&[], &events.iter().map(|event| (ThreadNumber(1), *event)).collect::<Vec<_>>());
    assert!(start.len() * 10 < full.len(), "{} of {}", start.len(), full.len());
    assert!(set.left_out().events > 190_000);
}

#[test]
fn samples_are_kept_until_the_history_has_gaps() {
    let mut set = LiveSet::default();
    let thread = ThreadNumber(1);
    let device = Some(DeviceSample { total: Bytes::gib(8), ..DeviceSample::default() });
    let sample =
        |time_ns| Sample { time_ns: rooms::header().monotonic_ns + time_ns, device, ..Sample::default() };
    let taken = Event {
        time_ns: rooms::header().monotonic_ns + 2,
        address: Address(512),
        size: Bytes::new(512),
        ..Event::default()
    };
    set.see(thread, &taken);
    set.sample(thread, &sample(3));
    set.see(thread, &Event { kind: EventKind::DeviceFree, time_ns: taken.time_ns + 2, ..taken });
    set.settle(u64::MAX);
    set.sample(thread, &sample(5));
    let mut file = definitions();
    let mut encoder = Encoder::new(ThreadNumber(0), Vec::new());
    encoder.compacted(&Compacted { time_ns: taken.time_ns + 9, events: set.left_out().events, failures: 0 });
    seal(encoder.bytes(), &mut file);
    set.write(&mut file);
    let trace = read(&file);
    assert_eq!(
        trace.notes,
        ["ring recording: 2 older events were left out; live memory is complete, earlier peaks are not"]
    );
    let process = trace.process.unwrap();
    assert_eq!(process.device_samples.len(), 1);
    assert_eq!(process.compacted.unwrap().events, 2);
}
