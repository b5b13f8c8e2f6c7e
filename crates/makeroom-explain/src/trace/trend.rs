//! How live memory develops from step to step if it does not keep growing: steady, higher at the end, or up and down.
//! Whether it keeps growing is for `steps` to decide.

use makeroom_core::Bytes;

use super::Subject;
use super::history::{Floor, History};
use super::pieces::Pieces;
use super::steps::{self, LEAST_STEPS, Steps};
use crate::health::SLIGHT_GROWTH;
use crate::{Settled, Trend, Usage};

/// A rise by a smaller share is noise and is not reported as a rise.
const NOISE: f64 = 0.005;

impl Subject<'_> {
    /// The memory of the run as a whole; `None` if the recording has no events.
    pub(super) fn usage(&self, pieces: &Pieces) -> Option<Usage> {
        (!self.device.events.is_empty()).then(|| Usage {
            live: self.history.peak_live,
            reserved: self.has_segments().then(|| pieces.held(true)),
            rounding: pieces.rounding,
            waiting: pieces.pending,
            trend: trend(&self.history, &self.steps),
        })
    }
}

/// The trend of a recording's floors, which `History` has read already.
fn trend(history: &History, steps: &Steps) -> Trend {
    let floors = steps::floors_before_failure(history);
    // The first step allocates what stays.
    let settled = floors.get((floors.len() / 4).max(1)..).unwrap_or(&[]);
    let ([first, .., last], false) = (settled, steps::rise(history).is_some()) else {
        return if settled.len() < 2 { Trend::TooShort } else { Trend::Grows };
    };
    let (first, last) = (first.live, last.live);
    let (low, high) = range(settled);
    let are_steps = steps.parts.is_none();
    let is_high = |floor: &&Floor| (high - floor.live).share_of(high) < SLIGHT_GROWTH;
    // A program may free its memory at the end.
    let are_most_high = settled.iter().filter(is_high).count() * 4 >= settled.len() * 3;
    let found = Settled {
        steps: (floors.len() - settled.len() + 1, floors.len()),
        are_steps,
        are_few: settled.len() < LEAST_STEPS,
        are_alike: are_most_high && (high - first).share_of(high) < SLIGHT_GROWTH,
        ends: (first, last),
        range: (low, high),
    };
    // One high step, such as a cache that is freed later, must not hide the growth after it.
    let lowest = settled.iter().enumerate().min_by_key(|(_, floor)| floor.live).map_or(0, |(at, _)| at);
    let since = &settled[lowest..];
    if are_steps && lowest > 0 && since.len() >= LEAST_STEPS && steps::keeps_growing(since) {
        let steps = (floors.len() - since.len() + 1, floors.len());
        return Trend::Regrows(Settled { steps, ends: (low, last), ..found });
    }
    if (high - first).share_of(high) < NOISE && (are_steps || are_most_high) {
        return Trend::Steady(found);
    }
    let quarter = settled.len().div_ceil(4);
    let (early, late) = (range(&settled[..quarter]).1, range(&settled[settled.len() - quarter..]).0);
    if late > early && (late - early).share_of(late) >= NOISE {
        return Trend::Higher(found);
    }
    Trend::Varies(found)
}

/// The lowest and the highest of some floors.
fn range(floors: &[Floor]) -> (Bytes, Bytes) {
    let least = floors.iter().map(|floor| floor.live).min().unwrap_or(Bytes::ZERO);
    let most = floors.iter().map(|floor| floor.live).max().unwrap_or(Bytes::ZERO);
    (least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unlike(settled: Settled) -> Settled {
        Settled { are_alike: false, ..settled }
    }

    fn trend_of(floors: &[u64], failure: Option<usize>) -> Trend {
        let floors = floors.iter().enumerate().map(|(index, &mib)| Floor { index, live: Bytes::mib(mib) });
        let history = History {
            floors: floors.collect(),
            failures: failure.into_iter().collect(),
            ..History::default()
        };
        trend(&history, &Steps::default())
    }

    /// Of values that are alike.
    fn settled(steps: (usize, usize), ends: (u64, u64), range: (u64, u64)) -> Settled {
        let mib = |(one, two)| (Bytes::mib(one), Bytes::mib(two));
        let are_few = steps.1 - steps.0 < 5;
        Settled { steps, are_steps: true, are_few, are_alike: true, ends: mib(ends), range: mib(range) }
    }

    #[test]
    fn a_floor_that_stays_is_steady_even_if_the_first_steps_grow() {
        let floors = [1, 50, 100, 1000, 1001, 1000, 999, 1000, 1001, 1000, 1000, 1000];
        let found = settled((4, 12), (1000, 1000), (999, 1001));
        assert_eq!(trend_of(&floors, None), Trend::Steady(found));
        // Memory that is freed for good is not growth either.
        let falling = [100, 100, 100, 90, 80, 70, 60, 50, 40];
        assert_eq!(trend_of(&falling, None), Trend::Steady(unlike(settled((3, 9), (100, 40), (40, 100)))));
    }

    #[test]
    fn drops_decide_between_growth_and_change() {
        let growing: Vec<u64> = (10..30).collect();
        assert_eq!(trend_of(&growing, None), Trend::Grows);
        let varying = [20, 10, 20, 10, 20, 10, 20, 10, 20, 10, 20, 10];
        assert_eq!(trend_of(&varying, None), Trend::Varies(unlike(settled((4, 12), (10, 10), (10, 20)))));
        let higher = [10, 9, 12, 11, 14, 13, 16, 15, 18, 17, 20, 19];
        assert_eq!(trend_of(&higher, None), Trend::Higher(unlike(settled((4, 12), (11, 19), (11, 20)))));
        // Slow growth is not called growth, and not steady either.
        let slow: Vec<u64> = (1000..1040).collect();
        assert_eq!(trend_of(&slow, None), Trend::Higher(settled((11, 40), (1010, 1039), (1010, 1039))));
    }

    #[test]
    fn one_high_step_does_not_hide_the_growth_after_it() {
        let leak = |step: u64| 100 + 20 * step;
        for high in [4, 6] {
            let floors: Vec<u64> =
                (0..16).map(|step| leak(step) + if step <= high { 1024 } else { 0 }).collect();
            let from = high as usize + 2;
            let found = trend_of(&floors, None);
            assert!(
                matches!(found, Trend::Regrows(Settled { steps, ends, .. })
                    if steps == (from, 16) && ends == (Bytes::mib(leak(high + 1)), Bytes::mib(leak(15)))),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_few_steps_are_compared_but_never_called_growth() {
        assert_eq!(trend_of(&[], None), Trend::TooShort);
        assert_eq!(trend_of(&[5, 5], None), Trend::TooShort);
        assert_eq!(trend_of(&[1, 5, 5], None), Trend::Steady(settled((2, 3), (5, 5), (5, 5))));
        assert_eq!(trend_of(&[1, 5, 6, 7], None), Trend::Higher(unlike(settled((2, 4), (5, 7), (5, 7)))));
        assert_eq!(trend_of(&[5; 80], Some(2)), Trend::TooShort);
        assert_eq!(trend_of(&[0; 8], None), Trend::Steady(settled((3, 8), (0, 0), (0, 0))));
    }

    #[test]
    fn equal_parts_are_steady_only_if_all_of_them_are_alike() {
        let parts = Steps { parts: Some(24), ..Steps::default() };
        let of = |mib: &[u64]| {
            let floors = mib.iter().enumerate().map(|(index, &mib)| Floor { index, live: Bytes::mib(mib) });
            trend(&History { floors: floors.collect(), ..History::default() }, &parts)
        };
        assert!(matches!(of(&[1, 50, 100, 99, 98, 100, 97, 99, 100]), Trend::Steady(_)));
        assert!(
            matches!(of(&[1, 50, 100, 99, 2, 100, 97, 1, 100]), Trend::Varies(found) if !found.are_alike)
        );
        // A slight rise, and frees at the end.
        assert!(
            matches!(of(&[1, 50, 100, 101, 102, 103, 102, 101, 40]), Trend::Varies(found) if found.are_alike)
        );
    }
}
