//! A part of a recording between two moments, and its steps: what was live before, at the peak and after, by line, and
//! what each step left behind.
//!
//! The program gives the moments; a step is what lies between two of them. What is *left* was handed out between the first
//! and the last moment, was still there at the last, and nobody has asked to free it. The verdict over a whole recording,
//! which has to find the steps itself, is `trace/steps.rs`'s.
//!
//! A moment is a time, or, where the allocator counts, a count: PyTorch's history has times of a clock of its own, and a
//! tensor is freed within the microsecond in which a step ends.
//!
//! For each device: after = before + Σ steps' change, left ≤ after, and Σ taken lines ≥ peak − before; they are equal if the
//! watched code freed no memory that was older than itself.

use makeroom_core::{Action, Bytes, DeviceIndex, DeviceTrace, FastMap, SortCompact as _, Trace};

use crate::Site;
use crate::trace::{HeldByStack, History, Places, StackTotal, by_stack, line_of, states_at};

/// What one device held while it was watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The device.
    pub device: DeviceIndex,
    /// Live at the first moment.
    pub before: Bytes,
    /// The most that was live.
    pub peak: Bytes,
    /// Live at the last moment.
    pub after: Bytes,
    /// How many allocations there were.
    pub allocations: u64,
    /// Who held what was live at the peak, largest first.
    pub sites: Vec<Site>,
    /// The lines that held more at the peak than before, largest first.
    pub taken: Vec<TakenLine>,
    /// Handed out while watched and there at the end.
    pub left: Bytes,
    /// How many blocks that is.
    pub left_blocks: u64,
    /// Who holds it.
    pub left_sites: Vec<Site>,
    /// The steps, in order.
    pub steps: Vec<WatchedStep>,
    /// Who holds what steps left behind, the first and the last step aside: one fills caches, the other is not over.
    pub leaking: Vec<Site>,
}

/// The memory that a line of code held at the peak in addition to what it had held before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenLine {
    /// The line, as baselines name it; `None` if no stack was recorded.
    pub place: Option<String>,
    /// Bytes at the peak minus bytes before.
    pub bytes: Bytes,
    /// Blocks at the peak minus blocks before; 0 if there were more before.
    pub blocks: u64,
}

/// What lies between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedStep {
    /// The most that was live.
    pub peak: Bytes,
    /// Live at its end.
    pub after: Bytes,
    /// Handed out in it and there when watching ended.
    pub left: Bytes,
}

/// The moments that a program gives: the first, the ends of steps, the last.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    /// Microseconds since the epoch, ascending. An event of that microsecond comes after the moment.
    pub times: Vec<u64>,
    /// For devices whose allocator counts, instead of times: how many allocations and completed frees there were after
    /// each moment, until the recording ends. Moments before a recording that has lost its beginning are where it begins.
    pub changes_after: FastMap<DeviceIndex, Vec<u64>>,
}

/// Looks at a recording between the first and the last moment; those in between end steps. A device without an event and
/// without memory is left out.
pub fn watch(trace: &Trace, moments: &Moments) -> Vec<Watched> {
    trace.devices.iter().filter_map(|device| watch_device(trace, device, moments)).collect()
}

fn watch_device(trace: &Trace, device: &DeviceTrace, moments: &Moments) -> Option<Watched> {
    let ends = match moments.changes_after.get(&device.device) {
        Some(changes_after) => positions_by_count(device, changes_after),
        None => positions_by_time(device, &moments.times),
    };
    let (&first, &last) = (ends.first()?, ends.last()?);
    let history = History::new(device, &[]);
    let pass = Pass::new(device, &history, &ends);
    if device.events.is_empty() && pass.before.is_zero() {
        return None;
    }
    // A position counts the events before a moment, and a state is the one after an event.
    let after = |position: usize| position.checked_sub(1);
    let states = states_at(device, &history, &[after(first), after(pass.peak_position), after(last)]);
    let [at_start, at_peak, at_end] = states.as_slice() else { return None };
    let born_in = |from: usize, to: usize| {
        at_end.blocks.iter().filter(move |block| {
            !block.is_pending() && block.born().is_some_and(|born| (from..to).contains(&born))
        })
    };
    let places = Places::new(trace);
    let size = |from, to| born_in(from, to).map(|block| block.requested).sum::<Bytes>();
    let steps: Vec<WatchedStep> = ends
        .windows(2)
        .zip(&pass.steps)
        .map(|(pair, step)| WatchedStep { left: size(pair[0], pair[1]), ..*step })
        .collect();
    let settled = if steps.len() > 2 { (ends[1], ends[ends.len() - 2]) } else { (0, 0) };
    Some(Watched {
        device: device.device,
        before: pass.before,
        peak: pass.peak,
        after: at_end.live(),
        allocations: pass.allocations,
        sites: places.tree(&by_stack(&at_peak.blocks)).0,
        taken: taken(trace, &by_stack(&at_start.blocks), &by_stack(&at_peak.blocks)),
        left: size(first, last),
        left_blocks: born_in(first, last).count() as u64,
        left_sites: places.tree(&by_stack(born_in(first, last))).0,
        leaking: places.tree(&by_stack(born_in(settled.0, settled.1))).0,
        steps,
    })
}

/// The lines that hold more at the peak than at the start. A line that frees a block and allocates another of the same size
/// holds no more than before.
fn taken(trace: &Trace, at_start: &HeldByStack, at_peak: &HeldByStack) -> Vec<TakenLine> {
    let by_line = |held: &HeldByStack| {
        let mut lines: FastMap<Option<String>, StackTotal> = FastMap::default();
        for (&stack, total) in held {
            let line = lines.entry(line_of(trace, stack)).or_default();
            line.bytes += total.bytes;
            line.blocks += total.blocks;
        }
        lines
    };
    let before = by_line(at_start);
    let mut lines: Vec<TakenLine> = by_line(at_peak)
        .into_iter()
        .filter_map(|(place, now)| {
            let then = before.get(&place).copied().unwrap_or_default();
            let bytes = now.bytes - then.bytes;
            let blocks = now.blocks.saturating_sub(then.blocks);
            (!bytes.is_zero()).then_some(TakenLine { place, bytes, blocks })
        })
        .collect();
    lines.sort_compact_by(|one, two| two.bytes.cmp(&one.bytes).then_with(|| one.place.cmp(&two.place)));
    lines
}

/// How many events lie before each of the ascending `times`.
fn positions_by_time(device: &DeviceTrace, times: &[u64]) -> Vec<usize> {
    let mut found = Vec::with_capacity(times.len());
    let mut wanted = times.iter().copied().peekable();
    for (index, event) in device.events.iter().enumerate() {
        while wanted.next_if(|&time| time <= event.time_us).is_some() {
            found.push(index);
        }
    }
    found.resize(times.len(), device.events.len());
    found
}

/// How many events lie before each of the moments that so many changes follow. Frees that were asked for before the next
/// change belong to what is before the moment.
fn positions_by_count(device: &DeviceTrace, changes_after: &[u64]) -> Vec<usize> {
    let is_change = |action| matches!(action, Action::Alloc | Action::FreeCompleted);
    let events = device.events.iter().enumerate();
    let changes: Vec<usize> =
        events.filter(|(_, event)| is_change(event.action)).map(|(index, _)| index).collect();
    changes_after
        .iter()
        .map(|&after| {
            let before = changes.len().saturating_sub(usize::try_from(after).unwrap_or(usize::MAX));
            changes.get(before).copied().unwrap_or(device.events.len())
        })
        .collect()
}

/// Running totals between the moments.
struct Pass {
    before: Bytes,
    peak: Bytes,
    /// The events before the peak and with it.
    peak_position: usize,
    allocations: u64,
    steps: Vec<WatchedStep>,
}

impl Pass {
    fn new(device: &DeviceTrace, history: &History, ends: &[usize]) -> Self {
        let mut sizes: FastMap<u64, Bytes> =
            history.start.blocks.iter().map(|block| (block.address.0, block.requested)).collect();
        let mut live = history.start.live();
        let mut pass = Self { before: live, peak: live, peak_position: 0, allocations: 0, steps: Vec::new() };
        let mut step = WatchedStep::default();
        let mut next_end = ends.iter().copied().peekable();
        let mut is_begun = false;
        for (index, event) in device.events.iter().map(Some).chain([None]).enumerate() {
            while next_end.next_if_eq(&index).is_some() {
                if is_begun {
                    pass.steps.push(WatchedStep { after: live, ..step });
                } else {
                    (pass.before, pass.peak, pass.peak_position, is_begun) = (live, live, index, true);
                }
                step = WatchedStep { peak: live, ..WatchedStep::default() };
            }
            let Some(event) = event.filter(|_| next_end.peek().is_some()) else { break };
            match event.action {
                Action::Alloc => {
                    let lost = sizes.insert(event.address.0, event.size).unwrap_or(Bytes::ZERO);
                    live = live - lost + event.size;
                    if !is_begun {
                        continue;
                    }
                    pass.allocations += 1;
                    step.peak = step.peak.max(live);
                    if live > pass.peak {
                        (pass.peak, pass.peak_position) = (live, index + 1);
                    }
                }
                Action::FreeCompleted => {
                    live = live - sizes.remove(&event.address.0).unwrap_or(Bytes::ZERO);
                }
                _ => {}
            }
        }
        pass
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Event, Frame, StackId, StreamId, TraceKind};

    use super::*;

    fn trace(events: &[(Action, u64, u64, u64)]) -> Trace {
        let mut device = DeviceTrace::default();
        for &(action, address, mib, time_us) in events {
            device.events.push(Event {
                action,
                address: Address(address),
                size: Bytes::mib(mib),
                stream: StreamId(0),
                time_us,
                stack: StackId::NONE,
            });
        }
        let mut trace = Trace::new(TraceKind::Room);
        trace.devices.push(device);
        trace
    }

    fn times(times: &[u64]) -> Moments {
        Moments { times: times.to_vec(), ..Moments::default() }
    }

    #[test]
    fn what_steps_leave_is_told_from_what_they_only_used() {
        use Action::{Alloc, FreeCompleted as Free};
        let trace = trace(&[
            (Alloc, 1, 8, 10),
            (Alloc, 2, 100, 20), // the first step: 100 for a moment, 1 kept
            (Alloc, 3, 1, 21),
            (Free, 2, 100, 22),
            (Alloc, 4, 2, 31), // the second keeps 2
            (Alloc, 5, 3, 41), // the third keeps 3
            (Free, 3, 1, 42),
            (Alloc, 6, 500, 60), // after the end
        ]);
        let watched = &watch(&trace, &times(&[15, 30, 40, 50]))[0];
        assert_eq!(watched.before, Bytes::mib(8));
        assert_eq!(watched.peak, Bytes::mib(109));
        assert_eq!(watched.after, Bytes::mib(13));
        assert_eq!((watched.left, watched.left_blocks), (Bytes::mib(5), 2));
        assert_eq!(watched.allocations, 4);
        let steps: Vec<_> = watched.steps.iter().map(|step| (step.after, step.left, step.peak)).collect();
        let told = [(9, 0, 109), (11, 2, 11), (13, 3, 14)]
            .map(|(after, left, peak)| (Bytes::mib(after), Bytes::mib(left), Bytes::mib(peak)));
        assert_eq!(steps, told);
        assert_eq!(watched.leaking.iter().map(|site| site.bytes).sum::<Bytes>(), Bytes::mib(2));
        assert_eq!(watched.sites.iter().map(|site| site.bytes).sum::<Bytes>(), Bytes::mib(109));
    }

    #[test]
    fn taken_lines_do_not_include_older_memory() {
        use Action::{Alloc, FreeCompleted as Free};
        let mut trace = trace(&[
            (Alloc, 1, 8, 10), // before, by line 1
            (Alloc, 2, 4, 11), // before, by line 2
            (Free, 2, 4, 20),  // replaced by a larger block of the same line
            (Alloc, 2, 6, 21),
            (Alloc, 3, 30, 22), // by line 3
            (Free, 3, 30, 23),
        ]);
        let stacks: Vec<StackId> = (1..=3)
            .map(|line| {
                let (function, file) = (trace.stacks.name("step"), trace.stacks.name("/home/user/train.py"));
                let frame = trace.stacks.frame(Frame { function, file, line, ..Frame::default() });
                trace.stacks.stack(&[frame])
            })
            .collect();
        let events = std::mem::take(&mut trace.devices[0]).events;
        for (event, stack) in events.iter().zip([0, 1, 1, 1, 2, 2]) {
            trace.devices[0].events.push(Event { stack: stacks[stack], ..event });
        }
        let watched = &watch(&trace, &times(&[15, 50]))[0];
        let taken: Vec<_> =
            watched.taken.iter().map(|line| (line.place.as_deref(), line.bytes, line.blocks)).collect();
        let place = |line| format!("user/train.py:{line} step");
        assert_eq!(taken, [(Some(&*place(3)), Bytes::mib(30), 1), (Some(&*place(2)), Bytes::mib(2), 0)]);
        let sum: Bytes = watched.taken.iter().map(|line| line.bytes).sum();
        assert_eq!(sum, watched.peak - watched.before);
    }

    #[test]
    fn moments_outside_of_the_recording_are_its_ends() {
        let trace = trace(&[(Action::Alloc, 1, 8, 10)]);
        let watched = &watch(&trace, &times(&[0, 99]))[0];
        assert_eq!((watched.before, watched.peak, watched.left), (Bytes::ZERO, Bytes::mib(8), Bytes::mib(8)));
        let watched = &watch(&trace, &times(&[50, 99]))[0];
        assert_eq!((watched.before, watched.peak, watched.left), (Bytes::mib(8), Bytes::mib(8), Bytes::ZERO));
        assert!(watch(&trace, &times(&[])).is_empty());
    }

    #[test]
    fn moments_that_are_counts_do_not_ask_the_clock() {
        use Action::{Alloc, FreeCompleted, FreeRequested};
        // Two steps in one microsecond; the second's buffer waits for its stream.
        let trace = trace(&[
            (Alloc, 1, 64, 7),
            (Alloc, 2, 3, 7),
            (FreeRequested, 1, 64, 7),
            (FreeCompleted, 1, 64, 7),
            (Alloc, 1, 64, 7),
            (Alloc, 3, 3, 7),
            (FreeRequested, 1, 64, 7),
        ]);
        let at = |changes_after: &[u64]| {
            let changes_after = [(DeviceIndex(0), changes_after.to_vec())].into_iter().collect();
            watch(&trace, &Moments { changes_after, ..Moments::default() }).remove(0)
        };
        let watched = at(&[5, 2, 0]);
        let ends: Vec<_> = watched.steps.iter().map(|step| (step.after, step.left)).collect();
        assert_eq!(ends, [(Bytes::mib(3), Bytes::mib(3)), (Bytes::mib(70), Bytes::mib(3))]);
        assert_eq!((watched.before, watched.left, watched.left_blocks), (Bytes::ZERO, Bytes::mib(6), 2));
        // More changes than there are: the beginning is lost.
        let watched = at(&[9, 7, 2, 0]);
        assert_eq!(watched.steps.iter().map(|step| step.left).collect::<Vec<_>>(), [0, 3, 3].map(Bytes::mib));
    }
}
