//! A slow, obviously correct checker for any placement policy.
//!
//! It keeps its own list of regions and blocks, shares no code with the policies, and recomputes overlaps, bounds and
//! free memory from that list at every step. It never corrects a policy; it records the first violation.

use std::collections::BTreeMap;
use std::fmt;

use crate::placement::{NotPlaced, Offset, Placement, Region, Report};

/// Something that a policy must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// A policy with a checker.
#[derive(Clone, Debug)]
pub struct Validated<P> {
    policy: P,
    regions: Vec<Region>,
    /// The size of each block, by offset.
    blocks: BTreeMap<u64, u64>,
    violation: Option<Violation>,
}

impl<P: Placement> Validated<P> {
    /// Wraps a policy that has no regions yet.
    pub fn new(policy: P) -> Self {
        Self { policy, regions: Vec::new(), blocks: BTreeMap::new(), violation: None }
    }

    /// The first violation, if any.
    pub fn verdict(&self) -> Result<(), Violation> {
        self.violation.clone().map_or(Ok(()), Err)
    }

    fn require(&mut self, is_right: bool, wrong: impl FnOnce() -> String) {
        if !is_right && self.violation.is_none() {
            self.violation = Some(Violation(wrong()));
        }
    }

    /// The holes, found by walking each region from block to block.
    fn holes(&self) -> Vec<(u64, u64)> {
        let mut holes = Vec::new();
        for region in &self.regions {
            let mut cursor = region.offset.0;
            for (&offset, &size) in self.blocks.range(region.offset.0..region.end()) {
                if cursor < offset {
                    holes.push((cursor, offset - cursor));
                }
                cursor = offset + size;
            }
            if cursor < region.end() {
                holes.push((cursor, region.end() - cursor));
            }
        }
        holes
    }

    fn check_placed(&mut self, request: u64, alignment: u64, at: u64) {
        let size = self.policy.size_at(Offset(at)).unwrap_or(0);
        self.require(size >= request, || format!("{size} bytes were placed for a request of {request}"));
        self.require(at.is_multiple_of(alignment), || format!("{at:#x} is not a multiple of {alignment}"));
        let end = at.saturating_add(size);
        let is_inside = self.regions.iter().any(|region| region.offset.0 <= at && end <= region.end());
        self.require(is_inside, || format!("{at:#x} to {end:#x} is not inside a region"));
        let overlapped = self.blocks.iter().find(|&(&other, &size)| at < other + size && other < end);
        let overlapped = overlapped.map(|(&other, _)| other);
        self.require(overlapped.is_none(), || format!("{at:#x} to {end:#x} overlaps {overlapped:#x?}"));
        self.blocks.insert(at, size);
    }

    fn check_refused(&mut self, request: u64, alignment: u64) {
        let fitting = self.holes().into_iter().find(|&(offset, size)| {
            let start = offset.checked_next_multiple_of(alignment);
            let end = start.and_then(|start| start.checked_add(request.max(1)));
            end.is_some_and(|end| end <= offset + size)
        });
        self.require(fitting.is_none(), || {
            format!("placing {request} bytes failed, but {fitting:x?} has space")
        });
    }

    fn check_report(&mut self) {
        let holes = self.holes();
        let used: u64 = self.blocks.values().sum();
        let capacity: u64 = self.regions.iter().map(|region| region.size).sum();
        let expected = Report {
            capacity,
            used,
            free: capacity - used.min(capacity),
            largest_free: holes.iter().map(|&(_, size)| size).max().unwrap_or(0),
            holes: holes.len(),
            blocks: self.blocks.len(),
        };
        let report = self.policy.report();
        self.require(report == expected, || format!("reported {report:?}, expected {expected:?}"));
    }
}

impl<P: Placement> Placement for Validated<P> {
    fn place(&mut self, size: u64, alignment: u64) -> Option<Offset> {
        let placed = self.policy.place(size, alignment);
        match placed {
            Some(offset) => self.check_placed(size, alignment.max(1), offset.0),
            None if alignment.is_power_of_two() => self.check_refused(size, alignment),
            None => {}
        }
        self.check_report();
        placed
    }

    fn free(&mut self, offset: Offset) -> Result<u64, NotPlaced> {
        let freed = self.policy.free(offset);
        let known = self.blocks.remove(&offset.0);
        self.require(freed.ok() == known, || {
            format!("freeing {offset:x?} returned {freed:?}, not {known:?}")
        });
        self.check_report();
        freed
    }

    fn size_at(&self, offset: Offset) -> Option<u64> {
        self.policy.size_at(offset)
    }

    fn grow(&mut self, size: u64) -> Option<Region> {
        let grown = self.policy.grow(size);
        if let Some(region) = grown {
            let is_behind = self.regions.iter().all(|known| known.end() <= region.offset.0);
            self.require(is_behind, || format!("{region:x?} is not after all other regions"));
            self.require(region.size <= size, || format!("{region:x?} is larger than {size} bytes"));
            self.regions.push(region);
        }
        self.check_report();
        grown
    }

    fn shrink(&mut self) -> Vec<Region> {
        let shrunk = self.policy.shrink();
        let blocks = &self.blocks;
        let is_unused = |region: &Region| blocks.range(region.offset.0..region.end()).next().is_none();
        let (mut unused, used): (Vec<Region>, Vec<Region>) =
            self.regions.iter().copied().partition(is_unused);
        let mut taken = shrunk.clone();
        unused.sort_by_key(|region| region.offset);
        taken.sort_by_key(|region| region.offset);
        self.regions = used;
        self.require(taken == unused, || format!("{taken:x?} were removed, {unused:x?} were unused"));
        self.check_report();
        shrunk
    }

    fn report(&self) -> Report {
        self.policy.report()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BestFit;

    /// Places everything at the same offset, and loses count of free memory.
    struct Careless;

    impl Placement for Careless {
        fn place(&mut self, _size: u64, _alignment: u64) -> Option<Offset> {
            Some(Offset(0))
        }
        fn free(&mut self, _offset: Offset) -> Result<u64, NotPlaced> {
            Ok(1)
        }
        fn size_at(&self, _offset: Offset) -> Option<u64> {
            Some(8)
        }
        fn grow(&mut self, size: u64) -> Option<Region> {
            Some(Region { offset: Offset(0), size })
        }
        fn shrink(&mut self) -> Vec<Region> {
            Vec::new()
        }
        fn report(&self) -> Report {
            Report { capacity: 64, free: 64, largest_free: 64, holes: 1, ..Report::default() }
        }
    }

    #[test]
    fn a_careless_policy_is_found_out() {
        let mut policy = Validated::new(Careless);
        policy.grow(64);
        assert_eq!(policy.verdict(), Ok(()));
        policy.place(8, 1);
        assert!(policy.verdict().unwrap_err().0.contains("reported Report"));

        let mut policy = Validated::new(Careless);
        policy.place(9, 1);
        assert!(policy.verdict().unwrap_err().0.contains("for a request of 9"));

        let mut policy = Validated::new(Careless);
        policy.place(8, 1);
        assert!(policy.verdict().unwrap_err().0.contains("not inside a region"));

        let mut policy = Validated::new(Careless);
        assert!(policy.free(Offset(3)).is_ok());
        assert!(policy.verdict().is_err());
    }

    #[test]
    fn a_careful_policy_passes() {
        let mut policy = Validated::new(BestFit::new(1));
        policy.grow(64);
        let first = policy.place(16, 1).unwrap();
        policy.place(16, 1).unwrap();
        policy.free(first).unwrap();
        assert_eq!(policy.place(48, 1), None);
        assert_eq!(policy.verdict(), Ok(()));
    }
}
