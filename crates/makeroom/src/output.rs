//! The only place that prints. Results go to stdout, everything else to stderr; colours only where a terminal
//! reads and `NO_COLOR` is not set. What an input names can do nothing to the terminal.

use std::io::{self, Write as _};

use anstream::{stderr, stdout};
use makeroom_report::sanitize;
use rustix::fs::{FileType, fstat};
use terminal_size::{Height, Width, terminal_size, terminal_size_of};

use crate::failure::Failure;

/// The widest layout: longer lines are harder to read, not easier.
const MOST_COLUMNS: usize = 110;

/// Writes a result. Styles in it are dropped where nobody would see them.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    write(&sanitize(text))
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Writes a file that another program reads, byte for byte.
pub(crate) fn script(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(Failure::Output)
}

/// Writes a result as JSON.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    // A program reads it, and is told everything as it is.
    write(&text)
}

/// Writes something beside the result to stderr.
pub(crate) fn remark(text: &str) {
    // There is nowhere left to say that stderr is gone.
    let _ = stderr().lock().write_all(sanitize(text).as_bytes());
}

/// Writes an error and its hint to stderr.
pub(crate) fn error(message: &str, hint: Option<&str>) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let cyan = anstyle::AnsiColor::Cyan.on_default().bold();
    let hint = hint.map_or(String::new(), |hint| format!("\n{cyan}hint{cyan:#}: {hint}\n"));
    remark(&format!("{style}error{style:#}: {message}\n{hint}"));
}

/// How wide a result may be: as the terminal that shows it, through a pipe too; `COLUMNS` says it where there is none. A file
/// is read elsewhere and later, so the terminal of now says nothing about it.
pub(crate) fn columns() -> usize {
    width(if is_file(io::stdout()) { None } else { terminal_size() })
}

/// How wide what is said beside the result may be.
pub(crate) fn remark_columns() -> usize {
    width(terminal_size_of(io::stderr()))
}

/// How many rows the terminal has on which a result is shown; `None` where it goes elsewhere, and nothing must be left out.
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
