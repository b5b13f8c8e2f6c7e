//! Programs that close, replace or run out of file descriptors: they are still recorded, their own files are not
//! written to, and they end without delay.

use std::fs;
use std::time::{Duration, Instant};

use super::stage::{Stage, mount, text, unmount};

/// Longer than any of these programs runs, and shorter than any wait in the recorder.
const SOON: Duration = Duration::from_secs(8);

/// Runs the steps. The program must end correctly and in time, and its recording must be complete, including the
/// failed allocation.
fn is_recorded(test: &str, steps: &str, out: &str) -> Stage {
    let stage = Stage::new(test);
    let began = Instant::now();
    let output = stage.run("run.room", steps);
    let (took, said) = (began.elapsed(), text(&output.stderr));
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(8), out), "{said}");
    assert!(took < SOON, "{took:?}");
    assert!(said.contains("makeroom: allocation of 256.00 MiB failed on GPU 0"), "{said}");
    assert!(!said.contains("incomplete") && !said.contains("has no end"), "{said}");
    let why = stage.why("run.room");
    assert!(!why.contains("NOTHING FAILED") && !why.contains("UNDETERMINED"), "{why}");
    stage
}

const REFUSED: &str = "refused 2 after 30\n";

#[test]
fn closefrom_leaves_the_recording_whole() {
    is_recorded("closefrom", "alloc 5 sleep 300 closefrom fill sleep 500 exit 8", REFUSED);
}

#[test]
fn close_range_again_and_again_leaves_the_recording_whole() {
    let rounds = "close_range alloc 5 sleep 150 ".repeat(4);
    is_recorded("close-range", &format!("alloc 5 sleep 200 {rounds}fill exit 8"), REFUSED);
}

#[test]
fn a_file_under_every_number_stays_empty() {
    let steps = "alloc 5 sleep 300 occupy data alloc 100 sleep 300 fill sleep 300 length data exit 8";
    let stage = is_recorded("occupied", steps, "refused 2 after 30\n0\n");
    assert_eq!(fs::metadata(stage.path("data")).unwrap().len(), 0);
}

#[test]
fn descriptors_closed_by_the_list_of_proc_leave_the_recording_whole() {
    is_recorded("listed", "alloc 5 sleep 300 close_listed fill sleep 300 exit 8", REFUSED);
}

#[test]
fn a_thread_that_closes_and_opens_all_the_time_keeps_its_file() {
    let steps = "alloc 5 churn data alloc 2000 sleep 700 fill sleep 300 length data exit 8";
    let stage = is_recorded("churn", steps, "refused 2 after 30\n0\n");
    assert_eq!(fs::metadata(stage.path("data")).unwrap().len(), 0);
}

/// The caller's limit applies to this command too.
#[test]
fn a_limit_of_the_caller_on_descriptors_does_not_keep_the_program_from_running() {
    let stage = Stage::new("few-for-all");
    for limit in [64, 24] {
        let shell = ["bash", "-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")];
        let output =
            stage.under(&shell, &["run", "--no-status", "--", "sh", "-c", "exit 5"]).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{limit}: {}", text(&output.stderr));
    }
}

#[test]
fn a_limit_on_descriptors_leaves_the_recording_whole() {
    is_recorded("few", "alloc 5 sleep 300 nofile 4 alloc 5 sleep 300 fill exit 8", REFUSED);
    is_recorded(
        "few-at-once",
        "nofile 12 alloc 5 sleep 300 closefrom alloc 5 sleep 200 fill exit 8",
        REFUSED,
    );
}

/// The recorder's messages go to `run`, never into a file that has the descriptor of stderr.
#[test]
fn a_file_in_the_place_of_stderr_is_not_written_to() {
    let stage = Stage::new("stderr");
    let disk = stage.path("disk");
    if !mount(&disk, "size=64k") {
        eprintln!("skipped: a tiny disk can only be mounted by root");
        return;
    }
    let output = stage.run("disk/run.room", "stderr data alloc 30000 sleep 300 exit 8");
    unmount(&disk);
    // Where a line is wrapped depends on the name of the file.
    let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(8), "{said}");
    assert_eq!(text(&fs::read(stage.path("data")).unwrap()), "");
    assert!(said.contains("the recording is incomplete") && said.contains("space left on device"), "{said}");
}
