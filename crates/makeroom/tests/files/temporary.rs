//! Any directory for temporary files works, or none at all: the program is recorded, or a message reports that it is
//! not.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use super::stage::{Stage, text};

/// Runs the program with this directory for temporary files, and without any other private directory.
fn run(stage: &Stage, temporary: impl AsRef<Path>, steps: &str) -> Output {
    let mut command = stage.command(&["run", "--no-status", "-o", "run.room", "--", "./steps"]);
    command.args(steps.split(' ')).env("TMPDIR", temporary.as_ref());
    for name in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HOME"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn is_recorded(stage: &Stage, output: &Output) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("steps (PID ") && said.contains("used up to"), "{said}");
    assert!(!said.contains("ld.so"), "{said}");
    assert!(stage.path("run.room").exists());
}

#[test]
fn names_that_the_dynamic_linker_takes_apart_are_no_hindrance() {
    let names = ["sp ace", "co:lon", "$LIB", "${ORIGIN}x", "se;mi", "new\nline"];
    for (index, name) in names.into_iter().enumerate() {
        let stage = Stage::new(&format!("odd-{index}"));
        fs::create_dir(stage.path(name)).unwrap();
        is_recorded(&stage, &run(&stage, stage.path(name), "alloc 10 exit 3"));
    }
}

#[test]
fn a_relative_folder_is_no_hindrance() {
    let stage = Stage::new("relative");
    fs::create_dir(stage.path("below")).unwrap();
    is_recorded(&stage, &run(&stage, "below", "chdir / alloc 10 exit 3"));
    // Child processes with another working directory must find the library too.
    let words =
        ["run", "--no-status", "-o", "other.room", "--", "sh", "-c", "cd / && exec \"$0\" alloc 10 exit 3"];
    let mut command = stage.command(&words);
    command.arg(stage.path("steps")).env("TMPDIR", "below");
    for name in ["XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "HOME"] {
        command.env_remove(name);
    }
    assert_eq!(command.output().unwrap().status.code(), Some(3));
    assert!(stage.path("other.room").exists());
}

#[test]
fn a_name_longer_than_that_of_a_socket_is_no_hindrance() {
    let stage = Stage::new("long");
    let long = stage.path("l".repeat(200));
    fs::create_dir(&long).unwrap();
    is_recorded(&stage, &run(&stage, &long, "alloc 10 exit 3"));
}

#[test]
fn a_folder_that_is_missing_is_not_made() {
    let stage = Stage::new("missing");
    is_recorded(&stage, &run(&stage, stage.path("no/such/folder"), "alloc 10 exit 3"));
    assert!(!stage.path("no").exists());
}

#[test]
fn a_file_in_its_place_is_no_hindrance() {
    let stage = Stage::new("file");
    fs::write(stage.path("file"), "").unwrap();
    is_recorded(&stage, &run(&stage, stage.path("file"), "alloc 10 exit 3"));
}

/// A user who can write to a parent directory could replace the directory of the library.
#[test]
fn a_folder_that_others_can_exchange_is_not_used() {
    let stage = Stage::new("exchangeable");
    fs::create_dir_all(stage.path("open/mine")).unwrap();
    fs::set_permissions(stage.path("open"), fs::Permissions::from_mode(0o777)).unwrap();
    is_recorded(&stage, &run(&stage, stage.path("open/mine"), "alloc 10 exit 3"));
    assert_eq!(fs::read_dir(stage.path("open/mine")).unwrap().count(), 0);
}

#[test]
fn without_proc_the_program_runs_unrecorded() {
    let stage = Stage::new("no-proc");
    let hidden = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
    let is_possible = Command::new("unshare").args(&hidden[1..]).arg("true").output();
    if !is_possible.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this user cannot hide /proc");
        return;
    }
    let words = ["run", "--no-status", "-o", "run.room", "--", "sh", "-c", "exit 3"];
    let output = stage.under(&hidden, &words).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/proc is not mounted") && said.contains("without recording"), "{said}");
}
