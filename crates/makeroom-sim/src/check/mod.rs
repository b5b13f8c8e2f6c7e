//! Proves the model of PyTorch's allocator on a recording.
//!
//! The recording gives what the allocator cannot know: the order and size of requests, streams, when frees
//! complete, the addresses of new segments, memory-pool membership, and when the driver refused. The model then
//! has to say the rest: the address of every block, and whether, when and how large every segment is allocated,
//! mapped, unmapped and freed. Every answer is compared with the recording; the model is never corrected by it.
//!
//! One thing a recording can lack: the pool of segments that were gone before its end (`torch.cuda.MemPool`,
//! destroyed CUDA graphs). Where predictions fail, `assumption` looks for segments that must have been in one.

mod assumption;

use std::collections::HashSet;

use makeroom_core::{Action, DeviceTrace, Event, FastHasher, FastMap, PoolId, Stacks, Start};

use crate::driver::{Driver, Refused};
use crate::homes::{Home, Homes};
use crate::program::{Program, Step};
use crate::pytorch::{Pytorch, RESERVATION, Request, Settings};

/// Made-up addresses begin here, above any that a driver returns.
const MADE_UP: u64 = 1 << 52;

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Check {
    /// How many allocations were predicted.
    pub allocations: usize,
    /// Predictions that came true: addresses of blocks, segments, refusals.
    pub matched: usize,
    /// Predictions that did not, and events that were not predicted.
    pub mismatched: usize,
    /// The first of them.
    pub first_mismatch: Option<Mismatch>,
    /// The most the model had reserved.
    pub peak_reserved: u64,
    /// Blocks that are older than the recording.
    pub older_blocks: usize,
    /// Of these, how many have a size that had to be assumed.
    pub assumed_blocks: usize,
    /// Events that name an address nothing was known of.
    pub lost_events: usize,
    /// Segments whose memory pool the recording does not name and that were assumed to be in one of their own,
    /// since the predictions come true more often that way.
    pub assumed_pools: usize,
}

/// A wrong prediction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The event of the recording.
    pub event: usize,
    /// What the recording says.
    pub recorded: String,
    /// What the model said.
    pub predicted: String,
}

/// Replays a device's recording under its own allocator and compares. `limit` is what the allocator was allowed
/// to take, where it was told.
pub fn check(device: &DeviceTrace, stacks: &Stacks, settings: Settings, limit: Option<u64>) -> Check {
    let recorded = Recorded { device, stacks, settings, limit, start: Start::new(device) };
    assumption::best_attempt(&recorded).check
}

/// What a check is made of.
struct Recorded<'trace> {
    device: &'trace DeviceTrace,
    stacks: &'trace Stacks,
    settings: Settings,
    limit: Option<u64>,
    start: Start,
}

/// One replay and where it first went wrong.
struct Attempt {
    check: Check,
    doubt: Option<Doubt>,
}

/// A wrong prediction, for whoever looks for its cause.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    event: usize,
    /// The address that the model meant, if it meant one.
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
    /// Pools that go away in what is left of the recording, each with the first release of its memory.
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

    /// Tells the allocator of the pools that are gone by the end of this step.
    fn let_pools_go(&mut self) {
        while let Some((&(event, pool), rest)) = self.gone_pools.split_first()
            && event < self.recording.end
        {
            self.allocator.let_pool_go(pool);
            self.gone_pools = rest;
        }
    }

    /// A pool that goes gives its memory back by itself; only then comes what the program gives back on top.
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
        let allocation = self.program.allocations[number as usize];
        let request = Request { size: allocation.size, stream: allocation.stream, pool: allocation.pool };
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
    /// Completions that stand before a release were made either at the beginning of the request, before the search
    /// for an unused block, or by the release itself, after it. A recording does not tell them apart, but the
    /// search does: had they made room for the request, nothing would have been released.
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

/// The recording in the role of the driver.
struct Recording<'trace> {
    device: &'trace DeviceTrace,
    /// The next event that no prediction has claimed.
    cursor: usize,
    /// Predictions of the current step end before this event.
    end: usize,
    /// Which allocation completes its free at an event.
    completions: FastMap<usize, u32>,
    /// Completions that a release made: they take effect inside of the request that released.
    left_to_release: HashSet<usize, FastHasher>,
    made_up: u64,
    attempt: &'trace mut Attempt,
}

impl<'trace> Recording<'trace> {
    fn new(device: &'trace DeviceTrace, program: &Program, attempt: &'trace mut Attempt) -> Self {
        let completions = program
            .steps
            .iter()
            .zip(&program.events)
            .filter_map(|(step, &event)| match step {
                Step::FreeCompleted(number) => Some((event as usize, *number)),
                _ => None,
            })
            .collect();
        let left_to_release = completions_by_release(device).into_iter().collect();
        Self { device, cursor: 0, end: 0, completions, left_to_release, made_up: MADE_UP, attempt }
    }

    fn is_left_to_release(&self, event: usize) -> bool {
        self.left_to_release.contains(&event)
    }

    /// The allocations whose free completes in this step before anything is released.
    fn completions_before_release(&self) -> Vec<u32> {
        (self.cursor..self.end)
            .take_while(|&index| self.action(index).is_some_and(|action| !is_driver_call(action)))
            .filter(|index| self.left_to_release.contains(index))
            .filter_map(|index| self.completions.get(&index).copied())
            .collect()
    }

    fn action(&self, event: usize) -> Option<Action> {
        self.device.events.actions().get(event).copied()
    }

    fn event(&self, index: usize) -> Option<Event> {
        self.device.events.get(index)
    }

    /// Begins a step that ends with `event`: what the model asks of the driver is compared with what lies between
    /// the last step and this one.
    fn open(&mut self, event: usize) {
        self.end = event;
        // A run of releases that the program asked for begins at its event; nothing else lies in between.
        if matches!(self.action(event), Some(Action::SegmentFree | Action::SegmentUnmap)) {
            self.end = event
                + (event..self.device.events.len())
                    .take_while(|&index| {
                        matches!(
                            self.action(index),
                            Some(Action::SegmentFree | Action::SegmentUnmap | Action::FreeCompleted)
                        )
                    })
                    .count();
        }
    }

    /// The next event of this step that concerns the driver.
    fn next(&self) -> Option<(usize, Event)> {
        (self.cursor..self.end)
            .filter_map(|index| Some((index, self.event(index)?)))
            .find(|(_, event)| is_driver_call(event.action))
    }

    fn expect(&mut self, action: Action, address: Option<u64>, size: u64) -> bool {
        let predicted = || match address {
            Some(address) => format!("{action:?} of {size} bytes at {address:#x}"),
            None => format!("{action:?} of {size} bytes"),
        };
        match self.next() {
            Some((index, event)) if event.action == action => {
                self.cursor = index + 1;
                let is_right =
                    event.size.get() == size && address.is_none_or(|address| address == event.address.0);
                if is_right {
                    self.attempt.check.matched += 1;
                } else {
                    self.mismatch(index, &describe(&event), &predicted(), address);
                }
                is_right
            }
            other => {
                let (index, recorded) = other
                    .map_or((self.end, "nothing".to_owned()), |(index, event)| (index, describe(&event)));
                self.mismatch(index, &recorded, &predicted(), address);
                false
            }
        }
    }

    fn mismatch(&mut self, event: usize, recorded: &str, predicted: &str, address: Option<u64>) {
        let Attempt { check, doubt } = &mut *self.attempt;
        check.mismatched += 1;
        if check.first_mismatch.is_none() {
            check.first_mismatch =
                Some(Mismatch { event, recorded: recorded.to_owned(), predicted: predicted.to_owned() });
            *doubt = Some(Doubt { event, predicted: address });
        }
    }

    /// Ends a request: its answer is compared, and driver calls that were not predicted are counted.
    fn close(&mut self, event: usize, answer: Result<u64, Refused>) {
        self.close_unpredicted(answer.ok());
        let Some(recorded) = self.event(event) else { return };
        let predicted = match answer {
            Ok(address) => format!("Alloc at {address:#x}"),
            Err(Refused) => "OutOfMemory".to_owned(),
        };
        let is_right = match (recorded.action, answer) {
            (Action::Alloc, Ok(address)) => recorded.address.0 == address,
            (Action::OutOfMemory, Err(Refused)) => true,
            _ => false,
        };
        if is_right {
            self.attempt.check.matched += 1;
        } else {
            self.mismatch(event, &describe(&recorded), &predicted, answer.ok());
        }
        self.cursor = self.cursor.max(event + 1);
    }

    fn close_releases(&mut self) {
        self.close_unpredicted(None);
    }

    /// Counts driver calls of this step that were not predicted; the model had another address instead.
    fn close_unpredicted(&mut self, address: Option<u64>) {
        while let Some((index, event)) = self.next() {
            self.mismatch(index, &describe(&event), "nothing", address);
            self.cursor = index + 1;
        }
        self.cursor = self.cursor.max(self.end);
    }

    fn finish(mut self) {
        self.end = self.device.events.len();
        self.close_releases();
    }

    fn make_up(&mut self, size: u64) -> u64 {
        let size = size.checked_next_multiple_of(2 << 20).unwrap_or(size);
        // Where the addresses are used up they begin again: the prediction is wrong anyway, and all that matters is
        // that nothing lies beyond the last address.
        let begin = [self.made_up, MADE_UP].into_iter().find(|begin| begin.checked_add(size).is_some());
        let address = begin.unwrap_or(0);
        self.made_up = address.saturating_add(size);
        address
    }

    /// Whether the recording goes on with a release or ends in a refusal: then the driver refused.
    fn has_refused(&self) -> bool {
        match self.next() {
            Some((_, event)) => matches!(event.action, Action::SegmentFree | Action::SegmentUnmap),
            None => self.action(self.end) == Some(Action::OutOfMemory),
        }
    }
}

impl Driver for Recording<'_> {
    fn allocate(&mut self, size: u64, _stream: u64) -> Result<u64, Refused> {
        if self.has_refused() {
            return Err(Refused);
        }
        let address = self
            .next()
            .filter(|(_, event)| event.action == Action::SegmentAlloc)
            .map(|(_, event)| event.address.0)
            .filter(|address| address.checked_add(size).is_some());
        let is_right = self.expect(Action::SegmentAlloc, None, size);
        Ok(address.filter(|_| is_right).unwrap_or_else(|| self.make_up(size)))
    }

    fn release(&mut self, address: u64, size: u64) {
        self.expect(Action::SegmentFree, Some(address), size);
    }

    fn reserve(&mut self, _stream: u64, _is_small: bool) -> u64 {
        let next = self.next().filter(|(_, event)| event.action == Action::SegmentMap);
        next.map(|(_, event)| event.address.0)
            .filter(|address| address.checked_add(RESERVATION).is_some())
            .unwrap_or_else(|| self.make_up(RESERVATION))
    }

    fn map(&mut self, address: u64, size: u64, _page: u64) -> Result<(), Refused> {
        if self.has_refused() {
            return Err(Refused);
        }
        self.expect(Action::SegmentMap, Some(address), size);
        Ok(())
    }

    fn unmap(&mut self, address: u64, size: u64, _page: u64) {
        self.expect(Action::SegmentUnmap, Some(address), size);
    }

    fn synchronize(&mut self) -> Vec<u32> {
        (self.cursor..self.end)
            .filter(|index| self.left_to_release.contains(index))
            .filter_map(|index| self.completions.get(&index).copied())
            .collect()
    }
}

fn is_driver_call(action: Action) -> bool {
    matches!(action, Action::SegmentAlloc | Action::SegmentFree | Action::SegmentMap | Action::SegmentUnmap)
}

fn describe(event: &Event) -> String {
    format!("{:?} of {} bytes at {:#x}", event.action, event.size.get(), event.address.0)
}

/// Completions of frees that stand right before a release. The release waits for the device, which completes what
/// was pending; the search for an unused block came before that and did not see it.
fn completions_by_release(device: &DeviceTrace) -> Vec<usize> {
    let events = &device.events;
    let mut run: Vec<usize> = Vec::new();
    let mut found = Vec::new();
    let mut previous: Option<Event> = None;
    for (index, event) in events.iter().enumerate() {
        match event.action {
            Action::FreeCompleted => {
                let is_immediate = previous.is_some_and(|previous| {
                    previous.action == Action::FreeRequested && previous.address == event.address
                });
                if is_immediate {
                    run.clear();
                } else {
                    run.push(index);
                }
            }
            Action::SegmentFree | Action::SegmentUnmap => found.append(&mut run),
            _ => run.clear(),
        }
        previous = Some(event);
    }
    found
}
