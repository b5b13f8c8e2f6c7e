//! The ranks that a launcher reports as ended: torchrun's list at the end of a log, and single lines of `srun` and
//! `mpirun`.
//!
//! ```text
//! Failures:
//! [1]:
//!   host      : node7
//!   rank      : 9 (local_rank: 1)
//!   exitcode  : 1 (pid: 4711)
//! Root Cause (first observed failure):
//! [0]:
//!   …
//!
//! srun: error: node7: tasks 0-2,4: Terminated
//! mpirun noticed that process rank 2 with PID 4711 on node node7 exited on signal 9 (Killed).
//! ```
//!
//! The kernel's OOM killer and torchrun's requests to end name only a PID: see [`reported_process`].

/// A rank in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRank {
    /// Its rank.
    pub rank: u32,
    /// Its rank on the host.
    pub local_rank: Option<u32>,
    /// Its host.
    pub host: Option<String>,
    /// Its PID.
    pub pid: Option<u32>,
    /// Its exit status, or a negative signal.
    pub exit_code: i32,
    /// Whether the launcher observed its failure first.
    pub is_first: bool,
}

/// The part of the list that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    Others,
    First,
}

/// Reads the list line by line.
#[derive(Debug, Default)]
pub struct FailureList {
    part: Part,
    host: Option<String>,
    rank: Option<u32>,
    local_rank: Option<u32>,
}

/// A process of which only the PID is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedProcess {
    /// Its PID.
    pub pid: u32,
    /// What happened to it.
    pub event: ProcessEvent,
}

/// What happened to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The kernel killed it because host memory ran out.
    KilledForMemory,
    /// The launcher asked it to end.
    AskedToEnd,
}

/// Longest list of tasks that is read: a line can be hostile.
const MOST_TASKS: usize = 1 << 16;
/// The words with which `srun` reports signals.
const SIGNALS: [(&str, i32); 8] = [
    ("Hangup", -1),
    ("Aborted", -6),
    ("Bus error", -7),
    ("Killed", -9),
    ("Segmentation fault", -11),
    ("Terminated", -15),
    ("Out Of Memory", -9),
    ("Floating point exception", -8),
];

impl FailureList {
    /// Reads a line, without the prefix of a launcher. Returns a rank when its entry is complete.
    pub fn read(&mut self, line: &str) -> Option<ListedRank> {
        let line = line.trim();
        // Loggers put their own prefix in front of a heading.
        if line.ends_with("Root Cause (first observed failure):") {
            *self = Self { part: Part::First, ..Self::default() };
        } else if line.ends_with("Failures:") {
            *self = Self { part: Part::Others, ..Self::default() };
        }
        if self.part == Part::None {
            return None;
        }
        let (name, value) = line.split_once(':')?;
        let first = value.split_whitespace().next().unwrap_or_default();
        match name.split_whitespace().next_back()? {
            "host" => (self.host, self.rank) = (Some(first.to_owned()), None),
            "rank" => {
                self.rank = first.parse().ok();
                self.local_rank = value.split_once("(local_rank:").and_then(|(_, rest)| leading_number(rest));
            }
            "exitcode" => {
                let (rank, exit_code) = (self.rank.take()?, first.parse().ok()?);
                let (host, is_first) = (self.host.take(), self.part == Part::First);
                let pid = value.split_once("(pid:").and_then(|(_, rest)| leading_number(rest));
                let local_rank = self.local_rank.take();
                return Some(ListedRank { rank, local_rank, host, pid, exit_code, is_first });
            }
            _ => {}
        }
        None
    }
}

/// The ranks in a line of `srun` or `mpirun` about processes that ended.
pub fn ended_ranks(line: &str) -> Vec<ListedRank> {
    let found = srun(line).or_else(|| mpirun(line).map(|rank| vec![rank]));
    found.unwrap_or_default()
}

/// The process in a line of the kernel's OOM killer or of torchrun, which name only its PID.
pub fn reported_process(line: &str) -> Option<ReportedProcess> {
    let after = |mark: &str| line.split_once(mark).and_then(|(_, rest)| leading_number(rest));
    let lower = line.to_ascii_lowercase();
    if lower.contains("out of memory: killed process") {
        let pid = lower.split_once("killed process").and_then(|(_, rest)| leading_number(rest))?;
        return Some(ReportedProcess { pid, event: ProcessEvent::KilledForMemory });
    }
    let pid = after("Sending process ").filter(|_| line.contains("closing signal"))?;
    Some(ReportedProcess { pid, event: ProcessEvent::AskedToEnd })
}

/// `srun: error: node7: tasks 0-2,4: Terminated`.
fn srun(line: &str) -> Option<Vec<ListedRank>> {
    let (_, rest) = line.split_once("srun: error: ")?;
    let (host, rest) = rest.split_once(": task")?;
    let (tasks, outcome) = rest.trim_start_matches('s').split_once(':')?;
    let outcome = outcome.trim();
    let status = outcome.strip_prefix("Exited with exit code ").and_then(|code| code.trim().parse().ok());
    let signal = SIGNALS.iter().find(|(word, _)| outcome.starts_with(word)).map(|(_, code)| *code);
    let exit_code: i32 = status.or(signal)?;
    let mut ranks = Vec::new();
    for part in tasks.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        ranks.extend((first..=last).take(MOST_TASKS.saturating_sub(ranks.len())));
    }
    let listed = |rank| ListedRank {
        rank,
        local_rank: None,
        host: Some(host.trim().to_owned()),
        pid: None,
        exit_code,
        is_first: false,
    };
    Some(ranks.into_iter().map(listed).collect())
}

/// `mpirun noticed that process rank 2 with PID 4711 on node node7 exited on signal 9 (Killed).`
fn mpirun(line: &str) -> Option<ListedRank> {
    let (_, rest) = line.split_once(" noticed that process rank ")?;
    let rank = leading_number(rest)?;
    let after = |mark: &str| rest.split_once(mark).map(|(_, rest)| rest);
    let signal = i32::try_from(after("exited on signal ").and_then(leading_number)?).ok()?;
    let host = after(" on node ").and_then(|rest| rest.split_whitespace().next()).map(str::to_owned);
    // Open MPI 4 prints PID 0 for processes of other nodes.
    let pid = after(" with PID ").and_then(leading_number).filter(|&pid| pid > 0);
    Some(ListedRank { rank, local_rank: None, host, pid, exit_code: -signal, is_first: true })
}

/// The number at the start of a text.
fn leading_number(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_of_the_list_are_read() {
        let text = "exitcode : 3\nrank : 4\nexitcode : 3\ntrain.py FAILED\nFailures:\n[1]:\n  time : x\n  host      : n2\n  \
            rank      : 9 (local_rank: 1)\n  exitcode  : 1 (pid: 3)\n  error_file: <N/A>\n\
            Root Cause (first observed failure):\n[0]:\n  host      : node7\n  rank      : 5 (local_rank: 5)\n  \
            exitcode  : -9 (pid: 2)\n  traceback : Signal 9 (SIGKILL) received by PID 2\n";
        let mut list = FailureList::default();
        let found: Vec<ListedRank> = text.lines().filter_map(|line| list.read(line)).collect();
        let rank = |rank, local, host: &str, pid, exit_code, is_first| ListedRank {
            rank,
            local_rank: Some(local),
            host: Some(host.to_owned()),
            pid: Some(pid),
            exit_code,
            is_first,
        };
        assert_eq!(found, [rank(9, 1, "n2", 3, 1, false), rank(5, 5, "node7", 2, -9, true)]);
    }

    #[test]
    fn single_lines_of_launchers_name_ranks() {
        let ends = |line: &str| -> Vec<(u32, i32)> {
            ended_ranks(line).into_iter().map(|listed| (listed.rank, listed.exit_code)).collect()
        };
        assert_eq!(
            ends("srun: error: node7: tasks 0-2,4: Terminated"),
            [(0, -15), (1, -15), (2, -15), (4, -15)]
        );
        assert_eq!(ends("srun: error: node7: task 11: Exited with exit code 1"), [(11, 1)]);
        assert_eq!(ends("srun: error: node7: task 3: Out Of Memory"), [(3, -9)]);
        let line = "prterun noticed that process rank 2 with PID 4711 on node node7 exited on signal 11 (Segmentation fault).";
        let found = ended_ranks(line);
        assert_eq!((found[0].rank, found[0].exit_code, found[0].pid), (2, -11, Some(4711)));
        assert_eq!(found[0].host.as_deref(), Some("node7"));
        for line in [
            "srun: error: node7: task x: Terminated",
            "srun: error: n: tasks 0-4294967295: Terminate",
            "srun: error: Unable to create step",
            "noticed that process rank 2",
            "",
        ] {
            assert!(ended_ranks(line).is_empty(), "{line}");
        }
        assert_eq!(ended_ranks("srun: error: n: tasks 0-4294967295: Terminated").len(), MOST_TASKS);
    }

    #[test]
    fn processes_that_are_named_by_pid_are_read() {
        let read = |line| reported_process(line).map(|found| (found.pid, found.event));
        assert_eq!(
            read("[12.5] Memory cgroup out of memory: Killed process 4006 (python) total-vm:98kB"),
            Some((4006, ProcessEvent::KilledForMemory))
        );
        assert_eq!(
            read("W1] Sending process 4001 closing signal SIGTERM"),
            Some((4001, ProcessEvent::AskedToEnd))
        );
        assert_eq!(read("Sending process x"), None);
    }
}
