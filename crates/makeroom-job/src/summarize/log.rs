//! A program's output, reduced to rows: one recording per rank that it mentions.
//!
//! Launchers prefix the lines of a process (`[rank3]:`, `3: `, `(Worker pid=4711)`, `[pod/train-0/main]`), and report at
//! the end which ranks failed. Lines without a prefix belong to the file's own rank, or to no rank. The text of a rank is
//! read by the same reader as in `why`, without the prefixes, but only from the first line that mentions memory on, because
//! a job can have thousands of ranks.
//!
//! One process can have several names: torchrun's prefix has the local rank, and its report at the end has both ranks.
//! A traceback without a prefix in a log of several ranks is that of the rank that torchrun names as the root cause.
//!
//! The number in which file names differ (`job_0.txt`, `job_1.txt`) is a rank only if the lines do not name other ones.

use std::collections::{BTreeMap, BTreeSet};

use makeroom_core::identity::{
    FailureList, JobIdentity, LinePrefix, ListedRank, PodLabels, ProcessReports, ReportedProcess,
};
use makeroom_explain::TextReader;

use super::Source;
use super::log_row::{Found, report_processes, row_of};
use super::log_text::{Label, RankText, is_labeled, mentions_memory};
use crate::tables::{End, FailureKind, Rows};

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
/// Bytes of the tracebacks of all ranks.
const MOST_TRACEBACKS: usize = 8 << 20;

/// Reads a log in chunks.
pub struct LogReader {
    source: Source,
    /// The identity of the file if its number is a rank, which only its lines can show.
    numbered: Option<JobIdentity>,
    line: Vec<u8>,
    ranks: BTreeMap<Label, RankText>,
    readers: usize,
    /// Consecutive lines that start with a number and a colon.
    labels: u32,
    /// The first lines, while it is not known whether words or numbers in front of them are labels.
    pending: Option<Vec<String>>,
    /// The pods in front of lines.
    pods: Option<PodLabels>,
    /// Bytes of tracebacks that are kept.
    kept: usize,
    /// The rank of each local rank and its pod, where a line or a report has both; `None` if several have the local rank.
    by_local: BTreeMap<(u32, Option<String>), Option<u32>>,
    listed: FailureList,
    /// The rank whose failure the launcher observed first.
    root: Option<ListedRank>,
    /// Whether a launcher reports how ranks ended.
    has_list: bool,
    reports: ProcessReports,
    /// Processes that are reported by their PID.
    reported: Vec<ReportedProcess>,
}

impl LogReader {
    /// A reader for a file.
    pub fn new(mut source: Source) -> Self {
        let named = JobIdentity::from_file_name(&source.name);
        let is_numbered = source.identity.rank.is_some() && source.identity.rank != named.rank;
        let numbered = is_numbered.then(|| std::mem::replace(&mut source.identity, named));
        Self {
            source,
            numbered,
            line: Vec::new(),
            ranks: BTreeMap::new(),
            readers: 0,
            labels: 0,
            pending: Some(Vec::new()),
            pods: None,
            kept: 0,
            by_local: BTreeMap::new(),
            listed: FailureList::default(),
            root: None,
            has_list: false,
            reports: ProcessReports::default(),
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
        let text = String::from_utf8_lossy(&bytes);
        let line = text.trim_end();
        self.labels =
            if LinePrefix::is_label(line) { self.labels.saturating_add(1) } else { self.labels / 2 };
        let is_labeled = self.labels >= LABELED_LINES;
        let Some(pending) = &mut self.pending else { return self.read_line(line, is_labeled) };
        pending.push(line.to_owned());
        if is_labeled || pending.len() >= MOST_PENDING {
            self.read_pending(is_labeled);
        }
    }

    /// Reads the first lines, when it is known whether they are labeled.
    fn read_pending(&mut self, is_labeled: bool) {
        let pending = self.pending.take().unwrap_or_default();
        if !pending.is_empty() && !is_labeled {
            self.pods = PodLabels::find(pending.iter().map(String::as_str));
        }
        for line in pending {
            self.read_line(&line, is_labeled);
        }
    }

    /// Notes that a rank has a local rank.
    fn pair(&mut self, rank: u32, local: u32, pod: Option<String>) {
        if self.by_local.len() < MOST_RANKS {
            let known = self.by_local.entry((local, pod)).or_insert(Some(rank));
            *known = known.filter(|&known| known == rank);
        }
    }

    fn read_line(&mut self, line: &str, is_labeled: bool) {
        let of_pod = self.pods.as_ref().and_then(|pods| pods.read(line));
        let prefix = of_pod.or_else(|| LinePrefix::read(line, is_labeled));
        let rest = prefix.as_ref().map_or(line, |prefix| prefix.rest);
        let pod = prefix.as_ref().and_then(|prefix| prefix.job.pod.as_deref());
        let is_listed = self.list(rest, pod);
        let (is_report, reported) = self.reports.read(rest);
        // A line about another process is not about the one that prints it.
        let is_reported = is_listed || is_report;
        self.reported.extend(reported.filter(|_| self.reported.len() < MOST_REPORTED));
        let (prefix, pid) = prefix.map_or_else(Default::default, |prefix| (prefix.job, prefix.pid));
        if let (Some(rank), Some(local)) = (prefix.rank, prefix.local_rank) {
            self.pair(rank, local, prefix.pod.clone());
        }
        let label = match (Label::of(&prefix, pid), self.source.identity.rank) {
            (Label::None, Some(rank)) => Label::Rank(rank),
            (label, _) => label,
        };
        if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&label) {
            return;
        }
        let rank = self.ranks.entry(label).or_default();
        if rank.identity.is_alone() {
            rank.identity = prefix.or(&self.source.identity);
        }
        rank.pid = rank.pid.or(pid);
        if !is_reported {
            rank.read(rest);
        }
        if rank.reader.is_none() && self.readers < MOST_READERS && mentions_memory(rest) {
            let mut reader = TextReader::new();
            self.kept -= rank.traceback.len();
            reader.push(&std::mem::take(&mut rank.traceback));
            rank.reader = Some(reader);
            self.readers += 1;
        }
        if let Some(reader) = &mut rank.reader {
            reader.push(rest.as_bytes());
            reader.push(b"\n");
        } else if self.readers < MOST_READERS {
            self.kept -= rank.traceback.len();
            rank.keep(rest, MOST_TRACEBACKS.saturating_sub(self.kept));
            self.kept += rank.traceback.len();
        }
    }

    /// Reads a line in which a launcher reports ranks that ended. Returns whether it is one.
    fn list(&mut self, line: &str, pod: Option<&str>) -> bool {
        let listed = self.listed.read(line);
        let is_listed = !listed.is_empty();
        self.has_list |= is_listed;
        let is_starved = line.ends_with(": Out Of Memory");
        for listed in listed {
            if let Some(local) = listed.local_rank {
                self.pair(listed.rank, local, pod.map(str::to_owned));
            }
            let label = Label::Rank(listed.rank);
            if self.ranks.len() >= MOST_RANKS && !self.ranks.contains_key(&label) {
                break;
            }
            let text = self.ranks.entry(label).or_default();
            text.identity.rank = Some(listed.rank);
            text.identity.local_rank = text.identity.local_rank.or(listed.local_rank);
            text.host = text.host.take().or_else(|| listed.host.clone());
            text.pid = text.pid.or(listed.pid);
            text.end = Some(match listed.exit_code {
                -9 => End::Killed,
                code @ ..0 => End::Signaled(code.unsigned_abs()),
                code => End::Exited(code.unsigned_abs()),
            });
            if is_starved {
                text.add(FailureKind::HostMemory);
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
        let locals: Vec<(u32, Option<String>)> = self
            .ranks
            .keys()
            .filter_map(|label| match label {
                Label::LocalRank(local, pod) => Some((*local, pod.clone())),
                _ => None,
            })
            .collect();
        let pods: BTreeSet<&Option<String>> = locals.iter().map(|(_, pod)| pod).collect();
        let is_one_pod = pods.len() == 1;
        for (local, pod) in locals {
            // torchrun's report does not name pods.
            let any = || self.by_local.get(&(local, None)).filter(|_| is_one_pod);
            let rank = self.by_local.get(&(local, pod.clone())).or_else(any).copied().flatten();
            let Some(rank) = rank.map(Label::Rank).filter(|rank| self.ranks.contains_key(rank)) else {
                continue;
            };
            let text = self.ranks.remove(&Label::LocalRank(local, pod));
            if let (Some(text), Some(owner)) = (text, self.ranks.get_mut(&rank)) {
                owner.merge(text);
            }
        }
    }

    /// Restores errors that seemed to be handled, of ranks that exited with an error and printed nothing else about it. If
    /// one of them shows its error, that explains the others.
    fn restore_dropped(&mut self) {
        let failed = || self.ranks.values().filter(|text| text.has_exited_with_error());
        if failed().any(|text| !text.errors.is_empty()) {
            return;
        }
        let failed = self.ranks.values_mut().filter(|text| text.has_exited_with_error());
        failed.filter(|text| text.is_unexplained()).for_each(|text| text.errors.restore());
    }

    /// Gives a traceback without a prefix to the rank that the launcher names as the root cause, or to the only one that it
    /// lists with an exit code above 0, if that rank printed nothing about its error. Of several such ranks, none is known
    /// to have printed it. Without a prefix, lines of other ranks look as if the program had continued, so an error that
    /// seemed to be handled is restored.
    fn assign_unnamed(&mut self) {
        let Some(mut unnamed) = self.ranks.remove(&Label::None) else { return };
        let root = self.root.take();
        let is_candidate = |label: &Label| root.as_ref().is_none_or(|root| *label == Label::Rank(root.rank));
        let failed = self.ranks.iter_mut().filter(|(_, text)| text.has_exited_with_error());
        let mut failed: Vec<&mut RankText> =
            failed.filter(|(label, _)| is_candidate(label)).map(|(_, text)| text).collect();
        if !failed.is_empty() && failed.iter().all(|text| text.reader.is_none() && text.is_unexplained()) {
            unnamed.errors.restore();
        }
        if let [owner] = failed.as_mut_slice()
            && owner.reader.is_none()
            && owner.errors.is_empty()
        {
            owner.reader = unnamed.reader.take();
            owner.errors = std::mem::take(&mut unnamed.errors);
        }
        self.ranks.insert(Label::None, unnamed);
    }

    /// Takes the number of the file as its rank, unless the lines name other ranks.
    fn number(&mut self) {
        let Some(numbered) = self.numbered.take() else { return };
        let Some(own) = numbered.rank.map(Label::Rank) else { return };
        if self.ranks.keys().any(|label| *label != Label::None && *label != own) {
            return;
        }
        let texts = [self.ranks.remove(&own), self.ranks.remove(&Label::None)];
        let text = texts.into_iter().flatten().reduce(|mut text, other| {
            text.merge(other);
            text
        });
        self.ranks.extend(text.map(|text| (own, RankText { identity: numbered.clone(), ..text })));
        self.source.identity = numbered;
    }

    /// Ends the log.
    pub fn finish(mut self) -> Rows {
        if !self.line.is_empty() {
            self.end_line();
        }
        let is_short_and_labeled = is_labeled(self.pending.iter().flatten().map(String::as_str));
        self.read_pending(is_short_and_labeled);
        let reported = std::mem::take(&mut self.reports).finish();
        self.reported.extend(reported.filter(|_| self.reported.len() < MOST_REPORTED));
        self.merge_local();
        self.restore_dropped();
        self.assign_unnamed();
        self.number();
        let mut rows = Rows::default();
        report_processes(&self.reported, &self.source.name, &mut rows);
        let found = Found::new(&self.source, &self.ranks, &self.reported, self.has_list);
        for (label, text) in self.ranks {
            row_of(&label, text, &found, &mut rows);
        }
        rows
    }
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
