//! Progress on stderr, shown only on a terminal and only for work that takes a while.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A spinner with a message, for work of unknown length.
pub(crate) struct Spinner {
    bar: ProgressBar,
}

impl Spinner {
    /// Starts the spinner.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Sets the message.
    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Removes the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A progress bar.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts a bar with this many steps.
    pub(crate) fn new(steps: u64) -> Self {
        // indicatif draws nothing if stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("  {bar:28} {pos}/{len}  {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Starts a step.
    pub(crate) fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
