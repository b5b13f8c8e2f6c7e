//! A recording that stops before its program does: its summary must not claim that nothing failed.

use std::fs;
use std::path::Path;

use super::stage::{Stage, mount, text, unmount};

/// `run` and `why` must report a program whose allocation failed after its recording had stopped.
fn is_told(stage: &Stage, file: &str, said: &str, reason: &str) {
    assert!(said.contains("makeroom: allocation of 256.00 MiB failed on GPU 0"), "{said}");
    assert!(said.contains("the recording is incomplete"), "{said}");
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words.join(" ").contains(reason), "{said}");
    assert!(said.contains("failed after that: 1 allocation, the first of 256.00 MiB on GPU 0"), "{said}");
    assert!(!said.contains("was killed"), "{said}");
    if stage.path(file).exists() {
        is_open(stage, file);
    }
}

/// `why` neither claims that nothing failed nor is certain of a cause.
fn is_open(stage: &Stage, file: &str) {
    let why = stage.why(file);
    assert!(!why.contains("NOTHING FAILED") && why.contains("UNDETERMINED"), "{why}");
    assert!(why.contains("stops after"), "{why}");
    let json = stage.why_json(file);
    assert_eq!(json["verdict"]["certainty"], "undetermined", "{json}");
}

#[test]
fn a_full_disk_does_not_mean_that_nothing_failed() {
    let stage = Stage::new("full-disk");
    let disk = stage.path("disk");
    if !mount(&disk, "size=64k") {
        eprintln!("skipped: a tiny disk can only be mounted by root");
        return;
    }
    let output = stage.run("disk/run.room", "alloc 30000 sleep 300 fill exit 9");
    let said = text(&output.stderr);
    let summary = stage.path("summary.json");
    let second = stage
        .command(&["run", "--no-status", "--summary", "summary.json", "-o", "disk/run.room", "--", "./steps"])
        .args(["alloc", "30000", "sleep", "300", "fill", "exit", "9"])
        .output()
        .unwrap();
    let told: serde_json::Value = serde_json::from_slice(&fs::read(summary).unwrap()).unwrap();
    fs::copy(disk.join("run.room"), stage.path("run.room")).unwrap();
    unmount(&disk);
    assert_eq!(output.status.code(), Some(9), "{said}");
    is_told(&stage, "run.room", &said, "No space left on device");
    assert_eq!(second.status.code(), Some(9));
    let incomplete = &told[0]["incomplete"];
    assert!(incomplete["reason"].as_str().unwrap().contains("No space left on device"), "{told}");
    assert_eq!(incomplete["refused"], 1, "{told}");
}

/// The caller's limit applies to this command too: it must not end the program, and leaves no partial file.
#[test]
fn a_limit_of_the_caller_on_file_sizes_ends_nothing() {
    let stage = Stage::new("file-limit-of-all");
    let (home, temporary) = (stage.path("home"), stage.path("temporary"));
    fs::create_dir(&temporary).unwrap();
    let shell = ["bash", "-c", "ulimit -f 8; exec \"$0\" \"$@\""];
    let mut command =
        stage.under(&shell, &["run", "--no-status", "--summary", "s.json", "--", "sh", "-c", "exit 5"]);
    let output = command.env("HOME", home).env("TMPDIR", &temporary).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let left = |folder: &Path| -> Vec<String> {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.contains(".part"))
            .collect()
    };
    assert!(left(&temporary).is_empty() && left(&stage.path("own")).is_empty(), "{:?}", left(&temporary));
}

#[test]
fn a_limit_on_file_sizes_does_not_mean_that_nothing_failed() {
    let stage = Stage::new("file-limit");
    let output = stage.run("run.room", "alloc 10 sleep 300 fsize 20000 alloc 30000 sleep 300 fill exit 9");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{said}");
    is_told(&stage, "run.room", &said, "File too large");
}

#[test]
fn a_recording_that_is_deleted_is_missed() {
    let stage = Stage::new("deleted");
    let output = stage.run("run.room", "alloc 10 sleep 300 unlink run.room alloc 10 sleep 300 fill exit 9");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{said}");
    is_told(&stage, "run.room", &said, "the file was deleted");
}

#[test]
fn a_recording_that_is_cut_is_missed() {
    let stage = Stage::new("cut");
    let output = stage.run("run.room", "alloc 10 sleep 300 truncate run.room alloc 10 sleep 300 fill exit 9");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(9), "{said}");
    assert!(said.contains("256.00 MiB failed on GPU 0") && said.contains("truncated)"), "{said}");
}

/// Another writer damages the file while the recorder writes to it. The recorder cannot notice that, but the process
/// reports the failure.
#[test]
fn a_recording_that_is_damaged_does_not_hide_a_failure() {
    for (test, damage, reason) in [
        ("appended", "append run.room", "of damaged data"),
        ("scribbled", "scribble run.room 600", "of damaged data"),
        ("beginning", "scribble run.room 0", "the recording cannot be read"),
        ("header", "scribble run.room 20", "the recording cannot be read"),
    ] {
        let stage = Stage::new(test);
        let steps = format!("alloc 100 sleep 300 {damage} alloc 100 sleep 300 fill exit 9");
        let words = ["run", "--no-status", "--summary", "summary.json", "-o", "run.room", "--", "./steps"];
        let output = stage.command(&words).args(steps.split(' ')).output().unwrap();
        let said = text(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(9), "{test}: {said}");
        assert!(said.contains("allocation of 256.00 MiB failed on GPU 0"), "{test}: {said}");
        let failed = ": 1 allocation, the first of 256.00 MiB on GPU 0";
        assert!(said.contains(reason) && said.contains(failed), "{test}: {said}");
        assert!(!said.contains("was killed") && !said.contains("no allocation failed"), "{test}: {said}");
        let told: serde_json::Value =
            serde_json::from_slice(&fs::read(stage.path("summary.json")).unwrap()).unwrap();
        assert_eq!(told[0]["incomplete"]["refused"], 1, "{test}: {told}");
        assert_eq!(told[0]["incomplete"]["first_refused_bytes"], 256 << 20, "{test}: {told}");
    }
}

/// A server that outlives the program has not ended.
#[test]
fn a_process_that_goes_on_is_not_called_ended() {
    let stage = Stage::new("goes-on");
    let script = "./steps alloc 10 sleep 6000 >/dev/null 2>&1 & sleep 1";
    let output =
        stage.command(&["run", "--no-status", "-o", "run.room", "--", "sh", "-c", script]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("is still running and recording") && !said.contains("no end"), "{said}");
}

/// One of two processes cannot create its file.
#[test]
fn a_process_that_is_not_recorded_is_named_beside_one_that_is() {
    let stage = Stage::new("partly");
    let script = "./steps alloc 10; MAKEROOM_FILE=/no/such/folder/x.room ./steps alloc 10; exit 3";
    let output =
        stage.command(&["run", "--no-status", "-o", "run.room", "--", "sh", "-c", script]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("used up to") && said.contains(" was not recorded: "), "{said}");
}

#[test]
fn a_recording_that_is_moved_goes_on() {
    let stage = Stage::new("moved");
    let output = stage.run("run.room", "alloc 10 sleep 300 rename run.room other.room fill exit 9");
    let said = text(&output.stderr);
    assert!(said.contains("256.00 MiB failed on GPU 0"), "{said}");
    let why = stage.why("other.room");
    assert!(!why.contains("UNDETERMINED") && !why.contains("NOTHING FAILED"), "{why}");
}

/// The recorder reports a failure at once, before it can know that a retry succeeds.
#[test]
fn a_retried_request_of_a_killed_process_is_no_failure() {
    let stage = Stage::new("retried");
    let said = text(&stage.run("run.room", "retry sleep 600 kill").stderr);
    assert!(said.contains("the recording has no end"), "{said}");
    assert!(!said.contains("failed after that") && !said.contains("incomplete"), "{said}");
}

#[test]
fn a_process_that_had_no_chance_to_end_its_recording_leaves_the_verdict_open() {
    for (test, end) in [("killed", "kill"), ("bare-exit", "bare_exit 5")] {
        let stage = Stage::new(test);
        let said = text(&stage.run("run.room", &format!("alloc 10 sleep 300 {end}")).stderr);
        assert!(said.contains("the recording has no end"), "{said}");
        is_open(&stage, "run.room");
    }
}
