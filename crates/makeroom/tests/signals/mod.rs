//! Signals and exit status of `makeroom run`: the program receives each signal exactly once, whoever sent it, and the
//! command ends as the program did.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod ending;
mod stage;
mod terminal;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use stage::{Stage, send};

/// Every signal that a process can catch, except SIGCHLD, those reserved by the C library, and the last one, which ends
/// each test.
fn catchable() -> impl Iterator<Item = i32> {
    (1..=63).filter(|signal| ![9, 17, 19, 32, 33].contains(signal))
}

#[test]
fn every_signal_from_kill_arrives_once() {
    let stage = Stage::new("kill");
    let mut run = stage.run(&["./ears"]).spawn().unwrap();
    let (parent, _) = stage.ready();
    for (count, signal) in (1..).zip(catchable()) {
        send(parent, signal);
        stage.hears(count);
        assert_eq!(run.try_wait().unwrap(), None, "signal {signal} ended makeroom");
    }
    let got = stage.counts(parent, catchable().count());
    assert!(run.wait().unwrap().success());
    assert_eq!(got, catchable().map(|signal| format!("{signal}:1")).collect::<Vec<_>>());
}

#[test]
fn a_signal_to_the_process_group_arrives_once() {
    let stage = Stage::new("group");
    let mut run = stage.run(&["./ears"]).process_group(0).spawn().unwrap();
    let (parent, _) = stage.ready();
    let signals = [1, 2, 10, 15, 18, 40];
    for (count, signal) in (1..).zip(signals) {
        send(-parent, signal);
        stage.hears(count);
    }
    let got = stage.counts(parent, signals.len());
    assert!(run.wait().unwrap().success());
    assert_eq!(got, signals.map(|signal| format!("{signal}:1")));
}

#[test]
fn a_signal_that_the_program_sends_its_own_group_does_not_come_back() {
    for mode in ["group", "parent"] {
        let stage = Stage::new(&format!("own-{mode}"));
        let mut run = stage.run(&["./ears", mode]).process_group(0).spawn().unwrap();
        let (parent, _) = stage.ready();
        let expected: &[&str] = if mode == "group" { &["10:1"] } else { &[] };
        let got = stage.counts(parent, expected.len());
        assert!(run.wait().unwrap().success());
        assert_eq!(got, expected, "{mode}");
    }
}

#[test]
fn a_queued_signal_keeps_its_value() {
    let stage = Stage::new("queued");
    stage.compile(
        "queue",
        "#include <signal.h>\n#include <stdlib.h>\nint main(int argc, char **argv) { union sigval value = {.sival_int = 4711};\
         return sigqueue(atoi(argv[1]), 36, value); }",
    );
    let mut run = stage.run(&["./ears"]).spawn().unwrap();
    let (parent, _) = stage.ready();
    let queue = || Command::new(stage.folder.join("queue")).arg(parent.to_string()).status().unwrap();
    assert!(queue().success() && queue().success());
    let got = stage.counts(parent, 2);
    assert!(run.wait().unwrap().success());
    assert_eq!(got, ["36:2", "value", "4711"]);
}

/// Also SIGPIPE, which Rust programs ignore themselves.
#[test]
fn ignored_and_blocked_signals_are_inherited() {
    let stage = Stage::new("inherited");
    stage.compile(
        "launch",
        "#include <signal.h>\n#include <unistd.h>\nint main(int argc, char **argv) { sigset_t set; sigemptyset(&set);\
         sigaddset(&set, SIGUSR2); sigaddset(&set, 40); sigprocmask(SIG_BLOCK, &set, 0);\
         signal(SIGPIPE, SIG_IGN); signal(SIGHUP, SIG_IGN); signal(SIGCHLD, SIG_IGN); execvp(argv[1], argv + 1); return 97; }",
    );
    let look = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"];
    let bare = Command::new(stage.folder.join("launch")).args(look).output().unwrap();
    let mut command = Command::new(stage.folder.join("launch"));
    command.arg(env!("CARGO_BIN_EXE_makeroom")).args(["run", "--no-status", "--"]).args(look);
    let recorded = stage.surround(&mut command).stderr(Stdio::piped()).output().unwrap();
    let sets = |output: &[u8]| -> Vec<u64> {
        let text = String::from_utf8_lossy(output).into_owned();
        let digits = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        // Signals 32 and 33 are reserved by the C library.
        digits.map(|digits| u64::from_str_radix(digits, 16).unwrap() & !(3 << 31)).collect()
    };
    assert_eq!(sets(&bare.stdout)[1] & 0x1_1001, 0x1_1001, "{bare:?}");
    assert_eq!(sets(&recorded.stdout), sets(&bare.stdout));
    assert_eq!(recorded.status, bare.status);
    // A program that handles a signal it inherited as ignored receives it.
    let mut command = Command::new(stage.folder.join("launch"));
    command.arg(env!("CARGO_BIN_EXE_makeroom")).args(["run", "--no-status", "--", "./ears"]);
    let mut run = stage.surround(&mut command).stderr(Stdio::null()).spawn().unwrap();
    let (parent, _) = stage.ready();
    for (count, signal) in [(1, 1), (2, 13)] {
        send(parent, signal);
        stage.hears(count);
    }
    let got = stage.counts(parent, 2);
    assert!(run.wait().unwrap().success());
    assert_eq!(got, ["1:1", "13:1"]);
}
