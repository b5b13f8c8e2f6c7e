//! Names that another user planted in a shared directory: nothing is written through them, and nothing waits for
//! them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

use super::stage::{Stage, text};

/// A private file behind a link, which no run may touch.
fn victim(stage: &Stage, link: &str) {
    fs::write(stage.path("victim"), "precious").unwrap();
    fs::set_permissions(stage.path("victim"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink(stage.path("victim"), stage.path(link)).unwrap();
}

fn is_untouched(stage: &Stage) {
    assert_eq!(fs::read_to_string(stage.path("victim")).unwrap(), "precious");
    assert_eq!(fs::metadata(stage.path("victim")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_link_in_the_place_of_the_lines_is_not_followed() {
    let stage = Stage::new("lines-link");
    victim(&stage, "run.room.lines");
    let output = stage.run("run.room", "alloc 10 exit 3");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    is_untouched(&stage);
    assert!(fs::symlink_metadata(stage.path("run.room")).unwrap().is_file());
}

#[test]
fn a_link_in_the_place_of_the_lock_is_not_followed() {
    let stage = Stage::new("lock-link");
    symlink(stage.path("made"), stage.path(".run.room.lock")).unwrap();
    let output = stage.run("run.room", "alloc 10 exit 3");
    assert!(!stage.path("made").exists());
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}

#[test]
fn a_pipe_or_a_folder_in_the_place_of_the_lock_holds_nothing_up() {
    let stage = Stage::new("lock-pipe");
    assert!(Command::new("mkfifo").arg(stage.path(".run.room.lock")).status().unwrap().success());
    fs::create_dir(stage.path(".other.room.lock")).unwrap();
    for file in ["run.room", "other.room"] {
        let began = Instant::now();
        let limited = ["timeout", "20"];
        let words = ["run", "--no-status", "-o", file, "--", "./steps", "alloc", "10", "exit", "3"];
        let output = stage.under(&limited, &words).output().unwrap();
        assert!(began.elapsed() < Duration::from_secs(15));
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert!(stage.path(file).exists());
    }
}

/// A link to a file of another kind is kept, and a broken one is replaced. Its target is never written to.
#[test]
fn a_link_in_the_place_of_the_summary_is_not_followed() {
    let stage = Stage::new("summary-link");
    victim(&stage, "summary.json");
    let words =
        ["run", "--no-status", "--summary", "summary.json", "-o", "run.room", "--", "./steps", "alloc", "9"];
    let output = stage.command(&words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    is_untouched(&stage);
    let link = stage.path("summary.json");
    fs::remove_file(&link).unwrap();
    symlink(stage.path("made"), &link).unwrap();
    let output = stage.command(&words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!stage.path("made").exists());
    assert!(fs::symlink_metadata(&link).unwrap().is_file());
}

#[test]
fn a_link_in_the_place_of_the_recording_is_not_followed() {
    let stage = Stage::new("recording-link");
    symlink(stage.path("made"), stage.path("run.room")).unwrap();
    let output = stage.run("run.room", "alloc 10 exit 3");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(!stage.path("made").exists());
    assert!(fs::symlink_metadata(stage.path("run.room")).unwrap().is_file());
}

/// A process may report any path to `run`, which opens only recordings of this run.
#[test]
fn a_pipe_that_a_program_reports_as_its_recording_is_not_waited_for() {
    let stage = Stage::new("reported");
    assert!(Command::new("mkfifo").arg(stage.path("pipe")).status().unwrap().success());
    let script = "import os, socket\n\
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'recording 1 pipe', os.environ['MAKEROOM_SOCKET'])";
    let words = ["run", "--no-status", "--", "python3", "-c", script];
    let output = stage.under(&["timeout", "20"], &words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
