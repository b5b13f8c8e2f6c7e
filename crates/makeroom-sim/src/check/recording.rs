//! The recording in the role of the driver: it returns what really happened, and compares.

use std::collections::HashSet;

use makeroom_core::{Action, DeviceTrace, Event, FastHasher, FastMap};

use super::{Attempt, Doubt, Mismatch};
use crate::driver::{Driver, Refused};
use crate::program::{Program, Step};
use crate::pytorch::RESERVATION;

/// Start of made-up addresses, above any that a driver returns.
const MADE_UP: u64 = 1 << 52;

/// The recording in the role of the driver.
pub(super) struct Recording<'trace> {
    device: &'trace DeviceTrace,
    /// The next event that no prediction has matched.
    cursor: usize,
    /// Predictions of the current step end before this event.
    pub(super) end: usize,
    /// The allocation whose free completes at an event.
    completions: FastMap<usize, u32>,
    /// Frees completed by a release: they take effect within the request that caused it.
    left_to_release: HashSet<usize, FastHasher>,
    made_up: u64,
    pub(super) attempt: &'trace mut Attempt,
}

impl<'trace> Recording<'trace> {
    pub(super) fn new(device: &'trace DeviceTrace, program: &Program, attempt: &'trace mut Attempt) -> Self {
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

    pub(super) fn is_left_to_release(&self, event: usize) -> bool {
        self.left_to_release.contains(&event)
    }

    /// The allocations whose frees complete in this step before anything is released.
    pub(super) fn completions_before_release(&self) -> Vec<u32> {
        (self.cursor..self.end)
            .take_while(|&index| self.action(index).is_some_and(|action| !is_driver_call(action)))
            .filter(|index| self.left_to_release.contains(index))
            .filter_map(|index| self.completions.get(&index).copied())
            .collect()
    }

    pub(super) fn action(&self, event: usize) -> Option<Action> {
        self.device.events.actions().get(event).copied()
    }

    pub(super) fn event(&self, index: usize) -> Option<Event> {
        self.device.events.get(index)
    }

    /// Begins a step that ends with `event`: the model's driver calls are compared with the events since the last step.
    pub(super) fn open(&mut self, event: usize) {
        self.end = event;
        // A run of releases that the program requested begins at its event; there is nothing else in between.
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

    /// The next driver event of this step.
    pub(super) fn next(&self) -> Option<(usize, Event)> {
        (self.cursor..self.end)
            .filter_map(|index| Some((index, self.event(index)?)))
            .find(|(_, event)| is_driver_call(event.action))
    }

    /// The segments freed in this step before anything else, and whether new memory follows.
    pub(super) fn releases(&self) -> (Vec<(u64, u64)>, bool) {
        let mut released = Vec::new();
        let calls = (self.cursor..self.end).filter_map(|index| self.event(index));
        for event in calls.filter(|event| is_driver_call(event.action)) {
            match event.action {
                Action::SegmentFree => released.push((event.address.0, event.size.get())),
                Action::SegmentAlloc | Action::SegmentMap => return (released, true),
                _ => break,
            }
        }
        (released, false)
    }

    /// Whether new memory is allocated before this event.
    pub(super) fn takes_before(&self, event: usize) -> bool {
        (self.cursor..event)
            .filter_map(|index| self.action(index))
            .any(|action| matches!(action, Action::SegmentAlloc | Action::SegmentMap))
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

    /// Ends a request: compares its result, and counts driver calls that were not predicted.
    pub(super) fn close(&mut self, event: usize, answer: Result<u64, Refused>) {
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

    pub(super) fn close_releases(&mut self) {
        self.close_unpredicted(None);
    }

    /// Counts driver calls of this step that were not predicted; `address` is the model's result instead.
    fn close_unpredicted(&mut self, address: Option<u64>) {
        while let Some((index, event)) = self.next() {
            self.mismatch(index, &describe(&event), "nothing", address);
            self.cursor = index + 1;
        }
        self.cursor = self.cursor.max(self.end);
    }

    pub(super) fn finish(mut self) {
        self.end = self.device.events.len();
        self.close_releases();
    }

    fn make_up(&mut self, size: u64) -> u64 {
        let size = size.checked_next_multiple_of(2 << 20).unwrap_or(size);
        // Wrap around when addresses run out: the prediction is wrong anyway, and no range may exceed the last address.
        let begin = [self.made_up, MADE_UP].into_iter().find(|begin| begin.checked_add(size).is_some());
        let address = begin.unwrap_or(0);
        self.made_up = address.saturating_add(size);
        address
    }

    /// Whether the recording continues with a release or ends in a failure: then the driver was out of memory.
    fn has_refused(&self) -> bool {
        match self.next() {
            Some((_, event)) => matches!(event.action, Action::SegmentFree | Action::SegmentUnmap),
            None => self.action(self.end) == Some(Action::OutOfMemory),
        }
    }
}

impl Driver for Recording<'_> {
    fn is_limited(&self) -> bool {
        self.has_refused()
    }

    fn allocate_segment(&mut self, size: u64, _stream: u64) -> Result<u64, Refused> {
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

/// Frees that complete right before a release. The release synchronizes the device, which completes pending frees; the
/// search for a free block came earlier and did not see them.
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
