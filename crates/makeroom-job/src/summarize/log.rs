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

use makeroom_core::identity::{
    FailureList, JobIdentity, LinePrefix, ListedRank, PodLabels, PodStatuses, ProcessReports, RayReports,
    ReportedProcess, without_header,
};
use makeroom_ordered::OrderedMap;
use makeroom_text::TextReader;

use super::Source;
use super::crashes;
use super::log_row::{Found, report_processes, row_of};
use super::log_text::{Label, RankText, is_labeled, is_of_slurm, mentions_memory, shows_out_of_memory};
use super::owners::Workers;
use super::stops;
use crate::tables::{Rows, StopReason, StopRow};

/// Ranks whose text is read; of further ranks only the kind of failure is known.
const MOST_READERS: usize = 64;
/// Ranks that a log can mention.
pub(super) const MOST_RANKS: usize = 1 << 16;
/// Processes that a log can report by their PID alone.
pub(super) const MOST_REPORTED: usize = 1 << 12;
/// Bytes of one line that are inspected.
const LONGEST_LINE: usize = 16 << 10;
/// Lines that show whether `srun` labels its output.
const LABELED_LINES: u32 = 8;
/// Labeled lines that are counted: after twice as many as are needed, a few other lines do not matter.
const MOST_LABELS: u32 = 2 * LABELED_LINES;
/// Lines at the start that are kept until this is known.
const MOST_PENDING: usize = 64;
/// Bytes of the tracebacks of all ranks.
const MOST_TRACEBACKS: usize = 8 << 20;

/// Reads a log in chunks.
pub struct LogReader {
    pub(super) source: Source,
    /// The identity of the file if its number is a rank, which only its lines can show.
    pub(super) numbered: Option<JobIdentity>,
    line: Vec<u8>,
    /// Number of lines read.
    pub(super) lines: u64,
    pub(super) ranks: OrderedMap<Label, RankText>,
    readers: usize,
    /// Lines that start with a number and a colon, less those that do not.
    labels: u32,
    /// The first lines, while it is not known whether words or numbers in front of them are labels.
    pending: Option<Vec<String>>,
    /// The pods in front of lines.
    pods: Option<PodLabels>,
    /// The pods that kubectl describes.
    statuses: PodStatuses,
    /// Bytes of tracebacks that are kept.
    kept: usize,
    /// The rank of each local rank and its pod, where a line or a report has both; `None` if several have the local rank.
    pub(super) by_local: OrderedMap<(u32, Option<String>), Option<u32>>,
    pub(super) listed: FailureList,
    /// The rank whose failure the launcher observed first.
    pub(super) root: Option<ListedRank>,
    /// Whether a launcher reports how ranks ended.
    pub(super) has_list: bool,
    pub(super) reports: ProcessReports,
    /// Processes that are reported by their PID.
    pub(super) reported: Vec<ReportedProcess>,
    pub(super) ray: RayReports,
    pub(super) workers: Workers,
    /// Why a scheduler ended the job, and the line that reports it.
    stop: Option<(StopReason, u64)>,
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
            lines: 0,
            ranks: OrderedMap::new(),
            readers: 0,
            labels: 0,
            pending: Some(Vec::new()),
            pods: None,
            statuses: PodStatuses::default(),
            kept: 0,
            by_local: OrderedMap::new(),
            listed: FailureList::default(),
            root: None,
            has_list: false,
            reports: ProcessReports::default(),
            reported: Vec::new(),
            ray: RayReports::default(),
            workers: Workers::default(),
            stop: None,
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
        self.labels = match () {
            () if LinePrefix::is_label(line) => (self.labels + 1).min(MOST_LABELS),
            // `srun` does not label its own lines.
            () if is_of_slurm(line) => self.labels,
            () => self.labels.saturating_sub(if self.labels < LABELED_LINES {
                self.labels.div_ceil(2)
            } else {
                1
            }),
        };
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

    fn read_line(&mut self, line: &str, is_labeled: bool) {
        self.lines += 1;
        let of_pod = self.pods.as_ref().and_then(|pods| pods.read(line));
        let prefix = of_pod.or_else(|| LinePrefix::read(line, is_labeled));
        let described = if prefix.is_none() { self.statuses.read(line) } else { None };
        let prefix =
            prefix.or_else(|| described.as_ref().map(|found| LinePrefix::of_described(&found.pod, line)));
        let rest = prefix.as_ref().map_or(line, |prefix| prefix.rest);
        let bare = without_header(rest);
        // The most exact reason counts, where it is first reported.
        let stop = stops::read(bare).map(|reason| (reason, self.lines));
        self.stop = self.stop.into_iter().chain(stop).min();
        let pod = prefix.as_ref().and_then(|prefix| prefix.job.pod.as_deref());
        // A line about another process is not about the one that prints it.
        let is_reported = self.report(bare, pod);
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
        if let Label::Process(pid, host) = &label {
            self.workers.read_own(*pid, host.as_deref(), rest);
        }
        let number = self.lines;
        let rank = self.ranks.entry(label).or_default();
        if rank.identity.is_alone() {
            rank.identity = prefix.or(&self.source.identity);
        }
        rank.pid = rank.pid.or(pid);
        if let Some(status) = described.and_then(|found| found.exit_code) {
            rank.ended(status, number);
        }
        let is_ordinary = !is_reported && rank.read(rest);
        let stop = self.stop.filter(|_| is_ordinary);
        let is_restarted = stop.is_some_and(|(_, line)| rank.continues_after(line));
        if shows_out_of_memory(rest) {
            rank.ran_out(number);
        }
        let is_held = rank.held.as_deref() == Some(rest) || crashes::is_about_helper(rest);
        if rank.reader.is_none() && self.readers < MOST_READERS && mentions_memory(rest) && !is_held {
            let mut reader = TextReader::new();
            self.kept -= rank.traceback.len();
            reader.push(&std::mem::take(&mut rank.traceback));
            rank.reader = Some(reader);
            self.readers += 1;
        }
        if is_held {
            // It is explained at the end, or not at all.
        } else if let Some(reader) = &mut rank.reader {
            // A traceback is recognized by its indentation, after the time and the level.
            reader.push(bare.as_bytes());
            reader.push(b"\n");
        } else if self.readers < MOST_READERS {
            self.kept -= rank.traceback.len();
            rank.keep(bare, MOST_TRACEBACKS.saturating_sub(self.kept));
            self.kept += rank.traceback.len();
        }
        if is_restarted {
            self.restart();
        }
    }

    /// Gives the lines that report an end to the explanations of processes that did not continue.
    fn explain_held(&mut self) {
        for rank in self.ranks.values_mut() {
            let Some(line) = rank.held.take().filter(|line| mentions_memory(line)) else { continue };
            if rank.reader.is_none() && self.readers < MOST_READERS {
                rank.reader = Some(TextReader::new());
                self.readers += 1;
            }
            if let Some(reader) = &mut rank.reader {
                reader.push(&std::mem::take(&mut rank.traceback));
                reader.push(line.as_bytes());
                reader.push(b"\n");
            }
        }
    }

    /// The job was queued again and continues in the same log: forgets how it ended before.
    fn restart(&mut self) {
        (self.stop, self.root) = (None, None);
        self.ranks.values_mut().for_each(RankText::restart);
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
        self.explain_held();
        self.merge_workers();
        self.merge_local();
        self.restore_dropped();
        self.assign_unnamed();
        self.number();
        let mut rows = Rows::default();
        rows.stops.extend(self.stop.map(|(reason, line)| StopRow {
            file: self.source.name.clone(),
            reason,
            line: Some(line),
        }));
        report_processes(&self.reported, &self.source.name, &mut rows);
        let found = Found::new(&self.source, &self.ranks, &self.reported, self.has_list);
        for (label, text) in self.ranks {
            row_of(&label, text, &found, &mut rows);
        }
        rows
    }
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
