//! Which line of one run is which line of the other.
//!
//! Lines are the same if kind and place are. An edit above a line moves it: lines of the same kind, file and function
//! are paired if they hold the same, or if there is only one on each side and they hold similar amounts. A place that
//! holds memory of any kind in both runs did not move.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{Line, Profile};

/// A line that moved holds at most this many times what it held before, and no less than the inverse.
const MOST_GROWTH_OF_MOVED: u64 = 2;

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
    let key = |line: &Line| (line.kind.clone(), line.place.clone());
    let mut old: BTreeMap<_, &Line> = before.lines.iter().map(|line| (key(line), line)).collect();
    let mut pairs: Vec<(Option<&Line>, Option<&Line>)> = Vec::new();
    let mut new: Vec<&Line> = Vec::new();
    for line in &after.lines {
        match old.remove(&key(line)) {
            Some(counterpart) => pairs.push((Some(counterpart), Some(line))),
            None => new.push(line),
        }
    }
    let places = |profile: &Profile| -> BTreeSet<Option<String>> {
        profile.lines.iter().map(|line| line.place.clone()).collect()
    };
    let (old_places, new_places) = (places(before), places(after));
    let mut by_function: BTreeMap<FunctionKey<'_>, Sides<'_>> = BTreeMap::new();
    for line in old.into_values() {
        if new_places.contains(&line.place) {
            pairs.push((Some(line), None));
        } else {
            by_function.entry(function(line)).or_default().0.push(line);
        }
    }
    for line in new {
        if old_places.contains(&line.place) {
            pairs.push((None, Some(line)));
        } else {
            by_function.entry(function(line)).or_default().1.push(line);
        }
    }
    for (mut old, mut new) in by_function.into_values() {
        old.sort_by_key(|line| number(line));
        new.sort_by_key(|line| number(line));
        let is_only = old.len() == 1 && new.len() == 1;
        for line in new {
            let is_same = |old: &&Line| old.blocks == line.blocks && old.bytes.abs_diff(line.bytes) <= noise;
            let counterpart = old.iter().position(|old| is_same(old) || is_only && is_similar(old, line));
            pairs.push((counterpart.map(|position| old.remove(position)), Some(line)));
        }
        pairs.extend(old.into_iter().map(|line| (Some(line), None)));
    }
    let mut changes: Vec<LineChange> =
        pairs.into_iter().filter_map(|(old, new)| change(old, new, noise)).collect();
    changes.sort_by(|one, two| {
        let size = |change: &LineChange| change.growth().unsigned_abs();
        size(two).cmp(&size(one)).then_with(|| (&one.kind, &one.place).cmp(&(&two.kind, &two.place)))
    });
    changes
}

fn is_similar(old: &Line, new: &Line) -> bool {
    let (least, most) = (old.bytes.min(new.bytes), old.bytes.max(new.bytes));
    most <= least.saturating_mul(MOST_GROWTH_OF_MOVED)
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

/// The kind, file and function of a line, without its number: `model.py:88 forward`.
fn function(line: &Line) -> (&str, Option<(&str, &str)>) {
    let place = line.place.as_deref().map(|place| match parts(place) {
        Some((file, _, function)) => (file, function),
        None => (place, ""),
    });
    (&line.kind, place)
}

fn number(line: &Line) -> u64 {
    line.place.as_deref().and_then(parts).map_or(0, |(_, number, _)| number)
}

fn parts(place: &str) -> Option<(&str, u64, &str)> {
    let (position, function) = place.split_once(' ')?;
    let (file, number) = position.rsplit_once(':')?;
    Some((file, number.parse().ok()?, function))
}

/// A function, and the function that called it.
type FunctionKey<'line> = (&'line str, Option<(&'line str, &'line str)>);

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
        // The new place held memory of another kind before, or the old place still does.
        let new = ("temporaries", "train.py:25 step", 100);
        assert_eq!(moved(&[old, ("activations", "train.py:25 step", 9)], &[new]), None);
        assert_eq!(moved(&[old], &[new, ("activations", "train.py:26 step", 9)]), None);
    }

    #[test]
    fn places_have_a_file_a_number_and_a_function() {
        assert_eq!(parts("a/model.py:88 f g"), Some(("a/model.py", 88, "f g")));
        assert_eq!(parts("cudaMalloc in libx.so"), None);
        assert_eq!(parts("model.py:x f"), None);
    }
}
