//! The only place that prints. Results go to stdout, everything else to stderr; colours only where a terminal
//! reads and `NO_COLOR` is not set.

use std::io::{self, Write as _};

use anstream::{stderr, stdout};
use terminal_size::{Height, Width, terminal_size};

/// The widest layout: longer lines are harder to read, not easier.
const MOST_COLUMNS: usize = 110;

/// Writes a result. Styles in it are dropped where nobody would see them.
pub(crate) fn result(text: &str) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes a result as JSON.
pub(crate) fn json(value: &serde_json::Value) -> Result<(), crate::failure::Failure> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(result(&text)?)
}

/// Writes something beside the result to stderr.
pub(crate) fn remark(text: &str) {
    // There is nowhere left to say that stderr is gone.
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// Writes an error and its hint to stderr.
pub(crate) fn error(message: &str, hint: Option<&str>) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    let cyan = anstyle::AnsiColor::Cyan.on_default().bold();
    let hint = hint.map_or(String::new(), |hint| format!("\n{cyan}hint{cyan:#}: {hint}\n"));
    let text = format!("{style}error{style:#}: {message}\n{hint}");
    // There is nowhere left to say that stderr is gone.
    let _ = stderr().lock().write_all(text.as_bytes());
}

/// How wide the reader's terminal is; `COLUMNS` says it where no terminal reads.
pub(crate) fn columns() -> usize {
    let told = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = terminal_size().map(|(Width(width), _)| usize::from(width)).or_else(told);
    width.map_or(MOST_COLUMNS, |width| width.min(MOST_COLUMNS))
}

/// How many rows the reader's terminal has; `None` where no terminal reads.
pub(crate) fn rows() -> Option<usize> {
    terminal_size().map(|(_, Height(height))| usize::from(height))
}
