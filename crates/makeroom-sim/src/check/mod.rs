//! Checks the model of PyTorch's allocator against a recording.
//!
//! The recording provides the inputs that the allocator cannot know: the order and size of requests, streams, the
//! completion of frees, the addresses of new segments, memory-pool membership, and driver failures. The model must
//! predict the rest: the address of every block, and whether, when and in what size every segment is allocated, mapped,
//! unmapped and freed. Every prediction is compared with the recording; the model is never corrected by it.
//!
//! A recording may lack one thing: the pool of segments that were freed before its end (`torch.cuda.MemPool`, destroyed
//! CUDA graphs). If predictions fail, `assumption` looks for segments that must have been in one.

mod assumption;
mod recording;

use makeroom_core::{Action, DeviceTrace, PoolId, Stacks, Start};

use self::recording::Recording;
use crate::homes::{Home, Homes};
use crate::inside::Inside;
use crate::program::{Program, Step};
use crate::pytorch::{Pytorch, Request, Settings};

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
    let recorded = Recorded { device, stacks, settings, limit, start: Start::new(device) };
    let mut check = assumption::best_attempt(&recorded).check;
    if let (Some(mismatch), Some(inside)) = (&mut check.first_mismatch, &inside) {
        let position = inside.positions.get(mismatch.event).copied();
        mismatch.event = position.unwrap_or(mismatch.event);
    }
    check
}

/// The inputs of a check.
struct Recorded<'trace> {
    device: &'trace DeviceTrace,
    stacks: &'trace Stacks,
    settings: Settings,
    limit: Option<u64>,
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
    fn attempt(&self, homes: &Homes) -> Attempt {
        let program = Program::with_homes(self.device, self.stacks, &self.start, homes);
        let (allocator, assumed) = Pytorch::at_start(self.settings.clone(), self.limit, &self.start);
        let check = Check {
            older_blocks: self.start.blocks.len(),
            assumed_blocks: assumed,
            lost_events: program.lost,
            assumed_pools: homes.assumed(),
            peak_reserved: allocator.reserved(),
            ..Check::default()
        };
        let mut attempt = Attempt { check, doubt: None };
        let recording = Recording::new(self.device, &program, &mut attempt);
        let gone_pools = homes.assumed_pools();
        Run { allocator, program: &program, homes, gone_pools: &gone_pools, recording }.run();
        attempt
    }
}

struct Run<'trace> {
    allocator: Pytorch,
    program: &'trace Program,
    homes: &'trace Homes,
    /// Pools that are destroyed in the rest of the recording, each with the first release of its memory.
    gone_pools: &'trace [(usize, PoolId)],
    recording: Recording<'trace>,
}

impl Run<'_> {
    fn run(mut self) {
        for position in 0..self.program.steps.len() {
            let event = self.program.events[position] as usize;
            match self.program.steps[position] {
                Step::Allocate(number) | Step::AllocateRefused(number) => self.allocate(number, event),
                Step::Free(number) => self.allocator.free(number),
                Step::FreeRequested(number) => self.allocator.free_later(number),
                Step::FreeCompleted(number) => {
                    if !self.recording.is_left_to_release(event) {
                        self.allocator.free(number);
                    }
                }
                Step::EmptyCache => self.empty_cache(event),
            }
            self.note_peak();
        }
        self.recording.finish();
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

    /// A destroyed pool releases its memory itself, before any release that the program requests.
    fn empty_cache(&mut self, event: usize) {
        self.recording.open(event);
        self.let_pools_go();
        let is_of_pool = |home: &&Home| home.is_assumed();
        let mut gone = None;
        while let Some((index, _)) = self.recording.next()
            && let Some(home) = self.homes.of_release(index).filter(is_of_pool)
            && gone != Some(home.pool)
        {
            gone = Some(home.pool);
            self.allocator.empty_pool(&mut self.recording, home.pool);
        }
        if gone.is_none() || self.recording.next().is_some() {
            self.allocator.empty_cache(&mut self.recording);
        }
        self.recording.close_releases();
    }

    fn allocate(&mut self, number: u32, event: usize) {
        let request = self.program.request(number);
        self.recording.open(event);
        self.let_pools_go();
        self.recording.attempt.check.allocations += 1;
        self.complete_before_search(request);
        let answer = self.allocator.allocate(&mut self.recording, number, request);
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
        let mut after = self.allocator.clone();
        for &number in &completed {
            after.free(number);
        }
        if !after.would_fit(request) {
            self.allocator = after;
        }
    }
}
