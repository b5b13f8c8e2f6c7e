//! Explains why a problem is infeasible: a small set of buffers that proves it.
//!
//! There are two kinds of proof. Either too much is live at once: then the largest buffers that are live at the time of
//! the maximum load already exceed the capacity, and no smaller set of them does. Or the search has ruled out every
//! arrangement of some buffers: then as many buffers as possible are removed that the proof does not need. Only proven
//! sets are returned.

use std::fmt;

use crate::Buffer;
use crate::instance::Instance;
use crate::load::peak;
use crate::meter::{Meter, Phase};
use crate::search::{Search, Verdict};

/// Maximum number of nodes for one attempt to remove some buffers.
const NODES_PER_ATTEMPT: u64 = 20_000;

/// Buffers that cannot all be placed within the capacity, regardless of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Positions of the buffers in the problem, in ascending order.
    pub buffers: Vec<usize>,
    /// The capacity they exceed.
    pub capacity: u64,
    /// The proof.
    pub reason: Reason,
}

/// The proof of a conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// They are all live at one time, and the sum of their sizes exceeds the capacity. Without any one of them, the
    /// rest would fit.
    Load {
        /// A time at which all of them are live.
        time: u64,
        /// The sum of their sizes.
        bytes: u128,
    },
    /// The load never exceeds the capacity, but every arrangement was ruled out.
    Arrangement,
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, capacity) = (self.buffers.len(), self.capacity);
        match self.reason {
            Reason::Load { time, bytes } => write!(
                formatter,
                "{count} buffers live at time {time} need {bytes} bytes together, more than the capacity of {capacity}"
            ),
            Reason::Arrangement => {
                write!(formatter, "{count} buffers cannot be arranged within capacity {capacity}")
            }
        }
    }
}

/// The smallest set of buffers live at the time of the maximum load that exceeds the capacity; `None` if the load never
/// does.
pub(crate) fn overload(buffers: &[Buffer], capacity: u64) -> Option<Conflict> {
    let peak = peak(buffers)?;
    if peak.bytes <= u128::from(capacity) {
        return None;
    }
    let alive = |buffer: &Buffer| !buffer.is_empty() && buffer.lower <= peak.time && peak.time < buffer.upper;
    let mut members: Vec<usize> = (0..buffers.len()).filter(|&index| alive(&buffers[index])).collect();
    members.sort_by_key(|&index| (std::cmp::Reverse(buffers[index].size), index));
    let mut bytes: u128 = 0;
    let mut count = 0;
    while bytes <= u128::from(capacity) && count < members.len() {
        bytes += u128::from(buffers[members[count]].size);
        count += 1;
    }
    members.truncate(count);
    members.sort_unstable();
    Some(Conflict { buffers: members, capacity, reason: Reason::Load { time: peak.time, bytes } })
}

/// Removes buffers from a set that is known not to fit, as long as the rest is proven not to fit either and the meter
/// permits: first many at a time, then single ones.
pub(crate) fn narrow(
    buffers: &[Buffer],
    mut members: Vec<usize>,
    capacity: u64,
    meter: &mut Meter,
) -> Conflict {
    meter.enter(Phase::Narrowing);
    members.sort_unstable();
    let mut chunk = members.len().div_ceil(2);
    while chunk > 0 && meter.goes_on() {
        let mut start = 0;
        while start < members.len() && meter.goes_on() {
            let mut rest = members.clone();
            rest.drain(start..(start + chunk).min(members.len()));
            if does_not_fit(buffers, &rest, capacity, meter) {
                members = rest;
            } else {
                start += chunk;
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    Conflict { buffers: members, capacity, reason: Reason::Arrangement }
}

fn does_not_fit(buffers: &[Buffer], members: &[usize], capacity: u64, meter: &mut Meter) -> bool {
    let subset: Vec<Buffer> = members.iter().map(|&index| buffers[index]).collect();
    let Ok(instance) = Instance::new(&subset) else { return false };
    let capacity = capacity / instance.unit;
    if instance.lower_bound > capacity {
        return true;
    }
    let mut search = Search::new(&instance, capacity, 0);
    matches!(search.run(NODES_PER_ATTEMPT, u64::MAX, meter), Verdict::Refuted { .. })
}
