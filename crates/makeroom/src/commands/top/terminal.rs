//! The terminal of `makeroom top`: raw mode, the alternate screen and its contents.
//!
//! Each frame is a single write of only the lines that changed, in a synchronized update, so that no terminal shows
//! half a frame. Line wrapping is off, so a line that the terminal considers longer than we do stays in its row.
//! Everything is redrawn after the size changed and after the process was stopped.
//!
//! The terminal is restored when [`Terminal`] is dropped, which includes errors, and by the panic hook before it prints.
//! Termination signals are left to the caller.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _, stdin, stdout};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use makeroom_report::Key;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGCONT, SIGWINCH};

use super::keys::{ESCAPE, Keys};

/// How long to wait for keys before checking for updates.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How long the rest of an escape sequence may take to arrive.
const ESCAPE_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 25_000_000 };

/// Maximum number of bytes to read at once.
const LONGEST_READ: usize = 1024;
/// Space for the rest of a sequence after that.
const REST: usize = 64;

/// The size to assume if the terminal does not report its own.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// Switches to the alternate screen, hides the cursor and stops wrapping lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

const BEGIN_UPDATE: &str = "\x1b[?2026h";
const END_UPDATE: &str = "\x1b[?2026l";

/// A terminal that shows frames.
pub(super) struct Terminal {
    modes: Arc<Modes>,
    keys: Keys,
    size: (u16, u16),
    /// The lines on the screen; `None` if that is unknown.
    shown: Option<Vec<String>>,
    /// Set by signals that require a redraw.
    is_stale: Arc<AtomicBool>,
}

/// The original state of the terminal, for restoring it.
struct Modes {
    input: OwnedFd,
    output: File,
    before: Termios,
    /// Whether there is something to restore.
    are_changed: AtomicBool,
}

impl Modes {
    fn enter(&self) -> io::Result<()> {
        self.are_changed.store(true, Ordering::Relaxed);
        self.make_raw()?;
        (&self.output).write_all(ENTER.as_bytes())
    }

    fn make_raw(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        Ok(tcsetattr(&self.input, OptionalActions::Now, &raw)?)
    }

    /// Restores the terminal, once.
    fn restore(&self) -> io::Result<()> {
        if !self.are_changed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let left = (&self.output).write_all(LEAVE.as_bytes());
        tcsetattr(&self.input, OptionalActions::Now, &self.before)?;
        left
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A terminal that is gone cannot be restored.
        let _ = self.modes.restore();
    }
}

impl Terminal {
    /// Takes over the terminal.
    pub(super) fn open() -> io::Result<Self> {
        let is_stale = Arc::new(AtomicBool::new(false));
        for signal in [SIGWINCH, SIGCONT] {
            signal_hook::flag::register(signal, Arc::clone(&is_stale))?;
        }
        let input = keyboard()?;
        let before = tcgetattr(&input)?;
        let output = File::from(stdout().as_fd().try_clone_to_owned()?);
        let modes = Arc::new(Modes { input, output, before, are_changed: AtomicBool::new(false) });
        let (hook, changed) = (std::panic::take_hook(), Arc::clone(&modes));
        std::panic::set_hook(Box::new(move |info| {
            // The message matters more than an error here.
            let _ = changed.restore();
            hook(info);
        }));
        let terminal = Self { modes, keys: Keys::default(), size: USUAL_SIZE, shown: None, is_stale };
        terminal.modes.enter()?;
        Ok(terminal)
    }

    /// Restores the terminal.
    pub(super) fn restore(&self) -> io::Result<()> {
        self.modes.restore()
    }

    /// Whether everything must be redrawn.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// Shows the lines that `draw` returns for the terminal's numbers of columns and rows.
    pub(super) fn show(&mut self, draw: impl FnOnce(u16, u16) -> Vec<String>) -> io::Result<()> {
        if self.is_stale.swap(false, Ordering::Relaxed) {
            // The shell may have set its own modes while the process was stopped.
            self.modes.make_raw()?;
            self.shown = None;
        }
        let size = self.size()?;
        if size != self.size {
            (self.size, self.shown) = (size, None);
        }
        let lines = draw(size.0, size.1);
        let frame = frame(self.shown.as_deref(), &lines);
        (&self.modes.output).write_all(frame.as_bytes())?;
        self.shown = Some(lines);
        Ok(())
    }

    fn size(&self) -> io::Result<(u16, u16)> {
        let size = tcgetwinsize(&self.modes.output)?;
        let is_known = size.ws_col > 0 && size.ws_row > 0;
        Ok(if is_known { (size.ws_col, size.ws_row) } else { USUAL_SIZE })
    }

    /// Waits for keys, a signal, or `POLL_TIMEOUT`. `None` if the terminal is gone: the window was closed, or the
    /// connection was lost.
    pub(super) fn keys(&mut self) -> io::Result<Option<Vec<Key>>> {
        if !self.modes.are_changed.load(Ordering::Relaxed) {
            return Err(io::Error::other("a thread panicked"));
        }
        let mut bytes = [0; LONGEST_READ + REST];
        let Some(mut length) = self.read(&mut bytes[..LONGEST_READ], &POLL_TIMEOUT)? else { return Ok(None) };
        // The key itself, or the start of a sequence that the end of the buffer or a slow connection has cut off.
        if bytes[..length].ends_with(&[ESCAPE]) {
            let Some(rest) = self.read(&mut bytes[length..], &ESCAPE_TIMEOUT)? else { return Ok(None) };
            length += rest;
        }
        Ok(Some(self.keys.parse(&bytes[..length])))
    }

    /// Reads what has arrived after at most `timeout`. `None` if the terminal is gone.
    fn read(&self, bytes: &mut [u8], timeout: &Timespec) -> io::Result<Option<usize>> {
        let mut asked = [PollFd::new(&self.modes.input, PollFlags::IN)];
        match rustix::event::poll(&mut asked, Some(timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(Some(0)),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if asked[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
            return Ok(None);
        }
        match rustix::io::read(&self.modes.input, bytes) {
            Ok(0) | Err(Errno::IO) => Ok(None),
            Ok(length) => Ok(Some(length)),
            Err(Errno::INTR | Errno::AGAIN) => Ok(Some(0)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The terminal from which keys are read.
fn keyboard() -> io::Result<OwnedFd> {
    let input = stdin();
    if input.is_terminal() { Ok(rustix::io::dup(&input)?) } else { Ok(File::open("/dev/tty")?.into()) }
}

/// The output that changes the screen from `shown` to `lines`. If `shown` is `None`, everything is drawn.
fn frame(shown: Option<&[String]>, lines: &[String]) -> String {
    let mut frame = String::new();
    if shown.is_none() {
        // Also hides the cursor and turns off line wrapping: another program may have reset both.
        frame.push_str("\x1b[0m\x1b[?25l\x1b[?7l\x1b[2J");
    }
    for (row, line) in lines.iter().enumerate() {
        let before = shown.map_or("", |shown| shown.get(row).map_or("", String::as_str));
        if line != before {
            // The line is erased first, because after a full line, the cursor is still on its last column.
            let _ = write!(frame, "\x1b[{};1H\x1b[2K{line}", row + 1);
        }
    }
    if frame.is_empty() { frame } else { format!("{BEGIN_UPDATE}{frame}{END_UPDATE}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split('\n').map(str::to_owned).collect()
    }

    fn contents(written: &str) -> String {
        let mut parser = vt100::Parser::new(3, 6, 0);
        parser.process(written.as_bytes());
        parser.screen().contents()
    }

    #[test]
    fn only_lines_that_changed_are_written() {
        let (first, second) = (lines("one\ntwo\nthree"), lines("one\n2\nthree"));
        let whole = frame(None, &first);
        assert_eq!(contents(&whole), "one\ntwo\nthree");
        let change = frame(Some(&first), &second);
        assert_eq!(change, "\x1b[?2026h\x1b[2;1H\x1b[2K2\x1b[?2026l");
        assert_eq!(contents(&(whole + &change)), "one\n2\nthree");
        assert_eq!(frame(Some(&second), &second), "", "nothing changed");
    }

    #[test]
    fn full_lines_stay_in_their_rows() {
        let first = lines("aaaaaa\n日本語\n\u{1b}[7mcccccc\u{1b}[0m");
        let whole = frame(None, &first);
        assert_eq!(contents(&whole), "aaaaaa\n日本語\ncccccc");
        let second = lines("\n日本\nc");
        assert_eq!(contents(&(whole + &frame(Some(&first), &second))), "\n日本\nc");
    }

    #[test]
    fn a_repaint_erases_what_others_wrote() {
        let written = "\x1b[31mgarbage\r\nmore".to_owned() + &frame(None, &lines("x\n\n"));
        assert_eq!(contents(&written), "x");
    }
}
