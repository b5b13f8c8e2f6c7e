//! What a log contains about one process, and the names that processes have in a log.

use std::sync::Arc;

use makeroom_core::identity::{JobIdentity, LinePrefix};
use makeroom_text::TextReader;

use super::collectives;
use super::crashes;
use super::errors::{ErrorFinder, HANDLED, Line};
use super::phrases;
use crate::tables::{Collective, End, FailureKind};

/// Bytes of a rank's last traceback that are kept until a line mentions memory.
const LONGEST_TRACEBACK: usize = 16 << 10;

/// Bytes of a line that is held until it is known whether the program continues.
const LONGEST_HELD: usize = 1 << 10;
/// A process that prints this many lines after a scheduler ended the job was started again.
const RESTARTED: u32 = 200;

/// The process of a line: its rank, or what else its prefix has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Label {
    /// The launcher, or a file with one process.
    None,
    Rank(u32),
    /// A local rank, with its pod.
    LocalRank(u32, Option<String>),
    /// A PID, with its host.
    Process(u32, Option<String>),
    Pod(String),
}

impl Label {
    /// The name in a prefix.
    pub(super) fn of(prefix: &JobIdentity, pid: Option<u32>) -> Self {
        match (prefix.rank, prefix.local_rank, pid, &prefix.pod) {
            (Some(rank), ..) => Self::Rank(rank),
            (None, Some(local), _, pod) => Self::LocalRank(local, pod.clone()),
            (None, None, Some(pid), _) => Self::Process(pid, prefix.host.clone()),
            (None, None, None, Some(pod)) => Self::Pod(pod.clone()),
            (None, None, None, None) => Self::None,
        }
    }

    /// The name for people: `rank 3`. `None` for a file with one process.
    pub(super) fn words(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Rank(rank) => Some(format!("rank {rank}")),
            Self::LocalRank(local, None) => Some(format!("local rank {local}")),
            Self::LocalRank(local, Some(pod)) => Some(format!("local rank {local} of {pod}")),
            Self::Process(pid, None) => Some(format!("PID {pid}")),
            Self::Process(pid, Some(host)) => Some(format!("PID {pid} on {host}")),
            Self::Pod(pod) => Some(format!("pod {pod}")),
        }
    }
}

/// What the log contains about one process.
#[derive(Default)]
pub(super) struct RankText {
    pub(super) identity: JobIdentity,
    /// Its host, if a launcher's report has it.
    pub(super) host: Option<Arc<str>>,
    pub(super) pid: Option<u32>,
    pub(super) reader: Option<TextReader>,
    /// Its last traceback, while no line has mentioned memory.
    pub(super) traceback: Vec<u8>,
    pub(super) kinds: Vec<FailureKind>,
    /// The collectives that timed out.
    pub(super) collectives: Vec<Collective>,
    pub(super) errors: ErrorFinder,
    pub(super) end: Option<End>,
    /// Those of them that only a shell's line or an exit code reports: it may be about a command that the process ran.
    from_shell: Vec<FailureKind>,
    /// The last such line. It is explained only if the program does not continue.
    pub(super) held: Option<String>,
    /// The line that reports its end, and the first one about memory that ran out, since the program last continued.
    pub(super) end_line: Option<u64>,
    pub(super) memory_line: Option<u64>,
    /// Its lines, and how many of them came before the last one about memory.
    lines: u64,
    lines_to_memory: u64,
    /// A scheduler's line that ended the job, and the ordinary lines after it.
    after_stop: (u64, u32),
    /// Whether the launcher observed its failure first.
    pub(super) is_first: bool,
}

impl RankText {
    /// Reads a line of the process, without the prefix. Returns whether it is ordinary output.
    pub(super) fn read(&mut self, line: &str) -> bool {
        self.lines += 1;
        let mut kinds = phrases::kinds(line.as_bytes());
        let reported = crashes::read(line).and_then(|crash| crash.kind());
        let reported = reported.filter(|kind| !kinds.contains(kind));
        kinds.extend(reported);
        let is_ordinary = kinds.is_empty();
        match self.errors.read(line, !is_ordinary) {
            Line::Source => return false,
            Line::Resumed => {
                let is_over = |kind: &FailureKind| {
                    matches!(kind, FailureKind::PeerLost | FailureKind::CollectiveTimeout)
                };
                let from_shell = std::mem::take(&mut self.from_shell);
                self.kinds.retain(|kind| !is_over(kind) && !from_shell.contains(kind));
                self.collectives.clear();
                (self.memory_line, self.held) = (None, None);
            }
            Line::Text => {
                if reported.is_some() && line.len() <= LONGEST_HELD {
                    self.held = Some(line.to_owned());
                }
                for kind in kinds {
                    if Some(kind) != reported {
                        self.from_shell.retain(|known| *known != kind);
                    } else if !self.kinds.contains(&kind) {
                        self.from_shell.push(kind);
                    }
                    self.add(kind);
                }
                if let Some(collective) = collectives::read(line) {
                    collectives::add(&mut self.collectives, collective);
                }
            }
        }
        is_ordinary
    }

    /// Counts an ordinary line after a scheduler's line that ended the job. Returns whether there are too many for a process
    /// that ends.
    pub(super) fn continues_after(&mut self, stop: u64) -> bool {
        let (known, lines) = self.after_stop;
        self.after_stop = (stop, if known == stop { lines.saturating_add(1) } else { 1 });
        self.after_stop.1 > RESTARTED
    }

    /// Forgets how it ended before the job was started again.
    pub(super) fn restart(&mut self) {
        self.kinds.retain(|kind| !matches!(kind, FailureKind::Killed | FailureKind::Terminated));
        (self.end, self.end_line, self.is_first, self.held) = (None, None, false, None);
    }

    /// Notes a line that shows that memory ran out. Many lines after the last one, that one was handled.
    pub(super) fn ran_out(&mut self, line: u64) {
        let is_handled = self.lines.saturating_sub(self.lines_to_memory) > u64::from(HANDLED);
        self.memory_line = self.memory_line.filter(|_| !is_handled).or(Some(line));
        self.lines_to_memory = self.lines;
    }

    /// Adds a kind of failure, once.
    pub(super) fn add(&mut self, kind: FailureKind) {
        if !self.kinds.contains(&kind) {
            self.kinds.push(kind);
        }
    }

    /// Keeps a line of a traceback, up to a number of bytes.
    pub(super) fn keep(&mut self, line: &str, most: usize) {
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

    /// A launcher or a scheduler reports how it ended.
    pub(super) fn ended(&mut self, status: i32, line: u64) {
        self.end = Some(match crashes::signal_of(status) {
            Some(9) => End::Killed,
            Some(signal) => End::Signaled(signal),
            None => End::Exited(status.unsigned_abs()),
        });
        self.end_line = self.end_line.or(Some(line));
    }

    /// Whether a launcher reports that it exited with an error.
    pub(super) fn has_exited_with_error(&self) -> bool {
        matches!(self.end, Some(End::Exited(1..)))
    }

    /// Whether its lines show no error, and no failure of another process.
    pub(super) fn is_unexplained(&self) -> bool {
        self.kinds.is_empty() && self.errors.is_silent()
    }

    /// Adds what the log contains about the same process under another name.
    pub(super) fn merge(&mut self, other: Self) {
        self.identity = std::mem::take(&mut self.identity).or(&other.identity);
        self.host = self.host.take().or(other.host);
        self.pid = self.pid.or(other.pid);
        self.reader = self.reader.take().or(other.reader);
        self.held = self.held.take().or(other.held);
        for kind in other.kinds {
            self.add(kind);
        }
        for collective in other.collectives {
            collectives::add(&mut self.collectives, collective);
        }
        self.errors.merge(other.errors);
        self.end_line = self.end_line.or(other.end_line);
        self.memory_line = self.memory_line.or(other.memory_line);
        self.end = self.end.or(other.end);
        self.is_first |= other.is_first;
    }
}

/// Whether a line shows that `srun` labels its output, in a log that ends with its report.
pub(super) fn is_labeled<'line>(lines: impl Iterator<Item = &'line str>) -> bool {
    let (mut labels, mut others, mut has_srun) = (0, 0, false);
    for line in lines {
        if is_of_slurm(line) {
            has_srun = true;
        } else if LinePrefix::is_label(line) {
            labels += 1;
        } else if !line.trim().is_empty() {
            others += 1;
        }
    }
    has_srun && labels > others
}

/// Whether a line is one of Slurm's own.
pub(super) fn is_of_slurm(line: &str) -> bool {
    line.starts_with("srun: ") || line.starts_with("slurmstepd: ")
}

/// Whether a line shows that memory ran out.
pub(super) fn shows_out_of_memory(line: &str) -> bool {
    line.contains("OutOfMemory") || line.contains("out of memory")
}

/// Whether a line can be about memory, so that the explanation starts there.
pub(super) fn mentions_memory(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    ["memory", "oom", "alloc", "killed"].iter().any(|word| line.contains(word))
}
