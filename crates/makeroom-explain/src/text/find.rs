//! Finds the failures in a log.
//!
//! One pass over the text with all anchors at once; then only the passages around hits are read. Of several
//! readings of one failure the one that knows most is kept. The first failure decides; the rest are counted.

use std::collections::HashSet;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::facts::{Facts, Severity};
use super::family::FAMILIES;
use super::log::Log;

/// A log can hold millions of failures (a retry loop); this many are read, all are counted.
const MOST_READ: usize = 400;
/// Readings this near to the first failure, in lines, are about the same failure: a traceback repeats its error,
/// and a runtime prints its own line above the framework's.
const SAME_FAILURE_LINES: usize = 40;

/// What a log holds.
pub(crate) struct Found {
    /// The failure that decides.
    pub(crate) first: Facts,
    /// How many further failures follow.
    pub(crate) later: usize,
}

struct Anchors {
    automaton: Option<AhoCorasick>,
    /// The family of each pattern.
    families: Vec<usize>,
}

static ANCHORS: LazyLock<Anchors> = LazyLock::new(|| {
    let pairs = FAMILIES.iter().enumerate();
    let (families, patterns): (Vec<usize>, Vec<&str>) =
        pairs.flat_map(|(index, family)| family.anchors.iter().map(move |anchor| (index, *anchor))).unzip();
    let automaton = AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::Standard)
        .build(patterns)
        .ok();
    Anchors { automaton, families }
});

/// The first failure in a log, and how many follow.
pub(crate) fn failures(log: &Log) -> Option<Found> {
    let mut readings = Vec::new();
    for (line, families) in hits(log) {
        if readings.len() >= MOST_READ {
            break;
        }
        let passage = log.passage(line);
        let best = families
            .iter()
            .filter_map(|&family| (FAMILIES[family].read)(&passage).map(|facts| (family, facts)))
            .max_by_key(|(family, facts)| (!is_last_resort(*family), facts.weight(), usize::MAX - family));
        readings.extend(best.map(|(family, facts)| (line, family, facts)));
    }
    let deciding = [Severity::Failure, Severity::Warning, Severity::Observation]
        .into_iter()
        .find_map(|severity| readings.iter().position(|(_, _, facts)| facts.severity == severity))?;
    let (first_line, severity) = (readings[deciding].0, readings[deciding].2.severity);
    let is_same_failure = |line: usize| line.abs_diff(first_line) <= SAME_FAILURE_LINES;
    // Only a reading of the same failure may replace the first: one that is more specific and knows more.
    let best = readings
        .iter()
        .enumerate()
        .filter(|(_, (line, _, facts))| is_same_failure(*line) && facts.severity == severity)
        .filter(|(_, (_, _, facts))| !contradicts(&readings[deciding].2, facts))
        .max_by_key(|(index, (_, family, facts))| (facts.weight(), usize::MAX - family, usize::MAX - index))
        .map_or(deciding, |(index, _)| index);
    let chosen = &readings[best].2;
    let mut seen: HashSet<&str> = HashSet::from([chosen.quote.as_str()]);
    let later = readings
        .iter()
        .filter(|(line, _, facts)| facts.severity == Severity::Failure && !is_same_failure(*line))
        .filter(|(_, _, facts)| seen.insert(facts.quote.as_str()))
        .count();
    Some(Found { first: chosen.clone(), later })
}

/// The last family reads figures without knowing what they mean; any other that knows the line knows it better.
fn is_last_resort(family: usize) -> bool {
    family + 1 == FAMILIES.len()
}

/// Two readings are of different failures when both name a request and the requests differ.
fn contradicts(first: &Facts, other: &Facts) -> bool {
    matches!((first.request, other.request), (Some(one), Some(two)) if one != two)
        || matches!((first.device, other.device), (Some(one), Some(two)) if one != two)
}

/// The lines that hold an anchor, with the families to ask, in order.
fn hits(log: &Log) -> Vec<(usize, Vec<usize>)> {
    let Some(automaton) = &ANCHORS.automaton else { return Vec::new() };
    let mut hits: Vec<(usize, Vec<usize>)> = Vec::new();
    for found in automaton.find_overlapping_iter(log.text()) {
        let line = log.line_at(found.start());
        let family = ANCHORS.families[found.pattern().as_usize()];
        match hits.last_mut() {
            Some((last, families)) if *last == line => {
                if !families.contains(&family) {
                    families.push(family);
                }
            }
            _ => hits.push((line, vec![family])),
        }
    }
    hits
}

/// What the formats make of a text: for the tests of each family.
#[cfg(test)]
pub(crate) fn facts_in(text: &str) -> Option<Facts> {
    failures(&Log::new(text)).map(|found| found.first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_decides_and_the_rest_are_counted() {
        let mut text = String::from(
            "step 1\nRuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n",
        );
        for step in 0..3 {
            text.push_str(&"training\n".repeat(60));
            text.push_str(&format!("RuntimeError: CUDA out of memory. Tried to allocate {}.00 MiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n", step + 2));
        }
        let found = failures(&Log::new(&text)).unwrap();
        assert_eq!(found.first.request, Some(makeroom_core::Bytes::gib(1)));
        assert_eq!(found.first.line, 2);
        assert_eq!(found.later, 3);
    }

    #[test]
    fn a_log_without_a_failure_has_none() {
        assert!(failures(&Log::new("epoch 1\nloss 0.3\n")).is_none());
    }
}
