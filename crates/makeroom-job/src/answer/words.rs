//! The verdict in sentences.

use makeroom_core::Bytes;

use super::Case;
use super::ends::{other_failure, starved};
use super::groups::differences;
use super::names::{capital, listed, title, words};
use super::select::Process;
use crate::report::{JobCause, LineDifference, RankFate};
use crate::tables::{End, FailureRow};

/// Files that a remark names.
const MOST_NAMED: usize = 3;

impl Case<'_, '_> {
    /// The title and one or two sentences.
    pub(super) fn verdict(&self) -> (String, String) {
        let culprits: Vec<&Process<'_>> =
            self.blame.culprits.iter().map(|&index| self.process(index)).collect();
        let (who, name) = (words(&culprits), title(&culprits));
        let count = self.selected.processes.len();
        let many = culprits.len() > 1;
        match self.blame.cause {
            JobCause::None if count == 0 => (
                "NO RECORDINGS".to_owned(),
                "None of the files is a recording, a snapshot or a log.".to_owned(),
            ),
            JobCause::None => (self.nothing_title().to_owned(), self.nothing()),
            JobCause::Caught => (
                format!("{}: OUT-OF-MEMORY ERRORS WERE CAUGHT", self.nothing_title()),
                format!(
                    "{} caught a failed allocation and continued. {}",
                    capital(&self.caught()),
                    self.nothing()
                ),
            ),
            JobCause::RankHoldsMore => self.holds_more(),
            JobCause::GroupHoldsMore => {
                let group = self.blame.group.and_then(|index| self.groups.get(index));
                let hold = if group.is_some_and(|group| group.members.len() == 1) { "HOLDS" } else { "HOLD" };
                (format!("{} {hold} MORE THAN THE OTHERS", self.group_title()), self.group())
            }
            JobCause::RanksShareGpu => {
                let idle = if self.cards.idle.is_empty() { "" } else { " WHILE OTHERS ARE IDLE" };
                (format!("RANKS SHARE A GPU{idle}"), self.shared())
            }
            JobCause::EveryRankFull => (self.full_title(), self.full(&culprits)),
            JobCause::RequestTooLarge => {
                let is_limited = |process: &&Process<'_>| {
                    process.decisive().is_some_and(|failure| failure.limit_bytes.is_some())
                };
                let most = match (culprits.iter().all(is_limited), many) {
                    (false, _) => "THE WHOLE GPU",
                    (true, false) => "ITS LIMIT",
                    (true, true) => "THEIR LIMIT",
                };
                (format!("{name} REQUESTED MORE THAN {most}"), self.too_large())
            }
            JobCause::RankRanOut => {
                let first = self.blame.culprits.first().copied();
                let own = first.map_or("", |index| self.process(index).shown.summary.as_str());
                let failed = first.map_or_else(String::new, |index| self.failed(index));
                (format!("{name} RAN OUT OF MEMORY"), join(&[&failed, own, &also(culprits.len())]))
            }
            JobCause::HostMemory => {
                (format!("{name} RAN OUT OF HOST MEMORY"), starved(&who, &culprits, &self.on_gpu()))
            }
            JobCause::RankKilled => {
                let verb = match (self.is_signaled(), many) {
                    (false, _) => "DIED UNEXPECTEDLY",
                    (true, false) => "WAS KILLED",
                    (true, true) => "WERE KILLED",
                };
                (format!("{name} {verb}"), self.killed(&who, many))
            }
            JobCause::AllKilled => (
                "ALL RANKS WERE KILLED".to_owned(),
                format!(
                    "{} stop abruptly: the node failed, or the scheduler killed the job (SIGKILL).",
                    if count == 2 { "Both recordings".to_owned() } else { format!("All {count} recordings") }
                ),
            ),
            JobCause::Terminated => self.stopped(),
            JobCause::CollectiveStalled => (format!("{name} HELD UP A COLLECTIVE"), self.stalled(&who, many)),
            JobCause::OtherFailure => {
                (format!("{name} FAILED, BUT DID NOT RUN OUT OF MEMORY"), other_failure(&who, &culprits))
            }
            JobCause::Undetermined => ("UNDETERMINED".to_owned(), self.undetermined()),
        }
    }

    /// Logs and snapshots do not show how a process ended.
    fn nothing_title(&self) -> &'static str {
        if self.blame.certainty == "certain" { "NOTHING FAILED" } else { "NO FAILURE FOUND" }
    }

    fn nothing(&self) -> String {
        let ranks = &self.selected.processes;
        let fullest =
            ranks.iter().max_by_key(|process| (process.peak_bytes(), std::cmp::Reverse(&process.label)));
        let unknown = ranks.iter().filter(|process| process.end == End::Unknown).count();
        let peak = fullest.filter(|process| process.peak_bytes() > 0).map_or(String::new(), |process| {
            format!(" The fullest is {} with a peak of {}.", process.label, size(process.peak_bytes()))
        });
        let found = match (ranks.len(), unknown) {
            (1, 0) => "The process exited without an error.".to_owned(),
            (count, 0) => format!("None of the {count} ranks failed."),
            (1, _) => {
                format!("The {} shows no failure, but it does not show how the process ended.", self.noun(1))
            }
            (count, _) if unknown == count => {
                format!(
                    "None of the {count} {} shows a failure, but they do not show how the ranks ended.",
                    self.noun(count)
                )
            }
            (count, _) => {
                format!(
                    "None of the {count} {} shows a failure, but {unknown} of them do not show how the rank ended.",
                    self.noun(count)
                )
            }
        };
        found + &peak
    }

    fn caught(&self) -> String {
        let ranks = self.selected.processes.iter().zip(&self.blame.fates);
        let caught: Vec<&Process<'_>> =
            ranks.filter(|(_, fate)| **fate == RankFate::Caught).map(|(process, _)| process).collect();
        words(&caught)
    }

    /// `Rank 3 failed to allocate 2.00 GiB on GPU 1 of node7 at train.py:9 step.`
    fn failed(&self, index: usize) -> String {
        let process = self.process(index);
        let Some(failure) = process.decisive() else { return String::new() };
        let what = failure.requested_bytes.map_or_else(|| "memory".to_owned(), size);
        let place = failure.place.as_deref().map_or(String::new(), |place| format!(" at {}", short(place)));
        let limit =
            failure.limit_bytes.map_or(String::new(), |limit| format!(" under --limit {}", size(limit)));
        format!(
            "{} failed to allocate {what}{}{limit}{place}.",
            capital(&process.label),
            self.on_card(index, failure)
        )
    }

    /// `ran out of GPU memory: 2.00 GiB on GPU 1 at train.py:9 step`.
    pub(super) fn ran_out(&self, index: usize) -> String {
        let Some(failure) = self.process(index).decisive() else { return String::new() };
        let what = failure.requested_bytes.map_or_else(|| "a request".to_owned(), size);
        let place = failure.place.as_deref().map_or(String::new(), |place| format!(" at {}", short(place)));
        format!("ran out of GPU memory: {what}{} failed{place}", self.on_card(index, failure))
    }

    fn on_card(&self, index: usize, failure: &FailureRow) -> String {
        let card = failure.device.and_then(|device| self.cards.of(index, device));
        match (card, failure.device) {
            // The name of a pod is that of its host.
            (Some(card), _) => {
                let process = self.process(index);
                let is_named = process.host.is_some_and(|host| process.label.ends_with(host));
                format!(" on {}", card.name(self.cards.has_hosts && !is_named))
            }
            (None, Some(device)) => format!(" on GPU {device}"),
            (None, None) => String::new(),
        }
    }

    fn holds_more(&self) -> (String, String) {
        let heavy: Vec<usize> = self
            .blame
            .culprits
            .iter()
            .copied()
            .filter(|&index| {
                self.member(index).is_some_and(|(_, group, member)| group.excess(member).is_some())
            })
            .collect();
        let processes: Vec<&Process<'_>> = heavy.iter().map(|&index| self.process(index)).collect();
        let verb = if heavy.len() > 1 { "HOLD" } else { "HOLDS" };
        let title = format!("{} {verb} MORE THAN THE OTHERS", title(&processes));
        let Some((&first, (_, group, member))) =
            heavy.first().and_then(|first| Some((first, self.member(*first)?)))
        else {
            return (title, String::new());
        };
        let failed = self.blame.failed.map_or_else(String::new, |index| self.failed(index));
        let label = capital(&self.process(first).label);
        let shares = self.blame.failed.filter(|&index| index != first).map_or("", |_| ", on the same GPU,");
        let needs = if self.process(first).decisive().is_some() { "needs" } else { "holds" };
        let mut others = group.members.iter().filter(|other| other.process != first);
        let others = match (others.next(), others.count()) {
            (Some(only), 0) => self.process(only.process).label.clone(),
            (_, more) => {
                format!("while the {} comparable ranks typically {}", more + 1, needs.trim_end_matches('s'))
            }
        };
        let held = format!(
            "{label}{shares} {needs} {}, {others} {}{}.",
            size(member.bytes()),
            size(group.typical_bytes),
            where_(&group.differences(member)),
        );
        (title, join(&[&failed, &held]))
    }

    fn group_title(&self) -> String {
        let group = self.blame.group.and_then(|index| self.groups.get(index));
        let members: Vec<&Process<'_>> = group
            .iter()
            .flat_map(|group| group.members.iter().map(|member| self.process(member.process)))
            .collect();
        title(&members)
    }

    fn group(&self) -> String {
        let Some(group) = self.blame.group.and_then(|index| self.groups.get(index)) else {
            return String::new();
        };
        let others = self.groups.iter().filter(|other| !std::ptr::eq(*other, group));
        let Some(next) = others.max_by_key(|other| other.typical_bytes) else { return String::new() };
        let failed = self.blame.failed.map_or_else(String::new, |index| self.failed(index));
        let others = match next.members.len() {
            1 => words(&[self.process(next.members[0].process)]),
            count => format!("the {count} ranks of the next group"),
        };
        let (need, each) = match group.members.len() {
            1 => ("It needs".to_owned(), ""),
            count => (format!("The {count} ranks of its group need"), " each"),
        };
        let held = format!(
            "{need} {}{each}, {others} {}{}.",
            size(group.typical_bytes),
            size(next.typical_bytes),
            where_(&differences(&group.typical, &next.typical)),
        );
        join(&[&failed, &held])
    }

    fn shared(&self) -> String {
        let cards: Vec<String> = self
            .cards
            .mistaken()
            .map(|card| {
                let users: Vec<&Process<'_>> = card.users.iter().map(|user| self.process(user.0)).collect();
                format!("{} use {}", words(&users), card.name(self.cards.has_hosts))
            })
            .collect();
        let named = &cards[..cards.len().min(MOST_NAMED)];
        let idle: Vec<String> = self.cards.idle.iter().map(|card| card.device.device.to_string()).collect();
        let idle = match (idle.as_slice(), self.cards.has_hosts) {
            ([], _) => "the error message of each lists memory held by the others.".to_owned(),
            ([only], false) => format!("GPU {only} is idle."),
            (idle, false) => format!("GPUs {} are idle.", abridged(idle)),
            ([_], true) => "1 GPU of the same host is idle.".to_owned(),
            (idle, true) => format!("{} GPUs of the same hosts are idle.", idle.len()),
        };
        let failed = self.blame.failed.map_or_else(String::new, |index| self.failed(index));
        format!("{}, and {idle} {failed}", capital(&listed(named)))
    }

    /// Ranks that were not given are not counted as full.
    fn full_title(&self) -> String {
        let ranks = self.selected.processes.iter().filter(|process| !process.is_helper).count();
        let total = ranks + self.selected.used.missing_ranks.len();
        match (self.blame.full == total, self.selected.world_size) {
            (true, Some(_)) => "EVERY RANK IS FULL".to_owned(),
            (true, None) => format!("ALL {total} RECORDED RANKS ARE FULL"),
            (false, _) => format!("{} OF {total} RANKS ARE FULL", self.blame.full),
        }
    }

    fn full(&self, culprits: &[&Process<'_>]) -> String {
        let failed = self.blame.failed.map_or_else(String::new, |index| self.failed(index));
        let peaks: Vec<u64> = self.selected.processes.iter().map(Process::peak_bytes).collect();
        let known: Vec<u64> = peaks.into_iter().filter(|&peak| peak > 0).collect();
        let (count, own) =
            (known.len(), self.blame.failed.map(|index| self.process(index).shown.summary.as_str()));
        // Logs do not contain the peaks of ranks; the explanation of the one that failed has its figures.
        let typical = match count {
            0 | 1 => own.unwrap_or("").to_owned(),
            _ => format!(
                "No rank stands out: the {count} ranks typically hold {} at their peak.",
                size(super::groups::median(known))
            ),
        };
        join(&[&failed, &also(culprits.len()), &typical])
    }

    fn too_large(&self) -> String {
        let Some(index) = self.blame.failed else { return String::new() };
        let process = self.process(index);
        let Some(failure) = process.decisive() else { return String::new() };
        let has = match (failure.limit_bytes, process.total_bytes(failure.device)) {
            (Some(limit), _) => format!("its limit is {}", size(limit)),
            (None, Some(total)) => format!("the whole GPU has {}", size(total)),
            (None, None) => "the GPU has less".to_owned(),
        };
        let never = format!(
            "This request can never fit, no matter what else is in memory: {has}. A wrong shape or an integer overflow is the most common reason."
        );
        let ran_out = self.blame.fates.iter().filter(|fate| **fate == RankFate::RanOut).count();
        join(&[&self.failed(index), &never, &also(ran_out)])
    }
}

/// ` at train.py:9 forward (5.00 GiB instead of 1.00 GiB)`: the lines that make the difference.
fn where_(lines: &[LineDifference]) -> String {
    let line = |line: &LineDifference| {
        format!("{} ({} instead of {})", short(&line.place), size(line.bytes), size(line.typical_bytes))
    };
    let parts: Vec<String> = lines.iter().take(2).map(line).collect();
    if parts.is_empty() { String::new() } else { format!("; the difference is at {}", listed(&parts)) }
}

/// How many of the ranks that ran out have not been named.
fn also(ran_out: usize) -> String {
    match ran_out {
        0 | 1 => String::new(),
        2 => "1 other rank also ran out of memory.".to_owned(),
        count => format!("{} other ranks also ran out of memory.", count - 1),
    }
}

/// A line without the function that it calls.
pub(super) fn short(place: &str) -> &str {
    place.split_once(", through ").map_or(place, |(place, _)| place)
}

/// The first few of a list.
pub(super) fn abridged(parts: &[String]) -> String {
    let rest = parts.len().saturating_sub(MOST_NAMED);
    // One more is as long as its name.
    if rest < 2 && parts.len() <= MOST_NAMED + 1
        || parts.len() <= 8 && parts.iter().all(|part| part.len() < 3)
    {
        return listed(parts);
    }
    let mut shown = parts[..MOST_NAMED].to_vec();
    shown.push(format!("{rest} more"));
    listed(&shown)
}

pub(super) fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}

pub(super) fn milliseconds(us: u64) -> String {
    if us < 10_000_000 { format!("{} ms", us / 1000) } else { format!("{} s", us / 1_000_000) }
}

pub(super) fn join(parts: &[&str]) -> String {
    let parts: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(" ")
}
