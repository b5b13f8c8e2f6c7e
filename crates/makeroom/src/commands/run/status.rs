//! The status line: one line at the bottom of the terminal while the program runs.
//!
//! The program writes to the same terminal and must not notice. So the line is not mixed into its output: the last row
//! is set apart by the terminal's scroll region, as `apt` does it, and the cursor stays where the program has it. Each
//! update is one write of complete sequences. It is drawn only
//!
//! - on a terminal that is in the foreground and understands it: not with `TERM=dumb`, in CI, or with `--no-status`;
//! - once a process of the program uses CUDA and has run for a second;
//! - while the terminal reads whole lines: a program that draws itself (an editor, a debugger's prompt) takes the
//!   terminal out of that mode.
//!
//! It goes before anything else is printed, when the terminal is given to the shell (Ctrl-Z), and at the end. Terminal modes and the program's input are never touched.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use makeroom_core::Bytes;
use rustix::process::{Pid, getpgrp, test_kill_process};
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use terminal_size::{Height, Width, terminal_size_of};

/// How often the line is drawn.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);
/// How long a program runs without one.
const PATIENCE: Duration = Duration::from_secs(1);
/// Smaller terminals have no room for it.
const FEWEST_ROWS: u16 = 5;
const FEWEST_COLUMNS: u16 = 30;

/// What a process reports of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Device memory taken from the driver, contexts apart.
    pub(crate) device: u64,
    /// Pinned host memory.
    pub(crate) pinned: u64,
    /// What a framework has handed out as tensors.
    pub(crate) tensors: u64,
    /// How often memory was taken.
    pub(crate) allocations: u64,
}

/// The part of the terminal that is the line's, shared with whoever has to take it away at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen(Arc<Mutex<Drawn>>);

#[derive(Debug, Default)]
struct Drawn {
    /// The row that is set apart.
    row: Option<u16>,
    /// Whether this command is about to be stopped: the terminal is the shell's until it goes on.
    is_paused: bool,
}

impl Screen {
    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the line into the last row.
    fn draw(&self, rows: u16, text: &str) {
        let mut drawn = self.lock();
        if drawn.is_paused {
            return;
        }
        // After a change of size the terminal has moved everything: the old row is not there any more.
        let begin = if drawn.row == Some(rows) { String::new() } else { set_apart(rows) };
        drawn.row = Some(rows);
        print(&(begin + &line(rows, text)));
    }

    /// Takes the line away and gives its row back.
    fn clear(&self) {
        if let Some(row) = self.lock().row.take() {
            print(&give_back(row));
        }
    }

    /// Takes the line away until [`Self::go_on`].
    pub(crate) fn pause(&self) {
        self.lock().is_paused = true;
        self.clear();
    }

    /// The terminal is this command's again.
    pub(crate) fn go_on(&self) {
        self.lock().is_paused = false;
    }
}

/// The line and what it shows.
#[derive(Debug)]
pub(crate) struct Status {
    is_wanted: bool,
    processes: BTreeMap<u32, Figures>,
    /// Allocations of processes that have ended.
    ended_allocations: u64,
    peak: u64,
    begin: Option<Instant>,
    last: Option<(Instant, u64)>,
    rate: u64,
    screen: Screen,
}

impl Status {
    /// No line yet.
    pub(crate) fn new(is_wanted: bool, screen: Screen) -> Self {
        Self {
            is_wanted,
            processes: BTreeMap::new(),
            ended_allocations: 0,
            peak: 0,
            begin: None,
            last: None,
            rate: 0,
            screen,
        }
    }

    /// A process says what it holds.
    pub(crate) fn report(&mut self, process: u32, figures: Figures) {
        self.begin.get_or_insert_with(Instant::now);
        self.processes.insert(process, figures);
        self.peak = self.peak.max(self.sum().device);
    }

    /// Draws the line anew, or takes it away where it must not be.
    pub(crate) fn draw(&mut self) {
        if !self.is_wanted || self.begin.is_none_or(|begin| begin.elapsed() < PATIENCE) {
            return;
        }
        let ended: Vec<u32> = self.processes.keys().copied().filter(|&process| !is_alive(process)).collect();
        for process in ended {
            let gone = self.processes.remove(&process).unwrap_or_default();
            self.ended_allocations += gone.allocations;
        }
        let Some((rows, columns)) = room().filter(|_| !self.processes.is_empty()) else {
            self.clear();
            return;
        };
        self.measure_rate();
        self.screen.draw(rows, &self.text(usize::from(columns)));
    }

    /// Takes the line away, so that something else can be printed.
    pub(crate) fn clear(&self) {
        self.screen.clear();
    }

    fn sum(&self) -> Figures {
        self.processes.values().fold(Figures::default(), |sum, own| Figures {
            device: sum.device + own.device,
            pinned: sum.pinned + own.pinned,
            tensors: sum.tensors + own.tensors,
            allocations: sum.allocations + own.allocations,
        })
    }

    fn measure_rate(&mut self) {
        let now = Instant::now();
        let allocations = self.sum().allocations + self.ended_allocations;
        match self.last {
            Some((before, _)) if now.duration_since(before) < PATIENCE => {}
            Some((before, count)) => {
                let seconds = now.duration_since(before).as_secs_f64();
                self.rate = (allocations.saturating_sub(count) as f64 / seconds).round() as u64;
                self.last = Some((now, allocations));
            }
            None => self.last = Some((now, allocations)),
        }
    }

    fn text(&self, columns: usize) -> String {
        let sum = self.sum();
        let mut text =
            format!("makeroom  GPU {} now, {} peak", Bytes::new(sum.device), Bytes::new(self.peak));
        if sum.tensors > 0 {
            let _ = write!(text, " · tensors {}", Bytes::new(sum.tensors));
        }
        if sum.pinned > 0 {
            let _ = write!(text, " · pinned {}", Bytes::new(sum.pinned));
        }
        let allocations = sum.allocations + self.ended_allocations;
        let _ = write!(text, " · {allocations} allocations, {}/s", self.rate);
        if self.processes.len() > 1 {
            let _ = write!(text, " · {} processes", self.processes.len());
        }
        // One column less: writing into the last one would leave the cursor in doubt.
        text.chars().take(columns.saturating_sub(1)).collect()
    }
}

/// Whether a line may be drawn at all on this run's stderr.
pub(crate) fn is_possible() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stderr().is_terminal() && !is_dumb && !is_set("CI")
}

/// The terminal's size, if it is this command's to draw on now.
fn room() -> Option<(u16, u16)> {
    let stderr = io::stderr();
    let is_foreground = tcgetpgrp(&stderr).is_ok_and(|group| group == getpgrp());
    let whole_lines = LocalModes::ICANON | LocalModes::ECHO;
    let reads_lines = tcgetattr(&stderr).is_ok_and(|modes| modes.local_modes.contains(whole_lines));
    let (Width(columns), Height(rows)) = terminal_size_of(&stderr)?;
    let fits = rows >= FEWEST_ROWS && columns >= FEWEST_COLUMNS;
    (is_foreground && reads_lines && fits).then_some((rows, columns))
}

fn is_alive(process: u32) -> bool {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    process.is_some_and(|process| test_kill_process(process) != Err(rustix::io::Errno::SRCH))
}

/// Sets the last row apart: the text moves up if the cursor is there, and from then on stays above it.
fn set_apart(rows: u16) -> String {
    // Down one line and up again, by the tab that keeps the column, which no terminal driver translates; then the
    // region, which moves the cursor, so that it is kept.
    format!("\x0b\x1b[1A\x1b7\x1b[1;{}r\x1b8", rows - 1)
}

/// Writes the line into the last row.
fn line(rows: u16, text: &str) -> String {
    format!("\x1b7\x1b[1;{}r\x1b[{rows};1H\x1b[2K\x1b[0m{text}\x1b8", rows - 1)
}

/// Empties the last row and lets text scroll through it again.
fn give_back(rows: u16) -> String {
    format!("\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8")
}

fn print(text: &str) {
    // There is nowhere left to say that stderr is gone.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_adds_processes_up_and_keeps_to_its_row() {
        let mut status = Status::new(true, Screen::default());
        status.report(1, Figures { device: 3 << 30, allocations: 5, ..Figures::default() });
        status.report(2, Figures { device: 1 << 30, pinned: 1 << 20, tensors: 512, allocations: 7 });
        status.report(1, Figures { device: 1 << 30, allocations: 6, ..Figures::default() });
        assert_eq!(
            status.text(200),
            "makeroom  GPU 2.00 GiB now, 4.00 GiB peak · tensors 512 B · pinned 1.00 MiB · 13 allocations, 0/s \
             · 2 processes"
        );
        assert_eq!(status.text(30).chars().count(), 29);
    }

    #[test]
    fn nothing_is_drawn_before_its_time_or_against_a_wish() {
        let mut status = Status::new(true, Screen::default());
        status.report(std::process::id(), Figures::default());
        status.draw();
        assert_eq!(status.screen.lock().row, None);
        let mut unwanted = Status::new(false, Screen::default());
        unwanted.begin = Instant::now().checked_sub(PATIENCE * 2);
        unwanted.draw();
        assert_eq!(unwanted.screen.lock().row, None);
    }
}
