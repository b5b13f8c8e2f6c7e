//! A progress bar on stderr, only where a terminal shows it and only for work that takes a while.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that says what is being done, for work of unknown length.
pub(crate) struct Spinner {
    bar: ProgressBar,
}

impl Spinner {
    /// Begins.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Says what is being done.
    pub(crate) fn say(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The progress of a command.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Begins work in this many steps.
    pub(crate) fn new(steps: u64) -> Self {
        // indicatif draws nothing where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("  {bar:28} {pos}/{len}  {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// Begins a step.
    pub(crate) fn step(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.inc(1);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
