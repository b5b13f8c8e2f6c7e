//! A job of several ranks in one log: which rank failed first, on which host, and whether the others failed for
//! the same reason.
//!
//! `LinePrefix` and `FailureList` of `makeroom-core` read the lines, as in `makeroom job`.

use makeroom_core::identity::{FailureList, LinePrefix, ListedRank};
use makeroom_ordered::OrderedSet;

use crate::log::{Log, split_prefix};

/// A failure in the log: the line and whether it is about memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FailureAt {
    pub(crate) line: usize,
}

/// A rank that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rank {
    number: u32,
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
    let exits = listed_ranks(log);
    let root = exits.iter().rfind(|exit| exit.is_first);
    let root = root.map(|exit| Rank { number: exit.rank, host: exit.host.as_deref().map(str::to_owned) });
    let others = exits.iter().filter(|exit| !exit.is_first).count();
    let first = root.or_else(|| ranks.first().cloned())?;
    let host = first.host.or_else(|| ranks.iter().find(|rank| rank.number == first.number)?.host.clone());
    let on = host.map_or(String::new(), |host| format!(" on {host}"));
    let same: OrderedSet<u32> =
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

fn listed(ranks: &OrderedSet<u32>) -> String {
    let count = ranks.len();
    let names: Vec<String> = ranks.iter().take(8).map(u32::to_string).collect();
    let more = if count > 8 { format!(" and {} more", count - 8) } else { String::new() };
    format!("rank{} {}{more}", if count == 1 { "" } else { "s" }, names.join(", "))
}

/// The rank that a line's prefix names.
fn rank_of(line: &str) -> Option<Rank> {
    let (writer, body) = split_prefix(line);
    // Stack traces number their frames: `3: 0x55d4c8`.
    let writer = writer.filter(|_| !body.trim_start().starts_with("0x"))?;
    let job = LinePrefix::read(writer, true)?.job;
    Some(Rank { number: job.rank.or(job.local_rank)?, host: job.host })
}

/// The ranks that torchrun lists as failed, if the log ends with such a list.
fn listed_ranks(log: &Log) -> Vec<ListedRank> {
    /// A report has a few lines for each rank.
    const LONGEST_REPORT: usize = 4000;
    let mut list = FailureList::default();
    let lines = log.len().saturating_sub(LONGEST_REPORT)..log.len();
    lines.filter_map(|index| list.read_torchrun(split_prefix(log.line(index)).1)).collect()
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
