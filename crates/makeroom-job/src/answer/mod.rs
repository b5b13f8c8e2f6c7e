//! Reduces the rows of all recordings to one answer.
//!
//! ```text
//! select.rs     which recordings belong to the job;  assign.rs  to which rank
//! jobs.rs       which recordings belong together
//! folders.rs    runs of one job in several directories
//! groups.rs     ranks that hold the same, and outliers
//! cards.rs      GPUs: shared, idle, and whose memory fills them;  sharing.rs  shared ones, from logs alone
//! fate.rs       how a process fared;  first.rs  a kill or a scheduler before other failures
//! blame.rs      the rank whose failure the others cannot explain
//! order.rs      which process ended first
//! stall.rs      the rank that others waited for in a collective
//! imbalance.rs  the ranks over time
//! witness.rs    logs of launchers and of the kernel
//! words.rs      the verdict in sentences;  ends.rs  the same without device memory;  notes.rs  remarks;  fixes.rs  what to do;  names.rs  ranks in sentences
//! look.rs       the command that shows one recording
//! ```

mod assign;
mod blame;
mod cards;
mod ends;
mod fate;
mod first;
mod fixes;
mod folders;
mod groups;
mod imbalance;
mod jobs;
mod look;
mod names;
mod notes;
mod order;
mod select;
mod sharing;
mod stall;
mod witness;
mod words;

use crate::report::{
    Consequence, Group, HostUse, JobCause, JobReport, JobVerdict, LineDifference, Outlier, RankError,
    RankFate, RankFinding, RankReport,
};
use crate::tables::Rows;
use blame::Blame;
use cards::Cards;
use groups::{Cluster, Lines, Member};
use makeroom_core::SortCompact as _;
use makeroom_ordered::{OrderedMap, OrderedSet};
use select::{Process, Selected};

/// Lines of a group that are listed.
const MOST_LINES: usize = 12;

/// Answers for the newest job that failed among the recordings, or the newest. The answer does not depend on the order
/// of the rows.
pub fn answer(rows: &Rows) -> JobReport {
    let selected = select::select(rows);
    let processes = &selected.processes;
    let cards = Cards::new(processes);
    let groups = groups::find(members(processes));
    let missing = selected.used.missing_ranks.len();
    let mut blame = blame::judge(processes, &groups, &cards, missing, selected.stop);
    // A kill that cannot be assigned may have ended a rank whose end is not known.
    let is_unknown = blame.fates.contains(&RankFate::Unknown);
    if blame.cause == JobCause::None && is_unknown && !selected.killed.is_empty() {
        (blame.cause, blame.certainty) = (JobCause::Undetermined, "undetermined");
    }
    let case = Case { selected: &selected, cards: &cards, groups: &groups, blame: &blame };
    let (title, summary) = case.verdict();
    let (fixes, notes) = (case.fixes(), case.notes());
    let account = blame.failed.and_then(|index| {
        let failure = processes[index].decisive()?;
        cards.account(processes, index, failure)
    });
    JobReport {
        verdict: JobVerdict { cause: blame.cause, certainty: blame.certainty, title, summary },
        job: selected.job.clone(),
        attempt: selected.attempt,
        world_size: selected.world_size,
        culprits: blame.culprits.iter().map(|&index| case.finding(index)).collect(),
        consequences: consequences(processes, &blame),
        errors: case.errors(),
        caught: labels(processes, |index| blame.fates[index] == RankFate::Caught),
        account,
        groups: reported(processes, &groups),
        cards: cards.report(processes),
        idle_cards: cards.idle.iter().map(|card| card.name(cards.has_hosts)).collect(),
        imbalance: imbalance::find(processes),
        hosts: hosts(processes),
        fixes,
        ranks: case.ranks(),
        used: selected.used.clone(),
        notes,
    }
}

/// What the words of an answer are based on.
struct Case<'case, 'rows> {
    selected: &'case Selected<'rows>,
    cards: &'case Cards<'rows>,
    groups: &'case [Cluster<'rows>],
    blame: &'case Blame,
}

/// What each rank holds by line: at its failure with the failed request, else at its peak.
fn members<'rows>(processes: &[Process<'rows>]) -> Vec<Member<'rows>> {
    let member = |(index, process): (usize, &Process<'rows>)| {
        let mut lines: Lines<'rows> = OrderedMap::new();
        for site in &process.sites {
            let line = lines.entry(site.place.as_str()).or_default();
            *line = line.saturating_add(site.bytes);
        }
        // Other ranks have at their peak what this one could not get. What no GPU has, no rank has.
        let failure = process.decisive().filter(|failure| !cards::exceeds_device(process, failure));
        let request = failure.and_then(|failure| failure.place.as_deref().zip(failure.requested_bytes));
        if let Some((place, bytes)) = request
            && !lines.is_empty()
        {
            let line = lines.entry(place).or_default();
            *line = line.saturating_add(bytes);
        }
        (!lines.is_empty() && !process.is_helper).then_some(Member { process: index, lines })
    };
    processes.iter().enumerate().filter_map(member).collect()
}

fn labels(processes: &[Process<'_>], is_meant: impl Fn(usize) -> bool) -> Vec<String> {
    let meant = processes.iter().enumerate().filter(|(index, _)| is_meant(*index));
    meant.map(|(_, process)| process.label.clone()).collect()
}

fn consequences(processes: &[Process<'_>], blame: &Blame) -> Vec<Consequence> {
    let mut by_kind: OrderedMap<_, Vec<usize>> = OrderedMap::new();
    for &(index, kind) in &blame.consequences {
        by_kind.entry(kind).or_default().push(index);
    }
    let consequence = |(kind, mut members): (_, Vec<usize>)| {
        members.sort_unstable();
        let members: Vec<&Process<'_>> = members.into_iter().map(|index| &processes[index]).collect();
        Consequence {
            kind,
            ranks: members.iter().map(|process| process.label.clone()).collect(),
            words: names::words(&members),
        }
    };
    by_kind.into_iter().map(consequence).collect()
}

fn reported(processes: &[Process<'_>], groups: &[Cluster<'_>]) -> Vec<Group> {
    let group = |(index, cluster): (usize, &Cluster<'_>)| {
        let members: Vec<&Process<'_>> =
            cluster.members.iter().map(|member| &processes[member.process]).collect();
        let mut lines: Vec<LineDifference> = cluster
            .typical
            .iter()
            .filter(|(_, bytes)| **bytes > 0)
            .map(|(&place, &bytes)| LineDifference { place: place.to_owned(), bytes, typical_bytes: bytes })
            .collect();
        lines.sort_compact_by(|one, two| two.bytes.cmp(&one.bytes).then_with(|| one.place.cmp(&two.place)));
        lines.truncate(MOST_LINES);
        let mut outliers: Vec<Outlier> = cluster
            .members
            .iter()
            .filter(|member| cluster.excess(member).is_some())
            .map(|member| Outlier {
                label: processes[member.process].label.clone(),
                bytes: member.bytes(),
                lines: cluster.differences(member),
            })
            .collect();
        outliers.sort_compact_by_key(|outlier| std::cmp::Reverse(outlier.bytes));
        Group {
            name: group_name(index),
            ranks: members.iter().map(|process| process.label.clone()).collect(),
            words: names::words(&members),
            typical_bytes: cluster.typical_bytes,
            lines,
            outliers,
        }
    };
    groups.iter().enumerate().map(group).collect()
}

/// `A` to `Z`, then `A1`, `B1`, ….
fn group_name(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{letter}{}", index / 26) }
}

fn hosts(processes: &[Process<'_>]) -> Vec<HostUse> {
    let mut hosts: OrderedMap<&str, HostUse> = OrderedMap::new();
    for process in processes {
        let row = process.row;
        let (Some(host), Some(resident)) = (row.host.as_deref(), row.host_peak_bytes) else { continue };
        let entry = hosts.entry(host).or_insert_with(|| HostUse {
            host: host.to_owned(),
            ranks: 0,
            resident_bytes: 0,
            cgroup_bytes: None,
            cgroup_limit_bytes: None,
        });
        entry.ranks += 1;
        entry.resident_bytes = entry.resident_bytes.saturating_add(resident);
        entry.cgroup_bytes = entry.cgroup_bytes.max(row.cgroup_bytes);
        entry.cgroup_limit_bytes = match (entry.cgroup_limit_bytes, row.cgroup_limit_bytes) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
    }
    hosts.into_values().collect()
}

impl Case<'_, '_> {
    fn process(&self, index: usize) -> &Process<'_> {
        &self.selected.processes[index]
    }

    /// The group of a process, with its own entry there.
    fn member(&self, process: usize) -> Option<(usize, &Cluster<'_>, &Member<'_>)> {
        self.groups.iter().enumerate().find_map(|(index, group)| {
            let member = group.members.iter().find(|member| member.process == process)?;
            Some((index, group, member))
        })
    }

    /// Errors of ranks that are not to blame, by text.
    fn errors(&self) -> Vec<RankError> {
        let culprits: OrderedSet<usize> = self.blame.culprits.iter().copied().collect();
        let is_killed_first = matches!(self.blame.cause, JobCause::RankKilled | JobCause::HostMemory);
        let mut by_error: OrderedMap<String, Vec<&Process<'_>>> = OrderedMap::new();
        for (index, process) in self.selected.processes.iter().enumerate() {
            let error = match self.blame.fates[index] {
                _ if culprits.contains(&index) => None,
                RankFate::Finished | RankFate::Caught => None,
                RankFate::RanOut => Some(self.ran_out(index)).filter(|_| is_killed_first),
                _ => process.error.map(str::to_owned),
            };
            if let Some(error) = error {
                by_error.entry(error).or_default().push(process);
            }
        }
        let error = |(error, members): (String, Vec<&Process<'_>>)| RankError {
            ranks: members.iter().map(|process| process.label.clone()).collect(),
            words: names::words(&members),
            error,
        };
        by_error.into_iter().map(error).collect()
    }

    fn finding(&self, index: usize) -> RankFinding {
        let process = self.process(index);
        let failure = process.decisive();
        let member = self.member(index).filter(|(_, group, member)| group.excess(member).is_some());
        let device = failure.and_then(|failure| failure.device);
        let used =
            || process.used_devices().max_by_key(|device| device.peak_bytes).map(|device| device.device);
        RankFinding {
            label: process.label.clone(),
            rank: process.rank,
            host: process.host.map(str::to_owned),
            recording: process.row.recording.clone(),
            device: device.or_else(used),
            requested_bytes: failure.and_then(|failure| failure.requested_bytes),
            held_bytes: failure.and_then(|failure| failure.held_bytes).or(Some(process.peak_bytes())),
            typical_bytes: member.as_ref().map(|(_, group, _)| group.typical_bytes),
            place: failure.and_then(|failure| failure.place.clone()),
            lines: member.map_or_else(Vec::new, |(_, group, member)| group.differences(member)),
            own_cause: process.shown.cause.clone(),
            own_summary: process.shown.summary.clone(),
        }
    }

    fn ranks(&self) -> Vec<RankReport> {
        let mut groups = vec![None; self.selected.processes.len()];
        for (number, group) in self.groups.iter().enumerate() {
            for member in &group.members {
                groups[member.process] = Some(group_name(number));
            }
        }
        let mut cards: Vec<Vec<String>> = vec![Vec::new(); self.selected.processes.len()];
        for card in &self.cards.used {
            for &(user, _) in &card.users {
                cards[user].push(card.name(self.cards.has_hosts));
            }
        }
        let culprits: OrderedSet<usize> = self.blame.culprits.iter().copied().collect();
        let processes = self.selected.processes.iter().enumerate();
        let reports =
            processes.zip(groups.into_iter().zip(cards)).map(|((index, process), (group, cards))| {
                let failure = process.decisive();
                RankReport {
                    label: process.label.clone(),
                    rank: process.rank,
                    host: process.host.map(str::to_owned),
                    recording: process.row.recording.clone(),
                    command: look::command(process.row),
                    kind: process.row.kind,
                    fate: self.blame.fates[index],
                    is_culprit: culprits.contains(&index),
                    group,
                    cards,
                    peak_bytes: process.peak_bytes(),
                    last_bytes: process.row.devices.iter().map(|device| device.last_bytes).max().unwrap_or(0),
                    requested_bytes: failure.and_then(|failure| failure.requested_bytes),
                    place: failure.and_then(|failure| failure.place.clone()),
                    recorded_us: process.elapsed(process.row.ended_us),
                }
            });
        reports.collect()
    }
}
