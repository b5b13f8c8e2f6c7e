//! Reads the failures in a part of a log before the whole is known.
//!
//! The rules are those of [`super::super::find`]: a family that reported a few tables, or found nothing many times, is
//! not called again, so the time for a log with an anchor in every line is bounded.

use std::ops::Range;

use super::super::facts::{Facts, Severity};
use super::super::family::FAMILIES;
use super::super::find::{MOST_FRUITLESS, MOST_OBSERVATIONS, MOST_READ, families_in, is_last_resort};
use super::super::log::Log;

/// What was read so far.
#[derive(Debug)]
pub(super) struct Probe {
    observations: Vec<usize>,
    fruitless: Vec<usize>,
    failures: usize,
}

/// What a part of a log holds.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// The lines with a failure, counted from the start of the part.
    pub(super) failures: Vec<usize>,
    /// There is a warning.
    pub(super) has_warning: bool,
    /// There is a table of memory in use.
    pub(super) has_observation: bool,
}

impl Probe {
    pub(super) fn new() -> Self {
        Self { observations: vec![0; FAMILIES.len()], fruitless: vec![0; FAMILIES.len()], failures: 0 }
    }

    /// Reads these lines of a log.
    pub(super) fn read(&mut self, log: &Log, lines: Range<usize>) -> Reading {
        let mut reading = Reading::default();
        for line in lines.clone() {
            match self.read_line(log, line) {
                Some(Severity::Failure) => reading.failures.push(line - lines.start),
                Some(Severity::Warning) => reading.has_warning = true,
                Some(Severity::Observation) => reading.has_observation = true,
                None => {}
            }
        }
        reading
    }

    /// Enough failures were read; the rest is only counted.
    pub(super) fn is_done(&self) -> bool {
        self.failures >= MOST_READ
    }

    /// How many families are not called anymore.
    pub(super) fn exhausted(&self) -> usize {
        (0..FAMILIES.len()).filter(|&family| !self.calls(family)).count()
    }

    /// The anchors of the families that are still called.
    pub(super) fn anchors(&self) -> Vec<&'static str> {
        let called = FAMILIES.iter().enumerate().filter(|(family, _)| self.calls(*family));
        let mut anchors: Vec<&str> = called.flat_map(|(_, family)| family.anchors.iter().copied()).collect();
        anchors.sort_unstable();
        anchors.dedup();
        anchors
    }

    fn calls(&self, family: usize) -> bool {
        self.observations[family] < MOST_OBSERVATIONS && self.fruitless[family] < MOST_FRUITLESS
    }

    fn read_line(&mut self, log: &Log, line: usize) -> Option<Severity> {
        let mut families = families_in(log.line(line));
        families.retain(|&family| self.calls(family));
        if families.is_empty() || self.is_done() {
            return None;
        }
        let passage = log.passage(line);
        let rank =
            |family: usize, facts: &Facts| (!is_last_resort(family), facts.weight(), usize::MAX - family);
        let mut best: Option<(usize, Facts)> = None;
        for family in families {
            let Some(facts) = (FAMILIES[family].read)(&passage) else {
                self.fruitless[family] += 1;
                continue;
            };
            if best.as_ref().is_none_or(|(known, other)| rank(family, &facts) > rank(*known, other)) {
                best = Some((family, facts));
            }
        }
        let (family, facts) = best?;
        if facts.severity == Severity::Failure {
            self.failures += 1;
        } else {
            self.observations[family] += 1;
        }
        Some(facts.severity)
    }
}
