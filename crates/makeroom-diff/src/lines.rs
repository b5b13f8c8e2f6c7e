//! Which line of one run is which line of the other.
//!
//! Lines are the same if kind and place are. An edit above a line moves it, so the places of each function are aligned
//! (`align`). Of the lines that remain, those of the same kind, file and function are paired if they hold the same, or if
//! there is only one on each side and they hold similar amounts.

use crate::align::{Place, Tolerance, align, is_ratio, is_similar};
use crate::places::{harmonized, number, parts};
use crate::profile::{Line, Profile};
use makeroom_core::SortCompact as _;
use makeroom_ordered::{OrderedMap, OrderedSet};

/// Lines that must have changed by the same ratio before it is that of the run.
const LEAST_OF_RATIO: usize = 3;

/// What happened to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LineStatus {
    /// It holds the same as before, at the same place or another.
    Same,
    /// It holds more.
    Grown,
    /// It holds less.
    Shrunk,
    /// It held nothing before.
    New,
    /// It holds nothing any more.
    Gone,
}

/// A line of code in both runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// What happened to it.
    pub status: LineStatus,
    /// The ID of its kind.
    pub kind: String,
    /// Its place now, or before if it is gone; `None` if no stack was recorded.
    pub place: Option<String>,
    /// Its place before, if it moved.
    pub moved_from: Option<String>,
    /// Bytes before.
    pub before: u64,
    /// Bytes now.
    pub after: u64,
    /// Blocks before and now.
    pub blocks: (u64, u64),
}

impl LineChange {
    /// How much it grew; negative if it shrank.
    pub fn growth(&self) -> i64 {
        signed(self.after).saturating_sub(signed(self.before))
    }
}

pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// All lines of both runs, the largest change first. Changes of at most `noise` bytes are none.
pub(crate) fn changes(before: &Profile, after: &Profile, noise: u64) -> Vec<LineChange> {
    let [old, new] = harmonized(before, after);
    let tolerance = Tolerance { noise, ratio: usual_ratio(&old, &new, noise) };
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    let mut functions: OrderedMap<FunctionKey<'_>, [OrderedMap<u64, Place<'_>>; 2]> = OrderedMap::new();
    let mut others: OrderedMap<LineKey<'_>, Pair<'_>> = OrderedMap::new();
    for (side, lines) in [&old, &new].into_iter().enumerate() {
        for line in lines {
            if let Some((file, number, function)) = line.place.as_deref().and_then(parts) {
                let places = &mut functions.entry((file, function)).or_default()[side];
                places.entry(number).or_insert_with(|| Place { number, lines: Vec::new() }).lines.push(line);
            } else {
                let pair = others.entry((&line.kind, line.place.as_deref())).or_default();
                *(if side == 0 { &mut pair.0 } else { &mut pair.1 }) = Some(line);
            }
        }
    }
    pairs.extend(others.into_values());
    for sides in functions.into_values() {
        pair_function(&sides.map(|places| places.into_values().collect()), tolerance, &mut pairs);
    }
    let mut changes: Vec<LineChange> =
        pairs.into_iter().filter_map(|(old, new)| change(old, new, noise)).collect();
    changes.sort_compact_by(|one, two| {
        let size = |change: &LineChange| change.growth().unsigned_abs();
        size(two).cmp(&size(one)).then_with(|| (&one.kind, &one.place).cmp(&(&two.kind, &two.place)))
    });
    changes
}

/// The ratio by which most of the lines that changed did, if there is one.
fn usual_ratio(old: &[Line], new: &[Line], noise: u64) -> Option<f64> {
    let after: OrderedMap<LineKey<'_>, &Line> =
        new.iter().map(|line| ((line.kind.as_str(), line.place.as_deref()), line)).collect();
    let mut ratios: Vec<f64> = old
        .iter()
        .filter_map(|one| Some((one, *after.get(&(one.kind.as_str(), one.place.as_deref()))?)))
        .filter(|(one, two)| one.bytes > 0 && two.bytes > 0 && one.bytes.abs_diff(two.bytes) > noise)
        .map(|(one, two)| two.bytes as f64 / one.bytes as f64)
        .collect();
    ratios.sort_compact_by(f64::total_cmp);
    let median = *ratios.get(ratios.len() / 2)?;
    let of_median = ratios.iter().filter(|&&ratio| is_ratio(ratio, median)).count();
    (of_median >= LEAST_OF_RATIO && of_median * 2 > ratios.len()).then_some(median)
}

/// Pairs the lines of one function: those of places that are the same, and then lines that moved out of their order.
fn pair_function<'line>(sides: &[Vec<Place<'line>>; 2], tolerance: Tolerance, pairs: &mut Vec<Pair<'line>>) {
    let [old, new] = sides;
    let mut is_paired = [vec![false; old.len()], vec![false; new.len()]];
    for (one, two) in align(old, new, tolerance) {
        (is_paired[0][one], is_paired[1][two]) = (true, true);
        let mut kinds: OrderedMap<&str, Pair<'line>> = OrderedMap::new();
        old[one].lines.iter().for_each(|line| kinds.entry(&line.kind).or_default().0 = Some(line));
        new[two].lines.iter().for_each(|line| kinds.entry(&line.kind).or_default().1 = Some(line));
        pairs.extend(kinds.into_values());
    }
    // A place that holds memory in both runs did not move.
    let numbers =
        [old, new].map(|places| places.iter().map(|place| place.number).collect::<OrderedSet<u64>>());
    let mut left: OrderedMap<&str, Sides<'line>> = OrderedMap::new();
    for (side, places) in sides.iter().enumerate() {
        let alone = places.iter().zip(&is_paired[side]).filter(|(_, is_paired)| !**is_paired);
        for (line, number) in
            alone.flat_map(|(place, _)| place.lines.iter().map(|line| (*line, place.number)))
        {
            match (numbers[1 - side].contains(&number), side) {
                (true, 0) => pairs.push((Some(line), None)),
                (true, _) => pairs.push((None, Some(line))),
                (false, 0) => left.entry(&line.kind).or_default().0.push(line),
                (false, _) => left.entry(&line.kind).or_default().1.push(line),
            }
        }
    }
    for (old, new) in left.into_values() {
        pair_within_function(old, new, tolerance.noise, pairs);
    }
}

/// Pairs the lines of one function: first those that hold the same bytes, in the order of their numbers, then each with the
/// nearest one within `noise`. Looks lines up by what they hold, so that a function of many lines takes n log n steps.
fn pair_within_function<'line>(
    old: Vec<&'line Line>,
    mut new: Vec<&'line Line>,
    noise: u64,
    pairs: &mut Vec<Pair<'line>>,
) {
    if let ([old], [new]) = (&old[..], &new[..])
        && is_similar(old, new)
    {
        pairs.push((Some(old), Some(new)));
        return;
    }
    new.sort_by_cached_key(|line| number(line));
    let key = |line: &'line Line| (line.blocks, line.bytes, number(line), line.place.as_deref());
    let mut left: OrderedMap<_, &Line> = old.into_iter().map(|line| (key(line), line)).collect();
    let mut without = Vec::new();
    for line in new {
        let equal =
            (line.blocks, line.bytes, 0, None)..=(line.blocks, line.bytes, u64::MAX, Some("\u{10ffff}"));
        let found = left.range(equal).next().map(|(key, _)| *key);
        match found.and_then(|key| left.remove(&key)) {
            Some(counterpart) => pairs.push((Some(counterpart), Some(line))),
            None => without.push(line),
        }
    }
    for line in without {
        let at = (line.blocks, line.bytes, 0, None);
        let around = [left.range(..at).next_back(), left.range(at..).next()];
        let distance = |old: &Line| old.bytes.abs_diff(line.bytes);
        let nearest = around
            .into_iter()
            .flatten()
            .filter(|(_, old)| old.blocks == line.blocks && distance(old) <= noise)
            .min_by_key(|(_, old)| distance(old))
            .map(|(key, _)| *key);
        pairs.push((nearest.and_then(|key| left.remove(&key)), Some(line)));
    }
    pairs.extend(left.into_values().map(|line| (Some(line), None)));
}

fn change(old: Option<&Line>, new: Option<&Line>, noise: u64) -> Option<LineChange> {
    let line = new.or(old)?;
    let bytes = |line: Option<&Line>| line.map_or(0, |line| line.bytes);
    let blocks = |line: Option<&Line>| line.map_or(0, |line| line.blocks);
    let (before, after) = (bytes(old), bytes(new));
    let status = match (old, new) {
        _ if before.abs_diff(after) <= noise => LineStatus::Same,
        (None, _) => LineStatus::New,
        (_, None) => LineStatus::Gone,
        _ if after > before => LineStatus::Grown,
        _ => LineStatus::Shrunk,
    };
    let moved_from = old.zip(new).filter(|(old, new)| old.place != new.place);
    Some(LineChange {
        status,
        kind: line.kind.clone(),
        place: line.place.clone(),
        moved_from: moved_from.and_then(|(old, _)| old.place.clone()),
        before,
        after,
        blocks: (blocks(old), blocks(new)),
    })
}

/// A line before and now.
type Pair<'line> = (Option<&'line Line>, Option<&'line Line>);

/// The kind and the place of a line.
type LineKey<'line> = (&'line str, Option<&'line str>);

/// The file and the name of a function.
type FunctionKey<'line> = (&'line str, &'line str);

/// The lines of a function in both runs.
type Sides<'line> = (Vec<&'line Line>, Vec<&'line Line>);

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(lines: &[(&str, &str, u64)]) -> Profile {
        let line = |&(kind, place, bytes): &(&str, &str, u64)| Line {
            kind: kind.to_owned(),
            place: (!place.is_empty()).then(|| place.to_owned()),
            bytes,
            blocks: 1,
        };
        Profile { lines: lines.iter().map(line).collect(), ..Profile::default() }
    }

    #[test]
    fn lines_are_paired_by_place_and_then_by_function() {
        let before = profile(&[
            ("activations", "model.py:10 forward", 100),
            ("activations", "model.py:20 forward", 200),
            ("activations", "model.py:30 attention", 300),
            ("gradients", "", 50),
        ]);
        let after = profile(&[
            ("activations", "model.py:10 forward", 100),
            ("activations", "model.py:24 forward", 200),
            ("activations", "model.py:35 loss", 900),
            ("gradients", "", 70),
        ]);
        let changes = changes(&before, &after, 0);
        let told: Vec<_> = changes
            .iter()
            .map(|change| (change.status, change.place.as_deref().unwrap_or("-"), change.growth()))
            .collect();
        assert_eq!(
            told,
            [
                (LineStatus::New, "model.py:35 loss", 900),
                (LineStatus::Gone, "model.py:30 attention", -300),
                (LineStatus::Grown, "-", 20),
                (LineStatus::Same, "model.py:10 forward", 0),
                (LineStatus::Same, "model.py:24 forward", 0),
            ]
        );
        assert_eq!(changes[4].moved_from.as_deref(), Some("model.py:20 forward"));
    }

    #[test]
    fn a_line_that_moved_holds_a_similar_amount_and_is_at_a_new_place() {
        let moved = |before: &[(&str, &str, u64)], after: &[(&str, &str, u64)]| {
            let changes = changes(&profile(before), &profile(after), 0);
            changes.into_iter().find_map(|change| change.moved_from)
        };
        let old = ("temporaries", "train.py:26 step", 100);
        let from = Some("train.py:26 step".to_owned());
        assert_eq!(moved(&[old], &[("temporaries", "train.py:27 step", 150)]), from);
        // Far more or less memory, another function, another file.
        for new in [
            ("temporaries", "train.py:27 step", 1 << 30),
            ("temporaries", "train.py:27 step", 4),
            ("temporaries", "train.py:27 loss", 100),
            ("temporaries", "model.py:27 step", 100),
        ] {
            assert_eq!(moved(&[old], &[new]), None, "{new:?}");
        }
        // The new place held memory of another kind before, or the old place still does: then only equal amounts show a move.
        for (amount, expected) in [(150, None), (100, from)] {
            let new = ("temporaries", "train.py:25 step", amount);
            assert_eq!(moved(&[old, ("activations", "train.py:25 step", 9)], &[new]), expected);
            assert_eq!(moved(&[old], &[new, ("activations", "train.py:26 step", 9)]), expected);
        }
    }

    #[test]
    fn an_edit_above_adjacent_lines_is_no_change() {
        let lines = |first: u64| -> Vec<(&str, String, u64)> {
            [4, 8, 16, 8]
                .into_iter()
                .zip(first..)
                .map(|(bytes, number)| ("activations", format!("model.py:{number} forward"), bytes))
                .collect()
        };
        let of = |lines: &[(&'static str, String, u64)]| {
            profile(
                &lines.iter().map(|(kind, place, bytes)| (*kind, place.as_str(), *bytes)).collect::<Vec<_>>(),
            )
        };
        let changes = changes(&of(&lines(10)), &of(&lines(11)), 0);
        assert!(
            changes.iter().all(|change| change.status == LineStatus::Same && change.moved_from.is_some())
        );
    }

    #[test]
    fn places_of_different_recorders_are_reduced_to_what_both_have() {
        use crate::profile::Source;
        let snapshot = Profile {
            source: Some(Source::TorchSnapshot),
            ..profile(&[("activations", "model.py:10 forward", 9), ("temporaries", "", 5)])
        };
        let lines = [
            ("activations", "src/model.py:10 Gpt.forward", 9),
            ("temporaries", "thread pt_autograd_0", 2),
            ("temporaries", "thread pt_autograd_1", 3),
        ];
        let recording = Profile { source: Some(Source::Recording), ..profile(&lines) };
        assert!(changes(&snapshot, &recording, 0).iter().all(|change| change.status == LineStatus::Same));
        // Of one recorder, they are other places.
        let other = Profile { source: Some(Source::Recording), ..snapshot };
        assert!(changes(&other, &recording, 0).iter().all(|change| change.status != LineStatus::Same));
    }

    #[test]
    fn lines_of_one_function_are_paired_by_what_they_hold() {
        let line = |number: u64, bytes: u64| ("activations", format!("model.py:{number} forward"), bytes);
        let before = [line(1, 4096), line(2, 4096), line(3, 9000), line(4, 5000)];
        let after = [line(11, 4100), line(12, 4096), line(15, 5002), line(17, 1 << 20)];
        let of = |lines: &[(&'static str, String, u64)]| {
            let lines: Vec<_> =
                lines.iter().map(|(kind, place, bytes)| (*kind, place.as_str(), *bytes)).collect();
            profile(&lines)
        };
        let changes = changes(&of(&before), &of(&after), 64);
        let from = |place: &str| {
            let change = changes.iter().find(|change| change.place.as_deref() == Some(place)).unwrap();
            change.moved_from.as_deref()
        };
        // In the order of the lines.
        assert_eq!(from("model.py:11 forward"), Some("model.py:1 forward"));
        assert_eq!(from("model.py:12 forward"), Some("model.py:2 forward"));
        assert_eq!(from("model.py:15 forward"), Some("model.py:4 forward"));
        assert_eq!((from("model.py:17 forward"), from("model.py:3 forward")), (None, None));
    }

    /// Seconds to pair `count` lines of one function whose order is reversed, so that a search from the front would have to
    /// look at half of the others.
    fn seconds_to_pair(count: u64) -> f64 {
        let lines: Vec<[Line; 2]> = (1..=count)
            .map(|number| {
                [number, count + 1 - number].map(|blocks| Line {
                    place: Some(format!(
                        "compiled.py:{} call",
                        if blocks == number { number } else { count + number }
                    )),
                    kind: "activations".to_owned(),
                    bytes: 1 << 20,
                    blocks,
                })
            })
            .collect();
        let side = |side: usize| lines.iter().map(|pair| &pair[side]).collect::<Vec<_>>();
        let (old, new, mut pairs) = (side(0), side(1), Vec::new());
        let start = std::time::Instant::now();
        pair_within_function(old, new, 0, &mut pairs);
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(pairs.len() as u64, count);
        assert!(pairs.iter().all(|(old, new)| old.unwrap().blocks == new.unwrap().blocks));
        seconds
    }

    #[test]
    fn many_lines_of_one_function_take_no_quadratic_time() {
        // 100,000 lines take 25 times as long as 4,000, and a little more; every pair would take 625 times as long. A busy
        // machine may slow down one of the measurements.
        let is_linear = || seconds_to_pair(100_000) < 150.0 * seconds_to_pair(4_000);
        assert!((0..5).any(|_| is_linear()));
    }
}
