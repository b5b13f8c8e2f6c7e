//! Which rank's failure the others cannot explain.
//!
//! The first failure by the clock may be a victim: clocks of hosts differ, and a rank that shares a GPU with a heavy one
//! may fail first. So ranks are judged by what happened to them, and by what they hold compared with ranks like them:
//!
//! ```text
//! ended by the launcher, lost a peer, a collective timed out   a consequence, whenever it happened
//! requested more than the whole GPU has                        the culprit, whoever else uses the GPU
//! ran out on a GPU that a heavier rank shares                  a consequence: the other holds the memory
//! ran out, and holds more than the ranks of its group          the culprit
//! ran out, and all ranks are as full                           no single rank: every rank is full
//! killed, and no rank ran out before                           the culprit: most often host memory
//! a scheduler reports why it ended the job                     no rank, unless one shows an error of its own or ended before
//! only collectives that timed out                              the rank that the others waited for: see `stall.rs`
//! ```

use super::cards::{Cards, exceeds_device};
use super::fate::fate;
use super::first::{ended_before, has_own_failure, is_stalled, killed_before};
use super::groups::Cluster;
use super::order::Ends;
use super::select::Process;
use super::stall::{self, Stall};
use super::witness;
use crate::report::{ConsequenceKind, JobCause, RankFate};
use crate::tables::{End, FailureKind, StopReason, StopRow};
use makeroom_core::SortCompact as _;
use makeroom_ordered::OrderedSet;

/// Ranks are as full as the ones that failed between these shares. A rank that holds far more shows that its GPU has more.
const AS_FULL: f64 = 0.9;
const FULLER: f64 = 1.25;
/// A group holds more than the others from this factor on.
const GROUP_FACTOR: f64 = 1.1;

/// The result.
#[derive(Debug)]
pub(super) struct Blame {
    pub(super) cause: JobCause,
    pub(super) certainty: &'static str,
    /// How each process fared.
    pub(super) fates: Vec<RankFate>,
    /// Indices of the processes to blame, the most important first.
    pub(super) culprits: Vec<usize>,
    /// Indices of the processes that ended because of others.
    pub(super) consequences: Vec<(usize, ConsequenceKind)>,
    /// The process whose failed request is accounted for.
    pub(super) failed: Option<usize>,
    /// The group to blame.
    pub(super) group: Option<usize>,
    /// Number of ranks that are as full as the one that failed.
    pub(super) full: usize,
    /// How long before the others the rank to blame was killed, in microseconds.
    pub(super) lead_us: Option<u64>,
    /// The collective in which others waited for the rank to blame.
    pub(super) stall: Option<Stall>,
    /// Why a scheduler ended the job.
    pub(super) stop: Option<StopReason>,
}

/// How much more than its group each process holds; `None` if it does not.
pub(super) fn excesses(processes: &[Process<'_>], groups: &[Cluster<'_>]) -> Vec<Option<u64>> {
    let mut excesses = vec![None; processes.len()];
    for group in groups {
        for member in &group.members {
            excesses[member.process] = group.excess(member);
        }
    }
    excesses
}

/// Judges the job.
pub(super) fn judge(
    processes: &[Process<'_>],
    groups: &[Cluster<'_>],
    cards: &Cards<'_>,
    missing: usize,
    stop: Option<&StopRow>,
) -> Blame {
    let fates: Vec<RankFate> = processes.iter().map(fate).collect();
    let of = |wanted: RankFate| -> Vec<usize> {
        fates.iter().enumerate().filter(|(_, fate)| **fate == wanted).map(|(index, _)| index).collect()
    };
    let ran_out = of(RankFate::RanOut);
    let (mut killed, mut failed) = (of(RankFate::Killed), of(RankFate::Failed));
    let is_before = |index: usize| stop.and_then(|stop| ended_before(&processes[index], stop));
    if killed.iter().chain(&failed).any(|&index| is_before(index) == Some(true)) {
        // The scheduler ended the others because of these, or later.
        killed.retain(|&index| is_before(index) != Some(false));
        failed.retain(|&index| is_before(index) != Some(false));
    }
    let mut blame = Blame {
        cause: JobCause::None,
        certainty: "certain",
        culprits: Vec::new(),
        consequences: Vec::new(),
        failed: None,
        group: None,
        full: 0,
        lead_us: None,
        stall: None,
        stop: stop.map(|stop| stop.reason),
        fates: Vec::new(),
    };
    let killed_first = killed_before(processes, &killed, &ran_out);
    let is_stopped = stop.filter(|stop| stop.reason != StopReason::Unknown).is_some_and(|stop| {
        !has_own_failure(processes, &killed, &failed, stop) && !is_stalled(processes, &fates)
    });
    if !killed_first.is_empty() {
        judge_ends(&mut blame, processes, &fates, killed_first, &[]);
    } else if !ran_out.is_empty() {
        judge_memory(&mut blame, processes, groups, cards, &ran_out, missing);
    } else if is_stopped {
        blame.cause = JobCause::Terminated;
        // A rank that ended before may be the reason.
        if killed.iter().chain(&failed).any(|&index| is_before(index).is_none()) {
            blame.certainty = "likely";
        }
    } else if !killed.is_empty() || !failed.is_empty() {
        judge_ends(&mut blame, processes, &fates, killed, &failed);
        // The first failure may be that of a rank without a recording.
        if missing > 0 && matches!(blame.cause, JobCause::RankKilled | JobCause::OtherFailure) {
            blame.certainty = if blame.certainty == "certain" { "likely" } else { "possible" };
        }
    } else if [RankFate::CollectiveTimeout, RankFate::PeerLost].iter().any(|&fate| fates.contains(&fate)) {
        judge_collectives(&mut blame, processes, &fates, missing);
    } else if fates.contains(&RankFate::Terminated) || stop.is_some() {
        blame.cause = if missing > 0 { JobCause::Undetermined } else { JobCause::Terminated };
        blame.certainty = if missing > 0 { "undetermined" } else { "likely" };
    } else {
        let has_caught = fates.contains(&RankFate::Caught);
        blame.cause = if has_caught { JobCause::Caught } else { JobCause::None };
        // A log that shows no failure does not show a good end either.
        let is_known = |process: &Process<'_>| matches!(process.end, End::Exited(_) | End::Running);
        blame.certainty = match (processes.iter().all(is_known), has_caught) {
            (true, _) => "certain",
            (false, true) => "likely",
            (false, false) => "possible",
        };
    }
    add_consequences(&mut blame, processes, &fates);
    blame.fates = fates;
    blame
}

/// Judges a job that shows only consequences: collectives that timed out, and lost connections.
fn judge_collectives(blame: &mut Blame, processes: &[Process<'_>], fates: &[RankFate], missing: usize) {
    (blame.cause, blame.certainty) = (JobCause::Undetermined, "undetermined");
    // A rank without a recording may be the one that the others waited for.
    let Some(stall) = stall::find(processes, fates).filter(|_| missing == 0) else { return };
    blame.cause = JobCause::CollectiveStalled;
    blame.certainty = stall.certainty();
    blame.culprits.clone_from(&stall.ranks);
    blame.stall = Some(stall);
}

/// Judges a job in which ranks were killed or exited with an error, and none ran out of memory. Launchers end the other
/// ranks when one fails, and ranks exit with an error when they lose another one: so the few are to blame and not the
/// many, unless the order of their ends shows otherwise.
fn judge_ends(
    blame: &mut Blame,
    processes: &[Process<'_>],
    fates: &[RankFate],
    mut killed: Vec<usize>,
    failed: &[usize],
) {
    let for_memory = |&index: &usize| processes[index].reports(FailureKind::HostMemory);
    let starved: Vec<usize> = killed.iter().copied().filter(for_memory).collect();
    if let Some(&first) = starved.first() {
        let own = processes[first].shown.certainty.as_str();
        let is_explained = processes[first].shown.cause == "host_memory";
        let known = ["possible", "likely"].into_iter().find(|&name| is_explained && name == own);
        let reported = || witness::certainty(&processes[first]);
        (blame.cause, blame.certainty) = (JobCause::HostMemory, known.or_else(reported).unwrap_or("certain"));
        blame.culprits = starved;
        return;
    }
    let ends = Ends::new(processes, fates);
    let is_first = |one: &usize, others: &[usize]| others.iter().all(|&other| ends.is_before(*one, other));
    if !failed.is_empty() {
        let is_killed_first = killed.iter().any(|index| is_first(index, failed));
        let is_failed_first = failed.iter().any(|index| is_first(index, &killed));
        if is_failed_first || failed.len() <= killed.len() && !is_killed_first || killed.is_empty() {
            blame.cause = JobCause::OtherFailure;
            let of = |is_meant: fn(&Process<'_>) -> bool| -> Vec<usize> {
                failed.iter().copied().filter(|&index| is_meant(&processes[index])).collect()
            };
            let shown = of(|process| process.error.is_some());
            let observed = of(|process| process.is_first_failure);
            (blame.culprits, blame.certainty) = match ends.first(failed) {
                _ if failed.len() == 1 => (failed.to_vec(), "certain"),
                _ if !shown.is_empty() && shown.len() < failed.len() => (shown, "likely"),
                Some((first, _)) => (vec![first], "likely"),
                None if !observed.is_empty() => (observed, "likely"),
                None => (failed.to_vec(), "certain"),
            };
            if blame.culprits.iter().all(|&index| processes[index].has_only_exit_code()) {
                blame.certainty = "possible";
            }
            return;
        }
    }
    // A launcher that asks all ranks to end kills those that do not.
    let is_ended = |index: usize| fates[index] == RankFate::Terminated && ends.is_known(index);
    let ended: Vec<usize> = (0..processes.len()).filter(|&index| is_ended(index)).collect();
    killed
        .retain(|&index| !(ends.is_known(index) && ended.iter().any(|&other| ends.is_before(other, index))));
    if killed.is_empty() {
        (blame.cause, blame.certainty) = (JobCause::Terminated, "likely");
        return;
    }
    let is_all = killed.len() == processes.len();
    (blame.cause, blame.certainty, blame.culprits) = match ends.first(&killed) {
        _ if killed.len() == 1 => (JobCause::RankKilled, "likely", killed),
        Some((first, certainty)) => {
            blame.lead_us = ends.lead(first, &killed);
            (JobCause::RankKilled, certainty, vec![first])
        }
        None if is_all => (JobCause::AllKilled, "possible", Vec::new()),
        None => (JobCause::RankKilled, "possible", killed),
    };
}

/// Judges a job in which ranks ran out of device memory.
fn judge_memory(
    blame: &mut Blame,
    processes: &[Process<'_>],
    groups: &[Cluster<'_>],
    cards: &Cards<'_>,
    ran_out: &[usize],
    missing: usize,
) {
    let is_too_large = |&index: &usize| {
        let process = &processes[index];
        process.decisive().is_some_and(|failure| exceeds_device(process, failure))
    };
    let too_large: Vec<usize> = ran_out.iter().copied().filter(is_too_large).collect();
    if let Some(&first) = too_large.first() {
        (blame.cause, blame.failed) = (JobCause::RequestTooLarge, Some(first));
        blame.culprits = too_large;
        return;
    }
    let excesses = excesses(processes, groups);
    let card_of = |process: usize| {
        let device = processes[process].decisive().and_then(|failure| failure.device);
        device.and_then(|device| cards.of(process, device))
    };
    blame.failed = ran_out.first().copied();
    let mistaken: OrderedSet<usize> =
        cards.mistaken().flat_map(|card| card.users.iter().map(|user| user.0)).collect();
    let is_victim = |index: &&usize| mistaken.contains(index) && !is_limited(&processes[**index]);
    if let Some(&first) = ran_out.iter().find(is_victim) {
        let certainty = if cards.is_certain() { "certain" } else { "likely" };
        (blame.cause, blame.certainty, blame.failed) = (JobCause::RanksShareGpu, certainty, Some(first));
        let victims = ran_out.iter().filter(is_victim);
        blame.consequences.extend(victims.map(|&index| (index, ConsequenceKind::SharedGpu)));
        blame.culprits = ran_out.iter().filter(|index| !is_victim(index)).copied().collect();
        return;
    }
    // Heavy ranks that ran out, or on whose GPU another one did.
    let mut heavy: OrderedSet<usize> =
        ran_out.iter().copied().filter(|&index| excesses[index].is_some()).collect();
    let mut victims = OrderedSet::new();
    let has_victims = |index: &&usize| excesses[**index].is_none() && !is_limited(&processes[**index]);
    for &index in ran_out.iter().filter(has_victims) {
        let siblings = card_of(index).into_iter().flat_map(|card| card.users.iter().map(|user| user.0));
        let heavier: Vec<usize> =
            siblings.filter(|&other| other != index && excesses[other].is_some()).collect();
        if !heavier.is_empty() {
            victims.insert(index);
            heavy.extend(heavier);
        }
    }
    let alone: Vec<usize> =
        ran_out.iter().copied().filter(|index| !heavy.contains(index) && !victims.contains(index)).collect();
    let is_common = alone.len() * 2 >= processes.len() && processes.len() > 2;
    if !heavy.is_empty() && !is_common {
        blame.cause = JobCause::RankHoldsMore;
        blame.culprits = heavy.iter().copied().collect();
        blame.culprits.sort_compact_by_key(|&index| (std::cmp::Reverse(excesses[index]), index));
        let first = blame.culprits[0];
        let is_first = |index: &&usize| **index == first;
        let on_card = |index: &&usize| {
            card_of(**index).is_some_and(|card| card.users.iter().any(|user| user.0 == first))
        };
        blame.failed = ran_out.iter().find(is_first).or_else(|| ran_out.iter().find(on_card)).copied();
        blame.certainty =
            if is_enough(processes, blame.failed, excesses[first]) { "certain" } else { "likely" };
        blame.culprits.extend(alone);
        blame.consequences.extend(victims.into_iter().map(|index| (index, ConsequenceKind::SharedGpu)));
        return;
    }
    blame.group = full_group(groups, ran_out);
    let held = |index: usize| processes[index].decisive().and_then(|failure| failure.held_bytes);
    let least = ran_out.iter().filter_map(|&index| held(index)).min();
    let most = ran_out.iter().filter_map(|&index| held(index)).max();
    let as_full = |process: &Process<'_>| {
        let peak = process.peak_bytes() as f64;
        least.is_some_and(|least| peak >= least as f64 * AS_FULL)
            && most.is_some_and(|most| peak <= most as f64 * FULLER)
    };
    let is_full = |(index, process): &(usize, &Process<'_>)| {
        ran_out.contains(index) && fills_its_gpu(process) || as_full(process)
    };
    let ranks = || processes.iter().enumerate().filter(|(_, process)| !process.is_helper);
    blame.full = ranks().filter(is_full).count();
    let is_own = ran_out.iter().any(|&index| fills_its_gpu(&processes[index]));
    let is_every = is_own && blame.full > 1 && blame.full * 2 >= ranks().count() + missing;
    // A log may end with an error of which no one knows whether memory caused it.
    let is_known = |&index: &usize| {
        let asked = processes[index].decisive().and_then(|failure| failure.requested_bytes);
        processes[index].shown.certainty != "undetermined" || held(index).or(asked).is_some()
    };
    let certainty = if ran_out.iter().any(is_known) { "certain" } else { "possible" };
    (blame.cause, blame.certainty) = match blame.group {
        Some(_) => (JobCause::GroupHoldsMore, "likely"),
        None if is_every => (JobCause::EveryRankFull, "likely"),
        None => (JobCause::RankRanOut, certainty),
    };
    blame.culprits = ran_out.to_vec();
}

/// Whether a process that ran out holds the memory itself, as far as its own explanation shows.
fn fills_its_gpu(process: &Process<'_>) -> bool {
    !matches!(
        process.shown.cause.as_str(),
        "other_processes"
            | "hidden_holder"
            | "artificial_limit"
            | "integer_or_shape_bug"
            | "request_exceeds_device"
    )
}

/// Whether a process ran out under its own limit, which other processes do not count against.
fn is_limited(process: &Process<'_>) -> bool {
    process.decisive().is_some_and(|failure| failure.limit_bytes.is_some())
}

/// Whether the request would have fit if the culprit held what its group does.
fn is_enough(processes: &[Process<'_>], failed: Option<usize>, excess: Option<u64>) -> bool {
    let Some(failure) = failed.and_then(|index| processes[index].decisive()) else { return false };
    let (Some(requested), Some(free), Some(excess)) = (failure.requested_bytes, failure.free_bytes, excess)
    else {
        return false;
    };
    excess >= requested.saturating_sub(free)
}

/// The group that all failed ranks belong to, if it holds more than all others.
fn full_group(groups: &[Cluster<'_>], ran_out: &[usize]) -> Option<usize> {
    let has_failed =
        |group: &Cluster<'_>| group.members.iter().any(|member| ran_out.contains(&member.process));
    let mut failed = groups.iter().enumerate().filter(|(_, group)| has_failed(group));
    let (index, group) = failed.next()?;
    if failed.next().is_some() || groups.len() < 2 {
        return None;
    }
    let others =
        groups.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, group)| group.typical_bytes);
    let most = others.max()?;
    (group.typical_bytes as f64 >= most as f64 * GROUP_FACTOR).then_some(index)
}

/// Ranks that ended and are not to blame.
fn add_consequences(blame: &mut Blame, processes: &[Process<'_>], fates: &[RankFate]) {
    if !blame.cause.is_failure() || matches!(blame.cause, JobCause::AllKilled) {
        return;
    }
    let culprits: OrderedSet<usize> = blame.culprits.iter().copied().collect();
    for (index, fate) in fates.iter().enumerate() {
        let kind = match fate {
            RankFate::Terminated => ConsequenceKind::Terminated,
            RankFate::CollectiveTimeout => ConsequenceKind::CollectiveTimeout,
            RankFate::PeerLost => ConsequenceKind::PeerLost,
            RankFate::Killed => ConsequenceKind::Killed,
            // Its own error is listed instead.
            RankFate::Failed if processes[index].error.is_some() => continue,
            RankFate::Failed => ConsequenceKind::Exited,
            _ => continue,
        };
        if !culprits.contains(&index) {
            blame.consequences.push((index, kind));
        }
    }
}
