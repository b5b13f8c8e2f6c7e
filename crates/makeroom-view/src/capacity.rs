//! What a device can hold, and the part of it that this process did not request.
//!
//! The chart is drawn against the same figures that the account of `why` has:
//!
//! ```text
//! capacity = base + reserved + free          at the moment of the verdict
//! ```
//!
//! where `base` is the memory that the capacity includes and this process did not request. Of a GPU that is contexts, code,
//! the driver's own memory and other processes; of the limit of a run it is contexts; of the limit of an allocator it is
//! nothing. At other moments the base follows the contexts that exist.

use makeroom_core::{Bytes, Trace};
use makeroom_explain::{Explanation, OverheadStep, overhead_over_time};
use serde::Serialize;

use crate::timeline::Timeline;

/// Names of the account's lines: memory that is left, the contexts that a limit counts, and other processes.
const FREE: &str = "free";
const CONTEXTS: &str = "context and code";
const OTHERS: &str = "other processes";

/// The capacity of a device.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Capacity {
    /// All memory, or the limit on it; `None` if unknown.
    pub(crate) bytes: Option<u64>,
    /// Whether it is a limit rather than the size of the GPU.
    is_limit: bool,
    /// What the account of the verdict has as free; `None` if it is about another device or does not say.
    free: Option<u64>,
    /// Memory that this process did not request, as far as the capacity includes it.
    base: Vec<Base>,
}

/// The memory that this process did not request, from a position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Base {
    position: usize,
    /// Contexts, code, the driver's own memory and other processes.
    bytes: u64,
    /// Other processes alone.
    others: u64,
}

impl Serialize for Base {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.position, self.bytes, self.others).serialize(serializer)
    }
}

impl Capacity {
    /// The capacity of a device, given the explanation of its recording and the size of the GPU, if known.
    pub(crate) fn new(
        explanation: &Explanation,
        trace: &Trace,
        timeline: &Timeline,
        total: Option<Bytes>,
    ) -> Self {
        if timeline.is_pinned(trace) {
            return Self::default();
        }
        let device = timeline.device(trace).device;
        let position = timeline.interest();
        let ledger = explanation.ledger.as_ref().filter(|ledger| ledger.device() == Some(device));
        let Some(ledger) = ledger else {
            let base = outside(trace, timeline, Counted::All);
            return Self { bytes: total.map(Bytes::get), is_limit: false, free: None, base };
        };
        let line = |name: &str| {
            ledger.lines().iter().find(|line| line.what() == name).map(|line| line.bytes().get())
        };
        let is_limit = ledger.name().contains("limit");
        let counted = match (is_limit, line(CONTEXTS)) {
            (false, _) => Counted::All,
            (true, Some(_)) => Counted::Contexts,
            (true, None) => Counted::Nothing,
        };
        let mut base = outside(trace, timeline, counted);
        let free = line(FREE);
        let whole = ledger.total().map(Bytes::get);
        if let (Some(whole), Some(free)) = (whole, free) {
            let held = timeline.sum_at(trace, position).reserved;
            let bytes = whole.saturating_sub(free).saturating_sub(held);
            let others = line(OTHERS).unwrap_or(0).min(bytes);
            let is_measured = !base.is_empty();
            if is_measured {
                set_from(&mut base, Base { position, bytes, others });
            } else if bytes > 0 {
                base.push(Base { position: 0, bytes, others });
            }
        }
        Self { bytes: whole.or(total.map(Bytes::get)), is_limit, free, base }
    }

    /// The memory that the allocator could have had at a position; `None` if unknown.
    pub(crate) fn room(&self, position: usize) -> Option<u64> {
        let after = self.base.partition_point(|base| base.position <= position);
        let base = after.checked_sub(1).and_then(|index| self.base.get(index)).map_or(0, |base| base.bytes);
        self.bytes.map(|bytes| bytes.saturating_sub(base))
    }
}

/// What a capacity includes besides the memory that this process requested.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// The size of the GPU: all of it.
    All,
    /// The limit of `makeroom run --limit`: the contexts of this process.
    Contexts,
    /// The limit of an allocator.
    Nothing,
}

/// The counted memory of contexts and other processes, from each position on.
fn outside(trace: &Trace, timeline: &Timeline, counted: Counted) -> Vec<Base> {
    if counted == Counted::Nothing {
        return Vec::new();
    }
    let device = timeline.device(trace);
    let mut steps = overhead_over_time(trace, device).into_iter().peekable();
    let mut base: Vec<Base> = Vec::new();
    let mut put = |position: usize, step: OverheadStep| {
        let others = if counted == Counted::All { step.others.get() } else { 0 };
        let new = Base { position, bytes: step.contexts.get().saturating_add(others), others };
        match base.last_mut() {
            Some(last) if last.position == position => *last = new,
            Some(last) if (last.bytes, last.others) == (new.bytes, new.others) => {}
            _ => base.push(new),
        }
    };
    for (index, event) in device.events.iter().enumerate() {
        while let Some(step) = steps.next_if(|step| step.time_us <= event.time_us) {
            put(index, step);
        }
    }
    for step in steps {
        put(device.events.len(), step);
    }
    base
}

/// Replaces the base at a position by a measured one; from there on it differs by the same amounts.
fn set_from(base: &mut Vec<Base>, measured: Base) {
    let after = base.partition_point(|step| step.position <= measured.position);
    let before = after.checked_sub(1).and_then(|index| base.get(index));
    let before = before.map_or((0, 0), |step| (step.bytes, step.others));
    for later in &mut base[after..] {
        later.bytes = later.bytes.saturating_add(measured.bytes).saturating_sub(before.0);
        later.others = later.others.saturating_add(measured.others).saturating_sub(before.1).min(later.bytes);
    }
    match after.checked_sub(1).and_then(|index| base.get_mut(index)) {
        Some(step) if step.position == measured.position => *step = measured,
        _ => base.insert(after, measured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(of: &[(usize, u64, u64)]) -> Vec<Base> {
        of.iter().map(|&(position, bytes, others)| Base { position, bytes, others }).collect()
    }

    #[test]
    fn a_measured_base_holds_from_its_position_on() {
        let mut base = steps(&[(0, 500, 0), (40, 700, 100), (90, 600, 50)]);
        set_from(&mut base, Base { position: 60, bytes: 750, others: 130 });
        assert_eq!(base, steps(&[(0, 500, 0), (40, 700, 100), (60, 750, 130), (90, 650, 80)]));
        set_from(&mut base, Base { position: 0, bytes: 510, others: 0 });
        assert_eq!(base, steps(&[(0, 510, 0), (40, 710, 100), (60, 760, 130), (90, 660, 80)]));
    }

    #[test]
    fn the_room_of_the_allocator_is_what_the_base_leaves() {
        let capacity = Capacity { bytes: Some(2000), base: steps(&[(10, 500, 0)]), ..Capacity::default() };
        assert_eq!((capacity.room(9), capacity.room(10)), (Some(2000), Some(1500)));
        assert_eq!(Capacity::default().room(0), None);
    }
}
