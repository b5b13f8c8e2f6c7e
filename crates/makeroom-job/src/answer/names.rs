//! Names of ranks in sentences: `ranks 0–2, 4 and 9–15`.

use super::select::Process;

/// Ranges that are written out.
const MOST_RANGES: usize = 6;

/// The processes in a few words.
pub(super) fn words(processes: &[&Process<'_>]) -> String {
    let mut ranks: Vec<u32> = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    for process in processes {
        match process.row.rank {
            Some(rank) if process.label == format!("rank {rank}") => ranks.push(rank),
            _ => others.push(&process.label),
        }
    }
    let rest = others.len().saturating_sub(MOST_RANGES);
    let mut parts: Vec<String> = Vec::new();
    if !ranks.is_empty() {
        parts.push(rank_words(ranks));
    }
    parts.extend(others.iter().take(MOST_RANGES).map(|&label| label.to_owned()));
    if rest > 0 {
        parts.push(format!("{rest} more"));
    }
    listed(&parts)
}

/// `rank 3`, or `ranks 0–2, 4 and 9–15`.
pub(super) fn rank_words(mut ranks: Vec<u32>) -> String {
    ranks.sort_unstable();
    ranks.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in &ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let written = |&(first, last): &(u32, u32)| match last - first {
        0 => vec![first.to_string()],
        1 => vec![first.to_string(), last.to_string()],
        _ => vec![format!("{first}–{last}")],
    };
    let mut parts: Vec<String> = ranges.iter().take(MOST_RANGES).flat_map(written).collect();
    if ranges.len() > MOST_RANGES {
        let rest: u32 = ranges[MOST_RANGES..].iter().map(|(first, last)| last - first + 1).sum();
        parts.push(format!("{rest} more"));
    }
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, listed(&parts))
}

/// `a, b and c`.
pub(super) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_written_as_ranges() {
        assert_eq!(rank_words(vec![3]), "rank 3");
        assert_eq!(rank_words(vec![1, 0]), "ranks 0 and 1");
        assert_eq!(rank_words(vec![9, 0, 2, 1, 4, 10, 11]), "ranks 0–2, 4 and 9–11");
        assert_eq!(rank_words((0..20).map(|rank| 2 * rank).collect()), "ranks 0, 2, 4, 6, 8, 10 and 14 more");
    }
}
