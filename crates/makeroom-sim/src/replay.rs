//! Runs a program under an allocator model.

use crate::device::Device;
use crate::model::Model;
use crate::program::{Program, Step};

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Peak live bytes, until the end or the failure.
    pub peak_live: u64,
    /// Peak memory reserved from the driver.
    pub peak_reserved: u64,
    /// Number of driver calls.
    pub driver_calls: u64,
    /// Their cost, in nanoseconds.
    pub driver_nanoseconds: u64,
    /// Their cost in the second half of the recorded time.
    pub late_driver_nanoseconds: u64,
    /// The failed request that ended the run.
    pub refusal: Option<Refusal>,
}

/// A failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The recorded event of the request; `None` for allocations older than the recording.
    pub event: Option<u32>,
    /// The requested size.
    pub bytes: u64,
    /// The allocation's number in the program.
    pub allocation: u32,
}

/// Runs a program to its end, or to the first failed allocation, where the real program would have ended. Allocations
/// older than the recording are made first.
pub fn replay<M: Model + ?Sized>(program: &Program, model: &mut M, device: &mut Device) -> Outcome {
    replay_watched(program, model, device, |_, _| {})
}

/// Like [`replay`]; calls `watch` after each step with its recorded event and the memory reserved from the driver.
pub fn replay_watched<M: Model + ?Sized>(
    program: &Program,
    model: &mut M,
    device: &mut Device,
    watch: impl FnMut(u32, u64),
) -> Outcome {
    let outcome = Outcome::default();
    let run = Run { program, model, device, watch, outcome, live: 0, early_nanoseconds: None };
    run.finish(Run::allocate_older)
}

/// Runs a program under a model that already contains the allocations older than the recording.
pub fn replay_from_start<M: Model + ?Sized>(
    program: &Program,
    model: &mut M,
    device: &mut Device,
) -> Outcome {
    let live = program.live_at_start();
    let outcome = Outcome { peak_live: live, peak_reserved: model.reserved(), ..Outcome::default() };
    let watch = |_, _| {};
    Run { program, model, device, watch, outcome, live, early_nanoseconds: None }.finish(|_| None)
}

struct Run<'run, M: ?Sized, W> {
    program: &'run Program,
    model: &'run mut M,
    device: &'run mut Device,
    watch: W,
    outcome: Outcome,
    live: u64,
    /// The cost of driver calls when the second half of the recorded time began.
    early_nanoseconds: Option<u64>,
}

impl<M: Model + ?Sized, W: FnMut(u32, u64)> Run<'_, M, W> {
    fn finish(mut self, begin: impl FnOnce(&mut Self) -> Option<Refusal>) -> Outcome {
        let refusal = begin(&mut self).or_else(|| self.steps());
        let early = self.early_nanoseconds.unwrap_or(self.device.nanoseconds());
        Outcome {
            refusal,
            late_driver_nanoseconds: self.device.nanoseconds() - early,
            driver_calls: self.device.calls(),
            driver_nanoseconds: self.device.nanoseconds(),
            ..self.outcome
        }
    }

    fn allocate_older(&mut self) -> Option<Refusal> {
        (0..self.program.older).find_map(|number| {
            let refusal = Refusal { event: None, bytes: self.program.size(number), allocation: number };
            (!self.replay_allocation(number)).then_some(refusal)
        })
    }

    fn steps(&mut self) -> Option<Refusal> {
        for (index, (step, &event)) in self.program.steps.iter().zip(&self.program.events).enumerate() {
            if index == self.program.half {
                self.early_nanoseconds = Some(self.device.nanoseconds());
            }
            match *step {
                Step::Allocate(number) => {
                    if !self.replay_allocation(number) {
                        return Some(Refusal {
                            event: Some(event),
                            bytes: self.program.size(number),
                            allocation: number,
                        });
                    }
                }
                Step::AllocateRefused(number) => {
                    // How long the program would have kept it is unknown: free it immediately.
                    if !self.replay_allocation(number) {
                        return Some(Refusal {
                            event: Some(event),
                            bytes: self.program.size(number),
                            allocation: number,
                        });
                    }
                    self.free(number);
                }
                Step::Free(number) | Step::FreeCompleted(number) => self.free(number),
                Step::FreeRequested(number) => {
                    self.model.free_later(self.device, self.program.slot(number));
                }
                Step::EmptyCache => self.model.empty_cache(self.device),
            }
            (self.watch)(event, self.model.reserved());
        }
        None
    }

    fn replay_allocation(&mut self, number: u32) -> bool {
        let request = self.program.request(number);
        let size = request.size;
        let slot = self.program.slot(number);
        let is_served = self.model.allocate_block(self.device, slot, request).is_ok();
        if is_served {
            self.live = self.live.saturating_add(size);
            self.outcome.peak_live = self.outcome.peak_live.max(self.live);
            self.outcome.peak_reserved = self.outcome.peak_reserved.max(self.model.reserved());
        }
        is_served
    }

    fn free(&mut self, number: u32) {
        self.live = self.live.saturating_sub(self.program.size(number));
        let slot = self.program.slot(number);
        // Also if it is not known to be pending: a free may have been lost, and its slot is another allocation's next.
        self.device.complete(slot);
        self.model.free(self.device, slot);
    }
}
