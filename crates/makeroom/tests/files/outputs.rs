//! `-o` and `--summary`: which files they may replace, and which files they leave behind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;

use crate::stage::{Stage, text};

/// `-o` rejects this file, starts nothing and leaves the file unchanged.
fn is_kept(stage: &Stage, file: &str) {
    let before = fs::read(stage.path(file)).unwrap();
    let output = stage.run(file, "alloc 10 exit 3");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error: ") && said.contains("not a recording") && said.contains("\nhint: "),
        "{said}"
    );
    assert_eq!(fs::read(stage.path(file)).unwrap(), before);
}

#[test]
fn only_a_recording_is_replaced() {
    let stage = Stage::new("replaced");
    fs::write(stage.path("train.py"), "import torch\n").unwrap();
    is_kept(&stage, "train.py");
    is_kept(&stage, "steps");
    fs::write(stage.path("notes.room"), "not what its name says").unwrap();
    is_kept(&stage, "notes.room");
    fs::hard_link(stage.path("train.py"), stage.path("hard.room")).unwrap();
    is_kept(&stage, "hard.room");
    symlink("train.py", stage.path("soft.room")).unwrap();
    is_kept(&stage, "soft.room");
    fs::write(stage.path("empty.room"), "").unwrap();
    for file in ["new.room", "new.room", "empty.room"] {
        assert_eq!(stage.run(file, "alloc 10 exit 3").status.code(), Some(3), "{file}");
        assert!(stage.why(file).contains("steps"));
    }
}

#[test]
fn a_recording_that_the_program_reads_is_not_replaced() {
    let stage = Stage::new("read");
    assert_eq!(stage.run("in.room", "alloc 10 exit 3").status.code(), Some(3));
    let before = fs::read(stage.path("in.room")).unwrap();
    let output = stage.command(&["run", "-o", "in.room", "--", "wc", "-c", "in.room"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("one of its files") && said.contains("\nhint: "), "{said}");
    assert_eq!(fs::read(stage.path("in.room")).unwrap(), before);
}

/// These files have the names of the demonstrations' recordings.
#[test]
fn a_demonstration_replaces_only_recordings() {
    let stage = Stage::new("demonstration");
    fs::create_dir_all(stage.path("kept/.missing-free")).unwrap();
    fs::write(stage.path("kept/missing-free.room"), "mine").unwrap();
    let demo =
        || stage.command(&["demo", "missing-free", "--gpu", "software", "-o", "kept"]).output().unwrap();
    let output = demo();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(stage.path("kept/missing-free.room")).unwrap(), "mine");
    fs::remove_file(stage.path("kept/missing-free.room")).unwrap();
    for _ in 0..2 {
        let output = demo();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
    assert!(stage.path("kept/.missing-free").exists(), "a folder of the user's own stays");
}

#[test]
fn a_summary_does_not_replace_the_program_or_its_script() {
    let stage = Stage::new("summary");
    fs::write(stage.path("script.sh"), "exit 3\n").unwrap();
    for (summary, command) in [("./steps", ["./steps", "alloc"]), ("script.sh", ["sh", "script.sh"])] {
        let before = fs::read(stage.path(summary)).unwrap();
        let words = ["run", "--summary", summary, "--"];
        let output = stage.command(&words).args(command).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert_eq!(fs::read(stage.path(summary)).unwrap(), before);
    }
}

#[test]
fn a_name_that_is_no_text_gets_its_summary() {
    let stage = Stage::new("bytes");
    for name in [&b"a\xff.room"[..], b"b\xfe \xc3.room"] {
        let name = OsStr::from_bytes(name);
        let output = stage
            .command(&["run", "--no-status", "-o"])
            .arg(name)
            .args(["--", "./steps", "alloc", "10", "exit", "3"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert!(stage.path(name).exists());
        assert!(text(&output.stderr).contains("steps (PID"), "{}", text(&output.stderr));
    }
}

/// A killed run leaves its socket and its lock behind. The next run removes them, but not those in use.
#[test]
fn what_killed_runs_left_is_cleaned_up() {
    let stage = Stage::new("stale");
    // Not in the target directory, which may be writable by a group and would be skipped.
    let session = std::env::temp_dir().join(format!("makeroom-stale-{}", std::process::id()));
    let own = session.join("makeroom");
    for folder in [&session, &own] {
        fs::create_dir(folder).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    }
    drop(UnixDatagram::bind(own.join("socket-999999")).unwrap());
    let alive = UnixDatagram::bind(own.join("socket-alive")).unwrap();
    for name in [".gone.room.lock", ".held.room.lock", ".others.lock"] {
        fs::write(stage.path(name), "").unwrap();
    }
    let held = fs::File::open(stage.path(".held.room.lock")).unwrap();
    held.lock().unwrap();
    fs::write(stage.path(".full.room.lock"), "somebody's own").unwrap();
    let words = ["run", "--no-status", "-o", "run.room", "--", "./steps", "alloc", "10", "exit", "3"];
    let output = stage.command(&words).env("XDG_RUNTIME_DIR", &session).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let is_there = |name: &str| stage.path(name).exists();
    assert!(!own.join("socket-999999").exists() && own.join("socket-alive").exists());
    assert!(!is_there(".gone.room.lock") && !is_there(".run.room.lock"));
    assert!(is_there(".held.room.lock") && is_there(".others.lock") && is_there(".full.room.lock"));
    drop((alive, held));
    fs::remove_dir_all(&session).unwrap();
}
