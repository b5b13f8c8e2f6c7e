//! Addresses chosen with knowledge of the future: what an allocator could achieve if it had seen the run before.
//!
//! The program determines the lifetime of every allocation, so the offline planner can give each one an offset in a
//! single block of memory. The run allocates that block at its first request, and nothing after. This is not a usable
//! allocator but a benchmark for others: the difference between it and the peak of live bytes is only the cost of
//! packing.

use makeroom_plan::{Budget, Buffer, Outcome, Problem, plan};

use crate::device::{Device, PAGE};
use crate::driver::{Driver, Refused};
use crate::model::Model;
use crate::program::{Program, Step};
use crate::pytorch::Request;

/// PyTorch's blocks are aligned to this.
const ALIGNMENT: u64 = 512;

/// A program with planned addresses.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    height: u64,
    is_taken: bool,
}

impl Planned {
    /// Plans a program.
    pub(crate) fn new(program: &Program) -> Self {
        let problem = Problem { buffers: buffers(program), capacity: None };
        let height = match plan(&problem, &Budget::quick()) {
            Ok(Outcome::Planned { plan, .. } | Outcome::GaveUp { best: plan, .. }) => plan.peak,
            // The sizes exceed every device: nothing can be planned or served.
            _ => u64::MAX,
        };
        Self { height: height.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX), is_taken: false }
    }
}

/// The lifetime of each allocation, in steps of the program.
fn buffers(program: &Program) -> Vec<Buffer> {
    let end = program.steps.len() as u64 + 1;
    let mut buffers: Vec<Buffer> = program
        .allocations
        .iter()
        .map(|allocation| Buffer::new(0, end, allocation.size.max(1)).aligned(ALIGNMENT))
        .collect();
    for (index, step) in program.steps.iter().enumerate() {
        let time = index as u64 + 1;
        match *step {
            Step::Allocate(number) => buffers[number as usize].lower = time,
            // A failed request succeeds and is freed immediately, as in every other run.
            Step::AllocateRefused(number) => {
                buffers[number as usize].lower = time;
                buffers[number as usize].upper = time + 1;
            }
            Step::Free(number) | Step::FreeCompleted(number) => buffers[number as usize].upper = time,
            Step::FreeRequested(_) | Step::EmptyCache => {}
        }
    }
    buffers
}

impl Model for Planned {
    fn allocate_block(&mut self, device: &mut Device, _slot: u32, _request: Request) -> Result<(), Refused> {
        if !self.is_taken {
            device.allocate_segment(self.height, 0)?;
            self.is_taken = true;
        }
        Ok(())
    }

    fn free_later(&mut self, _device: &mut Device, _slot: u32) {}

    fn free(&mut self, _device: &mut Device, _slot: u32) {}

    fn empty_cache(&mut self, _device: &mut Device) {}

    fn reserved(&self) -> u64 {
        if self.is_taken { self.height } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::replay;
    use crate::testing::Script;

    #[test]
    fn a_plan_needs_no_more_than_what_is_live_where_it_can_be_packed() {
        let mut script = Script::default();
        let first = script.allocate(6 << 20);
        let second = script.allocate(4 << 20);
        script.free(first);
        script.allocate(2 << 20);
        script.allocate(4 << 20);
        script.free(second);
        let program = script.program();
        let outcome = replay(&program, &mut Planned::new(&program), &mut Device::new(None));
        assert_eq!((outcome.peak_live, outcome.peak_reserved), (10 << 20, 10 << 20));
        let refused = replay(&program, &mut Planned::new(&program), &mut Device::new(Some(9 << 20)));
        assert!(refused.refusal.is_some());
    }
}
