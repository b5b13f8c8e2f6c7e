//! A program's output, reduced to rows: one recording per rank that it mentions.
//!
//! Launchers prefix the lines of a process (`[rank3]:`, `3: `, `(Worker pid=4711)`), and report at the end which ranks
//! failed. Lines without a prefix belong to the file's own rank, or to no rank. The text of a rank is read by the same
//! reader as in `why`, but only from the first line that mentions memory on, because a job can have thousands of ranks.
//!
//! One process can have several names: torchrun's prefix has the local rank, and its report at the end has both ranks.
//! A traceback without a prefix in a log of several ranks is that of the rank that torchrun names as the root cause.

use std::collections::BTreeMap;

use makeroom_core::Bytes;
use makeroom_core::identity::{
    FailureList, JobIdentity, LinePrefix, ListedRank, ProcessEvent, ReportedProcess, ended_ranks,
    reported_process,
};
use makeroom_explain::{Cause, Explanation, TextReader};

use super::errors::ErrorFinder;
use super::log_row::{failure_kind, row};
use super::{CAUGHT, Source, phrases};
use crate::tables::{End, FailureKind, FailureRow, RecordingRow, Rows};

/// Ranks whose text is read; of further ranks only the kind of failure is known.
const MOST_READERS: usize = 64;
/// Ranks that a log can mention.
const MOST_RANKS: usize = 1 << 16;
/// Processes that a log can report by their PID alone.
const MOST_REPORTED: usize = 1 << 12;
/// Bytes of one line that are inspected.
const LONGEST_LINE: usize = 16 << 10;
/// Lines that show whether `srun` labels its output.
const LABELED_LINES: u32 = 8;
/// Lines at the start that are kept until this is known.
const MOST_PENDING: usize = 64;
/// Bytes of a rank's last traceback that are kept until a line mentions memory.
const LONGEST_TRACEBACK: usize = 16 << 10;
/// Bytes of the tracebacks of all ranks.
const MOST_TRACEBACKS: usize = 8 << 20;

/// Reads a log in chunks.
pub struct LogReader {
    source: Source,
    line: Vec<u8>,
    ranks: BTreeMap<Label, RankText>,
    readers: usize,
    /// Consecutive lines that start with a number and a colon.
    labels: u32,
    /// The first lines, while it is not known whether numbers in front of them are labels.
    pending: Option<Vec<Vec<u8>>>,
    /// Bytes of tracebacks that are kept.
    kept: usize,
    /// The rank of each local rank, where a line or a report has both; `None` if several have the local rank.
    by_local: BTreeMap<u32, Option<u32>>,
    listed: FailureList,
    /// The rank whose failure the launcher observed first.
    root: Option<ListedRank>,
    /// Whether a launcher reports how ranks ended.
    has_list: bool,
    /// Processes that are reported by their PID.
    reported: Vec<ReportedProcess>,
}

/// The process of a line: its rank, or what else its prefix has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// The launcher, or a file with one process.
    None,
    Rank(u32),
    LocalRank(u32),
    /// A PID, with its host.
    Process(u32, Option<String>),
}

/// What the log contains about one rank.
#[derive(Default)]
struct RankText {
    identity: JobIdentity,
    pid: Option<u32>,
    reader: Option<TextReader>,
    /// Its last traceback, while no line has mentioned memory.
    traceback: Vec<u8>,
    kinds: Vec<FailureKind>,
    errors: ErrorFinder,
    end: Option<End>,
    /// Whether the launcher observed its failure first.
    is_first: bool,
}

impl LogReader {
    /// A reader for a file.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            line: Vec::new(),
            ranks: BTreeMap::new(),
            readers: 0,
            labels: 0,
            pending: Some(Vec::new()),
            kept: 0,
            by_local: BTreeMap::new(),
            listed: FailureList::default(),
            root: None,
            has_list: false,
            reported: Vec::new(),
        }
    }

    /// Reads the next chunk.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LONGEST_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let bytes = std::mem::take(&mut self.line);
        let is_label = LinePrefix::is_label(String::from_utf8_lossy(&bytes).trim_end());
        self.labels = if is_label { self.labels.saturating_add(1) } else { self.labels / 2 };
        let is_labeled = self.labels >= LABELED_LINES;
        let Some(pending) = &mut self.pending else { return self.read_line(&bytes, is_labeled) };
        pending.push(bytes);
        if is_labeled || pending.len() >= MOST_PENDING {
            self.read_pending(is_labeled);
        }
    }

    /// Reads the first lines, when it is known whether they are labeled.
    fn read_pending(&mut self, is_labeled: bool) {
        for bytes in self.pending.take().into_iter().flatten() {
            self.read_line(&bytes, is_labeled);
        }
    }

    /// Whether a short log has labels: `srun` reports at its end, and most other lines start with a number.
    fn is_short_and_labeled(&self) -> bool {
        let (mut labels, mut others, mut has_srun) = (0, 0, false);
        for bytes in self.pending.iter().flatten() {
            let line = String::from_utf8_lossy(bytes);
            if line.starts_with("srun: ") || line.starts_with("slurmstepd: ") {
                has_srun = true;
            } else if LinePrefix::is_label(line.trim_end()) {
                labels += 1;
            } else if !line.trim().is_empty() {
                others += 1;
            }
        }
        has_srun && labels > others
    }

    /// Notes that a rank has a local rank.
    fn pair(&mut self, rank: u32, local: u32) {
        if self.by_local.len() < MOST_RANKS {
            let known = self.by_local.entry(local).or_insert(Some(rank));
            *known = known.filter(|&known| known == rank);
        }
    }

    fn read_line(&mut self, bytes: &[u8], is_labeled: bool) {
        let text = String::from_utf8_lossy(bytes);
        let line = text.trim_end();
        let prefix = LinePrefix::read(line, is_labeled);
        let rest = prefix.as_ref().map_or(line, |prefix| prefix.rest);
        let is_listed = self.list(rest);
        let reported = reported_process(rest).filter(|_| self.reported.len() < MOST_REPORTED);
        let is_reported = is_listed || reported.is_some();
        self.reported.extend(reported);
        let (prefix, pid) = prefix.map_or_else(Default::default, |prefix| (prefix.job, prefix.pid));
        if let (Some(rank), Some(local)) = (prefix.rank, prefix.local_rank) {
            self.pair(rank, local);
        }
        let key = match (prefix.rank, prefix.local_rank, pid) {
            (Some(rank), ..) => Label::Rank(rank),
            (None, Some(local), _) => Label::LocalRank(local),
            (None, None, Some(pid)) => Label::Process(pid, prefix.host.clone()),
            (None, None, None) => self.source.identity.rank.map_or(Label::None, Label::Rank),
        };
        if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&key) {
            return;
        }
        let rank = self.ranks.entry(key).or_default();
        if rank.identity.is_alone() {
            rank.identity = prefix.or(&self.source.identity);
        }
        rank.pid = rank.pid.or(pid);
        // A line about another process is not about the one that prints it.
        let kinds = if is_reported { Vec::new() } else { phrases::kinds(line.as_bytes()) };
        for kind in kinds {
            if !rank.kinds.contains(&kind) {
                rank.kinds.push(kind);
            }
        }
        if !is_reported {
            rank.errors.read(rest);
        }
        if rank.reader.is_none() && self.readers < MOST_READERS && mentions_memory(line) {
            let mut reader = TextReader::new();
            self.kept -= rank.traceback.len();
            reader.push(&std::mem::take(&mut rank.traceback));
            rank.reader = Some(reader);
            self.readers += 1;
        }
        if let Some(reader) = &mut rank.reader {
            reader.push(bytes);
            reader.push(b"\n");
        } else if self.readers < MOST_READERS {
            self.kept -= rank.traceback.len();
            rank.keep(line, MOST_TRACEBACKS.saturating_sub(self.kept));
            self.kept += rank.traceback.len();
        }
    }

    /// Reads a line in which a launcher reports ranks that ended. Returns whether it is one.
    fn list(&mut self, line: &str) -> bool {
        let listed: Vec<ListedRank> =
            self.listed.read(line).map_or_else(|| ended_ranks(line), |listed| vec![listed]);
        let is_listed = !listed.is_empty();
        self.has_list |= is_listed;
        for listed in listed {
            if let Some(local) = listed.local_rank {
                self.pair(listed.rank, local);
            }
            let label = Label::Rank(listed.rank);
            if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&label) {
                break;
            }
            let text = self.ranks.entry(label).or_default();
            text.identity.rank = Some(listed.rank);
            text.identity.local_rank = text.identity.local_rank.or(listed.local_rank);
            text.identity.host = text.identity.host.take().or(listed.host.clone());
            text.pid = text.pid.or(listed.pid);
            text.end = Some(match listed.exit_code {
                -9 => End::Killed,
                code @ ..0 => End::Signaled(code.unsigned_abs()),
                code => End::Exited(code.unsigned_abs()),
            });
            if line.trim_end().ends_with(": Out Of Memory") && !text.kinds.contains(&FailureKind::HostMemory)
            {
                text.kinds.push(FailureKind::HostMemory);
            }
            text.is_first |= listed.is_first;
            if listed.is_first {
                self.root = Some(listed);
            }
        }
        is_listed
    }

    /// Merges the lines of a local rank with those of the rank that has it, if there is only one.
    fn merge_local(&mut self) {
        for (&local, &rank) in &self.by_local {
            let Some(rank) = rank else { continue };
            let Some(text) = self.ranks.remove(&Label::LocalRank(local)) else { continue };
            match self.ranks.get_mut(&Label::Rank(rank)) {
                Some(owner) => owner.merge(text),
                None => _ = self.ranks.insert(Label::LocalRank(local), text),
            }
        }
    }

    /// Gives a traceback without a prefix to the rank that the launcher names as the root cause, if that rank exited
    /// with an error and printed nothing about it.
    fn assign_unnamed(&mut self) {
        let Some(root) = self.root.take().filter(|root| root.exit_code > 0) else { return };
        let Some(mut unnamed) = self.ranks.remove(&Label::None) else { return };
        let owner = self.ranks.get_mut(&Label::Rank(root.rank));
        if let Some(owner) = owner.filter(|owner| owner.reader.is_none() && owner.errors.is_empty()) {
            owner.reader = unnamed.reader.take();
            owner.errors = std::mem::take(&mut unnamed.errors);
        }
        self.ranks.insert(Label::None, unnamed);
    }

    /// Ends the log.
    pub fn finish(mut self) -> Rows {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.read_pending(self.is_short_and_labeled());
        self.merge_local();
        self.assign_unnamed();
        let mut rows = Rows::default();
        let has_ranks = self.ranks.keys().any(|label| *label != Label::None);
        self.report_processes(&mut rows);
        let is_of_kernel =
            self.reported.iter().any(|reported| reported.event == ProcessEvent::KilledForMemory);
        let name = self.source.name.clone();
        for (label, mut text) in self.ranks {
            let reader = text.reader.take();
            let explanation = reader.map(TextReader::finish);
            let own = explanation.as_ref().and_then(failure_kind);
            // The launcher repeats the signals of the ranks that it lists.
            if label == Label::None && self.has_list {
                text.kinds.retain(|kind| !matches!(kind, FailureKind::Killed | FailureKind::Terminated));
            }
            // The kernel's log is not about itself.
            let own = own
                .filter(|&kind| !(is_of_kernel && label == Label::None && kind == FailureKind::HostMemory));
            let error = text.errors.finish().filter(|_| own.is_none());
            if error.is_some() {
                text.kinds.push(FailureKind::Other);
            }
            let has_failed = own.is_some() || text.end.is_some() || !text.kinds.is_empty();
            // The launcher's own lines are not a process.
            if label == Label::None && has_ranks && !has_failed {
                continue;
            }
            let recording = match &label {
                Label::Rank(rank) if self.source.identity.rank != Some(*rank) => {
                    format!("{name} (rank {rank})")
                }
                Label::LocalRank(local) => format!("{name} (local rank {local})"),
                Label::Process(pid, Some(host)) => format!("{name} (PID {pid} on {host})"),
                Label::Process(pid, None) => format!("{name} (PID {pid})"),
                Label::None | Label::Rank(_) => name.clone(),
            };
            // A worker that prints nothing about a failure is one of many, such as Ray's own.
            if matches!(label, Label::Process(..)) && !has_failed {
                continue;
            }
            let identity = text.identity.or(&self.source.identity);
            rows.failures.extend(text.kinds.iter().chain(own.as_ref()).map(|&kind| {
                let request = explanation.as_ref().filter(|_| Some(kind) == own);
                let request = request.and_then(|explanation| explanation.request.as_ref());
                FailureRow {
                    device: request.and_then(|request| request.device).map(|device| device.0),
                    requested_bytes: request.and_then(|request| request.bytes).map(Bytes::get),
                    place: request.and_then(|request| request.site.clone()),
                    ..FailureRow::new(recording.clone(), kind)
                }
            }));
            // The program handled it.
            let is_handled = |explanation: &&Explanation| explanation.verdict.cause == Cause::None;
            let handled = explanation.as_ref().filter(is_handled).filter(|_| label != Label::None);
            if let Some(ledger) = handled.and_then(|explanation| explanation.ledger.as_ref()) {
                rows.failures.push(FailureRow {
                    device: ledger.device().map(|device| device.0),
                    later_allocations: CAUGHT,
                    ..FailureRow::new(recording.clone(), FailureKind::DeviceMemory)
                });
            }
            let end = text.end.unwrap_or(End::Unknown);
            let recording = row(recording, &identity, end, explanation.as_ref());
            let is_first_failure = text.is_first;
            rows.recordings.push(RecordingRow { pid: text.pid, is_first_failure, error, ..recording });
        }
        rows
    }

    /// Failures of processes that are known only by their PID: those of the log, or of other files.
    fn report_processes(&self, rows: &mut Rows) {
        for reported in &self.reported {
            let kind = match reported.event {
                ProcessEvent::KilledForMemory => FailureKind::HostMemory,
                ProcessEvent::AskedToEnd => FailureKind::Terminated,
            };
            rows.failures.push(FailureRow {
                pid: Some(reported.pid),
                ..FailureRow::new(self.source.name.clone(), kind)
            });
        }
    }
}

impl RankText {
    /// Keeps a line of a traceback, up to a number of bytes.
    fn keep(&mut self, line: &str, most: usize) {
        if line.contains("Traceback (most recent call last)") {
            self.traceback.clear();
        } else if self.traceback.is_empty() {
            return;
        }
        self.traceback.extend_from_slice(line.as_bytes());
        self.traceback.push(b'\n');
        let excess = self.traceback.len().saturating_sub(most.min(LONGEST_TRACEBACK));
        self.traceback.drain(..excess);
    }

    /// Adds what the log contains about the same process under another name.
    fn merge(&mut self, other: Self) {
        self.identity = std::mem::take(&mut self.identity).or(&other.identity);
        self.pid = self.pid.or(other.pid);
        self.reader = self.reader.take().or(other.reader);
        let new: Vec<FailureKind> =
            other.kinds.into_iter().filter(|kind| !self.kinds.contains(kind)).collect();
        self.kinds.extend(new);
        if self.errors.is_empty() {
            self.errors = other.errors;
        }
        self.end = self.end.or(other.end);
        self.is_first |= other.is_first;
    }
}

fn mentions_memory(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["memory", "oom", "alloc", "killed"].iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Rows {
        let identity = JobIdentity::from_file_name(name);
        let mut reader = LogReader::new(Source { name: name.to_owned(), identity, is_running: false });
        // In small chunks, as a file is read.
        text.as_bytes().chunks(7).for_each(|chunk| reader.push(chunk));
        reader.finish()
    }

    #[test]
    fn the_lines_of_each_rank_are_read_separately() {
        let rows = read(
            "job.log",
            "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 2 has a total capacity \
             of 31.74 GiB of which 1.20 GiB is free. Of the allocated memory 29.00 GiB is allocated by PyTorch, and \
             240.00 MiB is reserved by PyTorch but unallocated.\n\
             [rank1]: [rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)\n\
             [rank0]: RuntimeError: Connection closed by peer\n",
        );
        let found: Vec<_> =
            rows.failures.iter().map(|failure| (failure.recording.as_str(), failure.kind)).collect();
        assert_eq!(
            found,
            [
                ("job.log (rank 0)", FailureKind::PeerLost),
                ("job.log (rank 1)", FailureKind::CollectiveTimeout),
                ("job.log (rank 2)", FailureKind::DeviceMemory),
            ]
        );
        assert_eq!(rows.failures[2].requested_bytes, Some(3 << 30));
        assert_eq!(rows.recordings[2].rank, Some(2));
    }

    #[test]
    fn processes_of_ray_are_told_apart_by_their_pid() {
        let rows = read(
            "job.log",
            "(Worker pid=11, ip=10.0.0.1) loss 2.7\n\
             (Worker pid=12, ip=10.0.0.2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 \
             has a total capacity of 31.74 GiB of which 1.20 GiB is free. Of the allocated memory 29.00 GiB is allocated \
             by PyTorch, and 240.00 MiB is reserved by PyTorch but unallocated.\n\
             (Worker pid=13, ip=10.0.0.1) RuntimeError: Connection closed by peer\n",
        );
        let found: Vec<_> =
            rows.failures.iter().map(|failure| (failure.recording.as_str(), failure.kind)).collect();
        assert_eq!(
            found,
            [
                ("job.log (PID 12 on 10.0.0.2)", FailureKind::DeviceMemory),
                ("job.log (PID 13 on 10.0.0.1)", FailureKind::PeerLost),
            ]
        );
        assert_eq!(
            (rows.recordings[0].pid, rows.recordings[0].host.as_deref()),
            (Some(12), Some("10.0.0.2"))
        );
    }

    #[test]
    fn the_ranks_that_torchrun_lists_have_their_exit_codes() {
        let rows = read(
            "job.log",
            "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_10:00:00\n  host      : node7\n  \
             rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 4711)\n  error_file: <N/A>\n",
        );
        let row = rows.recordings.iter().find(|row| row.rank == Some(3));
        assert_eq!(row.map(|row| (row.end, row.host.as_deref())), Some((End::Killed, Some("node7"))));
    }
}
