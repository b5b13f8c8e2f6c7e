//! Explains why a problem is infeasible, with the buffers that prove it.
//!
//! There are two kinds of proof. Either too much is live at once: then the largest buffers that are live at the time of
//! the maximum load already exceed the capacity, and no smaller set of them does. Or the search has ruled out every
//! arrangement of the buffers of a component.

use std::fmt;

use crate::Buffer;
use crate::load::max_load;

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
                "{count} buffers live at time {time} together need {bytes} bytes, more than the capacity of {capacity}"
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
    let most = max_load(buffers)?;
    if most.bytes <= u128::from(capacity) {
        return None;
    }
    let is_live =
        |buffer: &Buffer| !buffer.is_empty() && buffer.lower <= most.time && most.time < buffer.upper;
    let mut members: Vec<usize> = (0..buffers.len()).filter(|&index| is_live(&buffers[index])).collect();
    members.sort_by_key(|&index| (std::cmp::Reverse(buffers[index].size), index));
    let mut bytes: u128 = 0;
    let mut count = 0;
    while bytes <= u128::from(capacity) && count < members.len() {
        bytes += u128::from(buffers[members[count]].size);
        count += 1;
    }
    members.truncate(count);
    members.sort_unstable();
    Some(Conflict { buffers: members, capacity, reason: Reason::Load { time: most.time, bytes } })
}
