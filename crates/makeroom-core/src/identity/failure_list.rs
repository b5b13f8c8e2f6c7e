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
//!
//!   Process name: [[61234,1],2]
//!   Exit code:    1
//! ```
//!
//! The kernel's OOM killer and torchrun's requests to end name only a PID: see `reported.rs`.
//!
//! A log is untrusted: one short line of `srun` can name four billion tasks. [`FailureList`] therefore expands at most
//! [`FailureList::MOST_TASKS`] tasks of a whole log, clips the names of hosts, and shares them between ranks.

use std::sync::Arc;

/// A rank in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRank {
    /// Its rank.
    pub rank: u32,
    /// Its rank on the host.
    pub local_rank: Option<u32>,
    /// Its host, shared by the ranks of one line.
    pub host: Option<Arc<str>>,
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

/// Reads the lines of launchers, one after the other.
#[derive(Debug, Default)]
pub struct FailureList {
    entry: Entry,
    /// The rank in the last line of Open MPI that names a process.
    named: Option<u32>,
    /// Tasks of `srun` that were expanded.
    expanded: usize,
}

/// The entry of torchrun's list that is being read.
#[derive(Debug, Default)]
struct Entry {
    part: Part,
    host: Option<Arc<str>>,
    rank: Option<u32>,
    local_rank: Option<u32>,
}

/// Length of the longest host name in bytes, as in DNS.
const LONGEST_HOST: usize = 255;
/// The words with which `srun` reports signals.
const SIGNALS: [(&str, i32); 11] = [
    ("Hangup", -1),
    ("Interrupt", -2),
    ("Illegal instruction", -4),
    ("Trace/breakpoint trap", -5),
    ("Aborted", -6),
    ("Bus error", -7),
    ("Killed", -9),
    ("Segmentation fault", -11),
    ("Terminated", -15),
    ("Out Of Memory", -9),
    ("Floating point exception", -8),
];

impl FailureList {
    /// Tasks of `srun` that are expanded in one log. A job of 10,000 ranks that was restarted 20 times has fewer.
    pub const MOST_TASKS: usize = 1 << 18;

    /// Reads a line, without the prefix of a launcher. Returns the ranks that it reports as ended: one when an entry of
    /// torchrun's list is complete, and all ranks of a line of `srun` or `mpirun`.
    pub fn read(&mut self, line: &str) -> Vec<ListedRank> {
        let listed = self.read_torchrun(line).or_else(|| mpirun(line)).or_else(|| self.read_mpi(line));
        if let Some(listed) = listed {
            return vec![listed];
        }
        let most = Self::MOST_TASKS - self.expanded;
        let listed = srun(line, most).unwrap_or_default();
        self.expanded += listed.len();
        listed
    }

    /// Open MPI's report about a process that exited with an error.
    fn read_mpi(&mut self, line: &str) -> Option<ListedRank> {
        let (name, value) = line.split_once(':')?;
        match name.trim() {
            // The job and the rank: `[[61234,1],2]`.
            "Process name" => {
                self.named =
                    value.trim().strip_prefix("[[").and_then(|name| leading_number(name.split_once("],")?.1));
                None
            }
            "Exit code" => {
                let (rank, exit_code) = (self.named.take()?, value.trim().parse().ok()?);
                Some(ListedRank { rank, local_rank: None, host: None, pid: None, exit_code, is_first: true })
            }
            _ => None,
        }
    }

    /// The same, but only for torchrun's list.
    pub fn read_torchrun(&mut self, line: &str) -> Option<ListedRank> {
        self.entry.read(line)
    }
}

impl Entry {
    fn read(&mut self, line: &str) -> Option<ListedRank> {
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
            "host" => (self.host, self.rank) = (host(first), None),
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

/// The name of a host, clipped to [`LONGEST_HOST`].
fn host(name: &str) -> Option<Arc<str>> {
    Some(clipped(name.trim(), LONGEST_HOST)).filter(|name| !name.is_empty()).map(Arc::from)
}

/// `srun: error: node7: tasks 0-2,4: Terminated`. At most `most` tasks.
fn srun(line: &str, most: usize) -> Option<Vec<ListedRank>> {
    let (_, rest) = line.split_once("srun: error: ")?;
    let (name, rest) = rest.split_once(": task")?;
    let (tasks, outcome) = rest.trim_start_matches('s').split_once(':')?;
    let outcome = outcome.trim();
    let status = outcome.strip_prefix("Exited with exit code ").and_then(|code| code.trim().parse().ok());
    let signal = SIGNALS.iter().find(|(word, _)| outcome.starts_with(word)).map(|(_, code)| *code);
    let exit_code: i32 = status.or(signal)?;
    let host = host(name);
    let mut listed = Vec::new();
    for part in tasks.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let ranks = (first..=last).take(most - listed.len());
        listed.extend(ranks.map(|rank| ListedRank {
            rank,
            local_rank: None,
            host: host.clone(),
            pid: None,
            exit_code,
            is_first: false,
        }));
    }
    Some(listed)
}

/// `mpirun noticed that process rank 2 with PID 4711 on node node7 exited on signal 9 (Killed).`
fn mpirun(line: &str) -> Option<ListedRank> {
    let (_, rest) = line.split_once(" noticed that process rank ")?;
    let rank = leading_number(rest)?;
    let after = |mark: &str| rest.split_once(mark).map(|(_, rest)| rest);
    let signal = i32::try_from(after("exited on signal ").and_then(leading_number)?).ok()?;
    let host = after(" on node ").and_then(|rest| rest.split_whitespace().next()).and_then(host);
    // Open MPI 4 prints PID 0 for processes of other nodes.
    let pid = after(" with PID ").and_then(leading_number).filter(|&pid| pid > 0);
    Some(ListedRank { rank, local_rank: None, host, pid, exit_code: -signal, is_first: true })
}

/// A local rank and how it ended, in a single line of torchrun or `DeepSpeed`:
///
/// ```text
/// failed (exitcode: -11) local_rank: 2 (pid: 4711) of binary: /usr/bin/python
/// ['/usr/bin/python', '-u', 'train.py', '--local_rank=2'] exits with return code = -11
/// ```
pub fn ended_local_rank(line: &str) -> Option<(u32, Option<u32>, i32)> {
    let after = |mark: &str| line.split_once(mark).map(|(_, rest)| rest);
    let code = |text: &str| {
        let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(text.len());
        text.get(..end)?.parse().ok()
    };
    if let Some(rest) = after("failed (exitcode: ") {
        let (_, place) = rest.split_once("local_rank: ")?;
        let pid = place.split_once("(pid: ").and_then(|(_, rest)| leading_number(rest));
        return Some((leading_number(place)?, pid, code(rest)?));
    }
    let status = code(after("exits with return code = ")?)?;
    Some((after("--local_rank=").and_then(leading_number)?, None, status))
}

/// The start of a text, at most this many bytes.
pub(super) fn clipped(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The number at the start of a text.
pub(super) fn leading_number(text: &str) -> Option<u32> {
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
        let found: Vec<ListedRank> = text.lines().flat_map(|line| list.read(line)).collect();
        let rank = |rank, local, host: &str, pid, exit_code, is_first| ListedRank {
            rank,
            local_rank: Some(local),
            host: Some(Arc::from(host)),
            pid: Some(pid),
            exit_code,
            is_first,
        };
        assert_eq!(found, [rank(9, 1, "n2", 3, 1, false), rank(5, 5, "node7", 2, -9, true)]);
    }

    fn ended_ranks(line: &str) -> Vec<ListedRank> {
        FailureList::default().read(line)
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
        let mut list = FailureList::default();
        let report = "  Process name: [[61234,1],12]\n  Exit code:    3\n  Exit code:    4\n";
        let found: Vec<_> = report.lines().flat_map(|line| list.read(line)).collect();
        assert_eq!(found.iter().map(|one| (one.rank, one.exit_code)).collect::<Vec<_>>(), [(12, 3)]);
        let torchrun = "E] failed (exitcode: -11) local_rank: 2 (pid: 4711) of binary: /usr/bin/python";
        assert_eq!(ended_local_rank(torchrun), Some((2, Some(4711), -11)));
        let deepspeed = "['python', '--local_rank=2'] exits with return code = -9";
        assert_eq!(ended_local_rank(deepspeed), Some((2, None, -9)));
        for line in ["failed (exitcode: -) local_rank: 2", "exits with return code = 1", "--local_rank=2", ""]
        {
            assert_eq!(ended_local_rank(line), None, "{line}");
        }
        for line in [
            "srun: error: node7: task x: Terminated",
            "srun: error: n: tasks 0-4294967295: Terminate",
            "srun: error: Unable to create step",
            "noticed that process rank 2",
            "",
        ] {
            assert!(ended_ranks(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn a_hostile_log_has_one_budget() {
        let host = format!("{}é", "h".repeat(16 << 10));
        let mut list = FailureList::default();
        let mut expanded = 0;
        for _ in 0..100 {
            let listed = list.read(&format!("srun: error: {host}: tasks 0-4294967295,0-9: Terminated"));
            let hosts: Vec<&Arc<str>> = listed.iter().filter_map(|listed| listed.host.as_ref()).collect();
            assert_eq!(hosts.len(), listed.len());
            assert!(hosts.iter().all(|host| host.len() <= LONGEST_HOST && Arc::ptr_eq(host, hosts[0])));
            expanded += listed.len();
        }
        assert_eq!(expanded, FailureList::MOST_TASKS);
        // Launchers that name single ranks are still read.
        let line = "prterun noticed that process rank 2 with PID 4711 on node n exited on signal 9 (Killed).";
        assert_eq!(list.read(line).len(), 1);
        let torchrun =
            format!("Failures:\n host : é{host}\n rank : 1 (local_rank: 1)\n exitcode : 1 (pid: 3)");
        let found: Vec<ListedRank> = torchrun.lines().flat_map(|line| list.read(line)).collect();
        assert!(found[0].host.as_ref().is_some_and(|host| host.len() <= LONGEST_HOST));
    }
}
