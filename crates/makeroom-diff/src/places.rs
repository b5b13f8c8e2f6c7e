//! The places of lines: their parts, and the names that both runs have in common.
//!
//! A place has the last directory of its file, so the same program has other places in another checkout. Recorders also
//! name functions and threads differently.

use makeroom_ordered::{OrderedMap, OrderedSet};

use crate::profile::{Line, Profile};

/// The lines of two runs, one for each kind and place, with names that both have in common.
pub(crate) fn harmonized(before: &Profile, after: &Profile) -> [Vec<Line>; 2] {
    let is_mixed = before.source.zip(after.source).is_some_and(|(before, after)| before != after);
    let renamed = renamed_files(before, after);
    let lines = |profile: &Profile, renamed: &OrderedMap<&str, &str>| {
        let mut lines: OrderedMap<(&str, Option<String>), Line> = OrderedMap::new();
        for line in &profile.lines {
            let place = line.place.as_deref().and_then(|place| common_place(place, renamed, is_mixed));
            let sum = lines.entry((&line.kind, place.clone())).or_insert_with(|| Line {
                place,
                kind: line.kind.clone(),
                ..Line::default()
            });
            sum.bytes = sum.bytes.saturating_add(line.bytes);
            sum.blocks = sum.blocks.saturating_add(line.blocks);
        }
        lines.into_values().collect()
    };
    [lines(before, &renamed), lines(after, &OrderedMap::new())]
}

/// The files of the earlier run that are in another directory in the later one: of all files that only one of the runs has,
/// these two have the same name, and no other one does.
fn renamed_files<'run>(before: &'run Profile, after: &'run Profile) -> OrderedMap<&'run str, &'run str> {
    let [old, new] = [before, after].map(|profile| -> OrderedSet<&'run str> {
        let places = profile.lines.iter().filter_map(|line| line.place.as_deref());
        places.filter_map(parts).map(|(file, _, _)| file).collect()
    });
    let mut by_name: OrderedMap<&str, [Vec<&'run str>; 2]> = OrderedMap::new();
    for (side, files) in [old.difference(&new), new.difference(&old)].into_iter().enumerate() {
        files.for_each(|file| by_name.entry(last(file, '/')).or_default()[side].push(file));
    }
    let pair = |files: &[Vec<&'run str>; 2]| match (files[0].as_slice(), files[1].as_slice()) {
        (&[old], &[new]) => Some((old, new)),
        _ => None,
    };
    by_name.values().filter_map(pair).collect()
}

fn last(text: &str, separator: char) -> &str {
    text.rsplit(separator).next().unwrap_or_default()
}

/// A place with the name of its file in the later run. Of different recorders, only the part that both record remains:
/// `model.py:88 forward` of `model.py:88 Gpt.forward`, and nothing of a thread, which a snapshot does not have.
fn common_place(place: &str, renamed: &OrderedMap<&str, &str>, is_mixed: bool) -> Option<String> {
    let Some((file, number, function)) = parts(place) else {
        return (!is_mixed || !place.starts_with("thread ")).then(|| place.to_owned());
    };
    let file = renamed.get(file).unwrap_or(&file);
    let function = if is_mixed { last(function, '.') } else { function };
    Some(format!("{file}:{number} {function}"))
}

/// The line number of a place; 0 if it has none.
pub(crate) fn number(line: &Line) -> u64 {
    line.place.as_deref().and_then(parts).map_or(0, |(_, number, _)| number)
}

/// The file, the line number and the function of a place: `model.py:88 forward`.
pub(crate) fn parts(place: &str) -> Option<(&str, u64, &str)> {
    let (position, function) = place.split_once(' ')?;
    let (file, number) = position.rsplit_once(':')?;
    Some((file, number.parse().ok()?, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_another_directory_is_the_same_file() {
        let profile = |places: &[&str]| Profile {
            lines: places
                .iter()
                .map(|place| Line {
                    place: Some((*place).to_owned()),
                    bytes: 1,
                    blocks: 1,
                    ..Line::default()
                })
                .collect(),
            ..Profile::default()
        };
        let common = |before: &[&str], after: &[&str]| {
            let [before, after] = harmonized(&profile(before), &profile(after));
            before.iter().filter(|line| after.contains(line)).count()
        };
        assert_eq!(common(&["a/model.py:1 f", "a/train.py:2 g"], &["b/model.py:1 f", "b/train.py:2 g"]), 2);
        assert_eq!(common(&["a/model.py:1 f"], &["model.py:1 f"]), 1);
        // Which one, if there are two?
        assert_eq!(common(&["a/model.py:1 f"], &["b/model.py:1 f", "c/model.py:1 f"]), 0);
        assert_eq!(common(&["a/model.py:1 f", "b/model.py:1 f"], &["c/model.py:1 f"]), 0);
        // A file that both runs have is not another one.
        assert_eq!(common(&["a/model.py:1 f"], &["a/model.py:2 f", "b/model.py:1 f"]), 0);
        assert_eq!(common(&["a/model.py:1 f"], &["a/other.py:1 f"]), 0);
    }

    #[test]
    fn places_have_a_file_a_number_and_a_function() {
        assert_eq!(parts("a/model.py:88 f g"), Some(("a/model.py", 88, "f g")));
        assert_eq!(parts("cudaMalloc in libx.so"), None);
        assert_eq!(parts("model.py:x f"), None);
    }
}
