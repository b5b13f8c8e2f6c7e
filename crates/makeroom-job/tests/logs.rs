//! Answers from logs alone, as launchers and schedulers write them: which rank is to blame, what is only a consequence,
//! and what the logs do not show.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may panic, and be slow")]

use crate::support::{LOST, OUT_OF_MEMORY, TRACEBACK, culprits, job, listed, rows};
use makeroom_job::{ConsequenceKind, JobCause, JobReport, Unread, answer};

const TIMED_OUT: &str =
    "[E1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)";
/// The ranks with a consequence of one kind, in words.
fn followed(report: &JobReport, kind: ConsequenceKind) -> &str {
    let found = report.consequences.iter().find(|consequence| consequence.kind == kind);
    found.map_or("", |consequence| consequence.words.as_str())
}

#[test]
fn logs_of_some_ranks_do_not_claim_anything_about_the_others() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let report = job(&[("rank2.log", &failed), ("rank3.log", &failed)]);
    assert_eq!(report.verdict.cause, JobCause::EveryRankFull);
    assert_eq!(report.verdict.title, "2 OF 4 RANKS ARE FULL");
    let report = job(&[("rank6.log", &failed), ("rank7.log", &failed)]);
    assert_eq!((report.verdict.cause, report.culprits.len()), (JobCause::RankRanOut, 2));
    assert_eq!(report.verdict.title, "RANKS 6 AND 7 RAN OUT OF MEMORY");
    assert!(
        report.verdict.summary.ends_with("1 other rank also ran out of memory."),
        "{}",
        report.verdict.summary
    );
    let report = job(&[("rank0.log", &failed), ("rank1.log", &failed)]);
    assert_eq!(report.verdict.title, "ALL 2 RECORDED RANKS ARE FULL");
    let report = job(&[("rank0of2.log", &failed), ("rank1of2.log", &failed)]);
    assert_eq!(report.verdict.title, "EVERY RANK IS FULL");
    // Of two ranks, one that ran out is not every rank.
    let report = job(&[("rank0.log", TIMED_OUT), ("rank1.log", &failed)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    for report in [report, job(&[("rank0.log", &failed), ("rank1.log", &failed)])] {
        assert!(!report.verdict.summary.contains("0 B"), "{}", report.verdict.summary);
    }
}

#[test]
fn the_launchers_own_lines_are_not_a_process() {
    let end = listed("Root Cause (first observed failure):", 1, 1);
    let log = format!(
        "[rank0]: {TIMED_OUT}\n[rank1]: {TRACEBACK}[rank1]: {OUT_OF_MEMORY}\n\
         W1] Sending process 4000 closing signal SIGTERM\n{end}"
    );
    let report = job(&[("job.log", &log)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    assert_eq!(report.ranks.len(), 2, "{:?}", report.ranks);
    assert_eq!((report.used.recordings, report.used.files), (2, 1));
}

#[test]
fn a_traceback_without_a_prefix_is_that_of_the_root_cause() {
    let log = format!(
        "{TRACEBACK}{OUT_OF_MEMORY}\n{}{}",
        listed("Failures:", 0, -15),
        listed("Root Cause (first observed failure):", 1, 1)
    );
    let report = job(&[("accelerate.log", &log)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    assert_eq!(followed(&report, ConsequenceKind::Terminated), "rank 0");
}

#[test]
fn a_file_name_keeps_its_case() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let report =
        job(&[("logs/Node-A.log", &failed), ("logs/Node-B.log", &format!("[rank1]: {TIMED_OUT}\n"))]);
    assert_eq!(report.verdict.title, "A PROCESS IN Node-A.log RAN OUT OF MEMORY");
    assert!(
        report.verdict.summary.starts_with("A process in Node-A.log failed"),
        "{}",
        report.verdict.summary
    );
    let report = job(&[("accelerate.log", &failed)]);
    assert_eq!(report.verdict.title, "A PROCESS IN accelerate.log RAN OUT OF MEMORY");
    assert!(
        report.verdict.summary.starts_with("A process in accelerate.log failed"),
        "{}",
        report.verdict.summary
    );
    assert_eq!(report.fixes.last().unwrap().action, "inspect a process in accelerate.log in detail");
    let node = |node: &str, rank: u32| format!("{node}/local_rank{rank}.log");
    let files = [node("node0", 0), node("node0", 1), node("node1", 0), node("node1", 1)];
    let texts = [LOST, LOST, LOST, failed.as_str()];
    let files: Vec<(&str, &str)> = files.iter().map(String::as_str).zip(texts).collect();
    let report = job(&files);
    assert_eq!(report.verdict.title, "LOCAL RANK 1 OF node1 RAN OUT OF MEMORY");
    assert_eq!(
        followed(&report, ConsequenceKind::PeerLost),
        "local ranks 0 and 1 of node0 and local rank 0 of node1"
    );
}

#[test]
fn the_kernels_log_names_the_rank_by_its_pid() {
    let end = listed("Root Cause (first observed failure):", 6, -9);
    let log: String = (0..8).map(|rank| format!("[rank{rank}]: step 1\n")).collect::<String>() + &end;
    let killed = "[1.7] Memory cgroup out of memory: Killed process 4006 (python) total-vm:98123456kB\n";
    let report = job(&[("train.log", &log), ("dmesg.txt", killed)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::HostMemory, vec!["rank 6"]));
    assert_eq!((report.verdict.certainty, report.ranks.len()), ("certain", 8));
    // Another process was killed.
    let other = killed.replace("4006", "999");
    let report = job(&[("train.log", &log), ("dmesg.txt", &other)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 6"]));
    assert!(report.verdict.summary.starts_with("Rank 6 on node7 was killed"), "{}", report.verdict.summary);
    // If no PID is known, the only rank that was killed is meant.
    let mpirun = "mpirun noticed that process rank 1 with PID 0 on node node7 exited on signal 9 (Killed).\n";
    let report = job(&[("mpi.log", mpirun), ("dmesg.txt", killed)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::HostMemory, vec!["rank 1"]));
}

#[test]
fn a_worker_of_a_rank_that_was_killed_is_not_the_rank() {
    let failed =
        format!("{TRACEBACK}RuntimeError: DataLoader worker (pid 5123) is killed by signal: Killed.\n");
    let report = job(&[("rank0.log", LOST), ("rank1.log", &failed)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::HostMemory, vec!["rank 1"]));
    assert_eq!(report.verdict.title, "RANK 1 RAN OUT OF HOST MEMORY");
    assert_eq!(report.verdict.certainty, "possible");
    assert!(!report.verdict.summary.contains("recording"), "{}", report.verdict.summary);
}

#[test]
fn an_error_that_is_not_about_memory_is_shown() {
    let failed = format!("{TRACEBACK}RuntimeError: CUDA error: an illegal memory access was encountered\n");
    let report = job(&[("rank0.log", TIMED_OUT), ("rank1.log", &failed), ("rank2.log", TIMED_OUT)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::OtherFailure, vec!["rank 1"]));
    assert!(report.verdict.summary.contains("an illegal memory access"), "{}", report.verdict.summary);
    assert!(report.fixes.iter().all(|fix| !fix.action.contains("pass the log")), "{:?}", report.fixes);
    assert_eq!(report.fixes[0].command.as_deref(), Some("CUDA_LAUNCH_BLOCKING=1 python …"));
}

#[test]
fn logs_that_were_passed_are_not_asked_for() {
    let report = job(&[("d/rank0.log", TIMED_OUT), ("d/rank1.log", TIMED_OUT)]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
    assert!(report.fixes.iter().all(|fix| !fix.action.contains("pass the log")), "{:?}", report.fixes);
    assert_eq!(report.fixes[0].command.as_deref(), Some("NCCL_DEBUG=INFO torchrun …"));
    assert!(report.verdict.summary.contains("collective 9 (ALLREDUCE)"), "{}", report.verdict.summary);
    let gloo = "RuntimeError: Timed out waiting 1800000ms for recv operation to complete\n";
    let report = job(&[("d/rank0.log", gloo), ("d/rank1.log", gloo)]);
    assert_eq!(report.fixes[0].command.as_deref(), Some("grep -riE 'collective|timed? ?out' d"));
}

#[test]
fn schedulers_name_ranks_and_reasons() {
    let text: String = (0..16).map(|line| format!("{}: step {line}\n", line % 4)).collect();
    let srun = format!(
        "{text}2: Traceback (most recent call last):\n2: {OUT_OF_MEMORY}\nsrun: error: node7: task 2: Exited with exit code 1\n\
         slurmstepd: error: *** STEP 77.0 ON node7 CANCELLED AT 2026-11-17T10:14:11 ***\n\
         srun: error: node7: tasks 0-1,3: Terminated\n"
    );
    let report = job(&[("slurm-77.out", &srun)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 2"]));
    assert_eq!(followed(&report, ConsequenceKind::Terminated), "ranks 0, 1 and 3");
    let limit = "step 1\nslurmstepd: error: *** JOB 78 ON node7 CANCELLED AT x DUE TO TIME LIMIT ***\n";
    let report = job(&[("78_0.out", limit), ("78_1.out", limit)]);
    assert_eq!(report.verdict.cause, JobCause::Terminated);
    let mpirun = |signal: &str| {
        format!(
            "[1,0]<stdout>:step\n[1,1]<stdout>:step\nmpirun noticed that process rank 1 with PID 4001 on node node7 \
             exited on signal {signal}.\n"
        )
    };
    let report = job(&[("mpi.log", &mpirun("9 (Killed)"))]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 1"]));
    let report = job(&[("mpi.log", &mpirun("11 (Segmentation fault)"))]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::OtherFailure, vec!["rank 1"]));
}

#[test]
fn an_error_that_was_handled_is_not_a_failure() {
    let steps = "step 1: loss 2.1\n".repeat(20);
    let handled =
        format!("{steps}WARNING: {OUT_OF_MEMORY}\nretrying with batch size 4\n{steps}Training finished\n");
    let report = job(&[("rank0.log", &steps), ("rank1.log", &handled)]);
    assert_eq!((report.verdict.cause, report.caught), (JobCause::Caught, vec!["rank 1".to_owned()]));
}

#[test]
fn rays_workers_are_named_by_their_pid() {
    let log = format!(
        "(RayTrainWorker pid=11, ip=10.0.0.1) step\n(RayTrainWorker pid=12, ip=10.0.0.2) {OUT_OF_MEMORY}\n\
         ray.exceptions.RayTaskError(OutOfMemoryError): ray::get_next() (pid=12, ip=10.0.0.2)\n{OUT_OF_MEMORY}\n"
    );
    let rows = rows(&[("ray.log", &log)]);
    assert!(rows.may_be_a_job());
    let report = answer(&rows);
    assert_eq!(report.verdict.title, "PROCESS 12 ON 10.0.0.2 RAN OUT OF MEMORY");
    assert_eq!(culprits(&report), ["process 12 on 10.0.0.2"]);
}

#[test]
fn a_request_that_never_fits_is_named_as_such() {
    let request = OUT_OF_MEMORY.replace("3.50 GiB", "100.00 GiB");
    let report = job(&[("rank0.log", TIMED_OUT), ("rank1.log", &request), ("rank2.log", TIMED_OUT)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RequestTooLarge, vec!["rank 1"]));
    assert!(report.verdict.summary.contains("the whole GPU has 39.38 GiB"), "{}", report.verdict.summary);
}

#[test]
fn ranks_without_a_readable_file_are_missing() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let mut rows = rows(&[("rank1.log", &failed), ("rank2.log", TIMED_OUT)]);
    for file in ["rank0.log", "rank3.log"] {
        rows.unread.push(Unread { file: file.to_owned(), reason: "the input is empty".to_owned() });
    }
    assert_eq!(answer(&rows).used.missing_ranks, [0, 3]);
    // A common log does not show which ranks printed nothing.
    assert!(job(&[("ds.log", &format!("[rank3]: {OUT_OF_MEMORY}\n"))]).used.missing_ranks.is_empty());
}

#[test]
fn attempts_without_a_job_are_named_by_their_number() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let files = [
        ("x/attempt_0/0/stderr.log", failed.as_str()),
        ("x/attempt_0/1/stderr.log", LOST),
        ("x/attempt_1/0/stderr.log", "done\n"),
        ("x/attempt_1/1/stderr.log", "done\n"),
    ];
    let report = job(&files);
    assert_eq!(report.attempt, Some(0));
    assert_eq!(report.used.other_jobs, ["attempt 1 (2 recordings)"]);
}

#[test]
fn runs_in_different_directories_are_not_mixed() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let files = [
        ("run1/rank0.log", failed.as_str()),
        ("run1/rank1.log", LOST),
        ("run2/rank0.log", LOST),
        ("run2/rank1.log", LOST),
        ("run2/rank2.log", failed.as_str()),
        ("launcher.log", "W1] Sending process 4000 closing signal SIGTERM\n"),
    ];
    let report = job(&files);
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 2"], 3));
    assert_eq!(report.used.other_jobs, ["directory run1 (2 recordings)"]);
    // One directory per node, or per rank, is one run.
    let nodes = [("node0/rank0.log", LOST), ("node0/rank1.log", LOST), ("node1/rank2.log", failed.as_str())];
    assert_eq!(job(&nodes).ranks.len(), 3);
}

#[test]
fn a_rank_that_failed_and_was_ended_later_is_the_culprit() {
    let failed = format!("{TRACEBACK}ValueError: bad shape\n");
    let ended = listed("Failures:", 1, -15);
    let report = job(&[("rank1.log", &failed), ("rank0.log", LOST), ("torchrun.log", &ended)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::OtherFailure, vec!["rank 1"]));
    assert!(
        report.verdict.summary.ends_with("Rank 1 failed with: ValueError: bad shape."),
        "{}",
        report.verdict.summary
    );
}

#[test]
fn a_launchers_report_adds_to_the_log_of_the_rank() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let end = listed("Root Cause (first observed failure):", 2, 1);
    // The order of the names does not matter.
    for name in ["main.log", "torchrun.log", "slurm-123.out"] {
        let files = [("rank0.log", LOST), ("rank1.log", LOST), ("rank2.log", failed.as_str()), (name, &end)];
        let report = job(&files);
        assert_eq!(
            (report.verdict.cause, culprits(&report)),
            (JobCause::RankRanOut, vec!["rank 2"]),
            "{name}"
        );
        assert_eq!((report.used.recordings, report.used.duplicates.len()), (3, 0), "{name}");
        assert_eq!(report.culprits[0].host.as_deref(), Some("node7"), "{name}");
        assert!(report.fixes.last().unwrap().command.as_deref().unwrap().ends_with("rank2.log"), "{name}");
    }
    // The launcher has the PID that the kernel names.
    let killed = "[1.7] Out of memory: Killed process 4002 (python) total-vm:98123456kB\n";
    let end = listed("Root Cause (first observed failure):", 2, -9);
    for name in ["main.log", "torchrun.log"] {
        let steps = [("rank0.log", "step\n"), ("rank1.log", "step\n"), ("rank2.log", "step\n")];
        let report = job(&[steps.as_slice(), &[(name, &end), ("dmesg.txt", killed)]].concat());
        assert_eq!(report.verdict.title, "RANK 2 RAN OUT OF HOST MEMORY", "{name}");
        let report = job(&[steps.as_slice(), &[(name, &end)]].concat());
        assert_eq!(
            (report.verdict.cause, culprits(&report)),
            (JobCause::RankKilled, vec!["rank 2"]),
            "{name}"
        );
    }
}

#[test]
fn a_kill_of_an_unknown_process_is_mentioned() {
    let killed = "[1.7] Out of memory: Killed process 4002 (python) total-vm:98123456kB\n";
    let report = job(&[("rank0.log", "step\n"), ("rank1.log", "step\n"), ("dmesg.txt", killed)]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
    assert!(report.verdict.summary.contains("killed process 4002"), "{}", report.verdict.summary);
    assert!(report.fixes[0].action.contains("which rank had the killed PID"), "{:?}", report.fixes);
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let report = job(&[("rank0.log", LOST), ("rank1.log", &failed), ("dmesg.txt", killed)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    assert!(report.notes.iter().any(|note| note.contains("killed process 4002")), "{:?}", report.notes);
}

#[test]
fn a_process_with_two_names_is_one() {
    let end = listed("Root Cause (first observed failure):", 2, 1);
    let lines = |prefix: &str, text: &str| -> String {
        text.lines().map(|line| format!("{prefix}{line}\n")).collect()
    };
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}");
    // torchrun's prefix has the local rank, and its report has both.
    let report = job(&[("i.log", &(lines("[default2]:", &failed) + &end))]);
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 2"], 1), "{:?}", report.ranks);
    assert_eq!(report.verdict.cause, JobCause::RankRanOut);
    // Both prefixes.
    let others: String = (0..5).map(|rank| format!("[default{rank}]:[rank{rank}]: {TIMED_OUT}\n")).collect();
    let log = format!("[default5]:step 1\n{others}{}", lines("[default5]:[rank5]: ", &failed));
    let report = job(&[("w.log", &log)]);
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 5"], 6), "{:?}", report.ranks);
    // Two nodes have the local rank.
    let log =
        format!("{}{end}{}", lines("[default2]:", &failed), end.replace("rank      : 2 ", "rank      : 10 "));
    assert_eq!(culprits(&job(&[("two.log", &log)])), ["local rank 2"]);
    // A short output of `srun --label`.
    let log = format!(
        "0: step 3\n1: step 3\n2: step 3\n{}srun: error: node7: task 1: Exited with exit code 1\n\
         srun: error: node7: tasks 0,2: Terminated\n",
        lines("1: ", &failed)
    );
    let report = job(&[("x.log", &log)]);
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 1"], 3), "{:?}", report.ranks);
    assert_eq!(followed(&report, ConsequenceKind::Terminated), "ranks 0 and 2");
}

#[test]
fn the_line_of_the_failed_request_is_named() {
    let failed: String =
        format!("{TRACEBACK}{OUT_OF_MEMORY}").lines().map(|line| format!("[rank1]: {line}\n")).collect();
    let report = job(&[("a.log", &format!("step 1\n[rank0]: step\n{failed}"))]);
    assert_eq!(report.culprits[0].place.as_deref(), Some("/app/train.py:88 main"));
    assert!(report.verdict.summary.contains(" at /app/train.py:88 main."), "{}", report.verdict.summary);
}

#[test]
fn a_report_in_another_directory_is_about_the_same_ranks() {
    let failed = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    // torchrun's directories have the local rank.
    let end = listed("Root Cause (first observed failure):", 1, 1);
    let logs = [("x/attempt_0/0/stderr.log", LOST), ("x/attempt_0/1/stderr.log", failed.as_str())];
    let report = job(&[logs.as_slice(), &[("x/main.log", &end)]].concat());
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 1"], 2), "{:?}", report.ranks);
    assert!(report.verdict.title.starts_with("RANK 1 RAN OUT"), "{}", report.verdict.title);
    let srun =
        "srun: error: node7: task 1: Exited with exit code 1\nsrun: error: node7: tasks 0,2: Terminated\n";
    let logs =
        [("j/logs/rank0.log", "step\n"), ("j/logs/rank1.log", &failed), ("j/logs/rank2.log", "step\n")];
    let report = job(&[logs.as_slice(), &[("j/slurm.out", srun)]].concat());
    assert_eq!((culprits(&report), report.ranks.len()), (vec!["rank 1"], 3), "{:?}", report.ranks);
    assert_eq!(followed(&report, ConsequenceKind::Terminated), "ranks 0 and 2");
    assert!(report.used.other_jobs.is_empty(), "{:?}", report.used.other_jobs);
}

#[test]
fn only_ranks_with_a_request_that_never_fits_are_named_for_it() {
    let request = format!("{TRACEBACK}{}\n", OUT_OF_MEMORY.replace("3.50 GiB", "100.00 GiB"));
    let report = job(&[("rank0.log", OUT_OF_MEMORY), ("rank1.log", &request)]);
    assert_eq!(report.verdict.title, "RANK 1 REQUESTED MORE THAN THE WHOLE GPU");
    assert_eq!(culprits(&report), ["rank 1"]);
    assert!(
        report.verdict.summary.ends_with("1 other rank also ran out of memory."),
        "{}",
        report.verdict.summary
    );
    let first = &report.fixes[0].action;
    assert!(
        first.starts_with("check the shape or the size computation of the request at /app/train.py:88"),
        "{first}"
    );
    assert!(report.fixes.iter().all(|fix| !fix.action.contains("free at least")), "{:?}", report.fixes);
}

#[test]
fn ranks_with_different_causes_are_not_equally_full() {
    let cached = OUT_OF_MEMORY.replace("36.90 GiB", "12.90 GiB").replace("410.00 MiB", "24.40 GiB");
    let says = |report: &JobReport| report.fixes.iter().any(|fix| fix.action.contains("equally full"));
    let report = job(&[("rank0.log", OUT_OF_MEMORY), ("rank1.log", OUT_OF_MEMORY)]);
    assert!(report.verdict.cause == JobCause::EveryRankFull && says(&report), "{:?}", report.fixes);
    assert!(!says(&job(&[("rank0.log", OUT_OF_MEMORY), ("rank1.log", &cached)])));
}

#[test]
fn the_explanation_of_a_rank_keeps_its_case() {
    let failed =
        format!("{TRACEBACK}RuntimeError: DataLoader worker (pid 5123) is killed by signal: Killed.\n");
    let report = job(&[("rank0.log", LOST), ("rank1.log", &failed)]);
    assert_eq!(report.verdict.summary, format!("Rank 1: {}", report.culprits[0].own_summary));
}

#[test]
fn the_logs_of_missing_ranks_are_asked_for() {
    let steps = [("rank0.log", LOST), ("rank1.log", LOST), ("rank4.log", LOST)];
    let report = job(&steps);
    assert_eq!(report.fixes[0].action, "find the logs of ranks 2 and 3 and pass them too");
    let report = job(&[("rank0.log", LOST), ("rank2.log", LOST)]);
    assert_eq!(report.fixes[0].action, "find the log of rank 1 and pass it too");
}
