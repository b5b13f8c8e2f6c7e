//! What other crates ask of a recording without wanting it explained.

use makeroom_core::{Action, Bytes, DeviceTrace, Event, FastMap, OlderBlock, StackId, Start, Taken, Trace};

use super::Places;
use super::in_flight::InFlight;
use super::overhead::{Measured, Measuring};
use super::sites::{HeldByStack, StackTotal};
use super::steps::Steps;
use crate::thresholds::CONTEXT_TYPICAL;

/// Times at which contexts are counted, at most.
const MOST_CONTEXT_TIMES: usize = 1000;

/// What a device held that this process did not ask for: contexts, code, the driver's own, other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceOverhead {
    /// The device's memory.
    pub total: Bytes,
    /// The most of it that was held beside what the process asked for.
    pub held: Bytes,
    /// How much `held` can vary within a run: the driver's rounding of live blocks, and calls of other threads in flight.
    pub uncertain: Bytes,
    /// Whether a sample is from the second half of the recording, when memory that is allocated on first use is there.
    pub is_settled: bool,
    /// Whether only the process's own counts, its contexts and their code: it ran under a limit. On a card with others
    /// that is told from theirs by its size.
    pub is_own: bool,
}

/// The most that a device was seen to hold beside what the process asked for; `None` where it was never asked.
///
/// Under `--limit` only what the process itself has counts, its contexts and their code: others may use the card meanwhile.
///
/// When a sample is made, another thread may be inside a driver call: memory is allocated before the event is recorded, and
/// released after it. So the memory of such a call is deducted.
pub fn device_overhead(trace: &Trace, device: &DeviceTrace) -> Option<DeviceOverhead> {
    let process = trace.process.as_ref()?;
    let start = Start::new(device);
    let mut taken = Taken::new(&start);
    let mut events = device.events.iter().enumerate().peekable();
    let mut in_flight = InFlight::new(&device.events);
    let mut last_sampled = 0;
    let samples = process.device_samples.iter().filter(|sample| sample.device == device.device);
    let held_outside = samples.map(|sample| {
        while let Some((_, event)) = events.next_if(|(position, event)| sample.is_after(*position, event)) {
            let before = taken.bytes();
            taken.apply(&event);
            in_flight.apply(&event, before - taken.bytes());
        }
        let in_flight = in_flight.at(sample, &taken);
        let held = sample.total - sample.free - taken.bytes() - in_flight;
        let uncertain = in_flight + taken.rounding();
        last_sampled = events.peek().map_or(device.events.len(), |(position, _)| *position);
        DeviceOverhead {
            total: sample.total,
            held,
            uncertain,
            is_settled: false,
            is_own: process.limit.is_some(),
        }
    });
    let held_outside = held_outside.max_by_key(|held_outside| held_outside.held)?;
    let measured = || Measured::new(process, device, &start);
    let own = process.limit.and_then(|_| own_overhead(device, &measured()));
    Some(DeviceOverhead {
        held: own.map_or(held_outside.held, |own| own.min(held_outside.held)),
        is_settled: last_sampled > device.events.len() / 2,
        ..held_outside
    })
}

/// What the contexts of a process hold in the end, with all that came to them.
fn own_overhead(device: &DeviceTrace, measured: &Measured<'_>) -> Option<Bytes> {
    let last_us = device.events.iter().next_back()?.time_us;
    let overhead = measured.at(last_us, &[], true)?;
    // Others that come to the card while a context is made, or were there and hold no more than one can, are measured with
    // it: on a shared card only what contexts usually take is this process's for sure.
    let usual = CONTEXT_TYPICAL.get().saturating_mul(overhead.context_count.max(1) as u64);
    let contexts = overhead.contexts.min(Bytes::new(usual));
    Some(contexts + overhead.code + overhead.heap + overhead.pools + overhead.unmapped)
}

/// Memory of a device that this process did not request, from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverheadStep {
    /// The time.
    pub time_us: u64,
    /// The contexts of this process, which a limit on the process counts.
    pub contexts: Bytes,
    /// Other processes, which no such limit counts.
    pub others: Bytes,
}

/// Memory of a device that this process did not request, contexts and other processes, from each time on at which a
/// context is created or destroyed. Empty if the device was never measured. The account at the peak has the same figures.
pub fn overhead_over_time(trace: &Trace, device: &DeviceTrace) -> Vec<OverheadStep> {
    let Some(process) = &trace.process else { return Vec::new() };
    let measured = Measured::new(process, device, &Start::new(device));
    let contexts = process.contexts.iter().filter(|context| context.device == device.device);
    let mut times: Vec<u64> =
        contexts.flat_map(|context| [Some(context.created_us), context.destroyed_us]).flatten().collect();
    times.push(0);
    times.sort_unstable();
    times.dedup();
    let mut steps: Vec<OverheadStep> = Vec::new();
    // A process with as many contexts as events is not a program but an attack: each step looks at all contexts.
    for time_us in times.into_iter().take(MOST_CONTEXT_TIMES) {
        let Some(overhead) = measured.at(time_us, &[], false) else { continue };
        let step = OverheadStep { time_us, contexts: overhead.contexts, others: overhead.others };
        let is_same =
            |before: &OverheadStep| (before.contexts, before.others) == (step.contexts, step.others);
        if !steps.last().is_some_and(is_same) {
            steps.push(step);
        }
    }
    steps
}

/// What [`held_over_time`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldOverTime {
    /// The memory that the process had taken from the driver before the first event.
    pub before: Bytes,
    /// The contexts of the process on the device, with their code, when the recording ends; `None` if the device was never
    /// measured.
    pub contexts: Option<Bytes>,
}

/// Calls `on_event` with each event, its index and the memory that the process has taken from the driver after it.
pub fn held_over_time(
    trace: &Trace,
    device: &DeviceTrace,
    start: &Start,
    mut on_event: impl FnMut(usize, &Event, Bytes),
) -> HeldOverTime {
    let mut taken = Taken::new(start);
    let before = taken.bytes();
    let mut measuring = trace.process.as_ref().map(|process| Measuring::new(process, device));
    for (index, event) in device.events.iter().enumerate() {
        if let Some(measuring) = &mut measuring {
            measuring.before(index, &event, taken.bytes());
        }
        taken.apply(&event);
        on_event(index, &event, taken.bytes());
    }
    let measured = measuring.map(|measuring| measuring.finish(taken.bytes()));
    HeldOverTime { before, contexts: measured.and_then(|measured| own_overhead(device, &measured)) }
}

/// The events at which steps begin, ascending. A recording without steps is cut into equal parts.
pub fn step_starts(trace: &Trace, device: &DeviceTrace) -> Vec<usize> {
    Steps::find(trace, device).starts
}

/// Live memory of one line of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveLine {
    /// The program's innermost own line; of a compiled program with the function that called it.
    pub place: String,
    /// Live bytes.
    pub bytes: Bytes,
    /// Number of live blocks.
    pub blocks: u64,
}

/// Live memory by line after the event `at`, or at the peak; the largest `most` lines. Unlike the tree of an
/// explanation, the name of a line does not depend on how much the others hold, so recordings can be compared.
pub fn live_lines(
    trace: &Trace,
    device: &DeviceTrace,
    start: &Start,
    at: Option<usize>,
    most: usize,
) -> Vec<LiveLine> {
    let places = Places::new(trace);
    let mut lines: FastMap<String, StackTotal> = FastMap::default();
    for (stack, held) in live_stacks(device, start, at) {
        let line = lines.entry(places.compared(stack)).or_default();
        line.bytes += held.bytes;
        line.blocks += held.blocks;
    }
    let mut lines: Vec<LiveLine> = lines
        .into_iter()
        .map(|(place, held)| LiveLine { place, bytes: held.bytes, blocks: held.blocks })
        .collect();
    lines.sort_unstable_by(|one, two| two.bytes.cmp(&one.bytes).then_with(|| one.place.cmp(&two.place)));
    lines.truncate(most);
    lines
}

/// Live memory by stack after the event `at`, or at the peak, in one pass: the end of each block is remembered, and those
/// that are live then are added up.
fn live_stacks(device: &DeviceTrace, start: &Start, at: Option<usize>) -> HeldByStack {
    /// A block, and the number of events before its birth and before its end.
    struct Life {
        stack: StackId,
        size: Bytes,
        born: u32,
        freed: u32,
    }
    let older =
        |block: &OlderBlock| Life { stack: block.stack, size: block.requested, born: 0, freed: u32::MAX };
    let mut lives: Vec<Life> = start.blocks.iter().map(older).collect();
    let mut live_at: FastMap<u64, u32> = FastMap::default();
    for (block, number) in start.blocks.iter().zip(0..) {
        // A damaged file can have two blocks at one address.
        if let Some(life) =
            live_at.insert(block.address.0, number).and_then(|lost| lives.get_mut(lost as usize))
        {
            life.freed = 0;
        }
    }
    let mut live = start.live();
    let mut peak = (0, live);
    let count = at.map_or(usize::MAX, |at| at + 1);
    for (index, event) in device.events.iter().enumerate().take(count) {
        let freed = match event.action {
            Action::Alloc => {
                lives.push(Life {
                    stack: event.stack,
                    size: event.size,
                    born: index as u32 + 1,
                    freed: u32::MAX,
                });
                live_at.insert(event.address.0, lives.len() as u32 - 1)
            }
            Action::FreeCompleted => live_at.remove(&event.address.0),
            _ => continue,
        };
        if let Some(life) = freed.and_then(|number| lives.get_mut(number as usize)) {
            life.freed = index as u32 + 1;
            live = live - life.size;
        }
        if event.action == Action::Alloc {
            live += event.size;
            if live > peak.1 || peak.0 == 0 && live >= peak.1 {
                peak = (index as u32 + 1, live);
            }
        }
    }
    let moment = at.map_or(peak.0, |at| at as u32 + 1);
    let mut held = HeldByStack::default();
    for life in lives.iter().filter(|life| life.born <= moment && life.freed > moment) {
        let total = held.entry(life.stack).or_default();
        total.bytes += life.size;
        total.blocks += 1;
    }
    held
}

/// The line of a stack, as [`live_lines`] names it; `None` if no stack was recorded.
pub fn line_of(trace: &Trace, stack: StackId) -> Option<String> {
    let places = Places::new(trace);
    places.site(stack).map(|_| places.compared(stack))
}

/// The place in the program that a stack names.
pub fn place_of(trace: &Trace, stack: StackId) -> Option<String> {
    Places::new(trace).site_of(stack)
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, DeviceIndex, DeviceSample, ProcessRecord, StreamId, TraceKind};

    use super::super::history::History;
    use super::super::{by_stack, states_at};
    use super::*;

    /// A recording with samples as times and used mebibytes, and with blocks as times of their birth and their end: of so
    /// many mebibytes each.
    fn held(samples: &[(u64, u64)], blocks: &[(u64, u64, u64)]) -> Option<Bytes> {
        held_under(None, samples, blocks)
    }

    fn held_under(limit: Option<Bytes>, samples: &[(u64, u64)], blocks: &[(u64, u64, u64)]) -> Option<Bytes> {
        let (trace, device) = recorded(limit, samples, blocks);
        device_overhead(&trace, &device).map(|held_outside| held_outside.held)
    }

    fn recorded(
        limit: Option<Bytes>,
        samples: &[(u64, u64)],
        blocks: &[(u64, u64, u64)],
    ) -> (Trace, DeviceTrace) {
        let total = Bytes::gib(8);
        let sample = |&(time_us, used): &(u64, u64)| DeviceSample {
            time_us,
            device: DeviceIndex(0),
            free: total - Bytes::mib(used),
            total,
            events_before: None,
            thread: None,
        };
        let device_samples = samples.iter().map(sample).collect();
        let process = Some(ProcessRecord { device_samples, limit, ..ProcessRecord::default() });
        let event = |action, time_us, number: usize, mib| Event {
            action,
            address: Address((number as u64 + 1) << 32),
            size: Bytes::mib(mib),
            stream: StreamId(0),
            time_us,
            stack: StackId::NONE,
        };
        let mut events: Vec<Event> = Vec::new();
        for (number, &(born, freed, mib)) in blocks.iter().enumerate() {
            events.push(event(Action::Alloc, born, number, mib));
            events.push(event(Action::FreeCompleted, freed, number, mib));
        }
        events.sort_by_key(|event| event.time_us);
        let mut device = DeviceTrace::default();
        for event in events {
            device.events.push(event);
        }
        (Trace { process, ..Trace::new(TraceKind::Room) }, device)
    }

    #[test]
    fn live_memory_by_stack_is_that_of_the_state() {
        let mut trace = Trace::new(TraceKind::Room);
        let stacks: Vec<StackId> = (1..5)
            .map(|line| {
                let frame = makeroom_core::Frame { line, ..makeroom_core::Frame::default() };
                let frame = trace.stacks.frame(frame);
                trace.stacks.stack(&[frame])
            })
            .collect();
        let mut device = DeviceTrace::default();
        // Addresses that are reused, freed twice, freed before they are allocated, and allocated twice.
        for number in 0..2000_u64 {
            let drawn = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let action = [Action::Alloc, Action::FreeRequested, Action::FreeCompleted][drawn as usize % 3];
            let stack = stacks[drawn as usize / 3 % 4];
            let event = Event::new(action, drawn / 12 % 50 * 512, 1 + drawn % 1000);
            device.events.push(Event { stack, ..event });
        }
        let history = History::new(&device, &[]);
        for at in [None, Some(0), Some(700), Some(1999)] {
            let state = states_at(&device, &history, &[at.or(history.peak)]).pop().unwrap();
            let sorted = |held: HeldByStack| {
                let totals = held.into_iter().map(|(stack, held)| (stack.index(), held.bytes, held.blocks));
                let mut totals: Vec<_> = totals.collect();
                totals.sort_unstable();
                totals
            };
            let found = sorted(live_stacks(&device, &history.start, at));
            assert!(at == Some(0) || !found.is_empty());
            assert_eq!(found, sorted(by_stack(&state.blocks)), "{at:?}");
        }
    }

    #[test]
    fn calls_in_flight_are_not_overhead() {
        let block = [(100_000, 900_000, 1024)];
        assert_eq!(held(&[(50_000, 400), (500_000, 1424)], &block), Some(Bytes::mib(400)));
        // Taken already, and not told yet; told to be given back, and still there.
        assert_eq!(held(&[(99_500, 1424), (900_500, 1424)], &block), Some(Bytes::mib(400)));
        // A moment later it is not that call's.
        assert_eq!(held(&[(50_000, 1424)], &block), Some(Bytes::mib(1424)));
        assert_eq!(held(&[(950_000, 1424)], &block), Some(Bytes::mib(1424)));
    }

    /// A thread samples between two of its own calls, so they make nothing uncertain.
    #[test]
    fn a_thread_has_no_call_in_flight_while_it_samples() {
        let (mut trace, mut device) = recorded(
            None,
            &[(100_050, 1424), (900_050, 400)],
            &[(100_000, 900_000, 1024), (100_100, 900_100, 64)],
        );
        let mut held = |sampled_by, other_events: &[usize]| {
            for sample in &mut trace.process.as_mut().unwrap().device_samples {
                sample.thread = sampled_by;
            }
            for index in 0..device.events.len() {
                device.events.set_thread(index, if other_events.contains(&index) { 2 } else { 1 });
            }
            device_overhead(&trace, &device).map(|found| (found.held, found.uncertain))
        };
        let certain = Some((Bytes::mib(400), Bytes::ZERO));
        assert_eq!(held(Some(1), &[]), certain);
        assert_eq!(held(Some(1), &[0, 2]), certain, "the other thread made the same calls");
        let uncertain = Some((Bytes::mib(336), Bytes::mib(64)));
        assert_eq!(held(None, &[]), uncertain);
        assert_eq!(held(Some(1), &[1, 2]), uncertain, "the other thread may have been inside a call");
    }

    #[test]
    fn what_comes_later_counts_and_what_was_never_measured_does_not() {
        let blocks = [(100_000, 100_200, 512), (100_300, 900_000, 64)];
        assert_eq!(held(&[(50_000, 400), (500_000, 564)], &blocks), Some(Bytes::mib(500)));
        assert_eq!(held(&[(100_100, 1012)], &blocks), Some(Bytes::mib(500)), "nothing is being taken");
        assert_eq!(held(&[(100_250, 964)], &blocks), Some(Bytes::mib(452)), "512 MiB may still be there");
        assert_eq!(held(&[], &blocks), None);
        assert_eq!(held(&[(7, 300)], &[]), Some(Bytes::mib(300)));
    }

    #[test]
    fn under_a_limit_others_do_not_count() {
        let block = [(100_000, 900_000, 1024)];
        let limit = Some(Bytes::gib(4));
        // Alone, and with somebody who comes and takes three gibibytes.
        assert_eq!(held_under(limit, &[(50_000, 400), (500_000, 1424)], &block), Some(Bytes::mib(400)));
        assert_eq!(held_under(limit, &[(50_000, 400), (500_000, 4496)], &block), Some(Bytes::mib(400)));
        // With somebody whose own context is there from the beginning: together they could be one large context.
        assert_eq!(held_under(limit, &[(50_000, 1330), (500_000, 2354)], &block), Some(CONTEXT_TYPICAL));
        assert_eq!(held(&[(50_000, 1330), (500_000, 2354)], &block), Some(Bytes::mib(1330)));
        assert_eq!(held(&[(50_000, 400), (500_000, 4496)], &block), Some(Bytes::mib(3472)));
    }
}
