//! Logs of clusters: pods of Kubernetes operators, Ray's workers, times in front of lines, and ranks that share a GPU.
#![allow(clippy::unwrap_used, clippy::format_collect, reason = "a test may panic, and be slow")]

use crate::support::{LOST, OUT_OF_MEMORY, TRACEBACK, culprits, job, prefixed, rows};
use makeroom_job::{JobCause, Unread, answer};
use proptest::prelude::*;

const STEPS: &str = "step 1: loss 2.71\nstep 2: loss 2.64\nstep 3: loss 2.60\n";

fn ran_out() -> String {
    format!("{TRACEBACK}{OUT_OF_MEMORY}\n")
}

#[test]
fn ranks_that_share_a_gpu_are_found_from_logs_alone() {
    let message = |gpu: u32, others: &[u32], own: &str| {
        let others: String =
            others.iter().map(|pid| format!("Process {pid} has 19.80 GiB memory in use. ")).collect();
        format!(
            "{TRACEBACK}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 500.00 MiB. GPU {gpu} has a total capacity \
             of 79.15 GiB of which 10.06 MiB is free. {others}Including non-PyTorch memory, this process has {own} memory in use. \
             Of the allocated memory 19.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
        )
    };
    let pids = [4100, 4101, 4102, 4103];
    let logs: Vec<(String, String)> = (0..4)
        .map(|rank| {
            let others: Vec<u32> = (0..4).filter(|&other| other != rank).map(|other| pids[other]).collect();
            (format!("rank{rank}.log"), message(0, &others, "19.70 GiB"))
        })
        .collect();
    let files: Vec<(&str, &str)> = logs.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let report = job(&files);
    assert_eq!(
        (report.verdict.cause, report.verdict.certainty),
        (JobCause::RanksShareGpu, "likely"),
        "no host"
    );
    let mut hosted = rows(&files);
    hosted.recordings.iter_mut().for_each(|row| row.host = Some("node7".to_owned()));
    assert_eq!(answer(&hosted).verdict.certainty, "certain");
    // Each rank is PID 1 of its container.
    let mut contained = rows(&files[..2]);
    contained.recordings.iter_mut().for_each(|row| row.pid = Some(1));
    contained.failures.iter_mut().for_each(|failure| failure.others = vec![(77, 1 << 30)]);
    assert_ne!(answer(&contained).verdict.cause, JobCause::RanksShareGpu);
    assert_eq!(report.verdict.title, "RANKS SHARE A GPU");
    assert!(report.verdict.summary.starts_with("Ranks 0–3 use GPU 0"), "{}", report.verdict.summary);
    // Of two ranks, each lists only the other, whose PID no log shows.
    let half =
        |pid: u32| message(0, &[pid], "38.00 GiB").replace("19.80", "38.00").replace("10.06 MiB", "3.14 GiB");
    let (zero, one) = (half(4101), half(4100));
    let report = job(&[("rank0.log", &zero), ("rank1.log", &one)]);
    assert_eq!((report.verdict.cause, report.verdict.certainty), (JobCause::RanksShareGpu, "likely"));
    // Each rank sees its own GPU as number 0, next to a process of someone else.
    let (zero, one) = (message(0, &[77], "58.00 GiB"), message(0, &[99], "58.00 GiB"));
    let report = job(&[("rank0.log", &zero), ("rank1.log", &one)]);
    assert_ne!(report.verdict.cause, JobCause::RanksShareGpu);
}

#[test]
fn pods_of_operators_are_ranks_of_their_job() {
    let lost = format!("{STEPS}{LOST}\n");
    let failed = format!("{STEPS}{}", ran_out());
    let report =
        job(&[("llm-master-0.log", &lost), ("llm-worker-0.log", &failed), ("llm-worker-1.log", &lost)]);
    assert_eq!((culprits(&report), report.ranks.len(), report.used.files), (vec!["rank 1"], 3, 3));
    let report = job(&[("llm-0-x7k2b.log", &lost), ("llm-1-bcdfg.log", &failed)]);
    assert_eq!(culprits(&report), ["rank 1"]);
    let report = job(&[
        ("ray-head-x7k2b.log", &lost),
        ("ray-gpu-worker-bcdfg.log", &failed),
        ("notes.txt", "read me\n"),
    ]);
    assert_eq!(culprits(&report), ["a process in ray-gpu-worker-bcdfg.log"]);
    let compose: String = (0..3).flat_map(|_| ["trainer-0  | step 1\n", "trainer-1  | step 1\n"]).collect();
    let compose = job(&[("compose.log", &format!("{compose}trainer-1 exited with code 137\n"))]);
    assert_eq!((compose.verdict.cause, culprits(&compose)), (JobCause::RankKilled, vec!["pod trainer-1"]));
    assert!(report.notes.iter().any(|note| note.contains("notes.txt was not used")), "{:?}", report.notes);
}

#[test]
fn kubectl_describes_pods_that_were_killed() {
    let describe = "Name:             llm-2\nNamespace:        default\nStatus:           Failed\nContainers:\n  main:\n    State:          \
        Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n";
    let table = "NAME    READY   STATUS      RESTARTS   AGE\nllm-1   1/1     Running     0          5m\nllm-2   0/1     OOMKilled   0          5m\n";
    let logs: String = (1..4).map(|pod| prefixed(&format!("[pod/llm-{pod}/main] "), STEPS)).collect();
    for status in [describe, table] {
        let report = job(&[("all.log", &logs), ("status.txt", status)]);
        assert_eq!(
            (report.verdict.cause, culprits(&report)),
            (JobCause::HostMemory, vec!["pod llm-2"]),
            "{status}"
        );
        assert_eq!((report.ranks.len(), report.used.files), (3, 2));
        let report =
            job(&[("llm-0.log", STEPS), ("llm-1.log", STEPS), ("llm-2.log", STEPS), ("status.txt", status)]);
        assert_eq!(
            (report.verdict.cause, culprits(&report)),
            (JobCause::HostMemory, vec!["rank 2"]),
            "{status}"
        );
    }
}

#[test]
fn a_time_in_front_of_a_line_does_not_hide_the_rank() {
    for header in [
        "2026-01-05T10:14:11.123Z ",
        "[2026-01-05 10:14:11,123] [INFO] ",
        "Jan 05 10:14:11 node7 python[4711]: ",
    ] {
        let log: String = (0..4).map(|rank| prefixed(&format!("{header}[rank{rank}]: "), STEPS)).collect();
        let report =
            job(&[("train.log", &format!("{log}{}", prefixed(&format!("{header}[rank2]: "), &ran_out())))]);
        assert_eq!(culprits(&report), ["rank 2"], "{header}");
        assert_eq!(report.culprits[0].place.as_deref(), Some("/app/train.py:88 main"), "{header}");
        let listed = "Root Cause (first observed failure):\n[0]:\n  host      : node7\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 7)\n";
        let report = job(&[("train.log", &format!("{log}{}", prefixed(header, listed)))]);
        assert_eq!(culprits(&report), ["rank 3"], "{header}");
    }
}

#[test]
fn workers_of_ray_are_ranks() {
    let worker = |rank: u32| format!("(RayTrainWorker pid={}, ip=10.0.0.{rank}) ", 4711 + rank);
    let numbered: String = (0..4)
        .map(|rank| format!("(TorchTrainer pid=4000) - (node_id=f3a, ip=10.0.0.{rank}, pid={}) world_rank={rank}, local_rank=0, node_rank={rank}\n", 4711 + rank))
        .collect();
    let own: String = (0..4)
        .map(|rank| {
            format!("{}Setting up process group for: env:// [rank={rank}, world_size=4]\n", worker(rank))
        })
        .collect();
    let died = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: \
        RayTrainWorker\n\tactor_id: abc\n\tpid: 4713\n\tnamespace: y\n\tip: 10.0.0.2\nThe actor is dead because its worker process has \
        died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of \
        file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage.\n";
    let starved = "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\nMemory on the node (IP: \
        10.0.0.2, ID: f3a) where the task (actor ID: abc, name=RayTrainWorker.__init__, pid=4713, memory used=182.33GB) was running \
        was 238.91GB / 251.47GB (0.950065), which exceeds the memory usage threshold of 0.95.\n";
    for names in [&numbered, &own] {
        let log: String = (0..4).map(|rank| prefixed(&worker(rank), STEPS)).collect::<String>() + names;
        let report = job(&[("driver.log", &format!("{log}{}", prefixed(&worker(2), &ran_out())))]);
        assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankRanOut, vec!["rank 2"]));
        let report = job(&[("driver.log", &format!("{log}{died}"))]);
        assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::RankKilled, vec!["rank 2"]));
        assert!(report.verdict.summary.contains("no log shows why"), "{}", report.verdict.summary);
        assert_eq!(report.verdict.title, "RANK 2 DIED UNEXPECTEDLY");
        let report = job(&[("driver.log", &format!("{log}{starved}"))]);
        assert_eq!((report.verdict.cause, culprits(&report)), (JobCause::HostMemory, vec!["rank 2"]));
    }
}

#[test]
fn remarks_count_files_and_name_what_they_are() {
    let log = "Root Cause (first observed failure):\n[0]:\n  host      : node7\n  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 4105)\n";
    let kernel = "[12.5] Memory cgroup out of memory: Killed process 4105 (python) total-vm:98kB\n";
    let report = job(&[("train.log", log), ("dmesg.txt", kernel)]);
    assert_eq!((report.verdict.cause, report.used.files), (JobCause::HostMemory, 2));
    let mut rows = rows(&[("rank0.log", STEPS), ("rank2.log", &format!("{STEPS}{LOST}\n"))]);
    rows.unread.push(Unread { file: "stderr.log".to_owned(), reason: "the input is empty".to_owned() });
    let report = answer(&rows);
    assert!(report.notes.contains(&"stderr.log is empty".to_owned()), "{:?}", report.notes);
    assert!(
        report.notes.contains(&"rank 1 of 3 has no log".to_owned())
            || report.notes.contains(&"rank 1 has no log".to_owned()),
        "{:?}",
        report.notes
    );
    assert!(
        !format!("{}{:?}", report.verdict.summary, report.notes).contains("recording"),
        "{}",
        report.verdict.summary
    );
}

/// Parts of the lines that launchers, schedulers and kubectl print.
const PARTS: [&str; 24] = [
    "2026-01-05T10:14:11Z ",
    "[INFO] ",
    "[rank3]: ",
    "node7: ",
    "(W pid=7, ip=10.0.0.4) ",
    "[pod/llm-1/main] ",
    "3: ",
    "Name:   llm-1",
    "Namespace: x",
    "    Last State: Terminated",
    "      Exit Code: 137",
    "NAME  READY  STATUS  AGE",
    "ActorDiedError",
    "pid: 7",
    "The actor is dead because",
    ") world_rank=",
    "[rank=2, world_size=",
    "local_rank=",
    "failed (exitcode: -",
    " exited with code ",
    " CANCELLED ",
    "*** STEP ",
    ") received by PID ",
    "Signal 4294967296",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_log_makes_the_answer_panic(lines in prop::collection::vec(prop::collection::vec((0..PARTS.len(), "[é0-9 :()\\[\\]-]{0,6}"), 0..6), 0..40)) {
        let text: String = lines
            .iter()
            .map(|parts| parts.iter().map(|(part, other)| format!("{}{other}", PARTS[*part])).collect::<String>() + "\n")
            .collect();
        let report = job(&[("llm-master-0.log", &text), ("llm-worker-0.log", &text), ("slurm-1.out", &text)]);
        prop_assert!(!report.verdict.title.is_empty());
    }
}
