//! `makeroom top` on a pseudo-terminal of 80 columns: it shows the holders, and q ends it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../support/machine.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod machine;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use machine::{Machine, text};

#[test]
fn holders_are_shown_and_q_ends_it() {
    let mut machine = Machine::new("shown");
    let pid = machine.hold(&["memory", "1024"]);
    // `script` runs a program on a terminal of its own.
    let command = format!("stty cols 80 rows 24; exec {} top --interval 0.2", env!("CARGO_BIN_EXE_makeroom"));
    let mut script = Command::new("script");
    script.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
    machine.place(&mut script);
    script
        .env("MAKEROOM_SIMNVML", machine.scenario("orphan=0:1GiB"))
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh");
    let started = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else { return };
    let mut keys = child.stdin.take().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    keys.write_all(b"sr/hold\r").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    keys.write_all(b"q").unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("makeroom top"), "{shown}");
    assert!(shown.contains(&pid.to_string()), "{shown}");
    // Only what changes is drawn, so words come one by one.
    assert!(shown.contains("nobody:") && shown.contains("1.00"), "{shown}");
    assert!(!shown.contains("\u{1b}[31m") && !shown.contains("38;5;"), "NO_COLOR is set: {shown}");
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let machine = Machine::new("no-terminal");
    let output = machine.makeroom("", &["top"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: top needs a terminal") && said.contains("makeroom ps --json"), "{said}");
}
