//! The only module that prints. Results go to stdout, everything else to stderr. Colors are used only on a terminal
//! and if `NO_COLOR` is not set. Names from inputs are sanitized, so that they cannot control the terminal.

use std::io::{self, Write as _};

use anstream::{stderr, stdout};
use makeroom_report::{escape_json, sanitize};
use rustix::fs::{FileType, fstat};
use terminal_size::{Height, Width, terminal_size, terminal_size_of};

use crate::failure::Failure;

/// Maximum width: longer lines are harder to read.
const MOST_COLUMNS: usize = 110;

/// Writes a result. Styles are removed if the output does not support them.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    write(&sanitize(text))
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Writes bytes for another program, unchanged.
pub(crate) fn script(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Writes text for another program to a terminal instead, without anything that a terminal obeys.
pub(crate) struct ToTerminal {
    /// The current line.
    line: Vec<u8>,
}

impl ToTerminal {
    /// Longer lines are written in pieces.
    const LONGEST_LINE: usize = 64 << 10;

    pub(crate) fn new() -> Self {
        Self { line: Vec::new() }
    }

    fn write_line(&mut self) -> io::Result<()> {
        // None of its escape characters is makeroom's own.
        let text = String::from_utf8_lossy(&self.line).replace('\u{1b}', " ");
        self.line.clear();
        io::stdout().write_all(sanitize(&text).as_bytes())
    }
}

impl io::Write for ToTerminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() > Self::LONGEST_LINE {
                self.write_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_line()?;
        io::stdout().flush()
    }
}

/// Writes a result as JSON.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    // Escaped, not sanitized: programs need the exact values.
    write(&escape_json(&text))
}

/// Writes a message to stderr.
pub(crate) fn remark(text: &str) {
    // If stderr is gone, there is nowhere to report it.
    let _ = stderr().lock().write_all(sanitize(text).as_bytes());
}

/// Writes an error and its hint to stderr.
pub(crate) fn error(message: &str, hint: Option<&str>) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let cyan = anstyle::AnsiColor::Cyan.on_default().bold();
    let hint = hint.map_or(String::new(), |hint| format!("\n{cyan}hint{cyan:#}: {hint}\n"));
    remark(&format!("{style}error{style:#}: {message}\n{hint}"));
}

/// The width of a result: that of the terminal, even through a pipe, or `COLUMNS` if there is no terminal. A file is
/// read later and elsewhere, so the current terminal does not matter.
pub(crate) fn columns() -> usize {
    width(if is_file(io::stdout()) { None } else { terminal_size() })
}

/// The width of messages on stderr.
pub(crate) fn remark_columns() -> usize {
    width(terminal_size_of(io::stderr()))
}

/// The height of the terminal that shows the result; `None` if stdout is not a terminal.
pub(crate) fn rows() -> Option<usize> {
    terminal_size_of(io::stdout()).map(|(_, Height(height))| usize::from(height))
}

fn width(terminal: Option<(Width, Height)>) -> usize {
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = terminal.map(|(Width(width), _)| usize::from(width)).or_else(told);
    width.map_or(MOST_COLUMNS, |width| width.min(MOST_COLUMNS))
}

fn is_file(stream: impl std::os::fd::AsFd) -> bool {
    fstat(stream).is_ok_and(|stream| FileType::from_raw_mode(stream.st_mode) == FileType::RegularFile)
}
