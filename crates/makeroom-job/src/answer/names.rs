//! Names of ranks in sentences: `ranks 0–2, 4 and 9–15`.

use makeroom_ordered::OrderedMap;

use super::select::Process;

/// Ranges that are written out.
const MOST_RANGES: usize = 6;

/// A part of a list of processes: words of makeroom, and then the name of a file or host, whose case stays.
struct Part {
    own: String,
    name: String,
}

/// The processes in a few words.
pub(super) fn words(processes: &[&Process<'_>]) -> String {
    listed(&parts(processes).into_iter().map(|part| part.own + &part.name).collect::<Vec<_>>())
}

/// The same in capitals, except for names of files and hosts.
pub(super) fn title(processes: &[&Process<'_>]) -> String {
    let parts: Vec<String> =
        parts(processes).into_iter().map(|part| part.own.to_uppercase() + &part.name).collect();
    joined(&parts, " AND ")
}

/// A sentence that starts with a name of a process: the name of a file keeps its case.
pub(super) fn capital(text: &str) -> String {
    let is_number = |rest: &str| rest.starts_with(|letter: char| letter.is_ascii_digit());
    let is_own = text.starts_with("a process in ")
        || text.starts_with("pod ")
        || text.starts_with("pods ")
        || ["rank ", "ranks ", "local rank ", "local ranks ", "process "]
            .iter()
            .any(|word| text.strip_prefix(word).is_some_and(is_number));
    let mut letters = text.chars();
    match letters.next().filter(|_| is_own) {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => text.to_owned(),
    }
}

fn parts(processes: &[&Process<'_>]) -> Vec<Part> {
    let mut ranks: Vec<u32> = Vec::new();
    let mut local: OrderedMap<Option<&str>, Vec<u32>> = OrderedMap::new();
    let mut others: Vec<Part> = Vec::new();
    let mut pods: Vec<&str> = Vec::new();
    for process in processes {
        let row = process.row;
        match (process.rank, row.local_rank) {
            (Some(rank), _) if process.label == format!("rank {rank}") => ranks.push(rank),
            (None, Some(rank)) => local.entry(row.host.as_deref()).or_default().push(rank),
            _ => match process.label.strip_prefix("pod ").filter(|_| row.process.is_some()) {
                Some(pod) => pods.push(pod),
                None => others.push(part(process)),
            },
        }
    }
    let plain = |own: String| Part { own, name: String::new() };
    let mut parts: Vec<Part> = Vec::new();
    if !ranks.is_empty() {
        parts.push(plain(rank_words(ranks)));
    }
    let of_host = |(host, ranks): (Option<&str>, Vec<u32>)| match host {
        Some(host) => Part { own: format!("local {} of ", rank_words(ranks)), name: host.to_owned() },
        None => plain(format!("local {}", rank_words(ranks))),
    };
    others.splice(0..0, local.into_iter().map(of_host));
    let noun = if pods.len() == 1 { "pod " } else { "pods " };
    let pod = |(index, pod): (usize, &&str)| Part {
        own: if index == 0 { noun.to_owned() } else { String::new() },
        name: (*pod).to_owned(),
    };
    others.splice(0..0, pods.iter().enumerate().map(pod));
    let rest = others.len().saturating_sub(MOST_RANGES);
    others.truncate(MOST_RANGES);
    parts.extend(others);
    if rest > 0 {
        parts.push(plain(format!("{rest} more")));
    }
    parts
}

/// The label of a process without a rank, which ends with the name of its file or host.
fn part(process: &Process<'_>) -> Part {
    let label = process.label.as_str();
    let file = process.row.file().rsplit('/').next();
    let names = [process.row.host.as_deref(), file];
    let name = names.into_iter().flatten().find(|name| label.ends_with(name)).unwrap_or("");
    let own = label.strip_suffix(name).unwrap_or(label);
    Part { own: own.to_owned(), name: name.to_owned() }
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
    joined(parts, " and ")
}

fn joined(parts: &[String], and: &str) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{}{and}{last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_file_names_stays() {
        assert_eq!(capital("rank 3"), "Rank 3");
        assert_eq!(capital("a process in job.log"), "A process in job.log");
        assert_eq!(capital("pod train-worker-0"), "Pod train-worker-0");
        assert_eq!(capital("local ranks 0 and 1 of node7"), "Local ranks 0 and 1 of node7");
        for file in
            ["accelerate.log", "ranks.log", "process_3.log", "rank notes.txt", "émile.room", "pods.log", ""]
        {
            assert_eq!(capital(file), file);
        }
    }

    #[test]
    fn ranks_are_written_as_ranges() {
        assert_eq!(rank_words(vec![3]), "rank 3");
        assert_eq!(rank_words(vec![1, 0]), "ranks 0 and 1");
        assert_eq!(rank_words(vec![9, 0, 2, 1, 4, 10, 11]), "ranks 0–2, 4 and 9–11");
        assert_eq!(rank_words((0..20).map(|rank| 2 * rank).collect()), "ranks 0, 2, 4, 6, 8, 10 and 14 more");
    }
}
