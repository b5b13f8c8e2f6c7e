//! Remarks about what an answer is based on: ranks without a recording, files that were not used, clocks.

use super::Case;
use super::names::rank_words;
use super::words::{abridged, milliseconds};
use crate::report::JobCause;

/// Hosts whose recordings begin this far apart, in microseconds, have different clocks or started late.
const SKEWED_US: u64 = 60_000_000;

impl Case<'_, '_> {
    /// Remarks about the input.
    pub(super) fn notes(&self) -> Vec<String> {
        let used = &self.selected.used;
        let mut notes = Vec::new();
        if !used.missing_ranks.is_empty() {
            let of = self.selected.world_size.map_or(String::new(), |size| format!(" of {size}"));
            let verb = if used.missing_ranks.len() == 1 { "has" } else { "have" };
            notes.push(format!("{}{of} {verb} no recording", rank_words(used.missing_ranks.clone())));
        }
        named(&mut notes, &used.torn, "is incomplete", "are incomplete");
        named(
            &mut notes,
            &used.duplicates,
            "is an older recording of the same rank and was not used",
            "are older recordings of the same ranks and were not used",
        );
        let unread: Vec<String> =
            used.unread.iter().map(|unread| format!("{} ({})", unread.file, unread.reason)).collect();
        named(&mut notes, &unread, "could not be read", "could not be read");
        if !used.other_jobs.is_empty() {
            notes.push(format!(
                "also in the input, but not part of this answer: {}",
                abridged(&used.other_jobs)
            ));
        }
        // An undetermined verdict already contains it.
        if self.blame.cause != JobCause::Undetermined
            && let Some(killed) = self.killed_elsewhere()
        {
            notes.push(format!("{killed}; no file shows the rank"));
        }
        notes.extend(self.clocks());
        notes
    }

    /// Recordings whose clocks contradict the order of events.
    fn clocks(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let time = |index: usize| self.process(index).decisive().and_then(|failure| failure.time_us);
        let failed = self.blame.culprits.first().copied().and_then(|index| Some((index, time(index)?)));
        let victims = self.blame.consequences.iter().filter_map(|&(index, _)| Some((time(index)?, index)));
        if let (Some((culprit, at)), Some((first, victim))) = (failed, victims.min())
            && first < at
        {
            notes.push(format!(
                "{} failed {} before {} by its clock, but as a consequence",
                self.process(victim).label,
                milliseconds(at - first),
                self.process(culprit).label
            ));
        }
        let mut hosts: std::collections::BTreeMap<&str, Vec<u64>> = std::collections::BTreeMap::new();
        for process in &self.selected.processes {
            if let (Some(host), Some(began)) = (process.row.host.as_deref(), process.row.began_us) {
                hosts.entry(host).or_default().push(began);
            }
        }
        let starts: Vec<(&str, u64)> =
            hosts.into_iter().map(|(host, began)| (host, super::groups::median(began))).collect();
        let usual = super::groups::median(starts.iter().map(|(_, began)| *began).collect());
        let skewed: Vec<String> = starts
            .iter()
            .filter(|(_, began)| began.abs_diff(usual) > SKEWED_US)
            .map(|(host, began)| format!("{host} ({} s)", began.abs_diff(usual) / 1_000_000))
            .collect();
        if !skewed.is_empty() {
            notes.push(format!(
                "clocks differ or ranks started late on {}; this does not affect the answer",
                abridged(&skewed)
            ));
        }
        notes
    }
}

fn named(notes: &mut Vec<String>, files: &[String], one: &str, many: &str) {
    if !files.is_empty() {
        notes.push(format!("{} {}", abridged(files), if files.len() == 1 { one } else { many }));
    }
}
