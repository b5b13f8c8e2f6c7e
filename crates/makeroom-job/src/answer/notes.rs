//! Remarks about what an answer is based on: ranks without a recording, files that were not used, clocks.

use makeroom_ordered::OrderedMap;

use super::Case;
use super::names::rank_words;
use super::words::{abridged, milliseconds};
use crate::report::{JobCause, LogConflict};

/// Hosts whose recordings begin this far apart, in microseconds, have different clocks or started late.
const SKEWED_US: u64 = 60_000_000;

/// The reason of an empty file: torchrun creates a file for each stream of a rank.
const EMPTY: &str = "the input is empty";
/// Reasons why files could not be read that have a remark each.
const MOST_REASONS: usize = 2;
/// Ranks with contradicting logs that are named.
const MOST_CONFLICTS: usize = 3;

impl Case<'_, '_> {
    /// Remarks about the input.
    pub(super) fn notes(&self) -> Vec<String> {
        let used = &self.selected.used;
        let mut notes = Vec::new();
        if !used.missing_ranks.is_empty() {
            let of = self.selected.world_size.map_or(String::new(), |size| format!(" of {size}"));
            let verb = if used.missing_ranks.len() == 1 { "has" } else { "have" };
            notes.push(format!("{}{of} {verb} no {}", rank_words(used.missing_ranks.clone()), self.noun(1)));
        }
        named(
            &mut notes,
            &used.torn,
            "is incomplete: its end is missing or damaged",
            "are incomplete: their ends are missing or damaged",
        );
        named(
            &mut notes,
            &used.duplicates,
            "is another recording of the same rank and was not used",
            "are other recordings of the same ranks and were not used",
        );
        let conflicts = used.conflicts.iter().map(|conflict| {
            let LogConflict { label, used, other, failure } = conflict;
            let failure = failure.trim_end_matches('.');
            format!("{label} has two logs with different failures: {used} was used; {other} shows: {failure}")
        });
        notes.extend(conflicts.take(MOST_CONFLICTS));
        // torchrun leaves a file for each stream of each rank, and many are empty.
        let mut by_reason: OrderedMap<&str, Vec<String>> = OrderedMap::new();
        let empty: Vec<String> = used
            .unread
            .iter()
            .filter(|unread| unread.reason == EMPTY)
            .map(|unread| unread.file.clone())
            .collect();
        named(&mut notes, &empty, "is empty", "are empty");
        let unused = (
            "was not used: it names no rank and shows no failure",
            "were not used: they name no rank and show no failure",
        );
        named(&mut notes, &used.unused, unused.0, unused.1);
        for unread in used.unread.iter().filter(|unread| unread.reason != EMPTY) {
            by_reason.entry(&unread.reason).or_default().push(unread.file.clone());
        }
        let are_few = by_reason.len() <= MOST_REASONS;
        for (reason, files) in by_reason.into_iter().filter(|_| are_few) {
            notes.push(format!("{} could not be read: {reason}", abridged(&files)));
        }
        if !are_few {
            let unread = used
                .unread
                .iter()
                .filter(|unread| unread.reason != EMPTY)
                .map(|unread| format!("{} ({})", unread.file, unread.reason));
            notes.push(format!("{} could not be read", abridged(&unread.collect::<Vec<_>>())));
        }
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
            notes.push(format!("{killed}; no file shows whether this job had such a process"));
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
        let mut hosts: OrderedMap<&str, Vec<u64>> = OrderedMap::new();
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
