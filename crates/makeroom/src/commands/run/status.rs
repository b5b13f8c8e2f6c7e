//! The status line: one line at the bottom of the terminal while the program runs.
//!
//! The program writes to the same terminal and must not be affected. The line is therefore not mixed into its output:
//! the terminal's scroll region excludes the last row, as in `apt`, and the cursor stays where the program put it. Each
//! update is one write of complete sequences. The line is drawn only
//!
//! - on a foreground terminal that supports it: not with `TERM=dumb`, in CI, or with `--no-status`;
//! - once a process of the program uses CUDA and has run for a second;
//! - while the terminal is in line mode: a program that controls the screen itself (an editor, a debugger's prompt) turns
//!   that mode off.
//!
//! It is removed before anything else is printed, when the shell takes over the terminal (Ctrl-Z), and at the end.
//! Terminal modes and the program's input are never touched.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use makeroom_core::Bytes;
use makeroom_trace::protocol::LiveMemory;
use rustix::process::{Pid, getpgrp, test_kill_process};
use rustix::termios::{LocalModes, tcgetattr, tcgetpgrp};
use terminal_size::{Height, Width, terminal_size_of};

/// Time between updates.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);
/// How long a program runs before the line appears.
const DELAY: Duration = Duration::from_secs(1);
/// Between two parts of the line. A part that does not fit is left out, with those after it.
const SEPARATOR: &str = " · ";
/// Smaller terminals have no space for it.
const FEWEST_ROWS: u16 = 5;
const FEWEST_COLUMNS: u16 = 30;

/// The line's part of the terminal, shared with code that may have to remove it immediately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screen(Arc<Mutex<Drawn>>);

#[derive(Debug, Default)]
struct Drawn {
    /// The row excluded from the scroll region.
    row: Option<u16>,
    /// Whether this command is about to stop: the terminal belongs to the shell until it resumes.
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
        // After a resize, the terminal has moved everything: the old row no longer exists.
        let begin = if drawn.row == Some(rows) { String::new() } else { set_apart(rows) };
        drawn.row = Some(rows);
        print(&(begin + &line(rows, text)));
    }

    /// Removes the line and returns its row to the program.
    fn clear(&self) {
        if let Some(row) = self.lock().row.take() {
            print(&give_back(row));
        }
    }

    /// Removes the line until [`Self::go_on`].
    pub(crate) fn pause(&self) {
        self.lock().is_paused = true;
        self.clear();
    }

    /// The terminal belongs to this command again.
    pub(crate) fn go_on(&self) {
        self.lock().is_paused = false;
    }
}

/// The line and what it shows.
#[derive(Debug)]
pub(crate) struct Status {
    is_wanted: bool,
    processes: BTreeMap<u32, LiveMemory>,
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

    /// Updates the memory of a process.
    pub(crate) fn report(&mut self, process: u32, figures: LiveMemory) {
        self.begin.get_or_insert_with(Instant::now);
        self.processes.insert(process, figures);
        self.peak = self.peak.max(self.sum().device);
    }

    /// Redraws the line, or removes it where it must not be.
    pub(crate) fn draw(&mut self) {
        if !self.is_wanted || self.begin.is_none_or(|begin| begin.elapsed() < DELAY) {
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

    /// Removes the line, so that something else can be printed.
    pub(crate) fn clear(&self) {
        self.screen.clear();
    }

    fn sum(&self) -> LiveMemory {
        self.processes.values().fold(LiveMemory::default(), |sum, own| LiveMemory {
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
            Some((before, _)) if now.duration_since(before) < DELAY => {}
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
        let mut parts = Vec::new();
        if sum.tensors > 0 {
            parts.push(format!("tensors {}", Bytes::new(sum.tensors)));
        }
        if sum.pinned > 0 {
            parts.push(format!("pinned {}", Bytes::new(sum.pinned)));
        }
        parts.push(format!("{} allocations, {}/s", sum.allocations + self.ended_allocations, self.rate));
        if self.processes.len() > 1 {
            parts.push(format!("{} processes", self.processes.len()));
        }
        // One column less: writing to the last one would leave the cursor position undefined.
        let most = columns.saturating_sub(1);
        for part in parts {
            if text.chars().count() + SEPARATOR.chars().count() + part.chars().count() > most {
                break;
            }
            text += SEPARATOR;
            text += &part;
        }
        text.chars().take(most).collect()
    }
}

/// Whether a line may be drawn at all on this run's stderr.
pub(crate) fn is_possible() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stderr().is_terminal() && !is_dumb && !is_set("CI")
}

/// The terminal's size, if this command may draw on it now.
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

/// Reserves the last row: the text moves up if the cursor is there, and stays above it from then on.
fn set_apart(rows: u16) -> String {
    // Down one line and up again, with a vertical tab, which keeps the column and which no terminal driver translates;
    // then set the region. That moves the cursor, so save and restore it.
    format!("\x0b\x1b[1A\x1b7\x1b[1;{}r\x1b8", rows - 1)
}

/// Writes the line into the last row.
fn line(rows: u16, text: &str) -> String {
    format!("\x1b7\x1b[1;{}r\x1b[{rows};1H\x1b[2K\x1b[0m{text}\x1b8", rows - 1)
}

/// Clears the last row and includes it in the scroll region again.
fn give_back(rows: u16) -> String {
    format!("\x1b7\x1b[r\x1b[{rows};1H\x1b[2K\x1b8")
}

fn print(text: &str) {
    // If stderr is gone, there is nowhere to report it.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_adds_processes_up_and_keeps_to_its_row() {
        let mut status = Status::new(true, Screen::default());
        status.report(1, LiveMemory { device: 3 << 30, allocations: 5, ..LiveMemory::default() });
        status.report(2, LiveMemory { device: 1 << 30, pinned: 1 << 20, tensors: 512, allocations: 7 });
        status.report(1, LiveMemory { device: 1 << 30, allocations: 6, ..LiveMemory::default() });
        assert_eq!(
            status.text(200),
            "makeroom  GPU 2.00 GiB now, 4.00 GiB peak · tensors 512 B · pinned 1.00 MiB · 13 allocations, 0/s \
             · 2 processes"
        );
        assert_eq!(status.text(70), "makeroom  GPU 2.00 GiB now, 4.00 GiB peak · tensors 512 B");
        assert_eq!(status.text(30).chars().count(), 29);
    }

    #[test]
    fn nothing_is_drawn_before_its_time_or_against_a_wish() {
        let mut status = Status::new(true, Screen::default());
        status.report(std::process::id(), LiveMemory::default());
        status.draw();
        assert_eq!(status.screen.lock().row, None);
        let mut unwanted = Status::new(false, Screen::default());
        unwanted.begin = Instant::now().checked_sub(DELAY * 2);
        unwanted.draw();
        assert_eq!(unwanted.screen.lock().row, None);
    }
}
