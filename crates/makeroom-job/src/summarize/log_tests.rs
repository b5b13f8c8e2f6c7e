//! Tests of `log.rs`: the lines of each process of a log.

use super::*;
use crate::tables::{End, FailureKind};

fn read(name: &str, text: &str) -> Rows {
    let identity = JobIdentity::from_file_name(name);
    let mut reader = LogReader::new(Source { name: name.to_owned(), identity, is_running: false });
    // In small chunks, as a file is read.
    text.as_bytes().chunks(7).for_each(|chunk| reader.push(chunk));
    reader.finish()
}

#[test]
fn the_lines_of_each_rank_are_read_separately() {
    let rows = read(
        "job.log",
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 2 has a total capacity \
         of 31.74 GiB of which 1.20 GiB is free. Of the allocated memory 29.00 GiB is allocated by PyTorch, and \
         240.00 MiB is reserved by PyTorch but unallocated.\n\
         [rank1]: [rank1]:[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=ALLREDUCE)\n\
         [rank0]: RuntimeError: Connection closed by peer\n",
    );
    let found: Vec<_> =
        rows.failures.iter().map(|failure| (failure.recording.as_str(), failure.kind)).collect();
    assert_eq!(
        found,
        [
            ("job.log (rank 0)", FailureKind::PeerLost),
            ("job.log (rank 1)", FailureKind::CollectiveTimeout),
            ("job.log (rank 2)", FailureKind::DeviceMemory),
        ]
    );
    assert_eq!(rows.failures[2].requested_bytes, Some(3 << 30));
    assert_eq!(rows.recordings[2].rank, Some(2));
}

#[test]
fn processes_of_ray_are_told_apart_by_their_pid() {
    let rows = read(
        "job.log",
        "(Worker pid=11, ip=10.0.0.1) loss 2.7\n\
         (Worker pid=12, ip=10.0.0.2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 \
         has a total capacity of 31.74 GiB of which 1.20 GiB is free. Of the allocated memory 29.00 GiB is allocated \
         by PyTorch, and 240.00 MiB is reserved by PyTorch but unallocated.\n\
         (Worker pid=13, ip=10.0.0.1) RuntimeError: Connection closed by peer\n",
    );
    let found: Vec<_> =
        rows.failures.iter().map(|failure| (failure.recording.as_str(), failure.kind)).collect();
    assert_eq!(
        found,
        [
            ("job.log (PID 12 on 10.0.0.2)", FailureKind::DeviceMemory),
            ("job.log (PID 13 on 10.0.0.1)", FailureKind::PeerLost),
        ]
    );
    assert_eq!((rows.recordings[0].pid, rows.recordings[0].host.as_deref()), (Some(12), Some("10.0.0.2")));
}

#[test]
fn the_ranks_that_torchrun_lists_have_their_exit_codes() {
    let rows = read(
        "job.log",
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-01-01_10:00:00\n  host      : node7\n  \
         rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 4711)\n  error_file: <N/A>\n",
    );
    let row = rows.recordings.iter().find(|row| row.rank == Some(3));
    assert_eq!(row.map(|row| (row.end, row.host.as_deref())), Some((End::Killed, Some("node7"))));
}

#[test]
fn a_program_that_continues_was_not_killed_by_the_shells_report() {
    let step = "step 1: loss 2.7\n";
    let kinds = |text: &str| -> Vec<FailureKind> {
        read("rank0.log", text).failures.iter().map(|failure| failure.kind).collect()
    };
    for end in ["run.sh: line 3: 77 Killed   ./prepare", "prepare exited with code 143", "Terminated"] {
        assert_ne!(kinds(&format!("{step}{end}\n")), [], "{end}");
        assert_eq!(kinds(&format!("{step}{end}\n{}", step.repeat(4))), [], "{end}");
    }
    assert_eq!(kinds(&format!("{step}run.sh: line 3: 77 Killed   nvidia-smi -l 5\n")), [], "a helper");
}

#[test]
fn the_first_line_about_memory_counts() {
    let out_of_memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of \
        31.74 GiB of which 1.20 GiB is free. Of the allocated memory 29.00 GiB is allocated by PyTorch, and 240.00 MiB is \
        reserved by PyTorch but unallocated.\n";
    let line = |text: &str| read("rank0.log", text).failures.iter().find_map(|failure| failure.line);
    assert_eq!(line(&format!("step\n{out_of_memory}\n{out_of_memory}")), Some(2));
    let handled = format!("step\n{out_of_memory}{}{out_of_memory}", "other\n".repeat(70));
    assert_eq!(line(&handled), Some(73));
}
