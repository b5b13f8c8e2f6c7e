//! How ranks and jobs ended, in the words of schedulers, launchers, shells, Ray and Kubernetes: no failure may be missed,
//! and none may be named with more certainty than the logs give.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may panic, and be slow")]

use crate::support::{OUT_OF_MEMORY, TRACEBACK, culprits, job, listed, prefixed};
use makeroom_job::{ConsequenceKind, JobCause, JobReport};

const STEPS: &str = "step 1: loss 2.71\nstep 2: loss 2.64\nstep 3: loss 2.60\n";

/// The output of `srun --label` before the end.
fn labeled(ranks: u32) -> String {
    let line = |step: u32, rank: u32| format!("{rank}: step {step}: loss 2.7\n");
    (0..3).flat_map(|step| (0..ranks).map(move |rank| line(step, rank))).collect()
}

fn title(report: &JobReport) -> (&str, &str) {
    (&report.verdict.title, report.verdict.certainty)
}

#[test]
fn a_scheduler_that_ends_a_job_is_named() {
    let end = |reason: &str| {
        let cancelled = "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-01-05T10:14:11";
        format!(
            "{}{cancelled}{reason} ***\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
            labeled(4)
        )
    };
    for (reason, expected) in [
        (" DUE TO TIME LIMIT", "THE JOB REACHED ITS TIME LIMIT"),
        (" DUE TO PREEMPTION", "THE JOB WAS PREEMPTED"),
        (" DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS", "A NODE OF THE JOB FAILED"),
        (" BY USER", "THE JOB WAS CANCELED"),
    ] {
        let report = job(&[("slurm-77.out", &end(reason))]);
        assert_eq!(
            (report.verdict.cause, title(&report)),
            (JobCause::Terminated, (expected, "certain")),
            "{reason}"
        );
        // Slurm kills what does not end in time.
        let killed = format!("{}srun: error: n1: tasks 0-3: Killed\n", end(reason));
        let report = job(&[("slurm-77.out", &killed)]);
        assert_eq!(title(&report), (expected, "certain"), "{reason}");
        // The ranks waited for one that had run out long before.
        let waited = format!("{}{}", prefixed("2: ", &format!("{TRACEBACK}{OUT_OF_MEMORY}\n")), end(reason));
        let report = job(&[("slurm-77.out", &format!("{}{waited}", labeled(4)))]);
        assert_eq!(
            (report.verdict.cause, culprits(&report)),
            (JobCause::RankRanOut, vec!["rank 2"]),
            "{reason}"
        );
    }
    let report = job(&[("slurm-77.out", &end(""))]);
    assert_eq!(title(&report), ("THE JOB WAS CANCELED", "likely"));
    let report = job(&[
        ("rank0.log", STEPS),
        ("rank1.log", &format!("{STEPS}=>> PBS: job killed: walltime 61 exceeded limit 60\n")),
    ]);
    assert_eq!(title(&report), ("THE JOB REACHED ITS TIME LIMIT", "certain"));
    let lsf = "User defined signal 2\n\nTERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExited with exit code 140.\n";
    let report = job(&[("job.out", &format!("{}{lsf}", labeled(4)))]);
    assert_eq!(title(&report), ("THE JOB REACHED ITS TIME LIMIT", "certain"));
}

#[test]
fn ends_without_a_traceback_are_failures() {
    for (end, cause) in [
        ("Segmentation fault (core dumped)", JobCause::OtherFailure),
        ("Aborted (core dumped)", JobCause::OtherFailure),
        (
            "run.sh: line 3:  4711 Bus error               (core dumped) python train.py",
            JobCause::OtherFailure,
        ),
        ("command terminated with exit code 137", JobCause::RankKilled),
        ("ModuleNotFoundError: No module named 'flash_attn'", JobCause::OtherFailure),
        ("train.py: error: unrecognized arguments: --batch", JobCause::OtherFailure),
        ("worker exited with code 1", JobCause::OtherFailure),
        ("srun: error: n1: task 3: Exited with exit code 1", JobCause::OtherFailure),
        ("srun: error: n1: task 3: Exited with exit code 137", JobCause::RankKilled),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of the step tasks have been OOM Killed.",
            JobCause::HostMemory,
        ),
    ] {
        let report = job(&[("rank0.log", STEPS), ("rank3.log", &format!("{STEPS}{end}\n"))]);
        assert_eq!((report.verdict.cause, culprits(&report)), (cause, vec!["rank 3"]), "{end}");
        let report = job(&[("job.log", &format!("{}{end}\n", labeled(4)))]);
        assert_eq!(report.verdict.cause, cause, "{end}: {}", report.verdict.summary);
    }
    let report = job(&[("rank0.log", STEPS), ("rank1.log", &format!("{STEPS}worker exited with code 1\n"))]);
    assert_eq!(report.verdict.certainty, "possible", "a command that the rank ran may have failed");
    let hang =
        "Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.";
    let report = job(&[("rank0.log", &format!("{STEPS}{hang}\n")), ("rank1.log", STEPS)]);
    assert_eq!(report.verdict.cause, JobCause::Undetermined);
    let retried = format!("{STEPS}ConnectionError: try again\n{STEPS}{STEPS}");
    assert_eq!(job(&[("rank0.log", &retried), ("rank1.log", STEPS)]).verdict.cause, JobCause::None);
}

#[test]
fn logs_without_an_end_are_not_proof_that_nothing_failed() {
    let report = job(&[("rank0.log", STEPS), ("rank1.log", STEPS)]);
    assert_eq!((report.verdict.cause, title(&report)), (JobCause::None, ("NO FAILURE FOUND", "possible")));
    assert!(report.verdict.summary.contains("2 logs"), "{}", report.verdict.summary);
    assert!(report.fixes.is_empty(), "nothing to inspect: {:?}", report.fixes);
    let ended = "NAME    READY   STATUS      RESTARTS   AGE\nllm-0   0/1     Completed   0          5m\n";
    assert_eq!(title(&job(&[("pods.txt", ended)])), ("NOTHING FAILED", "certain"));
}

#[test]
fn a_rank_that_was_killed_first_is_not_a_consequence() {
    let ran_out = format!("{TRACEBACK}{OUT_OF_MEMORY}\n");
    let torchrun =
        format!("{}{}", listed("Failures:", 1, 1), listed("Root Cause (first observed failure):", 4, -9));
    let report = job(&[("rank1.log", &ran_out), ("rank4.log", STEPS), ("torchrun.log", &torchrun)]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 4"]));
    assert_ne!(report.verdict.certainty, "certain");
    assert!(report.consequences.iter().all(|found| found.kind != ConsequenceKind::Killed));
    assert_eq!(report.errors[0].words, "rank 1");
    assert!(report.errors[0].error.contains("train.py:88"), "{}", report.errors[0].error);
    let killed = "srun: error: n1: task 3: Killed\n";
    let failed = prefixed("1: ", &ran_out);
    let report = job(&[("slurm-77.out", &format!("{}{killed}{failed}", labeled(4)))]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 3"]));
    // After it, the launcher most likely killed the rank; the line of code is known in both cases.
    let report = job(&[("slurm-77.out", &format!("{}{failed}{killed}", labeled(4)))]);
    assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 1"]));
    assert_eq!(report.culprits[0].place.as_deref(), Some("/app/train.py:88 main"));
}

#[test]
fn signals_are_named() {
    let list = format!(
        "{}  traceback : Signal 11 (SIGSEGV) received by PID 4002\n",
        listed("Root Cause (first observed failure):", 2, -11)
    );
    let early = "E0105 10:14:11.100000 4000 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -11) \
        local_rank: 2 (pid: 4002) of binary: /usr/bin/python\n";
    let deepspeed = "[2026-01-05 10:14:11,123] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', '-u', 'train.py', \
        '--local_rank=2'] exits with return code = -11\n";
    for (log, who) in [
        (list.clone(), "rank 2"),
        (format!("{early}{list}"), "rank 2"),
        (early.to_owned(), "local rank 2"),
        (deepspeed.to_owned(), "local rank 2"),
        ("Signal 11 (SIGSEGV) received by PID 4002\n".to_owned(), "process 4002"),
    ] {
        let report = job(&[("train.log", &format!("{STEPS}{log}"))]);
        assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::OtherFailure, vec![who]), "{log}");
        assert!(
            report.verdict.summary.ends_with("crashed with SIGSEGV (segmentation fault)."),
            "{}",
            report.verdict.summary
        );
    }
}

#[test]
fn a_rank_that_ended_before_the_scheduler_ended_the_job_is_to_blame() {
    let stop =
        "slurmstepd: error: *** STEP 77.0 ON n1 CANCELLED AT 2026-01-05T10:14:11 DUE TO TIME LIMIT ***\n";
    let rest = "srun: error: n1: tasks 0-2: Killed\n";
    for (end, cause) in [
        ("srun: error: n1: task 3: Killed\n", JobCause::RankKilled),
        ("srun: error: n1: task 3: Exited with exit code 1\n", JobCause::OtherFailure),
    ] {
        let report = job(&[("slurm-77.out", &format!("{}{end}{stop}{rest}", labeled(4)))]);
        assert_eq!((report.verdict.cause, culprits(&report)), (cause, vec!["rank 3"]), "{end}");
        let report = job(&[("slurm-77.out", &format!("{}{stop}{end}{rest}", labeled(4)))]);
        assert_eq!(title(&report), ("THE JOB REACHED ITS TIME LIMIT", "certain"), "{end}");
    }
    // Two files do not show the order.
    let report = job(&[
        ("slurm-77.out", &format!("{}{stop}", labeled(4))),
        ("slurm-77.err", "srun: error: n1: task 3: Killed\n"),
    ]);
    assert_eq!(title(&report), ("THE JOB REACHED ITS TIME LIMIT", "likely"));
    // The job was queued again and appends to its log.
    let again: String = (0..100).map(|_| labeled(4)).collect();
    let report = job(&[("slurm-77.out", &format!("{}{stop}{rest}{again}", labeled(4)))]);
    assert_eq!(report.verdict.cause, JobCause::None, "{}", report.verdict.summary);
}
