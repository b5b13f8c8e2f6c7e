//! The only module that prints. Results go to stdout, everything else to stderr; names from inputs are sanitized.

use std::io::{self, Write as _};
use std::time::Duration;

use anstream::{stderr, stdout};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use makeroom_report::{escape_json, sanitize};
use serde::Serialize;
use terminal_size::{Height, Width, terminal_size};

use crate::failure::Failure;

/// Width and height where stdout is not a terminal.
const SCREEN: (usize, usize) = (100, 25);
/// Longer lines are harder to read.
const MOST_COLUMNS: usize = 110;

/// Writes a result.
pub(crate) fn result(text: &str) -> Result<(), Failure> {
    let mut stdout = stdout().lock();
    Ok(stdout.write_all(sanitize(text).as_bytes()).and_then(|()| stdout.flush())?)
}

/// Writes a result as JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    let mut stdout = io::stdout().lock();
    Ok(stdout.write_all(escape_json(&text).as_bytes()).and_then(|()| stdout.flush())?)
}

/// Writes a line to stderr, and ignores that stderr may be closed.
pub(crate) fn remark(text: &str) {
    let _ = writeln!(stderr(), "makeroom: {}", sanitize(text));
}

/// Writes an error and its hint.
pub(crate) fn error(failure: &Failure) {
    let mut text = format!("error: {failure}\n");
    if let Some(hint) = failure.hint() {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    let _ = stderr().write_all(sanitize(&text).as_bytes());
}

/// Columns and rows of the screen.
pub(crate) fn screen() -> (usize, usize) {
    terminal_size().map_or(SCREEN, |(Width(columns), Height(rows))| {
        (usize::from(columns).min(MOST_COLUMNS), usize::from(rows))
    })
}

/// A line on stderr that shows progress, if stderr is a terminal.
pub(crate) fn progress() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("  {spinner} {elapsed} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
