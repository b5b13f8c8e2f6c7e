//! Which places of one function are the same in both runs, although an edit moved them.
//!
//! A sequence alignment, as in `diff`: places are paired in the order of their line numbers, so that the pairs have the
//! highest total score. A place may be paired with
//!
//! - the place with the same number,
//! - a place that holds the same memory, wherever it is,
//! - a place at a distance by which the function moved, whatever it holds.
//!
//! An edit above a function shifts all of its lines by the same distance, so all of them can still be paired. Pairing by
//! equal line numbers would leave the first and last ones unpaired.

use makeroom_ordered::{OrderedMap, OrderedSet};

use crate::profile::Line;

/// Most pairs of places that are examined: more than a profile of makeroom has. Beyond, only equal numbers are paired.
const MOST_CELLS: usize = 1 << 20;
/// Places that must hold the same memory at one distance before it explains other places.
const LEAST_AT_DISTANCE: usize = 2;
/// Similar places hold at most this many times what they held before, and no less than the inverse.
const MOST_GROWTH: u64 = 2;
/// Ratios that differ by less than this are the same.
const RATIO_TOLERANCE: f64 = 0.02;

/// A pair that fits well: the same memory, similar amounts, or the ratio of the whole run.
const GOOD: u64 = 2 << 40;
/// A pair of places that hold other amounts.
const POOR: u64 = 1 << 40;
/// Of equal totals, the one with more places that hold exactly the same wins, then the one with more equal numbers.
const SAME_MEMORY: u64 = 1 << 20;
const SAME_NUMBER: u64 = 1;

/// A line of code with the memory of each kind that it holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place<'line> {
    pub(crate) number: u64,
    pub(crate) lines: Vec<&'line Line>,
}

/// What decides whether amounts are the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tolerance {
    /// Changes of at most this many bytes are none.
    pub(crate) noise: u64,
    /// The ratio by which most lines of the run changed, if there is one: that of the batch.
    pub(crate) ratio: Option<f64>,
}

/// Pairs the places of a function, which are in ascending order, and returns their positions.
pub(crate) fn align(old: &[Place<'_>], new: &[Place<'_>], tolerance: Tolerance) -> Vec<(usize, usize)> {
    if old.len().saturating_mul(new.len()) > MOST_CELLS {
        return equal_numbers(old, new);
    }
    let distances = distances(old, new, tolerance);
    let score = |one: usize, two: usize| score(&old[one], &new[two], &distances, tolerance);
    // `best[one][two]` is the best total of the places from `one` and from `two` on.
    let width = new.len() + 1;
    let mut best = vec![0_u64; (old.len() + 1) * width];
    for one in (0..old.len()).rev() {
        for two in (0..new.len()).rev() {
            let apart = best[(one + 1) * width + two].max(best[one * width + two + 1]);
            let paired =
                score(one, two).map_or(0, |score| score.saturating_add(best[(one + 1) * width + two + 1]));
            best[one * width + two] = apart.max(paired);
        }
    }
    let (mut one, mut two, mut pairs) = (0, 0, Vec::new());
    while one < old.len() && two < new.len() {
        let here = best[one * width + two];
        if best[(one + 1) * width + two] == here {
            one += 1;
        } else if best[one * width + two + 1] == here {
            two += 1;
        } else {
            pairs.push((one, two));
            (one, two) = (one + 1, two + 1);
        }
    }
    pairs
}

fn equal_numbers(old: &[Place<'_>], new: &[Place<'_>]) -> Vec<(usize, usize)> {
    let positions: OrderedMap<u64, usize> =
        old.iter().enumerate().map(|(at, place)| (place.number, at)).collect();
    let pair = |(two, place): (usize, &Place<'_>)| Some((*positions.get(&place.number)?, two));
    new.iter().enumerate().filter_map(pair).collect()
}

fn distance(old: &Place<'_>, new: &Place<'_>) -> i128 {
    i128::from(new.number) - i128::from(old.number)
}

/// The distances by which the function, or a part of it, moved.
fn distances(old: &[Place<'_>], new: &[Place<'_>], tolerance: Tolerance) -> OrderedSet<i128> {
    let mut same: OrderedMap<i128, usize> = OrderedMap::new();
    for one in old {
        for two in
            new.iter().filter(|two| two.number != one.number && holds_the_same(one, two, tolerance.noise))
        {
            *same.entry(distance(one, two)).or_default() += 1;
        }
    }
    let mut distances: OrderedSet<i128> = same
        .into_iter()
        .filter(|&(_, count)| count >= LEAST_AT_DISTANCE)
        .map(|(distance, _)| distance)
        .collect();
    // All places moved by the same distance, and all changed: another batch and an edit above.
    if let [first, _, ..] = old
        && old.len() == new.len()
    {
        let by = distance(first, &new[0]);
        if old.iter().zip(new).all(|(one, two)| distance(one, two) == by && common(one, two).next().is_some())
        {
            distances.insert(by);
        }
    }
    distances
}

/// The lines of both places that hold memory of the same kind.
fn common<'line>(old: &Place<'line>, new: &Place<'line>) -> impl Iterator<Item = (&'line Line, &'line Line)> {
    old.lines.iter().filter_map(|&one| Some((one, *new.lines.iter().find(|two| two.kind == one.kind)?)))
}

/// Whether both places hold the same blocks of the same kinds.
fn holds_the_same(old: &Place<'_>, new: &Place<'_>, noise: u64) -> bool {
    let is_same =
        |(one, two): (&Line, &Line)| one.blocks == two.blocks && one.bytes.abs_diff(two.bytes) <= noise;
    old.lines.len() == new.lines.len()
        && common(old, new).filter(|&pair| is_same(pair)).count() == old.lines.len()
}

/// Whether two amounts are within a factor of [`MOST_GROWTH`].
pub(crate) fn is_similar(old: &Line, new: &Line) -> bool {
    let (least, most) = (old.bytes.min(new.bytes), old.bytes.max(new.bytes));
    most <= least.saturating_mul(MOST_GROWTH)
}

/// Whether two ratios are the same.
pub(crate) fn is_ratio(ratio: f64, other: f64) -> bool {
    (ratio / other - 1.0).abs() <= RATIO_TOLERANCE
}

fn has_ratio(old: &Line, new: &Line, ratio: f64) -> bool {
    old.bytes > 0 && is_ratio(new.bytes as f64 / old.bytes as f64, ratio)
}

/// How well two places fit; `None` if they cannot be the same.
fn score(
    old: &Place<'_>,
    new: &Place<'_>,
    distances: &OrderedSet<i128>,
    tolerance: Tolerance,
) -> Option<u64> {
    let is_same_number = old.number == new.number;
    if holds_the_same(old, new, tolerance.noise) {
        return Some(GOOD + SAME_MEMORY + u64::from(is_same_number) * SAME_NUMBER);
    }
    if !is_same_number && !distances.contains(&distance(old, new)) {
        return None;
    }
    let fits =
        |(one, two)| is_similar(one, two) || tolerance.ratio.is_some_and(|ratio| has_ratio(one, two, ratio));
    let is_good = common(old, new).any(fits);
    Some(if is_good { GOOD } else { POOR } + u64::from(is_same_number) * SAME_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the places that are paired. Each place is a number and its bytes.
    fn paired(old: &[(u64, u64)], new: &[(u64, u64)], ratio: Option<f64>) -> Vec<(u64, u64)> {
        let lines = |places: &[(u64, u64)]| -> Vec<Line> {
            let line = |&(_, bytes): &(u64, u64)| Line {
                kind: "activations".to_owned(),
                bytes,
                blocks: 1,
                place: None,
            };
            places.iter().map(line).collect()
        };
        let (old_lines, new_lines) = (lines(old), lines(new));
        let places = |places: &[(u64, u64)], lines| -> Vec<Place<'_>> {
            let lines: &Vec<Line> = lines;
            places.iter().zip(lines).map(|(&(number, _), line)| Place { number, lines: vec![line] }).collect()
        };
        align(&places(old, &old_lines), &places(new, &new_lines), Tolerance { noise: 0, ratio })
            .into_iter()
            .map(|(one, two)| (old[one].0, new[two].0))
            .collect()
    }

    #[test]
    fn an_edit_above_moves_all_places() {
        // Adjacent lines: 11 and 12 hold memory in both runs, and still moved.
        let old = [(10, 4), (11, 8), (12, 16)];
        assert_eq!(paired(&old, &[(11, 4), (12, 8), (13, 16)], None), [(10, 11), (11, 12), (12, 13)]);
        // Equal amounts.
        let equal: Vec<(u64, u64)> = (10..20).map(|number| (number, 4)).collect();
        let later: Vec<(u64, u64)> = (11..21).map(|number| (number, 4)).collect();
        assert!(paired(&equal, &later, None).iter().all(|&(one, two)| two == one + 1));
        // One of them grew too.
        assert_eq!(paired(&old, &[(11, 4), (12, 24), (13, 16)], None), [(10, 11), (11, 12), (12, 13)]);
        // All of them grew.
        assert_eq!(
            paired(&[(10, 4), (11, 8), (13, 16)], &[(11, 8), (12, 16), (14, 32)], None),
            [(10, 11), (11, 12), (13, 14)]
        );
    }

    #[test]
    fn a_new_line_moves_the_places_below_it() {
        let old = [(10, 4), (11, 8), (12, 16)];
        // At the top, with a size that would fit the pairs with equal numbers.
        assert_eq!(
            paired(&old, &[(10, 2), (11, 4), (12, 8), (13, 16)], None),
            [(10, 11), (11, 12), (12, 13)]
        );
        assert_eq!(
            paired(&old, &[(10, 4), (11, 1000), (12, 8), (13, 16)], None),
            [(10, 10), (11, 12), (12, 13)]
        );
        // A line was removed; one was removed and another one added.
        assert_eq!(paired(&old, &[(10, 8), (11, 16)], None), [(11, 10), (12, 11)]);
        assert_eq!(
            paired(&[(10, 100), (11, 8), (12, 64)], &[(10, 32), (11, 100), (12, 8)], None),
            [(10, 11), (11, 12)]
        );
    }

    #[test]
    fn places_that_only_grew_did_not_move() {
        let old = [(10, 100), (11, 200), (12, 400), (13, 800)];
        let by = |factor: u64| old.map(|(number, bytes)| (number, bytes * factor));
        let identity: Vec<(u64, u64)> = old.iter().map(|&(number, _)| (number, number)).collect();
        // Each place holds what the next one held before.
        assert_eq!(paired(&old, &by(2), None), identity);
        assert_eq!(paired(&old, &by(4), Some(4.0)), identity);
        // A place that is gone, of two that hold the same.
        assert_eq!(paired(&[(30, 12), (31, 12)], &[(31, 12)], None), [(31, 31)]);
        // Different amounts elsewhere are different places.
        assert_eq!(paired(&[(10, 100)], &[(20, 150)], None), []);
    }

    #[test]
    fn a_function_of_many_places_is_paired_by_number() {
        let places: Vec<(u64, u64)> = (0..2000).map(|number| (number, number * 512)).collect();
        assert_eq!(paired(&places, &places, None).len(), 2000);
    }
}
