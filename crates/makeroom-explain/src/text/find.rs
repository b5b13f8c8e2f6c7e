//! Finds the failures in a log.
//!
//! One pass over the text with all anchors at once; then only the passages around hits are read. Of several
//! readings of one failure the one that knows most is kept. The first failure decides; the rest are counted.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use super::facts::{Facts, Severity};
use super::family::FAMILIES;
use super::log::Log;

/// A log can hold millions of failures (a retry loop); this many are read, the others are only counted.
pub(super) const MOST_READ: usize = 400;
/// A family that has read this many tables or warnings in a log is asked no more: a run that logs its memory use
/// would otherwise hide its own failure.
pub(super) const MOST_OBSERVATIONS: usize = 8;
/// A family that found nothing behind this many of its anchors is asked no more.
pub(super) const MOST_FRUITLESS: usize = 300;
/// Readings this near to the first failure, in lines, are about the same failure: a traceback repeats its error,
/// and a runtime prints its own line above the framework's.
pub(super) const SAME_FAILURE_LINES: usize = 40;

/// What a log holds.
pub(crate) struct Found {
    /// The failure that decides.
    pub(crate) first: Facts,
    /// Its line in the cleaned log.
    pub(crate) index: usize,
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

/// A reading: the line, the family, what it read.
type Reading = (usize, usize, Facts);

/// The first failure in a log, and how many follow.
pub(crate) fn failures(log: &Log) -> Option<Found> {
    let (readings, unread) = readings(log);
    let deciding = [Severity::Failure, Severity::Warning, Severity::Observation]
        .into_iter()
        .find_map(|severity| readings.iter().position(|(_, _, facts)| facts.severity == severity))?;
    let (first_line, _, first) = &readings[deciding];
    // Only a reading of the same failure may replace the first: one that is more specific and knows more.
    let best = readings
        .iter()
        .enumerate()
        .filter(|(_, (line, _, facts))| is_near(*line, *first_line) && facts.severity == first.severity)
        .filter(|(_, (_, _, facts))| !contradicts(first, facts))
        .max_by_key(|(index, (_, family, facts))| (facts.weight(), usize::MAX - family, usize::MAX - index))
        .map_or(deciding, |(index, _)| index);
    let later = later_failures(&readings, best) + unread;
    Some(Found { first: readings[best].2.clone(), index: readings[best].0, later })
}

/// Everything the formats read in a log, in order, and how many failures were left unread.
fn readings(log: &Log) -> (Vec<Reading>, usize) {
    let mut readings: Vec<Reading> = Vec::new();
    let mut observations = vec![0; FAMILIES.len()];
    let mut fruitless = vec![0; FAMILIES.len()];
    let mut failures = 0;
    let mut unread_lines: Vec<usize> = Vec::new();
    for (line, families) in hits(log) {
        if failures >= MOST_READ {
            if unread_lines.last().is_none_or(|&last| !is_near(line, last)) {
                unread_lines.push(line);
            }
            continue;
        }
        let asked =
            |&family: &usize| observations[family] < MOST_OBSERVATIONS && fruitless[family] < MOST_FRUITLESS;
        let families: Vec<usize> = families.into_iter().filter(asked).collect();
        if families.is_empty() {
            continue;
        }
        let passage = log.passage(line);
        let mut best: Option<(usize, Facts)> = None;
        for family in families {
            let Some(facts) = (FAMILIES[family].read)(&passage) else {
                fruitless[family] += 1;
                continue;
            };
            let rank =
                |family: usize, facts: &Facts| (!is_last_resort(family), facts.weight(), usize::MAX - family);
            if best
                .as_ref()
                .is_none_or(|(known, known_facts)| rank(family, &facts) > rank(*known, known_facts))
            {
                best = Some((family, facts));
            }
        }
        let Some((family, facts)) = best else { continue };
        if facts.severity == Severity::Failure {
            failures += 1;
        } else {
            observations[family] += 1;
        }
        readings.push((line, family, facts));
    }
    (readings, unread_lines.len())
}

/// How many failures there are beside the chosen one: readings that lie apart from all counted so far, or that
/// speak of another device or another request.
fn later_failures(readings: &[Reading], chosen: usize) -> usize {
    let mut counted: Vec<&Reading> = vec![&readings[chosen]];
    for (index, reading) in readings.iter().enumerate() {
        let (line, _, facts) = reading;
        if index == chosen || facts.severity != Severity::Failure {
            continue;
        }
        let is_known = |known: &&Reading| is_near(*line, known.0) && !contradicts(&known.2, facts);
        if !counted.iter().rev().take(64).any(is_known) {
            counted.push(reading);
        }
    }
    counted.len() - 1
}

fn is_near(line: usize, other: usize) -> bool {
    line.abs_diff(other) <= SAME_FAILURE_LINES
}

/// The last family reads figures without knowing what they mean; any other that knows the line knows it better.
pub(super) fn is_last_resort(family: usize) -> bool {
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

/// The families that have an anchor in a line.
pub(super) fn families_in(line: &str) -> Vec<usize> {
    let mut families = Vec::new();
    for found in ANCHORS.automaton.iter().flat_map(|automaton| automaton.find_overlapping_iter(line)) {
        let family = ANCHORS.families[found.pattern().as_usize()];
        if !families.contains(&family) {
            families.push(family);
        }
    }
    families
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
    fn the_same_failure_again_and_other_devices_count() {
        let error = |device: u32| {
            format!(
                "RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU {device}; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n"
            )
        };
        let apart = format!("{0}{1}{0}{1}{0}", error(0), "training\n".repeat(60));
        assert_eq!(failures(&Log::new(&apart)).unwrap().later, 2);
        let together = format!("{}{}{}", error(0), error(1), error(0));
        assert_eq!(failures(&Log::new(&together)).unwrap().later, 1);
    }

    #[test]
    fn a_run_that_logs_its_memory_does_not_hide_its_failure() {
        let mut text =
            "| N/A   34C    P0    70W / 400W |   1200MiB / 24000MiB |      0%      Default |\n".repeat(900);
        text.push_str("RuntimeError: CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.00 GiB reserved in total by PyTorch)\n");
        assert_eq!(failures(&Log::new(&text)).unwrap().first.request, Some(makeroom_core::Bytes::gib(1)));
    }

    #[test]
    fn a_log_without_a_failure_has_none() {
        assert!(failures(&Log::new("epoch 1\nloss 0.3\n")).is_none());
    }
}
