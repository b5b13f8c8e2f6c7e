//! A problem in the form that the algorithms need: without empty buffers, in sections instead of times, in units of the
//! greatest common divisor of all sizes and alignments, sorted by first section.
//!
//! Dividing by the common unit is lossless: in a plan in which no buffer can move down, all offsets are sums of sizes
//! rounded up to alignments, hence multiples of the unit. It makes numbers small and equal peaks frequent, which the
//! search depends on.
//!
//! Invariants: `first[b] < end[b]`; `starts[s]..starts[s + 1]` are the buffers whose first section is `s`; `load[s] ==
//! sum of size[b] for b live in s`; all sizes together, each padded to its alignment, are below `2^62` units and `2^64`
//! bytes, so no peak overflows.

use crate::load::Sections;
use crate::{Buffer, Plan};

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    /// Bytes per unit.
    pub(crate) unit: u64,
    /// Units.
    pub(crate) size: Vec<u64>,
    /// Units, at least 1.
    pub(crate) alignment: Vec<u64>,
    /// First section of each buffer.
    pub(crate) first: Vec<u32>,
    /// Section after the last one of each buffer.
    pub(crate) end: Vec<u32>,
    /// Length of the lifetime, in the unit of time of the problem.
    pub(crate) lifetime: Vec<u64>,
    /// Index range of the buffers that start in each section.
    pub(crate) starts: Vec<u32>,
    /// Live units in each section.
    pub(crate) load: Vec<u64>,
    /// Live units in the fullest section.
    pub(crate) lower_bound: u64,
    /// Index of each buffer in the problem.
    original: Vec<usize>,
    /// Number of buffers in the problem, including empty ones.
    problem_length: usize,
}

/// The sizes are so large that peaks could overflow even in units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Instance {
    pub(crate) fn new(buffers: &[Buffer]) -> Result<Self, TooLarge> {
        let sections = Sections::new(buffers);
        let mut order: Vec<(u32, u32, usize)> = Vec::with_capacity(buffers.len());
        let mut unit = 0;
        for (index, span) in sections.spans.iter().enumerate() {
            if let Some((first, end)) = *span {
                order.push((first, end, index));
                unit = greatest_common_divisor(unit, buffers[index].size);
                if buffers[index].alignment > 1 {
                    unit = greatest_common_divisor(unit, buffers[index].alignment);
                }
            }
        }
        let unit = unit.max(1);
        order.sort_unstable_by_key(|&(first, end, index)| (first, u32::MAX - end, index));
        let mut total: u128 = 0;
        for &(_, _, index) in &order {
            let buffer = &buffers[index];
            total += u128::from(buffer.size / unit) + u128::from(buffer.alignment / unit);
        }
        if total >= 1 << 62 || total * u128::from(unit) > u128::from(u64::MAX) {
            return Err(TooLarge);
        }
        let load: Vec<u64> = sections.load.iter().map(|&load| (load / u128::from(unit)) as u64).collect();
        let mut starts = vec![0; load.len() + 1];
        for &(first, _, _) in &order {
            starts[first as usize + 1] += 1;
        }
        for section in 0..load.len() {
            starts[section + 1] += starts[section];
        }
        Ok(Self {
            unit,
            size: order.iter().map(|entry| buffers[entry.2].size / unit).collect(),
            alignment: order.iter().map(|entry| (buffers[entry.2].alignment / unit).max(1)).collect(),
            first: order.iter().map(|entry| entry.0).collect(),
            end: order.iter().map(|entry| entry.1).collect(),
            lifetime: order.iter().map(|entry| buffers[entry.2].upper - buffers[entry.2].lower).collect(),
            starts,
            lower_bound: load.iter().copied().max().unwrap_or(0),
            load,
            original: order.iter().map(|entry| entry.2).collect(),
            problem_length: buffers.len(),
        })
    }

    /// Number of buffers to place.
    pub(crate) fn len(&self) -> usize {
        self.size.len()
    }

    /// Number of sections.
    pub(crate) fn sections(&self) -> usize {
        self.load.len()
    }

    /// The sections in which a buffer is live.
    pub(crate) fn span(&self, buffer: usize) -> std::ops::Range<usize> {
        self.first[buffer] as usize..self.end[buffer] as usize
    }

    /// The buffers whose first section is one of `sections`.
    pub(crate) fn starting_in(&self, sections: std::ops::Range<usize>) -> std::ops::Range<usize> {
        self.starts[sections.start] as usize..self.starts[sections.end] as usize
    }

    /// The lowest offset at or above `floor` that satisfies the alignment of `buffer`.
    pub(crate) fn align(&self, buffer: usize, floor: u64) -> u64 {
        let mask = self.alignment[buffer] - 1;
        (floor + mask) & !mask
    }

    /// Index of a buffer in the problem.
    pub(crate) fn original(&self, buffer: usize) -> usize {
        self.original[buffer]
    }

    /// Converts offsets in units into a plan of the problem.
    pub(crate) fn plan(&self, offsets: &[u64]) -> Plan {
        let mut plan = Plan { offsets: vec![0; self.problem_length], peak: 0 };
        for (buffer, &offset) in offsets.iter().enumerate() {
            plan.offsets[self.original[buffer]] = offset * self.unit;
            plan.peak = plan.peak.max((offset + self.size[buffer]) * self.unit);
        }
        plan
    }
}

fn greatest_common_divisor(mut first: u64, mut second: u64) -> u64 {
    while second != 0 {
        (first, second) = (second, first % second);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_divides_sizes_and_alignments() {
        let buffers = [Buffer::new(0, 2, 3072), Buffer::new(0, 2, 1024).aligned(512)];
        let instance = Instance::new(&buffers).unwrap();
        assert_eq!(instance.unit, 512);
        assert_eq!(instance.size, [6, 2]);
        assert_eq!(instance.alignment, [1, 1]);
        assert_eq!(instance.lower_bound, 8);
    }

    #[test]
    fn plans_come_back_in_the_order_of_the_problem() {
        let buffers = [Buffer::new(5, 9, 20), Buffer::new(0, 0, 5), Buffer::new(0, 6, 10)];
        let instance = Instance::new(&buffers).unwrap();
        assert_eq!(instance.len(), 2);
        let plan = instance.plan(&[0, 1]);
        assert_eq!(plan, Plan { offsets: vec![0, 0, 10], peak: 20 });
    }

    #[test]
    fn sums_that_could_overflow_are_refused() {
        let buffers = [Buffer::new(0, 1, u64::MAX), Buffer::new(1, 2, u64::MAX - 1)];
        assert_eq!(Instance::new(&buffers).unwrap_err(), TooLarge);
    }
}
