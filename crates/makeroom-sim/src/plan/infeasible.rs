//! Why something cannot fit: a small set of buffers that shows it.
//!
//! Two proofs are known. Too much alive at once: then the largest of the buffers alive at the moment of
//! greatest load already exceed the capacity, and no fewer of them do. Or the search went through every
//! arrangement of some buffers: then as many as possible are taken away that the proof does not need.
//! Nothing is named here that was not proven.

use std::fmt;

use super::Buffer;
use super::instance::Instance;
use super::load::peak;
use super::meter::{Meter, Phase};
use super::search::{Search, Verdict};

/// Nodes allowed for one attempt to do without some buffers.
const NODES_PER_ATTEMPT: u64 = 20_000;

/// Buffers that cannot all be placed within the capacity, whatever the others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Positions of the buffers in the problem, in ascending order.
    pub buffers: Vec<usize>,
    /// The capacity they do not fit.
    pub capacity: u64,
    /// How that is known.
    pub reason: Reason,
}

/// How a conflict is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// They are all alive at one time, and their sizes add up to more than the capacity. Without any one
    /// of them the others would not.
    Load {
        /// A time at which all of them are alive.
        time: u64,
        /// The sum of their sizes.
        bytes: u128,
    },
    /// Each load alone would fit, but every arrangement of them was ruled out.
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

/// The fewest buffers alive at the moment of greatest load that exceed the capacity; `None` when the load
/// never does.
pub(super) fn overload(buffers: &[Buffer], capacity: u64) -> Option<Conflict> {
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

/// Takes away buffers from a set that is known not to fit, as long as the rest is proven not to fit either
/// and the meter allows: first many at a time, then single ones.
pub(super) fn narrow(
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
