//! Checks the model of PyTorch's allocator against a recording.
//!
//! The recording provides the inputs that the allocator cannot know: the order and size of requests, streams, the
//! completion of frees, the addresses of new segments, memory-pool membership, and driver failures. The model must
//! predict the rest: the address of every block, and whether, when and in what size every segment is allocated, mapped,
//! unmapped and freed. Every prediction is compared with the recording; the model is never corrected by it.
//!
//! A recording may lack two things: the pool of segments that were freed before its end (`torch.cuda.MemPool`, destroyed
//! CUDA graphs), and the memory limit. If predictions fail, `assumption` looks for segments that must have been in a pool,
//! and `garbage` infers the limit from the garbage collections that depend on it.

mod assumption;
mod coverage;
mod garbage;
mod recording;
#[cfg(test)]
mod tests;

use makeroom_core::{Action, DeviceTrace, PoolId, Stacks, Start};

use self::garbage::{Garbage, GarbageBounds, Thresholds};
use self::recording::Recording;
use crate::device::Device;
use crate::inside::Inside;
use crate::program::{Program, Step};
use crate::pytorch::{Pytorch, Request, Settings};
use crate::segment_lifetimes::{SegmentLifetime, SegmentLifetimes};

/// Number of blocks that a replay copies to look ahead, per event and in addition: copies of the whole allocator for every
/// release would be quadratic. Real recordings need a small part of this.
const COPIED_PER_EVENT: usize = 256;
const COPIED_MORE: usize = 16 << 20;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// The number of predicted allocations.
    pub allocations: usize,
    /// Correct predictions: addresses of blocks, segments, failures.
    pub matched: usize,
    /// Wrong predictions, and events that were not predicted.
    pub mismatched: usize,
    /// The first of them.
    pub first_mismatch: Option<Mismatch>,
    /// The model's peak reserved memory.
    pub peak_reserved: u64,
    /// The number of blocks older than the recording.
    pub older_blocks: usize,
    /// The number of these with an assumed size.
    pub assumed_blocks: usize,
    /// Events that name an unknown address.
    pub lost_events: usize,
    /// Segments whose memory pool the recording does not name, and that were assumed to be in a separate pool because
    /// that yields more correct predictions.
    pub assumed_pools: usize,
    /// Predictions are wrong because the recording lacks segment events: they say nothing about the model.
    pub lacks_segment_events: bool,
    /// The bounds within which garbage collection determines the memory limit, if it was not given. There are several if
    /// the program changed it.
    pub inferred_limits: Vec<LimitBounds>,
}

/// What is known about a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitBounds {
    /// The first event at which it is known to apply.
    pub from_event: usize,
    /// The lowest possible limit.
    pub at_least: u64,
    /// The highest possible limit; `None` if no garbage was collected under it.
    pub at_most: Option<u64>,
}

/// A wrong prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The event of the recording.
    pub event: usize,
    /// The recorded event.
    pub recorded: String,
    /// The predicted event.
    pub predicted: String,
}

/// Replays a device's recording under its own allocator and compares. `limit` is the allocator's limit, if known.
/// Direct driver allocations are excluded, because the allocator cannot predict them.
pub fn check(device: &DeviceTrace, stacks: &Stacks, settings: Settings, limit: Option<u64>) -> Check {
    let inside = Inside::new(device);
    let device = inside.as_ref().map_or(device, |inside| &inside.device);
    let limit = limit.map(|limit| settings.limit_of(limit));
    let mut recorded =
        Recorded { device, stacks, settings, limit, garbage: Thresholds::new(), start: Start::new(device) };
    let mut check = recorded.best_check();
    check.lacks_segment_events =
        check.mismatched > 0 && coverage::lacks_segment_events(device, &recorded.start);
    if let Some(inside) = &inside {
        let mismatch = check.first_mismatch.iter_mut().map(|mismatch| &mut mismatch.event);
        for event in mismatch.chain(check.inferred_limits.iter_mut().map(|limit| &mut limit.from_event)) {
            *event = inside.positions.get(*event).copied().unwrap_or(*event);
        }
    }
    check
}

/// The inputs of a check.
struct Recorded<'trace> {
    device: &'trace DeviceTrace,
    stacks: &'trace Stacks,
    settings: Settings,
    limit: Option<u64>,
    /// The inferred thresholds of garbage collection, if there is no limit that determines them.
    garbage: Thresholds,
    start: Start,
}

/// One replay and its first wrong prediction.
struct Attempt {
    check: Check,
    doubt: Option<Doubt>,
}

/// A wrong prediction, for the search for its cause.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    event: usize,
    /// The address that the model predicted, if any.
    predicted: Option<u64>,
}

impl Recorded<'_> {
    /// The replay with the most correct predictions. If garbage was collected, it needs a limit; a replay without one comes
    /// last, because it would explain collections by assumed pools.
    fn best_check(&mut self) -> Check {
        let share = self.settings.garbage_collection_threshold;
        let bounds = if self.limit.is_none() && share > 0.0 { self.infer_garbage() } else { Vec::new() };
        let inferred: Vec<LimitBounds> = bounds.iter().map(|bounds| bounds.limit(share)).collect();
        let mut trials = Vec::new();
        if !bounds.is_empty() {
            trials.extend(garbage::samples(&bounds).map(|thresholds| (thresholds, inferred.clone())));
        }
        trials.push((Thresholds::new(), Vec::new()));
        let mut best: Option<Check> = None;
        for (thresholds, inferred_limits) in trials {
            self.garbage = thresholds;
            let mut check = Check { inferred_limits, ..assumption::best_attempt(self).check };
            if let [only] = check.inferred_limits.as_mut_slice() {
                // Reserved memory is never above the limit.
                let at_most = only.at_most.unwrap_or(u64::MAX);
                only.at_least = only.at_least.max(check.peak_reserved.min(at_most));
            }
            if best.as_ref().is_none_or(|best| check.mismatched < best.mismatched) {
                best = Some(check);
            }
            if best.as_ref().is_some_and(|best| best.mismatched == 0) {
                break;
            }
        }
        best.unwrap_or_default()
    }

    fn attempt(&self, lifetimes: &SegmentLifetimes) -> Attempt {
        self.replay(lifetimes, None).0
    }

    /// The bounds of the garbage collections in the recording.
    fn infer_garbage(&self) -> Vec<GarbageBounds> {
        let (_, garbage) = self.replay(&SegmentLifetimes::new(self.device), Some(Garbage::default()));
        garbage.map(Garbage::into_bounds).unwrap_or_default()
    }

    fn replay(&self, lifetimes: &SegmentLifetimes, garbage: Option<Garbage>) -> (Attempt, Option<Garbage>) {
        let program = Program::with_lifetimes(self.device, self.stacks, &self.start, lifetimes);
        let (mut allocator, assumed) = Pytorch::at_start(self.settings.clone(), self.limit, &self.start);
        if garbage.is_some() {
            // Searches count from the start, so that ages are right at the first collection.
            allocator.set_garbage_threshold(Some(u64::MAX));
        }
        let check = Check {
            older_blocks: self.start.blocks.len(),
            assumed_blocks: assumed,
            lost_events: program.lost,
            assumed_pools: lifetimes.assumed(),
            peak_reserved: allocator.reserved(),
            ..Check::default()
        };
        let mut attempt = Attempt { check, doubt: None };
        let recording = Recording::new(self.device, &program, &mut attempt);
        let gone_pools = lifetimes.assumed_pools();
        let thresholds = &self.garbage;
        let run = Run {
            allocator,
            program: &program,
            lifetimes,
            gone_pools: &gone_pools,
            thresholds,
            recording,
            garbage,
            copies_left: COPIED_PER_EVENT
                .saturating_mul(self.device.events.len())
                .saturating_add(COPIED_MORE),
        };
        let garbage = run.run();
        (attempt, garbage)
    }
}

struct Run<'trace> {
    allocator: Pytorch,
    program: &'trace Program,
    lifetimes: &'trace SegmentLifetimes,
    /// Pools that are destroyed in the rest of the recording, each with the first release of its memory.
    gone_pools: &'trace [(usize, PoolId)],
    /// The thresholds of garbage collection in the rest of the recording.
    thresholds: &'trace [(usize, u64)],
    recording: Recording<'trace>,
    /// Collects what garbage collections say about the limit.
    garbage: Option<Garbage>,
    /// The number of blocks that may still be copied.
    copies_left: usize,
}

impl Run<'_> {
    fn run(mut self) -> Option<Garbage> {
        for position in 0..self.program.steps.len() {
            let event = self.program.events[position] as usize;
            match self.program.steps[position] {
                Step::Allocate(number) | Step::AllocateRefused(number) => {
                    self.check_allocation(number, event);
                }
                Step::Free(number) => self.allocator.free(number),
                Step::FreeRequested(number) => self.allocator.free_later(number),
                Step::FreeCompleted(number) => {
                    if !self.recording.is_left_to_release(event) {
                        self.allocator.free(number);
                    }
                }
                Step::EmptyCache if self.is_released_for_next(position) => {}
                Step::EmptyCache => self.empty_cache(event),
            }
            self.note_peak();
        }
        self.recording.finish();
        self.garbage
    }

    /// A copy of the allocator, to look ahead with; `None` if too much was copied already.
    fn copied(&mut self) -> Option<Pytorch> {
        self.copies_left = self.copies_left.checked_sub(self.allocator.block_count())?;
        Some(self.allocator.clone())
    }

    fn request(&self, number: u32) -> Request {
        self.program.request(number)
    }

    fn note_peak(&mut self) {
        let peak = &mut self.recording.attempt.check.peak_reserved;
        *peak = self.allocator.reserved().max(*peak);
    }

    /// Marks pools as unused that are destroyed by the end of this step.
    fn let_pools_go(&mut self) {
        while let Some((&(event, pool), rest)) = self.gone_pools.split_first()
            && event < self.recording.end
        {
            self.allocator.let_pool_go(pool);
            self.gone_pools = rest;
        }
    }

    /// Whether memory that seems to be released by the program is released for the next request. The allocator searches
    /// for a free block first, and not again after the release. So if the search would not find the recorded block after
    /// the release, the release was part of the request.
    fn is_released_for_next(&mut self, position: usize) -> bool {
        let next = self.program.steps[position + 1..]
            .iter()
            .zip(&self.program.events[position + 1..])
            .find(|(step, _)| !matches!(step, Step::FreeCompleted(_)));
        let Some((&Step::Allocate(number), &event)) = next else { return false };
        let request = self.request(number);
        if self.allocator.would_fit(request) {
            return false;
        }
        let Some(mut after) = self.copied() else { return false };
        after.empty_cache(&mut Device::new(None));
        let found = after.unused_for(request);
        let recorded = self.recording.event(event as usize).map(|event| event.address.0);
        if self.recording.takes_before(event as usize) { found.is_some() } else { found != recorded }
    }

    /// A destroyed pool releases its memory itself, before any release that the program requests.
    fn empty_cache(&mut self, event: usize) {
        self.recording.open(event);
        self.let_pools_go();
        let is_of_pool = |lifetime: &&SegmentLifetime| lifetime.is_assumed();
        let mut gone = None;
        while let Some((index, _)) = self.recording.next()
            && let Some(lifetime) = self.lifetimes.of_release(index).filter(is_of_pool)
            && gone != Some(lifetime.pool)
        {
            gone = Some(lifetime.pool);
            self.allocator.empty_pool(&mut self.recording, lifetime.pool);
        }
        if gone.is_none() || self.recording.next().is_some() {
            self.allocator.empty_cache(&mut self.recording);
        }
        self.recording.close_releases();
    }

    fn check_allocation(&mut self, number: u32, event: usize) {
        let request = self.request(number);
        self.recording.open(event);
        self.let_pools_go();
        self.recording.attempt.check.allocations += 1;
        self.complete_before_search(request);
        while let Some((&(first, threshold), rest)) = self.thresholds.split_first()
            && first <= event
        {
            self.allocator.set_garbage_threshold(Some(threshold));
            self.thresholds = rest;
        }
        if let Some(garbage) = &mut self.garbage {
            garbage.observe(&mut self.allocator, &self.recording, number, request);
        }
        let answer = self.allocator.allocate_block(&mut self.recording, number, request);
        self.note_peak();
        self.recording.close(event, answer);
        if answer.is_ok() && matches!(self.recording.action(event), Some(Action::OutOfMemory)) {
            // The program did not get it.
            self.allocator.free(number);
        }
    }
}

impl Run<'_> {
    /// Frees that complete before a release did so either at the start of the request, before the search for a free
    /// block, or in the release itself, after the search. A recording does not distinguish these, but the search does:
    /// if they had made space for the request, nothing would have been released.
    fn complete_before_search(&mut self, request: Request) {
        let completed = self.recording.completions_before_release();
        if completed.is_empty() {
            return;
        }
        let Some(mut after) = self.copied() else { return };
        for &number in &completed {
            after.free(number);
        }
        if !after.would_fit(request) {
            self.allocator = after;
        }
    }
}
