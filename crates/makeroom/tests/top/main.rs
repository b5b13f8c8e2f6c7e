//! `makeroom top` on a pseudo-terminal of 80 columns: holders, sites of a recorded program, a terminal that can only
//! print, and ends of all kinds.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../support/machine.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod machine;

use std::io::Write as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use machine::{Machine, text};

/// `makeroom top` on a terminal of its own, of 80 columns and 24 rows; `None` where that cannot be had.
fn on_terminal(machine: &Machine, kind: &str, before: &str) -> Option<Child> {
    // `script` runs a program on a terminal of its own.
    let makeroom = env!("CARGO_BIN_EXE_makeroom");
    let command = format!("stty cols 80 rows 24; exec {before} {makeroom} top --interval 0.2");
    let mut script = Command::new("script");
    script.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
    machine.place(&mut script);
    script
        .env("MAKEROOM_SIMNVML", machine.scenario("orphan=0:1GiB"))
        .env("TERM", kind)
        .env("SHELL", "/bin/sh");
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()
}

/// Presses keys one after the other, with time to look between them; gives what was written to the terminal.
fn press(mut child: Child, keys: &[&str]) -> Output {
    let mut pipe = child.stdin.take().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    for key in keys {
        pipe.write_all(key.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    child.wait_with_output().unwrap()
}

/// What was on the screen at any time, as the terminal showed it: a line for each row that ever was there.
fn screens(output: &Output) -> String {
    let mut parser = vt100::Parser::new(24, 80, 0);
    let mut seen = String::new();
    for byte in &output.stdout {
        // Whatever is drawn begins by moving the cursor.
        if *byte == 0x1b {
            seen.push_str(&parser.screen().contents());
            seen.push('\n');
        }
        parser.process(&[*byte]);
    }
    seen
}

#[test]
fn holders_are_shown_and_q_ends_it() {
    let mut machine = Machine::new("shown");
    let pid = machine.hold(&["memory", "1024"]);
    let Some(child) = on_terminal(&machine, "xterm", "") else { return };
    let output = press(child, &["sr/hold\r", "q"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("makeroom top"), "{shown}");
    assert!(shown.contains(&pid.to_string()), "{shown}");
    // Only what changes is drawn, so words come one by one.
    assert!(shown.contains("nobody:") && shown.contains("1.00"), "{shown}");
    assert!(!shown.contains("\u{1b}[31m") && !shown.contains("38;5;"), "NO_COLOR is set: {shown}");
    let seen = screens(&output);
    assert!(seen.contains("s sort: growth, reversed  r reverse  / filter (hold)"), "{seen}");
}

#[test]
fn sites_of_a_program_that_runs_under_makeroom_run_are_shown() {
    let mut machine = Machine::new("sites");
    let mut command = machine.makeroom("", &["run", "-o", "run.room", "--", "./hold", "memory", "1024"]);
    let pid = machine.start(&mut command, 1)[0];
    std::thread::sleep(Duration::from_millis(500));
    let Some(child) = on_terminal(&machine, "xterm", "") else { return };
    let output = press(child, &["\r", "q"]);
    assert_eq!(output.status.code(), Some(0));
    let seen = screens(&output);
    assert!(seen.contains(&format!("sites of {pid}, at its peak")), "{seen}");
    assert!(seen.contains("1.00 GiB  hold") || seen.contains("1.00 GiB  context"), "{seen}");
}

#[test]
fn a_terminal_that_can_only_print_gets_every_look_as_text() {
    let mut machine = Machine::new("dumb");
    let pid = machine.hold(&["memory", "1024"]);
    let Some(child) = on_terminal(&machine, "dumb", "timeout -s INT 3") else { return };
    let output = press(child, &[]);
    let shown = text(&output.stdout);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(shown.matches(&pid.to_string()).count() > 1, "{shown}");
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
}

#[test]
fn whoever_ends_it_gets_the_terminal_back() {
    let machine = Machine::new("ended");
    let Some(child) = on_terminal(&machine, "xterm", "timeout --foreground -s TERM --preserve-status 2")
    else {
        return;
    };
    let output = press(child, &[]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(shown.contains("\u{1b}[?1049h") && shown.trim_end().contains("\u{1b}[?1049l"), "{shown:?}");
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let machine = Machine::new("no-terminal");
    let output = machine.makeroom("", &["top"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: top needs a terminal") && said.contains("makeroom ps --json"), "{said}");
}
