//! Chooses the recordings of one job; `assign.rs` gives them to its ranks.
//!
//! A folder can contain several jobs, several attempts of one, and several recordings of a rank. The newest job that
//! failed is explained, or the newest if none failed; the others are listed.

use makeroom_core::identity::JobIdentity;
use makeroom_ordered::{OrderedMap, OrderedSet};

use super::assign::{Assigned, processes};
use super::jobs::{Key, has_failed, jobs, name, recording_count};
use super::witness::{self, Reports};
use crate::report::Used;
use crate::tables::{
    DeviceRow, End, FailureKind, FailureRow, RecordingKind, RecordingRow, Rows, SeriesRow, SiteRow, StopRow,
};

/// Ranks that are listed as missing.
const MOST_MISSING: usize = 4096;

/// One process of the job, with its rows.
#[derive(Debug)]
pub(super) struct Process<'rows> {
    pub(super) row: &'rows RecordingRow,
    /// The recording or log that explains its failure; a snapshot often does not show the failed request.
    pub(super) shown: &'rows RecordingRow,
    /// Its rank, from its recording or from a launcher's report.
    pub(super) rank: Option<u32>,
    /// Its PID, from its recording or from a launcher's report.
    pub(super) pid: Option<u32>,
    /// Its host, from the same.
    pub(super) host: Option<&'rows str>,
    /// Whether the launcher observed its failure first.
    pub(super) is_first_failure: bool,
    /// Its failures, and those that a log reports for its rank.
    pub(super) failures: Vec<&'rows FailureRow>,
    pub(super) sites: Vec<&'rows SiteRow>,
    pub(super) series: Vec<&'rows SeriesRow>,
    /// How it ended, from its recording or from the launcher's log.
    pub(super) end: End,
    /// The file and the line that report this.
    pub(super) ended_at: Option<(&'rows str, u64)>,
    /// Whether a log of it was read.
    pub(super) has_log: bool,
    /// The error that ended it, from its log.
    pub(super) error: Option<&'rows str>,
    /// Its name in the answer.
    pub(super) label: String,
    /// Whether it is a child process of a rank that has its own recording.
    pub(super) is_helper: bool,
}

impl<'rows> Process<'rows> {
    pub(super) fn used_devices(&self) -> impl Iterator<Item = &DeviceRow> {
        self.row.devices.iter().filter(|device| device.is_used)
    }

    pub(super) fn peak_bytes(&self) -> u64 {
        self.row.devices.iter().map(|device| device.peak_bytes).max().unwrap_or(0)
    }

    /// The failed allocation that ended it.
    pub(super) fn decisive(&self) -> Option<&'rows FailureRow> {
        FailureRow::decisive(self.failures.iter().copied())
    }

    pub(super) fn has_failed_allocations(&self) -> bool {
        self.failures.iter().any(|failure| failure.kind.is_memory())
    }

    pub(super) fn reports(&self, kind: FailureKind) -> bool {
        self.failures.iter().any(|failure| failure.kind == kind)
    }

    /// Whether an exit code is all that shows a failure: it may be that of a command which the process ran.
    pub(super) fn has_only_exit_code(&self) -> bool {
        self.reports(FailureKind::ExitCode) && !self.reports(FailureKind::Other) && self.end == End::Unknown
    }

    /// Memory of one of its GPUs.
    pub(super) fn total_bytes(&self, device: Option<u32>) -> Option<u64> {
        let rows = self.row.devices.iter().chain(&self.shown.devices);
        rows.filter(|row| Some(row.device) == device).find_map(|row| row.total_bytes)
    }

    /// Adds another recording or log of the same process.
    pub(super) fn merge(&mut self, row: &'rows RecordingRow) {
        if row.end != End::Unknown && matches!(self.end, End::Unknown | End::Killed) {
            self.end = row.end;
        }
        if !self.shown.explains() && row.explains() {
            self.shown = row;
        }
        self.ended_at = self.ended_at.or(row.ended_at());
        self.pid = self.pid.or(row.pid);
        self.host = self.host.or(row.host.as_deref());
        self.is_first_failure |= row.is_first_failure;
        self.error = self.error.or(row.error.as_deref());
        self.has_log |= row.kind == RecordingKind::Log;
    }

    /// Microseconds from the start of the recording to a time.
    pub(super) fn elapsed(&self, time_us: Option<u64>) -> Option<u64> {
        time_us?.checked_sub(self.row.began_us?)
    }
}

/// The chosen job.
#[derive(Debug)]
pub(super) struct Selected<'rows> {
    pub(super) processes: Vec<Process<'rows>>,
    pub(super) job: Option<String>,
    pub(super) attempt: Option<u32>,
    pub(super) world_size: Option<u32>,
    pub(super) used: Used,
    /// Processes that the kernel killed, but whose rank is not known: PID and file.
    pub(super) killed: OrderedSet<(u32, &'rows str)>,
    /// The scheduler's report that it ended the job, the most exact one.
    pub(super) stop: Option<&'rows StopRow>,
}

/// Chooses a job and assigns its recordings to ranks.
pub(super) fn select(rows: &Rows) -> Selected<'_> {
    let mut recordings: OrderedMap<&str, &RecordingRow> = OrderedMap::new();
    for row in &rows.recordings {
        recordings.entry(&row.recording).or_insert(row);
    }
    let jobs = jobs(recordings.values().copied());
    let weight = |key: &Key<'_>, rows: &[&RecordingRow]| {
        let has_failed = rows.iter().any(|row| has_failed(row));
        let began = rows.iter().filter_map(|row| row.began_us).max();
        // Of one job, the attempt's number decides; a clock may be wrong.
        (has_failed, began, key.attempt)
    };
    let newest = jobs.iter().max_by(|(one, one_rows), (two, two_rows)| {
        let (one_weight, two_weight) = (weight(one, one_rows), weight(two, two_rows));
        let by_attempt = if one.job == two.job && one.job.is_some() {
            (one_weight.0, one.attempt).cmp(&(two_weight.0, two.attempt))
        } else {
            std::cmp::Ordering::Equal
        };
        by_attempt.then(one_weight.cmp(&two_weight)).then_with(|| one.cmp(two))
    });
    let chosen = newest.map(|(key, _)| key.clone());
    let mut used = Used { unread: rows.unread.clone(), ..Used::default() };
    used.unread.sort();
    used.unread.dedup();
    // A text that names no rank and reports no failure, such as a readme, is not a process of the job.
    let reports = witness::reports(rows);
    let is_process = |row: &RecordingRow| {
        let is_named = row.names_rank() || row.pod.is_some();
        row.kind != RecordingKind::Log || is_named || reports.contains_key(row.recording.as_str())
    };
    for (key, rows) in jobs.iter().filter(|(key, _)| Some(*key) != chosen.as_ref()) {
        let count = rows.iter().filter(|row| is_process(row)).count();
        if count > 0 {
            used.other_jobs.push(format!("{} ({})", name(key), recording_count(count)));
        }
    }
    let mut members = chosen.as_ref().and_then(|key| jobs.get(key)).cloned().unwrap_or_default();
    let given: OrderedSet<&str> = members.iter().map(|row| row.file()).collect();
    let stop = rows
        .stops
        .iter()
        .filter(|stop| given.contains(stop.file.as_str()))
        .min_by_key(|stop| (stop.reason, &stop.file));
    if members.iter().any(|row| is_process(row)) {
        members.retain(|row| is_process(row));
    }
    leave_out_unranked(&mut members, &reports, &mut used);
    let world_size = members.iter().filter_map(|row| row.world_size).max();
    let Assigned { processes, killed, mut files } = processes(rows, &members, &mut used);
    files.extend(stop.map(|stop| stop.file.as_str()));
    let present: OrderedSet<u32> = processes.iter().filter_map(|process| process.rank).collect();
    // Without a world size, only a gap between files shows that a rank is missing: not all ranks print to a common log.
    let has_own_file = |process: &Process<'_>| process.rank.is_some() && process.row.process.is_none();
    let has_own_files = processes.iter().any(has_own_file);
    let unread = used.unread.iter().filter_map(|unread| JobIdentity::from_file_name(&unread.file).rank);
    // A number that is far beyond the others is not a rank.
    let most = 2 * (present.len() + used.unread.len());
    let unread = unread.filter(|&rank| (rank as usize) < most);
    let last = present.iter().copied().chain(unread).max().filter(|_| has_own_files);
    let ranks =
        world_size.or_else(|| last.map(|last| last.saturating_add(1))).filter(|_| !present.is_empty());
    used.missing_ranks =
        (0..ranks.unwrap_or(0)).filter(|rank| !present.contains(rank)).take(MOST_MISSING).collect();
    used.recordings = processes.len();
    used.files = files.len();
    used.unused = given.difference(&files).map(|&file| file.to_owned()).collect();
    Selected {
        processes,
        job: chosen.as_ref().and_then(|key| key.job).map(str::to_owned),
        attempt: chosen.and_then(|key| key.attempt),
        world_size,
        used,
        killed,
        stop,
    }
}

/// Removes recordings without a rank if others have one, except processes of the same run and logs with a failure that
/// no rank shows.
fn leave_out_unranked<'rows>(
    members: &mut Vec<&'rows RecordingRow>,
    reports: &Reports<'rows>,
    used: &mut Used,
) {
    let named: Vec<&RecordingRow> =
        members.iter().copied().filter(|row| row.names_rank() || row.process.is_some()).collect();
    if named.is_empty() {
        return;
    }
    let is_log = |row: &RecordingRow| row.kind == RecordingKind::Log;
    let shown = witness::kinds_by_file(&named, reports);
    members.retain(|row| {
        !witness::is_unnamed(row) || witness::is_evidence(row, &shown, reports) || row.names_rank()
    });
    let ranked: Vec<&RecordingRow> = named.into_iter().filter(|row| row.names_rank()).collect();
    if ranked.is_empty() {
        return;
    }
    let runs: OrderedSet<&str> = ranked.iter().filter_map(|row| row.run.as_deref()).collect();
    members.retain(|row| row.names_rank() || !is_launcher(row, &ranked));
    let before = members.len();
    members.retain(|row| {
        row.names_rank() || is_log(row) || row.run.as_deref().is_some_and(|run| runs.contains(run))
    });
    if before > members.len() {
        used.other_jobs
            .push(format!("recordings without a rank ({})", recording_count(before - members.len())));
    }
}

/// Whether a recording is that of the launcher, which started ranks and used no GPU: torchrun imports PyTorch, which
/// loads the driver. The launcher fails because a rank did.
fn is_launcher(row: &RecordingRow, ranked: &[&RecordingRow]) -> bool {
    let is_parent = |rank: &&RecordingRow| rank.parent_pid == row.pid && rank.host == row.host;
    row.pid.is_some() && !row.devices.iter().any(|device| device.is_used) && ranked.iter().any(is_parent)
}
