//! What to do, most effective first. The last step shows more about the rank to blame, if its file has more to show.

use std::path::Path;

use makeroom_core::shell_word;
use makeroom_ordered::OrderedSet;

use super::Case;
use super::look;
use super::names::{rank_words, words};
use super::select::Process;
use super::stall::{self, Difference};
use super::words::{short, size};
use crate::report::{JobCause, JobFix, RankFate};
use crate::tables::{FailureKind, FailureRow, RecordingKind, RecordingRow, StopReason};

/// Steps, with the one that shows more.
const MOST_FIXES: usize = 4;

/// Ranks are equally full if the least full one holds this share of the fullest.
const SAME: f64 = 0.9;

const USE_LESS_HOST_MEMORY: &str =
    "use fewer data loader workers, pin less memory, or request more host memory for the job";

fn fix(action: impl Into<String>) -> JobFix {
    JobFix { action: action.into(), command: None }
}

fn run(action: impl Into<String>, command: impl Into<String>) -> JobFix {
    JobFix { action: action.into(), command: Some(command.into()) }
}

/// The ID of a job of Slurm. Open MPI and others number jobs too.
fn slurm_job(row: &RecordingRow) -> Option<&str> {
    let is_slurm = matches!(row.launcher.as_deref(), None | Some("slurm" | "torchrun"));
    let is_number = |job: &&str| job.bytes().all(|byte| byte.is_ascii_digit());
    row.job.as_deref().filter(is_number).filter(|_| is_slurm)
}

/// Whether the name of a program is that of a Python script.
fn is_script(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("py"))
}

impl Case<'_, '_> {
    pub(super) fn fixes(&self) -> Vec<JobFix> {
        let mut fixes = match self.blame.cause {
            JobCause::None | JobCause::RankRanOut | JobCause::HostMemory => Vec::new(),
            JobCause::RequestTooLarge => self.check_size(),
            JobCause::Caught => vec![fix(
                "nothing needs to change; a smaller first attempt avoids the failed allocations and their delay",
            )],
            JobCause::RankHoldsMore => self.balance_rank(),
            JobCause::GroupHoldsMore => self.balance_groups(),
            JobCause::RanksShareGpu => self.set_device(),
            JobCause::EveryRankFull => self.shrink(),
            JobCause::RankKilled => self.host_memory(),
            JobCause::AllKilled | JobCause::Terminated => self.ask_scheduler(),
            JobCause::OtherFailure => self.read_log(),
            JobCause::CollectiveStalled => self.find_stall(),
            JobCause::Undetermined => self.find_first(),
        };
        if matches!(
            self.blame.cause,
            JobCause::RankHoldsMore | JobCause::EveryRankFull | JobCause::RankRanOut | JobCause::HostMemory
        ) {
            let own = self
                .blame
                .culprits
                .first()
                .map_or(&[][..], |&index| self.process(index).shown.fixes.as_slice());
            fixes.extend(
                own.iter()
                    .map(|(action, command)| JobFix { action: action.clone(), command: command.clone() }),
            );
        }
        if self.blame.cause == JobCause::HostMemory {
            fixes.truncate(MOST_FIXES - 2);
            fixes.push(fix(USE_LESS_HOST_MEMORY));
        }
        if fixes.is_empty() && self.blame.cause == JobCause::RankRanOut {
            fixes.push(run(
                "record the ranks: the recordings show which lines hold the memory of each",
                "makeroom run -- torchrun …",
            ));
        }
        fixes.truncate(MOST_FIXES - 1);
        fixes.extend(self.look_closer());
        fixes
    }

    /// After a request that can never fit, so that free memory does not help.
    fn check_size(&self) -> Vec<JobFix> {
        let failed = self.blame.failed.map(|index| self.process(index));
        let failure = failed.and_then(Process::decisive);
        let place = failure.and_then(|failure| failure.place.as_deref());
        let at = place.map_or(String::new(), |place| format!(" at {}", short(place)));
        let mut fixes = vec![fix(format!(
            "check the shape or the size computation of the request{at}: a wrong dimension, an integer overflow, or samples that are padded to the longest"
        ))];
        let limit = if failure.is_some_and(|failure| failure.limit_bytes.is_some()) {
            "or raise --limit; "
        } else {
            ""
        };
        fixes.push(fix(format!(
            "if the size is right: {limit}split the request into chunks, or shard the tensor over several GPUs"
        )));
        fixes
    }

    /// Whether the ranks that ran out did so for the same reason, with about the same figures.
    fn is_uniform(&self) -> bool {
        let ran_out = || self.blame.culprits.iter().map(|&index| self.process(index));
        let figures = |of: &dyn Fn(&Process<'_>) -> Option<u64>| {
            let known: Vec<u64> = ran_out().filter_map(of).collect();
            let (least, most) = (known.iter().min(), known.iter().max());
            least.zip(most).is_none_or(|(&least, &most)| least as f64 >= most as f64 * SAME)
        };
        let causes: OrderedSet<&str> = ran_out().map(|process| process.shown.cause.as_str()).collect();
        causes.len() < 2
            && figures(&|process| process.decisive()?.held_bytes)
            && figures(&|process| process.total_bytes(process.decisive()?.device))
    }

    fn shrink(&self) -> Vec<JobFix> {
        let all = self.selected.processes.len() + self.selected.used.missing_ranks.len();
        let why = if self.blame.full < all || !self.is_uniform() {
            ""
        } else {
            ": all ranks are equally full, so balancing does not help"
        };
        vec![fix(format!(
            "use a smaller batch per rank, or shard parameters and optimizer states over the ranks (FSDP, ZeRO){why}"
        ))]
    }

    fn balance_rank(&self) -> Vec<JobFix> {
        let Some(&index) = self.blame.culprits.first() else { return Vec::new() };
        let Some((_, group, member)) = self.member(index) else { return Vec::new() };
        let lines = group.differences(member);
        let excess = size(group.excess(member).unwrap_or(0));
        let label = &self.process(index).label;
        lines.first().map_or_else(Vec::new, |line| {
            vec![fix(format!(
                "balance the work of {label} at {} (sample lengths, experts, layers): it holds {excess} more than similar ranks",
                short(&line.place)
            ))]
        })
    }

    fn balance_groups(&self) -> Vec<JobFix> {
        let Some(group) = self.blame.group.and_then(|index| self.groups.get(index)) else {
            return Vec::new();
        };
        let least = self.groups.iter().min_by_key(|group| group.typical_bytes);
        let Some(least) = least else { return Vec::new() };
        let members: Vec<&Process<'_>> =
            least.members.iter().map(|member| self.process(member.process)).collect();
        let half = group.typical_bytes.saturating_sub(least.typical_bytes) / 2;
        vec![
            fix(format!(
                "move layers or experts worth up to {} to {}, which {} the most free memory",
                size(half),
                words(&members),
                if members.len() == 1 { "has" } else { "have" }
            )),
            fix(
                "if the groups are pipeline stages, fewer microbatches in flight or activation checkpointing on the full stage also help",
            ),
        ]
    }

    fn set_device(&self) -> Vec<JobFix> {
        let is_torch = self.selected.processes.iter().any(|process| {
            process
                .row
                .framework
                .as_deref()
                .is_some_and(|name| name.contains("torch") || name.contains("lightning"))
                || process.row.program.as_deref().is_some_and(is_script)
        });
        let command = if is_torch {
            "torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"]))"
        } else {
            "cudaSetDevice(atoi(getenv(\"LOCAL_RANK\")));"
        };
        vec![
            run("select one GPU per rank before the program's first CUDA call", command),
            run(
                "or make only its own GPU visible to each rank when you start it",
                "CUDA_VISIBLE_DEVICES=$LOCAL_RANK    # under Slurm: $SLURM_LOCALID",
            ),
        ]
    }

    fn host_memory(&self) -> Vec<JobFix> {
        let culprits: Vec<&Process<'_>> =
            self.blame.culprits.iter().map(|&index| self.process(index)).collect();
        let culprit = culprits.first();
        let host = culprit.and_then(|process| process.host.filter(|host| !process.label.ends_with(host)));
        let on = host.map_or(String::new(), |host| format!(" on {host}"));
        let mut fixes = vec![run(
            format!("check whether the kernel's OOM killer killed {}{on}", words(&culprits)),
            "dmesg -T | grep -i -E 'killed process|oom'",
        )];
        if let Some(job) = culprit.and_then(|process| slurm_job(process.row)) {
            fixes.push(run(
                "check Slurm's accounting record of the job",
                format!("sacct -j {job} --format=JobID,State,ExitCode,MaxRSS,ReqMem"),
            ));
        }
        fixes.push(fix(format!("if host memory ran out: {USE_LESS_HOST_MEMORY}")));
        let ran_out = self.blame.fates.iter().position(|fate| *fate == RankFate::RanOut);
        let own =
            ran_out.and_then(|index| Some((self.process(index), self.process(index).shown.fixes.first()?)));
        if own.is_some() {
            fixes.truncate(MOST_FIXES - 2);
        }
        fixes.extend(own.map(|(process, (action, command))| JobFix {
            action: format!("for {}, which ran out of GPU memory: {action}", process.label),
            command: command.clone(),
        }));
        fixes
    }

    fn ask_scheduler(&self) -> Vec<JobFix> {
        let mut fixes = Vec::new();
        let resume = "save checkpoints so that the next job continues from the last one";
        let is_known = match self.blame.stop {
            Some(StopReason::TimeLimit) => {
                fixes.push(fix(format!("request a longer time limit, or {resume}")));
                true
            }
            Some(StopReason::Unknown) | None => false,
            Some(_) => {
                fixes.push(fix(resume));
                true
            }
        };
        match self.selected.processes.iter().find_map(|process| slurm_job(process.row)) {
            Some(job) => fixes.push(run(
                if is_known {
                    "check Slurm's accounting record of the job"
                } else {
                    "find out why the scheduler stopped the job"
                },
                format!("sacct -j {job} --format=JobID,State,ExitCode,Elapsed,Timelimit"),
            )),
            None if is_known => {}
            None => fixes.push(fix(
                "find out why the scheduler stopped the job: its time limit, a preemption or a failed node",
            )),
        }
        fixes
    }

    /// After a failure that is not about memory.
    fn read_log(&self) -> Vec<JobFix> {
        let culprits = || self.blame.culprits.iter().map(|&index| self.process(index));
        if !culprits().all(|process| process.has_log) {
            let culprits: Vec<&Process<'_>> = culprits().collect();
            let (log, who) = (if culprits.len() > 1 { "logs" } else { "log" }, words(&culprits));
            return vec![fix(format!(
                "pass the {log} of {who} too: makeroom job accepts recordings, snapshots and logs together"
            ))];
        }
        let is_cuda =
            culprits().filter_map(|process| process.error).any(|error| error.contains("CUDA error"));
        if is_cuda {
            return vec![run(
                "run again with synchronous kernel launches: the traceback then shows the line that failed",
                "CUDA_LAUNCH_BLOCKING=1 python …",
            )];
        }
        Vec::new()
    }

    /// After a collective in which others waited for a rank.
    fn find_stall(&self) -> Vec<JobFix> {
        let Some(stall) = &self.blame.stall else { return Vec::new() };
        let who = words(&stall.ranks.iter().map(|&index| self.process(index)).collect::<Vec<_>>());
        let mut fixes = Vec::new();
        if stall.difference == Difference::Operation {
            fixes.push(run(
                "rerun with consistency checks, which report ranks that call different collectives or use different shapes",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL torchrun …",
            ));
        }
        fixes.push(run(
            format!("record the last collectives of each rank: the dump shows where {who} stopped"),
            "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun …",
        ));
        if stall.difference != Difference::Operation {
            fixes.push(fix(format!(
                "check the code before this collective for steps that can take longer on {who}: data loading, checkpoints, evaluation, a branch that only some ranks take"
            )));
        }
        fixes
    }

    /// Where only consequences are known.
    fn find_first(&self) -> Vec<JobFix> {
        let processes = &self.selected.processes;
        let missing = &self.selected.used.missing_ranks;
        let mut fixes = Vec::new();
        if !self.selected.killed.is_empty() {
            fixes.push(fix(
                "pass the launcher's log or recordings of the ranks too: they show which rank had the killed PID",
            ));
        }
        if missing.is_empty() && !processes.iter().all(|process| process.has_log) {
            fixes.push(fix(
                "pass the logs of the ranks too: makeroom job accepts recordings, snapshots and logs together",
            ));
        }
        let is_unread = |failure: &&FailureRow| {
            failure.kind == FailureKind::CollectiveTimeout && failure.collective.is_none()
        };
        let mut logs: Vec<&str> = processes
            .iter()
            .filter(|process| process.has_log && process.failures.iter().any(is_unread))
            .map(|process| process.row.file())
            .collect();
        logs.dedup();
        if let (Some(&file), true) = (logs.first(), missing.is_empty()) {
            let folder = file.rsplit_once('/').map_or(".", |(folder, _)| folder);
            fixes.push(run(
                "compare the collectives that timed out: a rank with a different one, or with none, held up the others",
                format!("grep -riE 'collective|timed? ?out' {}", shell_word(folder)),
            ));
        }
        if missing.is_empty() && stall::common(processes).is_some() {
            fixes.push(run(
                "check the network between the hosts, and turn on NCCL's log",
                "NCCL_DEBUG=INFO torchrun …",
            ));
        }
        if !missing.is_empty() {
            let (log, it) = if missing.len() == 1 { ("log", "it") } else { ("logs", "them") };
            fixes.push(fix(format!("find the {log} of {} and pass {it} too", rank_words(missing.clone()))));
            fixes.push(run("or record every rank of the next run", "makeroom run -- torchrun …"));
        }
        fixes
    }

    /// The command that shows the rank to blame, or the fullest one.
    fn look_closer(&self) -> Option<JobFix> {
        let first = self.blame.culprits.first().or(self.blame.failed.as_ref()).copied();
        let fullest = || {
            let ranks = self.selected.processes.iter().enumerate();
            ranks
                .max_by_key(|(index, process)| (process.peak_bytes(), std::cmp::Reverse(*index)))
                .map(|(index, _)| index)
        };
        let process = self.process(first.or_else(fullest)?);
        // A log that shows no failed allocation has nothing to explain.
        let is_shown = process.shown.kind != RecordingKind::Log || process.shown.explains();
        is_shown.then(|| run(format!("inspect {} in detail", process.label), look::command(process.shown)))
    }
}
