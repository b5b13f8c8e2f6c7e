//! What a device can hold, and the part of it that this process did not request.
//!
//! The chart is drawn against the same figures that the account of `why` has:
//!
//! ```text
//! capacity = base + reserved + free          at the moment of the verdict
//! ```
//!
//! where `base` is contexts, code, the driver's own memory and other processes. Between those moments the base follows
//! the contexts that exist.

use makeroom_core::{Bytes, Trace};
use makeroom_explain::{Explanation, overhead_over_time};
use serde::Serialize;

use crate::timeline::Timeline;

/// The name of the account's line for memory that is left.
const FREE: &str = "free";

/// The capacity of a device.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Capacity {
    /// All memory, or the limit on it; `None` if unknown.
    pub(crate) bytes: Option<u64>,
    /// Whether it is a limit rather than the size of the GPU.
    is_limit: bool,
    /// What the account of the verdict has as free; `None` if it is about another device or does not say.
    free: Option<u64>,
    /// Memory that this process did not request, from each position on.
    base: Vec<(usize, u64)>,
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
        let start = timeline.interest();
        let mut base = contexts(trace, timeline);
        let ledger = explanation.ledger.as_ref().filter(|ledger| ledger.device() == Some(device));
        let Some(ledger) = ledger else {
            return Self { bytes: total.map(Bytes::get), is_limit: false, free: None, base };
        };
        let free = ledger.lines().iter().find(|line| line.what() == FREE).map(|line| line.bytes().get());
        let whole = ledger.total().map(Bytes::get);
        if let (Some(whole), Some(free)) = (whole, free) {
            let held = timeline.sum_at(trace, start).reserved;
            let at_verdict = whole.saturating_sub(free).saturating_sub(held);
            let is_measured = !base.is_empty();
            if is_measured {
                set_from(&mut base, start, at_verdict);
            } else if at_verdict > 0 {
                base.push((0, at_verdict));
            }
        }
        let is_limit = ledger.name().contains("limit");
        Self { bytes: whole.or(total.map(Bytes::get)), is_limit, free, base }
    }

    /// The memory that the allocator could have had at a position; `None` if unknown.
    pub(crate) fn room(&self, position: usize) -> Option<u64> {
        let after = self.base.partition_point(|&(from, _)| from <= position);
        let base = after.checked_sub(1).and_then(|index| self.base.get(index)).map_or(0, |&(_, bytes)| bytes);
        self.bytes.map(|bytes| bytes.saturating_sub(base))
    }
}

/// The memory of contexts and other processes, from each position on.
fn contexts(trace: &Trace, timeline: &Timeline) -> Vec<(usize, u64)> {
    let device = timeline.device(trace);
    let mut steps = overhead_over_time(trace, device).into_iter().peekable();
    let mut base: Vec<(usize, u64)> = Vec::new();
    let mut put = |position: usize, bytes: Bytes| match base.last_mut() {
        Some((last, held)) if *last == position => *held = bytes.get(),
        _ => base.push((position, bytes.get())),
    };
    for (index, event) in device.events.iter().enumerate() {
        while let Some((_, bytes)) = steps.next_if(|&(time_us, _)| time_us <= event.time_us) {
            put(index, bytes);
        }
    }
    for (_, bytes) in steps {
        put(device.events.len(), bytes);
    }
    base
}

/// Replaces the base at a position by a measured one; from there on it differs by the same amount.
fn set_from(base: &mut Vec<(usize, u64)>, position: usize, bytes: u64) {
    let after = base.partition_point(|&(from, _)| from <= position);
    let before = after.checked_sub(1).and_then(|index| base.get(index)).map_or(0, |&(_, bytes)| bytes);
    for (_, later) in &mut base[after..] {
        *later = later.saturating_add(bytes).saturating_sub(before);
    }
    match after.checked_sub(1).and_then(|index| base.get_mut(index)) {
        Some((from, held)) if *from == position => *held = bytes,
        _ => base.insert(after, (position, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_base_holds_from_its_position_on() {
        let mut base = vec![(0, 500), (40, 700), (90, 600)];
        set_from(&mut base, 60, 750);
        assert_eq!(base, [(0, 500), (40, 700), (60, 750), (90, 650)]);
        set_from(&mut base, 0, 510);
        assert_eq!(base, [(0, 510), (40, 710), (60, 760), (90, 660)]);
    }

    #[test]
    fn the_room_of_the_allocator_is_what_the_base_leaves() {
        let capacity = Capacity { bytes: Some(2000), base: vec![(10, 500)], ..Capacity::default() };
        assert_eq!((capacity.room(9), capacity.room(10)), (Some(2000), Some(1500)));
        assert_eq!(Capacity::default().room(0), None);
    }
}
