//! Finds segments that were in a memory pool which the recording does not name.
//!
//! There are two signs of such a segment: it was allocated although a free block of the default pool would have served,
//! or its free remainder was passed over by a request that it would have served. Both are wrong predictions. The first
//! wrong prediction therefore yields suspects, and each is tried in a replay. The one with the most correct predictions
//! is kept, and the next wrong prediction is examined. The number of replays is limited; without a wrong prediction
//! there are none.

use makeroom_core::Action;

use super::{Attempt, Doubt, Recorded};
use crate::segment_lifetimes::SegmentLifetimes;

/// Maximum number of replays.
const MOST_REPLAYS: usize = 64;
/// Maximum number of events in all replays together, from the fifth replay on: a search may take seconds, not minutes.
const MOST_EVENTS: usize = 20_000_000;

/// The replay with the most correct predictions.
pub(super) fn best_attempt(recorded: &Recorded<'_>) -> Attempt {
    let mut lifetimes = SegmentLifetimes::new(recorded.device);
    let mut best = recorded.attempt(&lifetimes);
    let events = &recorded.device.events;
    // If the recorder writes the pool of each event, there is nothing to assume.
    if events.pool(0).is_some() {
        return best;
    }
    let mut replays_left = (MOST_EVENTS / events.len().max(1)).clamp(4, MOST_REPLAYS);
    let mut doubt = best.doubt;
    while let Some(current) = doubt {
        let mut next: Option<(SegmentLifetimes, Attempt)> = None;
        for suspect in suspects(recorded, &lifetimes, current) {
            let Some(left) = replays_left.checked_sub(1) else { return best };
            replays_left = left;
            let trial = lifetimes.with_assumed_pool(suspect);
            let attempt = recorded.attempt(&trial);
            let leads_on = attempt.doubt.is_none_or(|doubt| doubt.event > current.event);
            let is_better =
                next.as_ref().is_none_or(|(_, next)| attempt.check.mismatched < next.check.mismatched);
            if leads_on && is_better {
                next = Some((trial, attempt));
            }
        }
        let Some((trial, attempt)) = next else { return best };
        lifetimes = trial;
        doubt = attempt.doubt;
        // An assumption may improve the result only together with the next one; only improvements are kept in the end.
        if attempt.check.mismatched < best.check.mismatched {
            best = attempt;
        }
    }
    best
}

/// Segments that could explain a wrong prediction: the one that the model chose, and the recorded one.
fn suspects(recorded: &Recorded<'_>, lifetimes: &SegmentLifetimes, doubt: Doubt) -> Vec<usize> {
    let events = &recorded.device.events;
    let is_answer =
        |index: &usize| matches!(events.actions().get(*index), Some(Action::Alloc | Action::OutOfMemory));
    // The program's allocation follows the driver calls made for it.
    let answer = (doubt.event..events.len()).find(is_answer);
    let went = [Some(doubt.event), answer].into_iter().flatten().filter_map(|index| {
        let event = events.get(index).filter(|event| event.action != Action::OutOfMemory)?;
        lifetimes.suspect(event.address.0, index)
    });
    let meant = doubt.predicted.and_then(|address| lifetimes.suspect(address, doubt.event));
    let mut suspects: Vec<usize> = went.chain(meant).collect();
    suspects.sort_unstable();
    suspects.dedup();
    suspects
}

#[cfg(test)]
mod tests {
    use makeroom_core::Stacks;

    use super::*;
    use crate::testing::recording;
    use crate::{Settings, check};

    fn checked(events: &[(Action, u64, u64)]) -> crate::Check {
        check(&recording(events), &Stacks::default(), Settings::default(), None)
    }

    /// A program frees 20 MiB, and the next 20 MiB still come from the driver.
    const TAKEN_ALL_THE_SAME: [(Action, u64, u64); 6] = [
        (Action::SegmentAlloc, 0, 20),
        (Action::Alloc, 0, 20),
        (Action::FreeRequested, 0, 20),
        (Action::FreeCompleted, 0, 20),
        (Action::SegmentAlloc, 100, 20),
        (Action::Alloc, 100, 20),
    ];

    #[test]
    fn a_segment_that_goes_away_explains_what_is_otherwise_wrong() {
        let mut events = TAKEN_ALL_THE_SAME.to_vec();
        events.extend([
            (Action::FreeRequested, 100, 20),
            (Action::FreeCompleted, 100, 20),
            (Action::SegmentFree, 100, 20),
            (Action::Alloc, 0, 20),
        ]);
        let check = checked(&events);
        assert_eq!((check.mismatched, check.assumed_pools), (0, 1), "{:?}", check.first_mismatch);
    }

    #[test]
    fn a_segment_that_stays_explains_nothing() {
        let check = checked(&TAKEN_ALL_THE_SAME);
        assert_eq!((check.mismatched, check.assumed_pools), (2, 0));
    }
}
