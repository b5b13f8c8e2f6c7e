//! A job of several ranks in one log: which rank failed first, on which host, and whether the others failed for
//! the same reason.
//!
//! | launcher | what is read |
//! |---|---|
//! | torchrun | `[rank3]:`, `[default3]:`; `Root Cause (first observed failure):` with `rank`, `host`, `exitcode` |
//! | srun -l, mpirun | `3: …`, `[1,3]<stderr>:` |
//! | Ray | `(RayWorkerWrapper pid=123, ip=10.0.0.4)`, `(train_fn rank=3 pid=…)` |

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::figures::{captured_number, pattern};
use super::log::{Log, split_prefix};

/// A failure in the log: the line and whether it is about memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureAt {
    pub(crate) line: usize,
}

static RANK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^\[(?:default|rank ?)?(\d+)\]:?$|^\[\d+,(\d+)\](?:<\w+>)?:?$|^(\d{1,4}):$|\brank=(\d+)")
});
static HOST: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bip=([\w.:-]+)"));
static ROOT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Root Cause \(first observed failure\)"));
static FIELD: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(rank|host|exitcode|error_file|traceback)\s*: (.+?)\s*$"));
static EXIT: LazyLock<Regex> = LazyLock::new(|| pattern(r"exitcode\s*: (-?\d+)"));

/// A rank that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rank {
    number: u64,
    host: Option<String>,
}

/// A sentence about the ranks of a job, and how many ranks failed after the first; `None` for a log of one process.
pub(crate) fn note(log: &Log, failures: &[FailureAt]) -> Option<(String, usize)> {
    let mut ranks: Vec<Rank> = Vec::new();
    for failure in failures {
        if let Some(rank) = rank_of(log.line(failure.line))
            && ranks.iter().all(|known| known.number != rank.number)
        {
            ranks.push(rank);
        }
    }
    let root = root_cause(log);
    let others = later_exits(log);
    let first = root.clone().or_else(|| ranks.first().cloned())?;
    let host = first.host.or_else(|| ranks.iter().find(|rank| rank.number == first.number)?.host.clone());
    let on = host.map_or(String::new(), |host| format!(" on {host}"));
    let same: BTreeSet<u64> =
        ranks.iter().map(|rank| rank.number).filter(|&rank| rank != first.number).collect();
    let mut sentence = format!("rank {}{on} failed first", first.number);
    if !same.is_empty() {
        sentence.push_str(&format!("; {} also ran out of memory", listed(&same)));
    }
    let rest = others.saturating_sub(same.len());
    if rest > 0 {
        let plural = if rest == 1 { "" } else { "es" };
        sentence.push_str(&format!("; the launcher lists {rest} more failed process{plural}"));
    }
    Some((sentence, same.len()))
}

fn listed(ranks: &BTreeSet<u64>) -> String {
    let count = ranks.len();
    let names: Vec<String> = ranks.iter().take(8).map(u64::to_string).collect();
    let more = if count > 8 { format!(" and {} more", count - 8) } else { String::new() };
    format!("rank{} {}{more}", if count == 1 { "" } else { "s" }, names.join(", "))
}

/// The rank that a line's prefix names.
fn rank_of(line: &str) -> Option<Rank> {
    let (writer, body) = split_prefix(line);
    // Stack traces number their frames: `3: 0x55d4c8`.
    let writer = writer.filter(|_| !body.trim_start().starts_with("0x"))?;
    let found = RANK.captures(writer)?;
    let number = (1..=4).find_map(|group| captured_number(&found, group))?;
    Some(Rank { number, host: HOST.captures(writer).map(|host| host[1].to_owned()) })
}

/// The rank that torchrun names as the first to fail.
fn root_cause(log: &Log) -> Option<Rank> {
    let (mut number, mut host) = (None, None);
    for index in block_after(log, &ROOT)? {
        let (_, body) = split_prefix(log.line(index));
        let Some(found) = FIELD.captures(body) else { continue };
        match &found[1] {
            "rank" => number = found[2].split_whitespace().next().and_then(|digits| digits.parse().ok()),
            "host" => host = Some(found[2].to_owned()),
            _ => {}
        }
    }
    Some(Rank { number: number?, host })
}

/// How many failed processes torchrun lists after the first.
fn later_exits(log: &Log) -> usize {
    static FAILURES: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\W*Failures:\s*$"));
    block_after(log, &FAILURES).map_or(0, |lines| {
        lines
            .take_while(|&index| !ROOT.is_match(log.line(index)))
            .filter(|&index| EXIT.is_match(log.line(index)))
            .count()
    })
}

/// The lines below the last line that matches, as far as a launcher's report reaches.
fn block_after(log: &Log, heading: &Regex) -> Option<std::ops::Range<usize>> {
    /// A report has a few lines for each rank.
    const LONGEST_REPORT: usize = 4000;
    let from = log.len().saturating_sub(LONGEST_REPORT);
    let start = (from..log.len()).rev().find(|&index| heading.is_match(log.line(index)))?;
    Some(start + 1..log.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_of(text: &str, lines: &[usize]) -> Option<String> {
        let failures: Vec<FailureAt> = lines.iter().map(|&line| FailureAt { line }).collect();
        note(&Log::new(text), &failures).map(|(sentence, _)| sentence)
    }

    #[test]
    fn ranks_and_their_hosts_are_named() {
        assert_eq!(
            note_of("[rank3]: CUDA out of memory\n[rank1]: CUDA out of memory", &[0, 1]).as_deref(),
            Some("rank 3 failed first; rank 1 also ran out of memory")
        );
        let report = "[rank5]: CUDA out of memory\n train.py FAILED\nFailures:\n[1]:\n  time : x\n  host : n2\n  rank : 9 (local_rank: 1)\n  exitcode : 1 (pid: 3)\nRoot Cause (first observed failure):\n[0]:\n  host      : node7\n  rank      : 5 (local_rank: 5)\n  exitcode  : 1 (pid: 2)\n";
        assert_eq!(
            note_of(report, &[0]).as_deref(),
            Some("rank 5 on node7 failed first; the launcher lists 1 more failed process")
        );
        assert_eq!(note_of("CUDA out of memory", &[0]), None);
    }
}
