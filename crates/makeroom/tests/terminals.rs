//! Output adapts to where it goes: a terminal of any width, a pipe, or a file.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use makeroom_core::{Address, Bytes};
use makeroom_trace::room::{
    Encoder, Event, EventKind, FrameDefinition, FrameNumber, Header, NameNumber, Origin, StackNumber,
    ThreadNumber, beginning, seal,
};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/oom_batch.pickle.gz");

/// Buffers with lifetimes.
const BUFFERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/buffers.csv");

fn makeroom(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_makeroom"));
    command.args(words).stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("COLUMNS");
    command
}

/// A directory with a program that runs another one on a terminal of 24 rows and 80 columns.
fn stage(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("terminals").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pty.c");
    let built =
        Command::new(compiler).args(["-w", "-o"]).arg(folder.join("pty")).arg(source).status().unwrap();
    assert!(built.success());
    folder
}

#[test]
fn the_narrowest_terminal_is_answered() {
    for width in ["0", "1", "7", "18446744073709551615"] {
        for words in [
            &["why", TRACE][..],
            &["replay", "--no-smallest", "--allocator", "pytorch", TRACE],
            &["tune", "--memory", "1GiB", TRACE],
            &["plan", "--capacity", "900KiB", BUFFERS],
            &["doctor"],
            &["ps"],
            &["demo", "--list"],
        ] {
            let output = makeroom(words).env("COLUMNS", width).output().unwrap();
            // A missing driver, or a note, is not a crash.
            assert!(matches!(output.status.code(), Some(0 | 1)), "{width} {words:?}: {output:?}");
            assert!(!output.stdout.is_empty(), "{width} {words:?}: {output:?}");
        }
    }
}

#[test]
fn a_file_gets_everything_whatever_terminal_wrote_it() {
    let folder = stage("file");
    let anywhere = makeroom(&["why", TRACE]).output().unwrap().stdout;
    let script = format!("{} why {TRACE} > written.txt", env!("CARGO_BIN_EXE_makeroom"));
    let mut command = Command::new(folder.join("pty"));
    command.args(["sh", "-c", &script]).current_dir(&folder).env("NO_COLOR", "1").env_remove("COLUMNS");
    assert!(command.stdin(Stdio::null()).status().unwrap().success());
    let written = std::fs::read(folder.join("written.txt")).unwrap();
    assert_eq!(String::from_utf8_lossy(&written), String::from_utf8_lossy(&anywhere));
}

#[test]
fn a_pager_gets_lines_that_fit_and_all_of_them() {
    let folder = stage("pager");
    let shown = |rest: &str| -> Vec<String> {
        let script = format!("{} why {TRACE} {rest}", env!("CARGO_BIN_EXE_makeroom"));
        let mut command = Command::new(folder.join("pty"));
        command.args(["sh", "-c", &script]).current_dir(&folder).env("NO_COLOR", "1").env_remove("COLUMNS");
        let shown = command.stdin(Stdio::null()).output().unwrap().stdout;
        String::from_utf8_lossy(&shown).lines().map(|line| line.trim_end().to_owned()).collect()
    };
    let (screen, pager) = (shown(""), shown("--verbose | cat"));
    // The terminal has 24 rows, and the last is the prompt's.
    assert!(screen.len() < 24, "the tree is cut to the screen: {screen:#?}");
    assert!(pager.len() > 24, "and only there: {pager:#?}");
    assert!(shown("| cat").len() < 25, "without --verbose, a pager gets one screen");
    assert_eq!(screen[..5], pager[..5], "the verdict is as wide as the terminal");
    assert!(screen[2].chars().count() <= 80, "{}", screen[2]);
}

/// A recording from an untrusted source: a block allocated by a function with a hostile name in a file with a hostile
/// name.
fn hostile_recording() -> Vec<u8> {
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    encoder.name(NameNumber(1), "/home/me/\u{1b}]52;c;ZXZpbA==\u{7}train.py".as_bytes());
    encoder.name(NameNumber(2), "step\u{9b}2J\u{1b}c\u{202e}\u{1b}[8mhidden".as_bytes());
    let frame = FrameDefinition {
        origin: Origin::Python,
        function: NameNumber(2),
        file: NameNumber(1),
        line: 12,
        ..FrameDefinition::default()
    };
    encoder.frame(FrameNumber(1), &frame);
    encoder.stack(StackNumber(1), &[FrameNumber(1)]);
    let (address, size) = (Address(1 << 40), Bytes::mib(64));
    let stack = StackNumber(1);
    encoder.event(&Event { kind: EventKind::DeviceAlloc, address, size, stack, ..Event::default() });
    let mut file = beginning(&Header::default());
    assert!(seal(encoder.bytes(), &mut file));
    file
}

#[test]
fn what_an_input_names_does_nothing_to_a_terminal() {
    let folder = stage("hostile");
    std::fs::write(folder.join("run.room"), hostile_recording()).unwrap();
    let shown = |words: &[&str]| {
        let mut command = Command::new(folder.join("pty"));
        command.arg(env!("CARGO_BIN_EXE_makeroom")).args(words).current_dir(&folder);
        let shown = command.env("TERM", "xterm").stdin(Stdio::null()).output().unwrap().stdout;
        String::from_utf8_lossy(&shown).into_owned()
    };
    let is_hostile = |text: &str| {
        text.contains(['\u{9b}', '\u{7}', '\u{202e}', '\u{2067}', '\u{200b}'])
            || ["\u{1b}]", "\u{1b}[8m", "\u{1b}[30"].iter().any(|sequence| text.contains(sequence))
    };
    let answer = shown(&["why", "run.room"]);
    assert!(answer.contains("train.py:12"), "{answer:?}");
    assert!(!is_hostile(&answer), "{answer:?}");
    // Names of files and programs are untrusted too.
    let hostile = "\u{2067}x\u{1b}[30;40m\u{200b}.room";
    std::fs::copy(folder.join("run.room"), folder.join(hostile)).unwrap();
    std::fs::write(folder.join("buffers.csv"), format!("id,lower,upper,size\n{hostile},0,9,64\n")).unwrap();
    let sleeps = folder.join(hostile.replace(".room", ".sh"));
    std::fs::copy("/bin/true", &sleeps).unwrap();
    let program = sleeps.display().to_string();
    for words in [
        &["why", hostile][..],
        &["replay", hostile],
        &["tune", hostile],
        &["tune", "no-such-\u{202e}file"],
        &["plan", hostile],
        &["plan", "--capacity", "1", "buffers.csv"],
        &["plan", "buffers.csv", "-o", "-"],
        &["run", "--no-status", "--", &program],
        &["run", "--no-status", "-o", hostile, "--", "./\u{202e}missing"],
    ] {
        let answer = shown(words);
        assert!(!answer.is_empty() && !is_hostile(&answer), "{words:?}: {answer:?}");
    }
    let failure = shown(&["why", "/no/such/\u{9b}2J\u{7}"]);
    assert!(failure.contains("/no/such/") && !is_hostile(&failure), "{failure:?}");
    // JSON contains the exact names, escaped.
    let exact = "step\u{9b}2J\u{1b}c\u{202e}";
    let json = makeroom(&["why", "--json", "run.room"]).current_dir(&folder).output().unwrap().stdout;
    assert!(!is_hostile(&String::from_utf8_lossy(&json)));
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert!(contains(&json, exact), "{json:#}");
    assert!(!is_hostile(&shown(&["why", "--json", hostile])));
    // Formats for other programs are unchanged, except on a terminal.
    for words in [
        &["export", "run.room", "--to", "csv"][..],
        &["export", "run.room", "--to", "csv", "--table", "events"],
        &["export", "run.room", "--to", "speedscope"],
        &["export", "run.room", "--to", "perfetto"],
    ] {
        let answer = shown(words);
        assert!(answer.contains("train.py") && !is_hostile(&answer), "{words:?}: {answer:?}");
        assert!(!answer.contains('\u{1b}'), "{words:?}: {answer:?}");
        let piped = makeroom(words).current_dir(&folder).output().unwrap().stdout;
        let piped = String::from_utf8_lossy(&piped).replace("\\u001b", "\u{1b}");
        assert!(piped.contains(exact), "{words:?}: {piped:?}");
    }
}

/// Whether a string in a JSON value contains a text.
fn contains(json: &serde_json::Value, text: &str) -> bool {
    match json {
        serde_json::Value::String(string) => string.contains(text),
        serde_json::Value::Array(items) => items.iter().any(|item| contains(item, text)),
        serde_json::Value::Object(fields) => fields.values().any(|value| contains(value, text)),
        _ => false,
    }
}

#[test]
fn a_terminal_is_not_waited_for() {
    let folder = stage("input");
    let mut command = Command::new(folder.join("pty"));
    command.args([env!("CARGO_BIN_EXE_makeroom"), "why"]).env("NO_COLOR", "1").stdin(Stdio::null());
    let output = command.output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    assert!(shown.contains("error: no input"), "{output:?}");
    assert!(shown.contains("hint: for example: python train.py 2>&1 | makeroom why"), "{output:?}");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
