//! Reads an identity from the name of a snapshot, a log or a recording.
//!
//! A name is cut into words and numbers: `node7/attempt_0/oom_rank-3.pickle` has the pairs *node 7*, *attempt 0* and
//! *rank 3*. The file's own name counts before its folder's. Bare numbers mean something only in the layouts of known
//! launchers (torchrun's `attempt_0/3/stderr.log`, Slurm's `4711_3.out`), or in comparison with other files:
//! [`identities_of_set`] takes the number in which the names of a folder differ.

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::pod_name;
use super::{JobField, JobIdentity};

/// A longer path is not read.
const LONGEST_PATH: usize = 4096;
/// Folders above the file that are read.
const MOST_FOLDERS: usize = 6;

/// Words before a number, and the field that they name.
const WORDS: &[(&str, JobField)] = &[
    ("rank", JobField::Rank),
    ("globalrank", JobField::Rank),
    ("r", JobField::Rank),
    ("localrank", JobField::LocalRank),
    ("node", JobField::NodeRank),
    ("noderank", JobField::NodeRank),
    ("attempt", JobField::Attempt),
    ("restart", JobField::Attempt),
    ("retry", JobField::Attempt),
    ("job", JobField::JobId),
    ("jobid", JobField::JobId),
    ("slurm", JobField::JobId),
    ("task", JobField::Task),
    ("replica", JobField::Replica),
    ("worldsize", JobField::WorldSize),
    ("world", JobField::WorldSize),
    ("ws", JobField::WorldSize),
];
/// The name of torchrun's log files, which lie in `attempt_N/LOCAL_RANK/`.
const TORCHRUN_LOGS: [&str; 3] = ["stderr.log", "stdout.log", "error.json"];
/// Fewest digits of a Slurm job in a name without any word.
const LEAST_JOB_DIGITS: usize = 3;

/// A part of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'name> {
    Word(&'name str),
    Number(&'name str),
}

impl JobIdentity {
    /// The identity in the path of a file.
    pub fn from_file_name(path: &str) -> Self {
        let mut identity = Self::default();
        if path.len() > LONGEST_PATH {
            return identity;
        }
        let mut parts = path.rsplit('/').filter(|part| !matches!(*part, "" | "." | ".."));
        let Some(file) = parts.next() else { return identity };
        let folders: Vec<&str> = parts.take(MOST_FOLDERS).collect();
        read_name(&mut identity, file);
        read_slurm(&mut identity, file);
        read_torchrun(&mut identity, file, &folders);
        for folder in folders {
            let mut of_folder = Self::default();
            read_name(&mut of_folder, folder);
            // A folder `host-a/rank3` and a file `rank5` cannot both be right about the rank; the file is nearer.
            identity = identity.or(&of_folder);
        }
        identity
    }
}

/// Identities of the files of one job, in the order of the paths: those of [`JobIdentity::from_file_name`], and for
/// files without a rank the number in which the names in their folder differ (`oom_0.pickle`, `oom_1.pickle`). The
/// number in `job_0.txt` and `job_1.txt` is a rank too: jobs have longer numbers, which do not start at 0. Files that are
/// named after pods have the rank that their operator gave them.
pub fn identities_of_set(paths: &[&str]) -> Vec<JobIdentity> {
    let mut identities: Vec<JobIdentity> =
        paths.iter().map(|path| JobIdentity::from_file_name(path)).collect();
    let is_readable = |path: &&str| path.len() <= LONGEST_PATH;
    let readable: Vec<&str> = paths.iter().map(|path| if is_readable(path) { *path } else { "" }).collect();
    for (identity, of_pod) in identities.iter_mut().zip(pod_name::identities(&readable)) {
        if let Some(of_pod) = of_pod.filter(|_| identity.is_alone()) {
            *identity = of_pod;
        }
    }
    let mut sets: OrderedMap<(String, usize), Vec<(usize, u32)>> = OrderedMap::new();
    for (index, path) in paths.iter().enumerate().filter(|(_, path)| path.len() <= LONGEST_PATH) {
        let is_alone = identities.get(index).is_some_and(JobIdentity::is_alone);
        if is_alone && !is_array_task(path) {
            for (pattern, position, number) in patterns(path) {
                sets.entry((pattern, position)).or_default().push((index, number));
            }
        }
    }
    // The largest set first: a file belongs to one.
    let mut sets: Vec<_> = sets.into_iter().filter(|(_, set)| is_numbering(set)).collect();
    sets.sort_by_key(|(_, set)| std::cmp::Reverse(set.len()));
    for ((pattern, _), set) in sets {
        // The number is not that of a job or a task.
        let others = JobIdentity::from_file_name(&pattern);
        for (index, number) in set {
            if let Some(identity) = identities.get_mut(index).filter(|identity| identity.is_alone()) {
                *identity = others.clone();
                identity.set(JobField::Rank, &number.to_string());
            }
        }
    }
    identities
}

/// Whether Slurm numbered the file of a task of an array, which is a job of its own: `slurm-4711_3.out`.
fn is_array_task(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or(path);
    let mut identity = JobIdentity::default();
    read_slurm(&mut identity, file);
    identity.task.is_some()
}

/// Whether the numbers look like ranks: two or more, each once, from 0 or 1, with few gaps.
fn is_numbering(set: &[(usize, u32)]) -> bool {
    let numbers: OrderedSet<u32> = set.iter().map(|&(_, number)| number).collect();
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return false };
    let is_dense = (last as usize) < numbers.len().saturating_mul(2);
    numbers.len() >= 2 && numbers.len() == set.len() && first <= 1 && is_dense
}

/// Each number of a file's name, with the path without that number.
fn patterns(path: &str) -> Vec<(String, usize, u32)> {
    let start = path.rfind('/').map_or(0, |slash| slash + 1);
    let (folder, file) = path.split_at(start);
    let tokens = tokens(file);
    // The number in `node1.log` is that of a node.
    let is_known = |word: &str| {
        let known = WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
        known.is_some_and(|(_, field)| !matches!(field, JobField::JobId | JobField::Task))
    };
    let numbers = tokens.iter().enumerate().filter_map(|(index, &(offset, token))| {
        let before = index.checked_sub(1).and_then(|before| tokens.get(before)).map(|(_, token)| *token);
        match (token, before) {
            (Token::Number(_), Some(Token::Word(word))) if is_known(word) => None,
            (Token::Number(digits), _) => Some((offset, digits)),
            (Token::Word(_), _) => None,
        }
    });
    numbers
        .enumerate()
        .filter_map(|(position, (offset, digits))| {
            let (before, rest) = file.split_at_checked(offset)?;
            let pattern = format!("{folder}{before}\0{}", rest.get(digits.len()..)?);
            Some((pattern, position, digits.parse().ok()?))
        })
        .collect()
}

/// Reads pairs of a word and a number.
fn read_name(identity: &mut JobIdentity, name: &str) {
    let tokens: Vec<Token<'_>> = tokens(name).into_iter().map(|(_, token)| token).collect();
    for (index, window) in tokens.windows(2).enumerate() {
        let [Token::Word(word), Token::Number(number)] = *window else { continue };
        // `local_rank_3`, `world-size-8`: two words that are one name.
        let earlier = index.checked_sub(1).and_then(|before| tokens.get(before));
        let joined = match earlier {
            Some(Token::Word(earlier)) => format!("{earlier}{word}").to_ascii_lowercase(),
            _ => String::new(),
        };
        let word = word.to_ascii_lowercase();
        let known = |name: &str| WORDS.iter().find(|(known, _)| *known == name).map(|&(_, field)| field);
        if let Some(field) = known(&joined).or_else(|| known(&word)) {
            let is_rank = field == JobField::Rank;
            let is_new = identity.get(field).is_none() && identity.set(field, number);
            // `rank3of8`, `rank_3_of_8`.
            if let (true, Some([Token::Word(of), Token::Number(size)])) =
                (is_new && is_rank, tokens.get(index + 2..index + 4))
                && of.eq_ignore_ascii_case("of")
            {
                identity.set(JobField::WorldSize, size);
            }
            if field == JobField::NodeRank && is_new && identity.node.is_none() {
                identity.set(JobField::Node, &format!("{word}{number}"));
            }
        }
    }
}

/// Slurm's `%j_%t` (`4711_3.out`: job and rank) and its default for arrays `slurm-%A_%a` (job and array index).
fn read_slurm(identity: &mut JobIdentity, file: &str) {
    let stem = file.split('.').next().unwrap_or_default();
    let (numbers, field, digits) = match stem.strip_prefix("slurm-") {
        Some(rest) => (rest, JobField::Task, 1),
        None => (stem, JobField::Rank, LEAST_JOB_DIGITS),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((job, number)) = numbers.split_once(['_', '-'])
        && is_number(job)
        && is_number(number)
        && job.len() >= digits
        && identity.get(field).is_none()
        && identity.set(field, number)
    {
        identity.set(JobField::JobId, job);
    }
}

/// torchrun's `--log-dir`: `…/attempt_0/3/stderr.log`.
fn read_torchrun(identity: &mut JobIdentity, file: &str, folders: &[&str]) {
    if let [local, attempt, ..] = *folders
        && TORCHRUN_LOGS.contains(&file)
        && attempt.strip_prefix("attempt_").is_some_and(|count| identity.set(JobField::Attempt, count))
    {
        identity.set(JobField::LocalRank, local);
    }
}

/// Cuts a name into words of letters and numbers of digits, with their offsets.
fn tokens(name: &str) -> Vec<(usize, Token<'_>)> {
    let mut tokens = Vec::new();
    let mut start = 0;
    let class = |byte: u8| match byte {
        b'0'..=b'9' => 1,
        b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => 2,
        _ => 0,
    };
    for piece in name.as_bytes().chunk_by(|&one, &next| class(one) == class(next)) {
        let end = start + piece.len();
        // Cuts are next to ASCII bytes, or at the ends.
        let text = name.get(start..end).unwrap_or_default();
        match piece.first().map(|&byte| class(byte)) {
            Some(1) => tokens.push((start, Token::Number(text))),
            Some(2) => tokens.push((start, Token::Word(text))),
            _ => {}
        }
        start = end;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_snapshots_and_logs_are_read() {
        let rank = |path: &str| JobIdentity::from_file_name(path).rank;
        for path in [
            "rank3.pickle",
            "rank_3.pickle",
            "oom-rank-3.pickle",
            "oom_r3.log",
            "/data/rank3_memory_snapshot.pickle",
            "snapshot.Rank03.pkl.gz",
            "run/rank3/snapshot.pickle",
            "iteration_100/rank3/dump.pickle",
            "job.room.rank3",
            "global_rank_3.log",
            "4711_3.out",
            "rank3of8.pickle",
        ] {
            assert_eq!(rank(path), Some(3), "{path}");
        }
        for path in [
            "",
            "/",
            "snapshot.pickle",
            "user3.log",
            "3.pickle",
            "frank3.log",
            "2024-11-15.log",
            "rank.log",
            "rank99999999999.log",
        ] {
            assert_eq!(rank(path), None, "{path}");
        }
    }

    #[test]
    fn the_other_fields_are_read_too() {
        let identity =
            JobIdentity::from_file_name("job4711/attempt_2/node7/local_rank_3_world_size_16.pickle");
        assert_eq!(identity.job_id.as_deref(), Some("4711"));
        assert_eq!((identity.attempt, identity.node_rank), (Some(2), Some(7)));
        assert_eq!(identity.node.as_deref(), Some("node7"));
        assert_eq!((identity.rank, identity.local_rank, identity.world_size), (None, Some(3), Some(16)));
        assert_eq!(JobIdentity::from_file_name("rank_3_of_8.room").world_size, Some(8));
    }

    #[test]
    fn the_layouts_of_launchers_are_known() {
        let torchrun = JobIdentity::from_file_name("/logs/none_x1y2/attempt_1/3/stderr.log");
        assert_eq!((torchrun.attempt, torchrun.local_rank, torchrun.rank), (Some(1), Some(3), None));
        let array = JobIdentity::from_file_name("slurm-4711_3.out");
        assert_eq!((array.job_id.as_deref(), array.task, array.rank), (Some("4711"), Some(3), None));
        assert_eq!(JobIdentity::from_file_name("slurm-4711.out").job_id.as_deref(), Some("4711"));
    }

    #[test]
    fn the_file_counts_before_its_folder() {
        assert_eq!(JobIdentity::from_file_name("rank1/rank2.log").rank, Some(2));
    }

    #[test]
    fn a_set_is_numbered_by_the_number_that_differs() {
        let ranks = |paths: &[&str]| -> Vec<Option<u32>> {
            identities_of_set(paths).into_iter().map(|identity| identity.rank).collect()
        };
        assert_eq!(
            ranks(&["d/oom_1.pickle", "d/oom_0.pickle", "d/oom_3.pickle"]),
            [Some(1), Some(0), Some(3)]
        );
        assert_eq!(ranks(&["oom_20241115_0.pickle", "oom_20241115_1.pickle"]), [Some(0), Some(1)]);
        assert_eq!(ranks(&["oom_17.pickle"]), [None], "one file is not a set");
        assert_eq!(ranks(&["iter_100.pickle", "iter_200.pickle"]), [None, None], "these are steps");
        assert_eq!(ranks(&["a_0.pickle", "b/a_1.pickle"]), [None, None], "different folders");
        assert_eq!(ranks(&["rank5.pickle", "x_0.log", "x_1.log"]), [Some(5), Some(0), Some(1)]);
        assert_eq!(ranks(&["node0.log", "node1.log"]), [None, None], "these are nodes");
        assert_eq!(ranks(&["attempt_0.log", "attempt_1.log"]), [None, None], "these are attempts");
        assert_eq!(ranks(&["slurm-77_0.out", "slurm-77_1.out"]), [None, None], "these are tasks of an array");
        assert_eq!(ranks(&["job_4711.txt", "job_4712.txt"]), [None, None], "these are jobs");
        let jobs = identities_of_set(&["job77/job_0.txt", "job77/job_1.txt", "job_5.txt"]);
        let jobs: Vec<_> = jobs.iter().map(|one| (one.rank, one.job_id.as_deref())).collect();
        assert_eq!(jobs, [(Some(0), Some("77")), (Some(1), Some("77")), (None, Some("5"))]);
        let pods = ["llm-master-0.log", "llm-worker-0.log", "llm-worker-1.log"];
        assert_eq!(ranks(&pods), [Some(0), Some(1), Some(2)]);
        let tasks = identities_of_set(&["task0.log", "task1.log"]);
        assert_eq!((tasks[1].rank, tasks[1].task), (Some(1), None));
    }

    #[test]
    fn hostile_names_are_read_in_linear_time() {
        let began = std::time::Instant::now();
        let long = "rank1_".repeat(4000);
        assert_eq!(JobIdentity::from_file_name(&long), JobIdentity::default());
        let names: Vec<String> = (0..2000).map(|number| format!("é{}_{number}", "1_".repeat(30))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(identities_of_set(&names).len(), names.len());
        for name in ["é3rank", "rank\u{301}3", "\u{202e}rank3\0", "rank3\n", "////", "rank/3"] {
            let _ = JobIdentity::from_file_name(name);
        }
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }
}
