//! `makeroom top` on a pseudo-terminal of 80 columns: holders, lines of a recorded program, a terminal without cursor
//! control, and all ways to end.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and says what it skips")]

use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::support::machine::{Machine, text};

/// `makeroom top` on a terminal of its own, of 80 columns and 24 rows.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Kill it if the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    /// `None` if no pseudo-terminal is available; the test is skipped then.
    fn start(machine: &Machine, kind: &str, before: &str) -> Option<Self> {
        // `script` runs a program on a pseudo-terminal.
        let makeroom = env!("CARGO_BIN_EXE_makeroom");
        // Background jobs ignore SIGINT and pass that on.
        let command = format!(
            "stty cols 80 rows 24; exec env --default-signal=INT {before} {makeroom} top --interval 0.2"
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--flush", "--return", "--command", &command, "/dev/null"]);
        machine.place(&mut script);
        script
            .env("MAKEROOM_SIMNVML", machine.scenario("orphan=0:1GiB"))
            .env("TERM", kind)
            .env("SHELL", "/bin/sh");
        let Ok(mut child) = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            eprintln!("skipped: `script` is not installed, which provides a terminal");
            return None;
        };
        let keys = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let copy = Arc::clone(&written);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                copy.lock().unwrap().extend_from_slice(&bytes[..length]);
            }
        });
        Some(Self { child, keys, written, reader: Some(reader) })
    }

    /// Waits until the screen shows a text, then presses keys.
    fn press(&mut self, after: &str, keys: &str) {
        let began = Instant::now();
        while !self.screen().contains(after) {
            assert!(began.elapsed() < Duration::from_secs(30), "{after} is not on\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(50));
        }
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until a text was written this many times.
    fn wait_for(&self, wanted: &str, times: usize) {
        let began = Instant::now();
        while text(&self.written.lock().unwrap()).matches(wanted).count() < times {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{wanted} is not {times} times in\n{}",
                self.screen()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The process of `top`: the only child of the program that gives it a terminal.
    fn pid(&self) -> String {
        let script = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{script}/task/{script}/children")).unwrap();
        let pid = children.trim().to_owned();
        assert!(!pid.is_empty() && !pid.contains(' '), "children of script: {children:?}");
        pid
    }

    /// The screen as it is.
    fn screen(&self) -> String {
        let mut parser = vt100::Parser::new(24, 80, 0);
        parser.process(&self.written.lock().unwrap());
        parser.screen().contents()
    }

    /// The exit status, and everything that was written.
    fn end(mut self) -> (Option<i32>, String) {
        let status = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        (status.code(), text(&self.written.lock().unwrap()))
    }
}

#[test]
fn holders_are_shown_and_q_ends_it() {
    let mut machine = Machine::new("shown");
    let pid = machine.hold(&["memory", "1024"]);
    let Some(mut terminal) = Terminal::start(&machine, "xterm", "") else { return };
    terminal.press(&format!("{pid} "), "sr/hold\r");
    terminal.press("s sort: growth, reversed  r reverse  / filter (hold)", "q");
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    assert!(shown.contains("makeroom top"), "{shown}");
    assert!(shown.contains(&pid.to_string()), "{shown}");
    assert!(shown.contains("no owner: 1.00 GiB"), "{shown}");
    let colours = ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "38;5;"];
    assert!(!colours.iter().any(|colour| shown.contains(colour)), "NO_COLOR is set: {shown}");
    assert!(shown.contains("\u{1b}[1m") && shown.contains("\u{1b}[7m"), "other styles remain: {shown}");
}

#[test]
fn a_new_size_and_a_continued_process_draw_everything_again() {
    let mut machine = Machine::new("size");
    let pid = machine.hold(&["memory", "1024"]);
    let Some(mut terminal) = Terminal::start(&machine, "xterm", "") else { return };
    terminal.press(&format!("{pid} "), "");
    let top = terminal.pid();
    let tty = std::fs::read_link(format!("/proc/{top}/fd/0")).unwrap();
    let mut resize = Command::new("stty");
    assert!(resize.arg("--file").arg(tty).args(["cols", "50", "rows", "9"]).status().unwrap().success());
    terminal.wait_for("\u{1b}[2J", 2);
    // A line that is the same on any terminal of this width.
    terminal.press(" GPU  PROCESS     MEMORY COMMAND", "");
    // It is not stopped first, because `script` stops itself when its child is stopped.
    assert!(Command::new("kill").args(["-CONT", &top]).status().unwrap().success());
    terminal.wait_for("\u{1b}[2J", 3);
    terminal.press("GPU", "q");
    assert_eq!(terminal.end().0, Some(0));
}

/// 341 arrows and the first byte of the next one fill a read.
#[test]
fn an_arrow_that_is_split_between_reads_is_not_escape() {
    let machine = Machine::new("arrows");
    let Some(mut terminal) = Terminal::start(&machine, "xterm", "") else { return };
    terminal.press("GPU", &"\u{1b}[B".repeat(1000));
    terminal.press("GPU", "/held\r");
    terminal.press("/ filter (held)", "q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn sites_of_a_program_that_runs_under_makeroom_run_are_shown() {
    let mut machine = Machine::new("sites");
    let mut command = machine.makeroom("", &["run", "-o", "run.room", "--", "./hold", "recorded", "1024"]);
    let pid = machine.start(&mut command, 1)[0];
    let Some(mut terminal) = Terminal::start(&machine, "xterm", "") else { return };
    terminal.press(&format!("{pid} "), "\r");
    terminal.press(&format!("lines of code of {pid} at its peak"), "");
    terminal.press("1.00 GiB  context in hold", "q");
    assert_eq!(terminal.end().0, Some(0));
}

#[test]
fn a_terminal_that_can_only_print_gets_every_look_as_text() {
    let mut machine = Machine::new("dumb");
    let pid = machine.hold(&["memory", "1024"]);
    let Some(mut terminal) = Terminal::start(&machine, "dumb", "") else { return };
    // The third account has scrolled the first one up. Ctrl-C then ends it.
    terminal.wait_for(&pid.to_string(), 3);
    terminal.press(&pid.to_string(), "\u{3}");
    let (_, shown) = terminal.end();
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(shown.matches(&pid.to_string()).count() > 1, "{shown}");
    assert!(shown.lines().all(|line| line.trim_end().chars().count() <= 80), "{shown}");
}

#[test]
fn whoever_ends_it_gets_the_terminal_back() {
    let machine = Machine::new("ended");
    let Some(mut terminal) = Terminal::start(&machine, "xterm", "") else { return };
    terminal.press("GPU", "");
    assert!(Command::new("kill").arg(terminal.pid()).status().unwrap().success());
    let (status, shown) = terminal.end();
    assert_eq!(status, Some(0), "{shown}");
    let (taken, given_back) = (shown.find("\u{1b}[?1049h"), shown.rfind("\u{1b}[?1049l"));
    assert!(taken.is_some() && taken < given_back, "{shown:?}");
}

/// After a closed window or a lost connection, no one can press `q`.
#[test]
fn a_terminal_that_is_gone_ends_it() {
    for (kind, name) in [("xterm", "gone"), ("dumb", "gone-dumb")] {
        let machine = Machine::new(name);
        // SIGHUP is ignored, so it can only notice by the terminal itself.
        let Some(mut terminal) = Terminal::start(&machine, kind, "env --ignore-signal=HUP") else { return };
        terminal.press("GPU", "");
        let pid = terminal.pid();
        terminal.child.kill().unwrap();
        let began = Instant::now();
        while std::fs::exists(format!("/proc/{pid}")).unwrap() {
            assert!(began.elapsed() < Duration::from_secs(10), "top still runs as {pid} ({kind})");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let machine = Machine::new("no-terminal");
    let output = machine.makeroom("", &["top"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: top needs a terminal") && said.contains("makeroom ps --json"), "{said}");
}
