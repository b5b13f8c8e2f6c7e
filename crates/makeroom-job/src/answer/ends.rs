//! The verdict in sentences, where a rank ended for another reason than device memory: it was killed, ran out of host
//! memory, failed with another error, or the others waited for it.

use super::Case;
use super::names::{capital, rank_words, words};
use super::select::Process;
use super::stall::{self, Difference};
use super::witness;
use super::words::{abridged, join, milliseconds, size};
use crate::report::RankFate;
use crate::summarize::signal_words;
use crate::tables::{Collective, End, FailureKind, RecordingKind, StopReason};

/// A cgroup is full from this share of its limit on.
const FULL_CGROUP: f64 = 0.9;

impl Case<'_, '_> {
    pub(super) fn killed(&self, who: &str, many: bool) -> String {
        let index = self.blame.culprits.first().copied();
        let row = index.map(|index| self.process(index).row);
        let on = index.map_or(String::new(), |index| Self::on_host(self.process(index)));
        let cgroup = row.and_then(|row| row.cgroup_bytes.zip(row.cgroup_limit_bytes));
        let resident = row.and_then(|row| row.host_peak_bytes);
        let (its, it) = if many { ("Their", "them") } else { ("Its", "it") };
        let killers = format!(
            "When host memory runs out, the kernel kills processes without notice; a scheduler or a user may also have killed {it}."
        );
        let reason = match (cgroup, resident) {
            (Some((used, limit)), _) if used as f64 >= limit as f64 * FULL_CGROUP => {
                format!(
                    "{its} cgroup used {} of {}, so the kernel's OOM killer most likely killed {it}.",
                    size(used),
                    size(limit)
                )
            }
            (_, Some(resident)) if !many => format!("It used {} of host memory. {killers}", size(resident)),
            _ => killers,
        };
        let (noun, verb) = if many { ("recordings", "stop") } else { ("recording", "stops") };
        let order = self.blame.lead_us.map_or(String::new(), |lead| {
            format!(", {} before those of the other ranks that were killed", milliseconds(lead))
        });
        let is_reported = index.is_some_and(|index| self.process(index).row.kind == RecordingKind::Log);
        if is_reported {
            let was = if many { "were" } else { "was" };
            let gpu = self.on_gpu();
            if !self.is_signaled() {
                return format!(
                    "{}{on} died, and no log shows why. {gpu} When host memory runs out, the kernel kills processes without notice; \
                     a crash or a user may also have ended {it}.",
                    capital(who)
                );
            }
            return format!("{}{on} {was} killed (SIGKILL). {gpu} {reason}", capital(who));
        }
        format!(
            "The {noun} of {who}{on} {verb} abruptly, as after SIGKILL{order}. {} {reason}",
            self.on_gpu()
        )
    }

    /// Whether SIGKILL ended the ranks to blame, as far as is known: Ray only reports that a worker died.
    pub(super) fn is_signaled(&self) -> bool {
        let mut culprits = self.blame.culprits.iter().map(|&index| self.process(index));
        culprits.all(|process| !process.reports(FailureKind::Died))
    }

    /// ` on node7`, unless the name of the process contains it: that of a pod is its host.
    fn on_host(process: &Process<'_>) -> String {
        let host = process.host.filter(|host| !process.label.ends_with(host));
        host.map_or(String::new(), |host| format!(" on {host}"))
    }

    /// Whether GPU memory ran out after ranks were killed.
    pub(super) fn on_gpu(&self) -> String {
        let ran_out = self.blame.fates.iter().enumerate().filter(|(_, fate)| **fate == RankFate::RanOut);
        let later: Vec<usize> = ran_out.map(|(index, _)| index).collect();
        if later.is_empty() {
            return "No GPU allocation failed.".to_owned();
        }
        format!("{} ran out of GPU memory only after that.", capital(&self.names(&later)))
    }

    /// `log`, `recordings`: what the answer is based on.
    pub(super) fn noun(&self, count: usize) -> &'static str {
        let is_log = |process: &Process<'_>| process.row.kind == RecordingKind::Log;
        match (self.selected.processes.iter().all(is_log), count) {
            (true, 1) => "log",
            (true, _) => "logs",
            (false, 1) => "recording",
            (false, _) => "recordings",
        }
    }

    /// The job was ended from outside: the title and the sentences.
    pub(super) fn stopped(&self) -> (String, String) {
        let file = self.selected.stop.map_or(String::new(), |stop| format!(" ({})", stop.file));
        let (title, found) = match self.blame.stop {
            Some(StopReason::TimeLimit) => {
                ("THE JOB REACHED ITS TIME LIMIT", "The scheduler ended the job at its time limit")
            }
            Some(StopReason::Preemption) => {
                ("THE JOB WAS PREEMPTED", "The scheduler ended the job to run another one of higher priority")
            }
            Some(StopReason::NodeFailure) => {
                ("A NODE OF THE JOB FAILED", "The scheduler ended the job because a node failed")
            }
            Some(StopReason::Requeue) => {
                ("THE JOB WAS REQUEUED", "The scheduler ended the job and queued it again")
            }
            Some(StopReason::User) => ("THE JOB WAS CANCELED", "A user or an administrator canceled the job"),
            Some(StopReason::Unknown) => {
                ("THE JOB WAS CANCELED", "The scheduler canceled the job, and no log shows why")
            }
            None => {
                return (
                    "THE JOB WAS STOPPED FROM OUTSIDE".to_owned(),
                    "No rank failed or ran out of memory. The ranks received SIGTERM, which schedulers send when a job reaches \
                     its time limit, is preempted or is canceled."
                        .to_owned(),
                );
            }
        };
        let none = format!("No {} shows that a rank failed or ran out of memory before that.", self.noun(1));
        (title.to_owned(), format!("{found}{file}. {none}"))
    }

    /// Processes that the kernel killed and whose rank is not known.
    pub(super) fn killed_elsewhere(&self) -> Option<String> {
        let (_, file) = self.selected.killed.first()?;
        let mut pids: Vec<String> = self.selected.killed.iter().map(|(pid, _)| pid.to_string()).collect();
        pids.dedup();
        let process = if pids.len() == 1 { "process" } else { "processes" };
        Some(format!(
            "the kernel's OOM killer killed {process} {} because host memory ran out ({file})",
            abridged(&pids)
        ))
    }

    pub(super) fn undetermined(&self) -> String {
        let missing = &self.selected.used.missing_ranks;
        let is_unknown =
            |fate: &RankFate| matches!(fate, RankFate::Unknown | RankFate::Finished | RankFate::Running);
        if let (Some(killed), true) = (self.killed_elsewhere(), self.blame.fates.iter().all(is_unknown)) {
            return format!(
                "No rank shows a failure, but {killed}. No file shows whether this job had such a process."
            );
        }
        let common = stall::common(&self.selected.processes).filter(|_| missing.is_empty());
        if let Some(common) = common {
            return format!(
                "All ranks that timed out were in collective {}, and no log shows what failed first. The most likely \
                 causes are a network problem or a rank that failed without printing anything.",
                described(common)
            );
        }
        let found = format!(
            "The {} show only consequences of a failure: lost connections, collectives that timed out, or ranks that were terminated.",
            self.noun(2)
        );
        if missing.is_empty() {
            let torn = self.torn();
            if torn.is_empty() {
                return format!("{found} None of them shows what failed first.");
            }
            let (noun, verb, they) =
                if torn.len() == 1 { ("recording", "is", "it") } else { ("recordings", "are", "they") };
            return format!(
                "{found} The {noun} of {} {verb} incomplete: {they} may have shown what failed first.",
                words(&torn)
            );
        }
        let verb = if missing.len() == 1 { "has" } else { "have" };
        format!(
            "{found} {} {verb} no {}, so the failure is most likely there.",
            capital(&rank_words(missing.clone())),
            self.noun(1)
        )
    }

    /// Processes whose recordings end in the middle, so that it is not known how they ended.
    fn torn(&self) -> Vec<&Process<'_>> {
        let is_torn = |process: &&Process<'_>| process.row.torn_bytes > 0 && process.end == End::Unknown;
        self.selected.processes.iter().filter(is_torn).collect()
    }

    /// Ranks that the others waited for in a collective.
    pub(super) fn stalled(&self, who: &str, many: bool) -> String {
        let Some(stall) = &self.blame.stall else { return String::new() };
        let who = capital(who);
        let (others, they, were) = match stall.waiting {
            1 => ("the other rank".to_owned(), "it", "was"),
            count => (format!("{count} other ranks"), "they", "were"),
        };
        let number = stall.others.number;
        let found = match (stall.difference, &stall.own) {
            (Difference::Behind, Some(own)) => format!(
                "{who} timed out in collective {}; {others} timed out in collective {}, so {they} had already finished \
                 collective {} and {were} waiting for {}.",
                described(own),
                described(&stall.others),
                own.number,
                self.names(&stall.ranks),
            ),
            (Difference::Operation, Some(own)) => {
                // The sizes matter only if the operations are the same.
                let is_size = own.operation == stall.others.operation;
                format!(
                    "{who} called {} as collective {}, and {others} called {} as collective {number}: ranks that call \
                     different collectives deadlock.",
                    operation(own, is_size),
                    own.number,
                    operation(&stall.others, is_size),
                )
            }
            _ => format!(
                "{} ranks timed out in collective {}, but {} did not: most likely, {} never called that collective.",
                stall.waiting,
                described(&stall.others),
                self.names(&stall.ranks),
                if many { "they" } else { "it" },
            ),
        };
        format!("{found} No log shows an earlier error or a failed allocation.")
    }

    fn names(&self, indices: &[usize]) -> String {
        words(&indices.iter().map(|&index| self.process(index)).collect::<Vec<_>>())
    }
}

/// `81 (ALLREDUCE)`.
fn described(collective: &Collective) -> String {
    match &collective.operation {
        Some(_) => format!("{} ({})", collective.number, operation(collective, false)),
        None => collective.number.to_string(),
    }
}

/// `ALLREDUCE`, or `ALLREDUCE of 1024 elements`.
fn operation(collective: &Collective, has_size: bool) -> String {
    let name = collective.operation.as_deref().unwrap_or("an unknown operation");
    match collective.elements.filter(|_| has_size) {
        Some((input, output)) if input == output => format!("{name} of {input} elements"),
        Some((input, output)) => format!("{name} of {input} to {output} elements"),
        None => name.to_owned(),
    }
}

/// Ranks that the kernel killed, or whose processes it killed.
pub(super) fn starved(who: &str, culprits: &[&Process<'_>], on_gpu: &str) -> String {
    let Some(first) = culprits.first() else { return String::new() };
    if first.shown.cause == "host_memory" {
        return join(&[&format!("{}:", capital(&first.label)), &first.shown.summary]);
    }
    let on = first.host.map_or(String::new(), |host| format!(" on {host}"));
    let used = first.row.host_peak_bytes.map_or(String::new(), |bytes| {
        format!(" {} used {} of host memory.", capital(&first.label), size(bytes))
    });
    if let Some(report) = witness::supposed(first) {
        let pid = report.pid.map_or_else(String::new, |pid| format!(" {pid}"));
        let program = report.killed.as_ref().and_then(|killed| killed.program.as_deref());
        let program = program.map_or(String::new(), |program| format!(" ({program})"));
        let unsure = match first.pid {
            Some(_) => "PIDs inside a container differ from the host's".to_owned(),
            None => format!("No file shows the PID of {who}"),
        };
        let was = if culprits.len() > 1 { "were" } else { "was" };
        return format!(
            "{}{on} {was} killed (SIGKILL), and the kernel's OOM killer killed process{pid}{program}. {unsure}, so that \
             may have been a different process. {on_gpu}{used}",
            capital(who)
        );
    }
    format!(
        "The kernel's OOM killer killed {who}{on}, because host memory ran out or a cgroup reached its limit. {on_gpu}{used}"
    )
}

/// The signal that ended a process.
fn crash_signal(process: &Process<'_>) -> Option<u32> {
    if let End::Signaled(signal) = process.end { Some(signal) } else { None }
}

/// Ranks that failed for a reason other than memory.
pub(super) fn other_failure(who: &str, culprits: &[&Process<'_>]) -> String {
    let who = capital(who);
    let (logs, does) = if culprits.len() > 1 { ("their logs", "do") } else { ("its log", "does") };
    let signal = culprits.iter().find_map(|process| crash_signal(process));
    let found = match (culprits.iter().find_map(|process| process.error), signal) {
        (Some(error), _) if culprits.iter().all(|process| process.has_only_exit_code()) => {
            format!("{who} may have failed with: {}", error.trim_end_matches('.'))
        }
        (Some(error), _) => format!("{who} failed with: {}", error.trim_end_matches('.')),
        (None, Some(signal)) => format!("{who} crashed with {}", signal_words(signal)),
        (None, None) if culprits.iter().all(|process| process.has_log) => {
            format!("{who} exited with an error that {logs} {does} not show")
        }
        (None, None) => format!("{who} exited with an error; check {logs} for the reason"),
    };
    format!("No allocation failed on any rank. {found}.")
}
