//! What counts as evidence in logs: handled errors, source lines, lines of the kernel, collectives that timed out, two logs
//! of one rank, numbered files, and prefixes of launchers.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may panic, and be slow")]

use crate::support::{LOST, OUT_OF_MEMORY, TRACEBACK, culprits, job, prefixed, rows};
use makeroom_core::identity::FailureList;
use makeroom_job::{JobCause, RankFate, answer};
use proptest::prelude::*;

/// The line of PyTorch's watchdog.
fn timed_out(number: u32, operation: &str, elements: u32) -> String {
    format!(
        "[E1117 ProcessGroupNCCL.cpp:616] [PG 0 Rank 2] Watchdog caught collective operation timeout: \
         WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn={elements}, NumelOut={elements}, Timeout(ms)=600000) ran for \
         600012 milliseconds before timing out.\n"
    )
}

#[test]
fn a_hostile_list_of_tasks_is_bounded() {
    let host = "h".repeat(16_000);
    let line = |last: u32| format!("srun: error: {host}: tasks 0-{last}: Killed\n");
    let log: String = (0..100).map(|index| line(u32::MAX - index)).collect();
    let rows = rows(&[("slurm.out", &log)]);
    assert!(rows.recordings.len() <= 1 << 16, "{}", rows.recordings.len());
    let bytes: usize = rows.recordings.iter().filter_map(|row| row.host.as_ref()).map(String::len).sum();
    assert!(bytes <= rows.recordings.len() * 255, "{bytes} bytes of host names");
    assert!(rows.failures.len() <= FailureList::MOST_TASKS, "{}", rows.failures.len());
    assert_eq!(answer(&rows).ranks.len(), rows.recordings.len());
}

#[test]
fn the_last_error_that_was_not_handled_decides() {
    let steps: String = (0..8).map(|step| format!("step {step}: loss 2.7\n")).collect();
    let handled = format!("{steps}{TRACEBACK}KeyError: 'sample 7'\nskipped\n{steps}");
    let fatal = format!("{handled}{TRACEBACK}ValueError: bad shape\n");
    let report = job(&[("rank0.log", LOST), ("rank1.log", &fatal)]);
    assert!(report.verdict.summary.contains("ValueError: bad shape"), "{}", report.verdict.summary);
    let report = job(&[("rank0.log", &steps), ("rank1.log", &handled)]);
    assert_eq!(report.verdict.cause, JobCause::None, "{:?}", report.verdict);
    // A connection that was lost long before does not explain the error, and is not the rank's end.
    let pipe = "[W socket.cpp] sendBytes failed: Broken pipe (errno: 32)\n";
    let early = format!("{steps}{pipe}{steps}{TRACEBACK}ValueError: bad shape\n");
    let report = job(&[("rank0.log", LOST), ("rank1.log", &early)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::OtherFailure, vec!["rank 1"]));
    let report = job(&[("rank0.log", &format!("{steps}{pipe}{steps}")), ("rank1.log", &steps)]);
    assert_eq!(report.verdict.cause, JobCause::None, "{:?}", report.verdict);
}

/// A log of four ranks without prefixes: rank 2 fails, and the others print more steps before the launcher ends them.
fn without_prefixes(end: &str) -> String {
    let steps: String = (0..8).map(|step| format!("step {step}: loss 2.7\n")).collect();
    format!("{steps}{TRACEBACK}ValueError: bad shape\n{steps}{end}")
}

#[test]
fn lines_of_other_ranks_do_not_hide_the_error_of_the_rank_that_failed() {
    let torchrun = |code: i32| {
        format!(
            "Root Cause (first observed failure):\n[0]:\n  host      : node7\n  rank      : 2 (local_rank: 2)\n  \
             exitcode  : {code} (pid: 4002)\n"
        )
    };
    let one =
        "srun: error: node7: task 2: Exited with exit code 1\nsrun: error: node7: tasks 0-1,3: Terminated\n";
    for end in [torchrun(1), format!("{LOST}\n{}", torchrun(1)), one.to_owned()] {
        let report = job(&[("all.log", &without_prefixes(&end))]);
        assert_eq!(
            (report.verdict.cause, culprits(&report)),
            (JobCause::OtherFailure, vec!["rank 2"]),
            "{end}"
        );
        assert!(report.verdict.summary.ends_with("ValueError: bad shape."), "{}", report.verdict.summary);
    }
    // All ranks exited with an error: it is not known whose it is.
    let all = "srun: error: node7: tasks 0-3: Exited with exit code 1\n";
    let report = job(&[("all.log", &without_prefixes(all))]);
    assert_eq!((report.verdict.certainty, culprits(&report)), ("likely", vec!["a process in all.log"]));
    assert!(report.verdict.summary.ends_with("ValueError: bad shape."), "{}", report.verdict.summary);
    // A rank that was killed had handled its error, and so had one that shows another reason.
    let report = job(&[("all.log", &without_prefixes(&torchrun(-9)))]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 2"]));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let other = prefixed("[rank2]: ", &format!("{TRACEBACK}TypeError: x"));
    let report = job(&[("all.log", &without_prefixes(&(other + &torchrun(1))))]);
    assert!(
        report.verdict.summary.ends_with("Rank 2 failed with: TypeError: x."),
        "{}",
        report.verdict.summary
    );
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn a_listed_rank_has_its_last_error_unless_something_else_explains_its_end() {
    let end = "srun: error: node7: tasks 0-1: Exited with exit code 1\n";
    let own = |rank: u32, text: &str| prefixed(&format!("[rank{rank}]: "), text);
    let failed = own(1, &without_prefixes(""));
    let report = job(&[("all.log", &format!("{}{failed}{end}", own(0, LOST)))]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::OtherFailure, vec!["rank 1"]));
    assert!(report.verdict.summary.ends_with("ValueError: bad shape."), "{}", report.verdict.summary);
    let fatal = own(0, &format!("{TRACEBACK}TypeError: x"));
    let report = job(&[("all.log", &format!("{failed}{fatal}{end}"))]);
    assert_eq!(culprits(&report), ["rank 0"], "the error that was not handled explains both");
    let report = job(&[("all.log", &format!("{failed}{}{}{end}", own(1, LOST), own(0, LOST)))]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined, "{:?}", report.verdict);
}

#[test]
fn many_kills_in_a_job_of_many_ranks_are_assigned_in_time() {
    // Each rank has another host, and the kernel's log has the domain of the hosts.
    let ranks: String =
        (0..1 << 14).map(|rank| format!("srun: error: Node{rank}: task {rank}: Killed\n")).collect();
    let kills: String = (0..1 << 12)
        .map(|kill| {
            let host = 3 * kill;
            format!("Nov 17 10:00:00 node{host}.x.org kernel: Out of memory: Killed process {kill} (python) total-vm:9kB\n")
        })
        .collect();
    let report = job(&[("slurm.out", &ranks), ("messages", &kills)]);
    assert_eq!((report.verdict.cause, report.culprits.len()), (JobCause::HostMemory, 1 << 12));
    assert_eq!(report.culprits[1].label, "rank 3");
}

#[test]
fn an_announced_kill_is_that_of_the_process_that_was_killed() {
    let mpirun =
        "mpirun noticed that process rank 1 with PID 4712 on node node7 exited on signal 9 (Killed).\n";
    let kernel = "[1.6] Memory cgroup out of memory: Kill process 4711 (python) score 9 or sacrifice child\n\
        [1.6] Killed process 4712 (python) total-vm:98123456kB\n";
    let rows = rows(&[("job.log", mpirun), ("dmesg.txt", kernel)]);
    let pids: Vec<u32> = rows.failures.iter().filter_map(|failure| failure.pid).collect();
    assert_eq!(pids, [4712]);
    let report = answer(&rows);
    assert_eq!((report.verdict.cause, report.verdict.certainty), (JobCause::HostMemory, "certain"));
    let other = mpirun.replace("4712", "4711");
    let report = job(&[("job.log", &other), ("dmesg.txt", kernel)]);
    assert_eq!(report.verdict.cause, JobCause::RankKilled, "its child was killed");
}

#[test]
fn source_lines_of_a_traceback_are_not_evidence() {
    let quoted = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    raise RuntimeError(\"Connection \
        closed by peer\")  # collective operation timed out\nValueError: bad shape\n";
    let rows = rows(&[("rank0.log", LOST), ("rank1.log", quoted)]);
    let report = answer(&rows);
    assert!(
        report.verdict.summary.ends_with("failed with: ValueError: bad shape."),
        "{}",
        report.verdict.summary
    );
    assert_eq!(rows.failures.iter().filter(|failure| failure.recording == "rank1.log").count(), 1);
}

#[test]
fn a_kill_is_certain_only_if_the_kernel_names_the_rank() {
    let mpirun = "mpirun noticed that process rank 1 with PID 0 on node node7 exited on signal 9 (Killed).\n";
    let killed =
        |program: &str| format!("[1.7] Out of memory: Killed process 4006 ({program}) total-vm:98123456kB\n");
    let certainty = |kernel: &str| {
        let report = job(&[("job_77.log", mpirun), ("dmesg.txt", kernel)]);
        (report.verdict.cause, report.verdict.certainty, report.verdict.summary)
    };
    let (cause, certain, summary) = certainty(&killed("python3"));
    assert_eq!((cause, certain), (JobCause::HostMemory, "likely"));
    assert_eq!(
        summary,
        "Rank 1 on node7 was killed (SIGKILL), and the kernel's OOM killer killed process 4006 (python3). No file shows \
         the PID of rank 1, so that may have been a different process. No GPU allocation failed."
    );
    assert_eq!(certainty(&killed("mysqld")).1, "possible");
    let cgroup = "[1.6] oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/uid_1/job_77/step_0,task=python,pid=4006\n";
    assert_eq!(certainty(&format!("{cgroup}{}", killed("python"))).1, "certain");
    let other = cgroup.replace("job_77", "job_770");
    assert_eq!(certainty(&format!("{other}{}", killed("python"))).1, "likely");
    // Another host.
    let syslog = killed("python").replace("[1.7]", "Nov 17 10:00:00 node8 kernel:");
    assert_eq!(certainty(&syslog).0, JobCause::RankKilled);
    assert_eq!(certainty(&syslog.replace("node8", "node7.example.org")).0, JobCause::HostMemory);
}

#[test]
fn names_of_files_can_look_like_names_of_ranks() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let report = job(&[("run (rank 1 only)/rank0.log", LOST), ("run (rank 1 only)/rank1.log", &failed)]);
    assert_eq!((culprits(&report), report.used.files), (vec!["rank 1"], 2));
    assert_eq!(
        report.fixes.last().unwrap().command.as_deref(),
        Some("makeroom why 'run (rank 1 only)/rank1.log'")
    );
    let report = job(&[("all (rank 0).log", &prefixed("[rank3]: ", &failed))]);
    assert_eq!(report.fixes.last().unwrap().command.as_deref(), Some("makeroom why 'all (rank 0).log'"));
}

#[test]
fn the_rank_that_the_others_waited_for_is_named() {
    let at = |number| timed_out(number, "ALLREDUCE", 64);
    let files = |texts: [String; 4]| {
        let names = ["rank0.log", "rank1.log", "rank2.log", "rank3.log"];
        let files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
        job(&files)
    };
    let report = files([at(84), at(84), at(81), at(84)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::CollectiveStalled, vec!["rank 2"]));
    assert_eq!(
        (report.verdict.certainty, report.verdict.title.as_str()),
        ("likely", "RANK 2 HELD UP A COLLECTIVE")
    );
    assert_eq!(report.consequences[0].words, "ranks 0, 1 and 3");
    let report = files([at(84), timed_out(84, "BROADCAST", 64), at(84), at(84)]);
    assert_eq!((report.verdict.certainty, culprits(&report)), ("likely", vec!["rank 1"]));
    assert!(
        report.verdict.summary.contains("called BROADCAST as collective 84"),
        "{}",
        report.verdict.summary
    );
    let report = files([at(84), timed_out(84, "ALLREDUCE", 65), at(84), at(84)]);
    assert!(report.verdict.summary.contains("called ALLREDUCE of 65 elements"), "{}", report.verdict.summary);
    let report = files([at(84), at(84), at(84), "step 7\n".to_owned()]);
    assert_eq!((report.verdict.certainty, culprits(&report)), ("possible", vec!["rank 3"]));
    // Lines that do not name the group, and IDs of a group that differ between ranks.
    let unnamed = |number| at(number).replace("[PG 0 Rank 2] ", "[Rank 2] ");
    let report = files([unnamed(84), unnamed(84), unnamed(81), unnamed(84)]);
    assert_eq!((report.verdict.certainty, culprits(&report)), ("possible", vec!["rank 2"]));
    let group = |number, id: u32| at(number).replace("PG 0", &format!("PG ID {id} PG GUID 5(tp)"));
    let report = files([group(84, 1), group(84, 1), group(81, 2), group(84, 1)]);
    assert_eq!((report.verdict.certainty, culprits(&report)), ("likely", vec!["rank 2"]));
    // All alike, numbers of different groups, and failures that explain more.
    let report = files([at(84), at(84), at(84), at(84)]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
    let report = files([at(84), at(84), at(84), at(81).replace("PG 0", "PG 7")]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
    let report = files([at(84), at(84), at(81), format!("{TRACEBACK}{OUT_OF_MEMORY}\n")]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 3"]));
    let report = job(&[("rank0.log", &at(9)), ("rank1.log", &at(10))]);
    assert_eq!(culprits(&report), ["rank 0"]);
    // A rank without a log may be the one that is meant.
    let report = job(&[("rank0of3.log", &at(9)), ("rank1of3.log", &at(10))]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
}

#[test]
fn two_logs_of_a_rank_with_different_failures_are_not_duplicates() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let other = format!("{TRACEBACK}ValueError: bad shape\n");
    let report = job(&[("rank0.log", LOST), ("a/rank1.err", &other), ("b/rank1.log", &failed)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    assert!(report.used.duplicates.is_empty(), "{:?}", report.used);
    let note = "rank 1 has two logs with different failures: b/rank1.log was used; a/rank1.err shows: ValueError: bad shape";
    assert!(report.notes.iter().any(|found| found == note), "{:?}", report.notes);
    // The same failure twice, or once.
    for text in [failed.as_str(), "step 1\n"] {
        let report = job(&[("rank0.log", LOST), ("a/rank1.err", text), ("b/rank1.log", &failed)]);
        assert!(report.used.conflicts.is_empty(), "{:?}", report.used);
        assert_eq!(report.ranks.len(), 2);
    }
}

#[test]
fn pods_are_named_and_their_launchers_are_not_ranks() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let line = |pod: u32, text: &str| prefixed(&format!("[pod/sft-{pod}/main] "), text);
    let log = [line(0, LOST), line(1, &failed), line(2, LOST)].concat();
    let report = job(&[("all.log", &log)]);
    assert_eq!(report.verdict.title, "POD sft-1 RAN OUT OF MEMORY");
    assert_eq!(report.consequences[0].words, "pods sft-0 and sft-2");
    assert!(report.verdict.summary.contains(" on GPU 1 at "), "{}", report.verdict.summary);
    // torchrun in each pod: its report has both ranks.
    let end = "Root Cause (first observed failure):\n[0]:\n  host      : sft-1\n  rank      : 3 (local_rank: 1)\n  \
        exitcode  : -9 (pid: 77)\n  traceback : Signal 9 (SIGKILL) received by PID 77\n";
    let steps = "[default0]:step\n[default1]:step\n";
    let report = job(&[("all.log", &[line(0, steps), line(1, steps), line(1, end)].concat())]);
    let labels: Vec<&str> = report.ranks.iter().map(|rank| rank.label.as_str()).collect();
    assert_eq!(labels, ["rank 3", "local rank 0 of sft-0", "local rank 1 of sft-0", "local rank 0 of sft-1"]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 3"]));
}

#[test]
fn the_two_files_of_a_local_rank_are_one_process() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let names: Vec<String> = (0..2)
        .flat_map(|rank| ["stdout", "stderr"].map(|stream| format!("x/attempt_0/{rank}/{stream}.log")))
        .collect();
    let texts = ["step\n", "warning\n", "step\n", failed.as_str()];
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts).collect();
    let report = job(&files);
    let labels: Vec<&str> = report.ranks.iter().map(|rank| rank.label.as_str()).collect();
    assert_eq!((labels, culprits(&report)), (vec!["local rank 0", "local rank 1"], vec!["local rank 1"]));
}

#[test]
fn a_number_in_which_files_differ_is_a_rank_unless_their_lines_name_others() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let report = job(&[("d/job_0.txt", LOST), ("d/job_1.txt", &failed)]);
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 1"], 2));
    assert!(report.used.other_jobs.is_empty(), "{:?}", report.used);
    // Each file is the log of a whole job.
    let all = |rank: u32| {
        format!("step\n{}{}", prefixed("[rank5]: ", LOST), prefixed(&format!("[rank{rank}]: "), &failed))
    };
    let report = job(&[("d/job_0.txt", "[rank0]: x\n[rank1]: x\n"), ("d/job_1.txt", &all(3))]);
    assert_eq!((report.job.as_deref(), culprits(&report)), (Some("1"), vec!["rank 3"]));
    assert_eq!(report.used.other_jobs, ["job 0 (2 recordings)"]);
}

#[test]
fn an_error_next_to_the_one_that_is_explained_is_listed() {
    let access = "RuntimeError: CUDA error: an illegal memory access was encountered";
    let log = [
        prefixed("[rank0]: ", LOST),
        prefixed("[rank1]: ", &format!("{TRACEBACK}{OUT_OF_MEMORY}")),
        prefixed("[rank2]: ", &format!("{TRACEBACK}{access}")),
        prefixed("[rank3]: ", &format!("{TRACEBACK}ValueError: bad shape")),
        "[rank4]: terminate called after throwing an instance of 'c10::Error'\n".to_owned(),
    ];
    let report = job(&[("all.log", &log.concat())]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    let errors: Vec<(&str, &str)> =
        report.errors.iter().map(|found| (found.words.as_str(), found.error.as_str())).collect();
    assert!(errors.contains(&("rank 2", access)), "{errors:?}");
    assert!(errors.contains(&("rank 3", "ValueError: bad shape")), "{errors:?}");
    assert_eq!(errors.len(), 3, "{errors:?}");
    assert_eq!(report.ranks[2].fate, RankFate::Failed);
}

/// The prefix of a rank's lines in each style.
const STYLES: [fn(u32) -> String; 9] = [
    |rank| format!("[rank{rank}]: "),
    |rank| format!("[default{rank}]:"),
    |rank| format!("[default{rank}]:[rank{rank}]: "),
    |rank| format!("{rank}: "),
    |rank| format!("[1,{rank}]<stderr>:"),
    |rank| format!("(RayTrainWorker pid={}, ip=10.0.0.{rank}) ", 4000 + rank),
    |rank| format!("(pid={}) ", 4000 + rank),
    |rank| format!("[pod/train-worker-{rank}/main] "),
    |rank| format!("train-worker-{rank} main "),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_fixes_do_not_depend_on_the_prefix(
        failed in 0..4_u32,
        steps in 4..40_u32,
        requested in 2..30_u32,
        live in 5..37_u32,
        has_settings in any::<bool>(),
    ) {
        let request = OUT_OF_MEMORY
            .replace("3.50 GiB", &format!("{requested}.00 GiB"))
            .replace("36.90 GiB", &format!("{live}.50 GiB"));
        let settings = if has_settings { "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\n" } else { "" };
        let texts: Vec<String> = (0..4)
            .map(|rank| {
                let output: String = (0..steps).map(|step| format!("step {step}: loss 2.{step}\n")).collect();
                let end = if rank == failed { format!("{TRACEBACK}{request}\n") } else { format!("{LOST}\n") };
                format!("{settings}{output}{end}")
            })
            .collect();
        let answers: Vec<_> = STYLES
            .iter()
            .map(|style| {
                let lines: Vec<String> =
                    (0..4).map(|rank| prefixed(&style(rank), &texts[rank as usize])).collect();
                let report = job(&[("all.log", &lines.concat())]);
                let actions: Vec<(String, Option<String>)> = report.fixes.iter()
                    .filter(|fix| !fix.action.starts_with("inspect "))
                    .map(|fix| (fix.action.clone(), fix.command.clone()))
                    .collect();
                let place = report.culprits.first().and_then(|culprit| culprit.place.clone());
                (report.verdict.cause, report.culprits.len(), actions, place)
            })
            .collect();
        for (index, other) in answers.iter().enumerate() {
            prop_assert_eq!(other, &answers[0], "{}", STYLES[index](failed));
        }
        prop_assert!(!answers[0].2.is_empty());
    }
}
