//! Ranks from the names of pods, for files that are named after them. Operators number pods in different ways:
//!
//! | operator | pods | rank |
//! |---|---|---|
//! | `PyTorchJob`, `TFJob` | `llm-master-0`, `llm-worker-0` | the master is rank 0, worker N is rank N + 1 |
//! | indexed Job | `llm-3-x7k2b` | the index |
//! | `JobSet`, Kubeflow Trainer | `llm-node-0-3-x7k2b` | the index of the job, then that of the pod, if no pod is missing |
//! | `LeaderWorkerSet` | `vllm-0`, `vllm-0-1` | the leader of group 0 is its rank 0; each group is a replica |
//!
//! The pods of a `StatefulSet`, and workers without a master, have only one number: see `identities_of_set`. Pods of Ray and
//! the launcher of an `MPIJob` have no number. A pod with several processes names their ranks in its lines, which count more.

use makeroom_ordered::{OrderedMap, OrderedSet};

use super::{JobField, JobIdentity};

/// Pods that are rank 0 of a job with numbered workers.
const FIRST: [&str; 2] = ["master", "chief"];
/// Letters of the suffix that Kubernetes generates.
const RANDOM: &str = "bcdfghjklmnpqrstvwxz2456789";
const RANDOM_LENGTH: usize = 5;

/// The part of a job that a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    First(u32),
    Worker(u32),
    /// The index of a job and of a pod in it.
    Indexed(u32, u32),
    Leader(u32),
    Member(u32, u32),
}

/// The identities of the files that are named after pods; `None` for others.
pub(super) fn identities(paths: &[&str]) -> Vec<Option<JobIdentity>> {
    let mut jobs: OrderedMap<(&str, String), Vec<(usize, Part)>> = OrderedMap::new();
    for (index, path) in paths.iter().enumerate() {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        for (job, part) in parts(pod(file)) {
            jobs.entry((folder, job)).or_default().push((index, part));
        }
    }
    let mut identities = vec![None; paths.len()];
    for parts in jobs.into_values() {
        for (index, rank, replica) in ranks(&parts) {
            let mut identity = JobIdentity::default();
            let name = pod(paths[index].rsplit('/').next().unwrap_or_default());
            identity.set(JobField::Rank, &rank.to_string());
            identity.set(JobField::Pod, name);
            identity.set(JobField::Host, name);
            if let Some(replica) = replica {
                identity.set(JobField::Replica, &replica.to_string());
            }
            identities[index] = Some(identity);
        }
    }
    identities
}

/// The name of the pod in that of a file: `llm-worker-0.log`, `llm-worker-0_main.log`.
fn pod(file: &str) -> &str {
    file.split(['.', '_']).next().unwrap_or_default()
}

/// The parts of jobs that a pod can be.
fn parts(pod: &str) -> Vec<(String, Part)> {
    let words: Vec<&str> = pod.split('-').collect();
    let number =
        |word: &str| word.parse::<u32>().ok().filter(|_| word.bytes().all(|byte| byte.is_ascii_digit()));
    let job = |kind: &str, words: &[&str]| format!("{kind}:{}", words.join("-"));
    match words.as_slice() {
        [name @ .., role, index] if number(index).is_some() && FIRST.contains(role) => {
            number(index).map(|index| (job("roles", name), Part::First(index))).into_iter().collect()
        }
        [name @ .., "worker", index] if number(index).is_some() => {
            number(index).map(|index| (job("roles", name), Part::Worker(index))).into_iter().collect()
        }
        [name @ .., index, suffix] if is_random(suffix) && number(index).is_some() => {
            let Some(index) = number(index) else { return Vec::new() };
            match name {
                [name @ .., outer] if number(outer).is_some() => {
                    let outer = number(outer).unwrap_or_default();
                    vec![(job("indexed", name), Part::Indexed(outer, index))]
                }
                name => vec![(job("indexed", name), Part::Indexed(0, index))],
            }
        }
        [name @ .., group, index] if number(group).is_some() && number(index).is_some() => {
            let member = number(group).zip(number(index));
            member
                .map(|(group, index)| (job("groups", name), Part::Member(group, index)))
                .into_iter()
                .collect()
        }
        [name @ .., group] if !name.is_empty() => {
            number(group).map(|group| (job("groups", name), Part::Leader(group))).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The rank and the replica of each pod of a job; none if two pods would have the same.
fn ranks(parts: &[(usize, Part)]) -> Vec<(usize, u32, Option<u32>)> {
    let has_first = parts.iter().any(|(_, part)| matches!(part, Part::First(_)));
    let leader = |(_, part): &(usize, Part)| if let Part::Leader(group) = part { Some(*group) } else { None };
    let led: OrderedSet<u32> = parts.iter().filter_map(leader).collect();
    let is_led = |part: &Part| matches!(part, Part::Member(group, _) if led.contains(group));
    let has_members = parts.iter().any(|(_, part)| is_led(part));
    let groups: OrderedSet<u32> = parts
        .iter()
        .filter_map(|(_, part)| match part {
            Part::Leader(group) | Part::Member(group, _) => Some(*group),
            _ => None,
        })
        .collect();
    let indexed: OrderedSet<(u32, u32)> = parts
        .iter()
        .filter_map(|(_, part)| match part {
            Part::Indexed(outer, index) => Some((*outer, *index)),
            _ => None,
        })
        .collect();
    let outers: OrderedSet<u32> = indexed.iter().map(|(outer, _)| *outer).collect();
    let (jobs, per_job) = size(&indexed);
    let is_grid = jobs.checked_mul(per_job).is_some_and(|count| count as usize == indexed.len());
    let firsts = parts.iter().filter(|(_, part)| matches!(part, Part::First(_))).count();
    let of = |part: Part| match part {
        Part::First(index) => Some((index, None)),
        Part::Worker(index) if has_first => Some((index.checked_add(u32::try_from(firsts).ok()?)?, None)),
        // The number of the only job can be part of its name.
        Part::Indexed(_, index) if outers.len() == 1 => Some((index, None)),
        Part::Indexed(outer, index) if is_grid => {
            Some((outer.checked_mul(per_job)?.checked_add(index)?, None))
        }
        Part::Leader(group) if has_members => Some((0, Some(group))),
        Part::Member(group, index) if has_members => Some((index, Some(group))),
        _ => None,
    };
    let found: Vec<(usize, u32, Option<u32>)> = parts
        .iter()
        .filter_map(|&(index, part)| {
            let (rank, replica) = of(part)?;
            Some((index, rank, replica.filter(|_| groups.len() > 1)))
        })
        .collect();
    let places: OrderedSet<(u32, Option<u32>)> =
        found.iter().map(|&(_, rank, replica)| (rank, replica)).collect();
    // A pod that was replaced leaves a second one with its index.
    if places.len() == found.len() && found.len() > 1 { found } else { Vec::new() }
}

/// The number of jobs and of pods per job, from the largest indices.
fn size(indexed: &OrderedSet<(u32, u32)>) -> (u32, u32) {
    indexed.iter().fold((0, 0), |(jobs, pods), (outer, index)| {
        (jobs.max(outer.saturating_add(1)), pods.max(index.saturating_add(1)))
    })
}

fn is_random(word: &str) -> bool {
    word.len() == RANDOM_LENGTH && word.chars().all(|letter| RANDOM.contains(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(paths: &[&str]) -> Vec<Option<u32>> {
        identities(paths).into_iter().map(|identity| identity?.rank).collect()
    }

    #[test]
    fn each_operator_numbers_its_pods() {
        assert_eq!(
            ranks(&[
                "d/llm-master-0.log",
                "d/llm-worker-0.log",
                "d/llm-worker-1_main.log",
                "e/llm-worker-0.log"
            ]),
            [Some(0), Some(1), Some(2), None]
        );
        assert_eq!(ranks(&["llm-worker-0.log", "llm-worker-1.log"]), [None, None], "without a master");
        assert_eq!(ranks(&["llm-1-x7k2b.log", "llm-0-bcdfg.log"]), [Some(1), Some(0)]);
        assert_eq!(
            ranks(&[
                "s-node-0-0-x7k2b.log",
                "s-node-0-1-bcdfg.log",
                "s-node-1-0-zzzzz.log",
                "s-node-1-1-kkkkk.log"
            ]),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        assert_eq!(ranks(&["s-node-7-0-x7k2b.log", "s-node-7-1-bcdfg.log"]), [Some(0), Some(1)]);
        assert_eq!(
            ranks(&["s-node-0-0-x7k2b.log", "s-node-1-0-bcdfg.log", "s-node-1-1-zzzzz.log"]),
            [None, None, None],
            "a pod is missing"
        );
        assert_eq!(
            ranks(&["s-node-1-0-x7k2b.log", "s-node-2-0-bcdfg.log"]),
            [None, None],
            "a job is missing"
        );
        let groups = ["v-0.log", "v-0-1.log", "v-1.log", "v-1-1.log"];
        let found: Vec<_> =
            identities(&groups).into_iter().flatten().map(|one| (one.rank, one.replica)).collect();
        let group = |rank, group: &str| (Some(rank), Some(group.to_owned()));
        assert_eq!(found, [group(0, "0"), group(1, "0"), group(0, "1"), group(1, "1")]);
        assert_eq!(ranks(&["job-launcher-x7k2b.log", "job-worker-0.log"]), [None, None]);
        assert_eq!(ranks(&["ray-head-x7k2b.log", "ray-small-worker-bcdfg.log"]), [None, None]);
    }

    #[test]
    fn other_names_have_no_rank() {
        for names in [
            ["oom-0.log", "oom-1.log"],
            ["llm-0-x7k2b.log", "llm-0-bcdfg.log"],
            ["2026-01-05.log", "2026-01-06.log"],
            ["é-0-\u{301}.log", "--0.log"],
            ["-4294967295-x7k2b", "-4294967295-4294967295-x7k2b"],
        ] {
            assert_eq!(ranks(&names), [None, None], "{names:?}");
        }
    }
}
