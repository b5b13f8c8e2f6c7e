//! `-o` and `--summary`: which files they may replace, and which files they leave behind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;
use std::process::Output;

use super::stage::{Stage, text};

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

/// The options that write a file, with `OUT` in place of its name; `IN` is a recording, `BUFFERS` a list of buffers.
const WRITERS: [&[&str]; 10] = [
    &["export", "IN", "--to", "perfetto", "-o", "OUT"],
    &["export", "IN", "--to", "speedscope", "-o", "OUT"],
    &["export", "IN", "--to", "snapshot", "-o", "OUT"],
    &["export", "IN", "--to", "parquet", "-o", "OUT"],
    &["export", "IN", "--to", "csv", "-o", "OUT"],
    &["export", "IN", "--to", "csv", "--table", "events", "-o", "OUT"],
    &["view", "IN", "-o", "OUT"],
    &["run", "--no-status", "-o", "new.room", "--summary", "OUT", "--", "./steps", "alloc", "10"],
    &["run", "--no-status", "-o", "new.room", "--summary", "OUT", "--", "true"],
    &["plan", "BUFFERS", "-o", "OUT"],
];

/// Files of a user's own, most of them in the formats that makeroom writes.
const OWN_FILES: [&[u8]; 13] = [
    b"#!/bin/sh\nexit 3\n",
    b"import torch\n",
    b"\x7fELF\x02\x01\x01",
    b"<!doctype html>\n<html lang=\"en\">\n<title>thesis</title>\n",
    b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n]}\n",
    b"{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"exporter\":\"py-spy\"}",
    b"\x80\x04\x95\x0f\0\0\0\0\0\0\0}\x94\x8c\x08segments\x94]\x94s.",
    // As makeroom's own pool writes it.
    b"\x80\x04}(\x8c\x08segments\x94]u.",
    b"PAR1\x15\x04\x15\x10parquet-cpp-arrow version 21.0.0\x2a\0\0\0PAR1",
    b"device,allocation,owner\n0,1,me\n",
    b"[\n  {\n    \"file\": \"accounts\"\n  }\n]",
    b"id,lower,upper,size\nx,0,1,64\n",
    b".TH makeroom-like 7\n",
];

fn wrote(stage: &Stage, words: &[&str], output: &str) -> Output {
    let named = |word: &&str| match *word {
        "IN" => "in.room".to_owned(),
        "BUFFERS" => concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/buffers.csv").to_owned(),
        "OUT" => output.to_owned(),
        word => word.to_owned(),
    };
    let words: Vec<String> = words.iter().map(named).collect();
    stage.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap()
}

#[test]
fn an_output_replaces_only_what_makeroom_wrote_there() {
    let stage = Stage::new("own");
    assert_eq!(stage.run("in.room", "alloc 10 exit 3").status.code(), Some(3));
    assert_eq!(stage.run("other.room", "alloc 10 exit 3").status.code(), Some(3));
    let other = fs::read(stage.path("other.room")).unwrap();
    for words in WRITERS {
        for own in OWN_FILES.into_iter().chain([&other[..]]) {
            fs::write(stage.path("mine"), own).unwrap();
            symlink("mine", stage.path("link")).unwrap();
            for file in ["mine", "link"] {
                let output = wrote(&stage, words, file);
                let said = text(&output.stderr);
                assert_eq!(output.status.code(), Some(1), "{words:?} {}: {said}", own.escape_ascii());
                let is_explained = said.starts_with("error: ")
                    && said.contains("exists and is not")
                    && said.contains("\nhint: ");
                assert!(is_explained, "{words:?}: {said}");
                assert!(fs::read(stage.path("mine")).unwrap() == own, "{words:?} {}", own.escape_ascii());
            }
            fs::remove_file(stage.path("link")).unwrap();
        }
        // A new file, its replacement, an empty file.
        fs::remove_file(stage.path("mine")).unwrap();
        for round in 0..3 {
            let output = wrote(&stage, words, "mine");
            assert!(output.status.success(), "{words:?} {round}: {}", text(&output.stderr));
            let written = fs::read(stage.path("mine")).unwrap();
            assert!(!written.is_empty());
            if round == 1 {
                fs::write(stage.path("mine"), "").unwrap();
            }
        }
    }
}

/// A descriptor is written to, also if it leads to a file: a rename would replace the link.
#[test]
fn an_open_descriptor_is_written_to() {
    let stage = Stage::new("descriptor");
    assert_eq!(stage.run("in.room", "alloc 10 exit 3").status.code(), Some(3));
    for descriptor in ["/proc/self/fd/1", "/dev/fd/1"] {
        let file = fs::File::create(stage.path("out.csv")).unwrap();
        let words = ["export", "in.room", "--to", "csv", "--table", "events", "-o", descriptor];
        assert!(stage.command(&words).stdout(file).status().unwrap().success());
        let written = fs::read_to_string(stage.path("out.csv")).unwrap();
        assert!(written.starts_with("device,"), "{descriptor}: {written}");
    }
}

/// What one of the writers wrote is not replaced by one of another kind.
#[test]
fn a_result_of_another_command_is_kept() {
    let stage = Stage::new("kinds");
    assert_eq!(stage.run("in.room", "alloc 10 exit 3").status.code(), Some(3));
    let (csv, page, summary, plan) = (WRITERS[4], WRITERS[6], WRITERS[7], WRITERS[9]);
    for (first, second) in [(csv, page), (page, summary), (summary, csv), (csv, plan), (plan, csv)] {
        assert!(wrote(&stage, first, "result").status.success());
        let before = fs::read(stage.path("result")).unwrap();
        let output = wrote(&stage, second, "result");
        assert_eq!(output.status.code(), Some(1), "{second:?}: {}", text(&output.stderr));
        assert!(fs::read(stage.path("result")).unwrap() == before);
        fs::remove_file(stage.path("result")).unwrap();
    }
    // Another format of the same command is.
    assert!(wrote(&stage, csv, "result").status.success());
    assert!(wrote(&stage, WRITERS[3], "result").status.success());
    assert!(fs::read(stage.path("result")).unwrap().starts_with(b"PAR1"));
}

/// The file did not exist when the program was started.
#[test]
fn a_summary_does_not_replace_what_the_program_wrote() {
    let stage = Stage::new("meanwhile");
    let words = ["run", "--summary", "result.json", "--", "sh", "-c", "echo mine > result.json; exit 3"];
    let output = stage.command(&words).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("error: ") && said.contains("\nhint: "), "{said}");
    assert_eq!(fs::read_to_string(stage.path("result.json")).unwrap(), "mine\n");
}

#[test]
fn man_pages_replace_only_man_pages() {
    let stage = Stage::new("man");
    for _ in 0..2 {
        assert!(stage.command(&["man", "pages"]).output().unwrap().status.success());
    }
    assert!(fs::read_to_string(stage.path("pages/makeroom-run.1")).unwrap().contains(".TH makeroom-run"));
    let (page, mine) = (stage.path("pages/makeroom-run.1"), stage.path("mine"));
    fs::write(&mine, "mine").unwrap();
    for is_link in [false, true] {
        fs::remove_file(&page).unwrap();
        if is_link {
            symlink(&mine, &page).unwrap();
        } else {
            fs::copy(&mine, &page).map(drop).unwrap();
        }
        let output = stage.command(&["man", "pages"]).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("\nhint: "), "{said}");
        assert_eq!(fs::read_to_string(&page).unwrap(), "mine");
    }
}

/// Devices and pipes are written to.
#[test]
fn an_output_may_be_a_pipe() {
    let stage = Stage::new("pipe");
    assert_eq!(stage.run("in.room", "alloc 10 exit 3").status.code(), Some(3));
    for words in WRITERS {
        let output = wrote(&stage, words, "/dev/stdout");
        assert!(output.status.success() && !output.stdout.is_empty(), "{words:?}: {}", text(&output.stderr));
        let output = wrote(&stage, words, "/dev/null");
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
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
