//! Reads the failures in a part of a log before the whole is known, by the rules and budgets of
//! [`crate::find`].

use std::ops::Range;

use crate::facts::Severity;
use crate::family::FAMILIES;
use crate::find::{Reader, families_in};
use crate::log::Log;

/// What was read so far.
#[derive(Debug)]
pub(super) struct Probe {
    reader: Reader,
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
        Self { reader: Reader::new() }
    }

    /// Reads these lines of a log.
    pub(super) fn read(&mut self, log: &Log, lines: Range<usize>) -> Reading {
        let mut reading = Reading::default();
        for line in lines.clone() {
            if self.is_done() {
                break;
            }
            let families = families_in(log.line(line));
            match self.reader.read(log, line, families).map(|(_, facts)| facts.severity) {
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
        self.reader.is_done()
    }

    /// How many families are not called anymore.
    pub(super) fn exhausted(&self) -> usize {
        (0..FAMILIES.len()).filter(|&family| !self.reader.calls(family)).count()
    }

    /// The anchors of the families that are still called.
    pub(super) fn anchors(&self) -> Vec<&'static str> {
        let called = FAMILIES.iter().enumerate().filter(|(family, _)| self.reader.calls(*family));
        let mut anchors: Vec<&str> = called.flat_map(|(_, family)| family.anchors.iter().copied()).collect();
        anchors.sort_unstable();
        anchors.dedup();
        anchors
    }
}
