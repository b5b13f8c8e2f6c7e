//! The error that ended a process, from its output: the exception of its last traceback, or the message of a crash.
//!
//! ```text
//! a traceback, and the program continues                 handled: it does not count
//! source lines that a traceback quotes                   never an error
//! an exception that passes on the failure of another     a consequence, and errors right after it are too
//! process, or a message about a lost connection
//! several tracebacks                                     the last one that was not handled
//! an exit code that names no reason                      only possibly an error: it may be that of a command which the
//!                                                        program ran, and it is handled like a traceback
//! ```
//!
//! A program continues if it prints many more lines, or lines like those that it printed before the error: the digits of
//! `step 7: loss 2.71` change, the rest stays. Where several processes print to one log without prefixes, these may be lines
//! of another process: the last error that was dropped is kept, and restored if a launcher reports a failure that nothing
//! else explains.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::crashes::{self, Crash, signal_words};
use super::exceptions::{exception, is_passed_on, unusual_exception};
use crate::tables::FailureKind;

/// A program that prints this many more lines has handled the error.
pub(super) const HANDLED: u32 = 60;
/// A program that prints this many more lines like those before the error has handled it.
const RESUMED: u32 = 3;
/// Lines before an error that are remembered.
const MOST_SHAPES: usize = 64;
/// Bytes of a line that are compared.
const LONGEST_SHAPE: usize = 48;
/// Lines of a traceback; after more, its exception is lost.
const LONGEST_TRACEBACK: u32 = 400;
/// Length of an error that is shown.
const LONGEST: usize = 160;
/// Bytes of a logger's prefix in front of a traceback. A longer text is not one.
const LONGEST_PREFIX: usize = 256;

/// Finds the error in the lines of one process.
#[derive(Debug, Default)]
pub(super) struct ErrorFinder {
    traceback: Option<Traceback>,
    error: Option<String>,
    /// An exit code that names no reason, as printed.
    status: Option<String>,
    /// The last error after which the program seemed to continue.
    dropped: Option<String>,
    /// Whether a consequence of another process's failure came before any error.
    is_consequence: bool,
    /// Lines since the error, the exit code or the consequence.
    later: u32,
    /// Of these, lines like those before it.
    resumed: u32,
    /// Lines before it, without their numbers.
    shapes: VecDeque<u64>,
    /// Whether Python ignores the exception of the next traceback, as in a destructor.
    ignores_next: bool,
}

/// A traceback whose exception has not been read.
#[derive(Debug)]
struct Traceback {
    /// What a logger puts in front of its lines, without numbers.
    prefix: String,
    lines: u32,
    /// Whether Python ignores its exception.
    is_ignored: bool,
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// It quotes source code, in a traceback.
    Source,
    /// It shows that the program continued after the errors and lost connections before.
    Resumed,
    /// Something else.
    Text,
}

impl ErrorFinder {
    /// Reads a line without the launcher's prefix. `is_consequence`: it reports a lost connection or the like.
    pub(super) fn read(&mut self, line: &str, is_consequence: bool) -> Line {
        if let Some(at) = line.find("Traceback (most recent call last)") {
            let prefix = line.get(..at).filter(|prefix| prefix.len() <= LONGEST_PREFIX).unwrap_or_default();
            let is_ignored = std::mem::take(&mut self.ignores_next);
            self.traceback = Some(Traceback { prefix: without_numbers(prefix), lines: 0, is_ignored });
            return Line::Text;
        }
        if !line.trim().is_empty() {
            self.ignores_next = line.starts_with("Exception ignored in");
        }
        if let Some(traceback) = &mut self.traceback {
            traceback.lines += 1;
            let body = traceback.body(line);
            if body.is_empty() || body.starts_with([' ', '\t']) {
                return Line::Source;
            }
            let has_frames = traceback.lines > 1;
            if let Some(error) = exception(body).or_else(|| unusual_exception(body).filter(|_| has_frames)) {
                let is_ignored = traceback.is_ignored;
                self.traceback = None;
                if !is_ignored {
                    self.raise(error, is_consequence || is_passed_on(error));
                }
                return Line::Text;
            }
            if traceback.lines > LONGEST_TRACEBACK {
                self.traceback = None;
            }
        }
        self.text(line, is_consequence)
    }

    /// An exception ended a traceback.
    fn raise(&mut self, error: &str, is_passed_on: bool) {
        if is_passed_on {
            self.follow();
        } else if !self.is_consequence {
            // After a consequence, a process fails in many ways.
            self.set(error);
        }
    }

    fn set(&mut self, error: &str) {
        self.error = Some(clipped(error));
        (self.later, self.resumed) = (0, 0);
    }

    /// A line reports an exit code: that of the process, or of a command that it ran.
    fn exit(&mut self, line: &str) {
        self.status = Some(clipped(line));
        if self.is_silent() {
            (self.later, self.resumed) = (0, 0);
        }
    }

    /// The process reports the failure of another one.
    fn follow(&mut self) {
        if self.error.is_none() {
            self.is_consequence = true;
            (self.later, self.resumed) = (0, 0);
        }
    }

    /// A line outside of tracebacks.
    fn text(&mut self, line: &str, is_consequence: bool) -> Line {
        if is_consequence {
            self.follow();
            return Line::Text;
        }
        if let Some(reason) = line.trim_start().strip_prefix("what():") {
            // C++ prints the reason below the type of the exception.
            let is_terminated =
                self.error.as_ref().is_some_and(|error| error.starts_with("terminate called"));
            if is_terminated {
                self.set(reason);
            }
            return Line::Text;
        }
        let is_first = self.error.is_none() && !self.is_consequence;
        match crashes::read(line).filter(|_| !line.contains("out of memory")) {
            Some(Crash::Error(error)) if is_passed_on(error) => self.follow(),
            Some(Crash::Error(error)) if is_first => self.set(error),
            Some(Crash::Signal(signal)) if is_first => self.set(&signal_words(signal)),
            Some(Crash::Status) => self.exit(line),
            Some(Crash::Error(_) | Crash::Signal(_)) => {}
            None => return self.output(line),
        }
        Line::Text
    }

    /// A line of ordinary output.
    fn output(&mut self, line: &str) -> Line {
        let shape = shape(line);
        if self.is_silent() && self.status.is_none() {
            if let Some(shape) = shape.filter(|shape| !self.shapes.contains(shape)) {
                if self.shapes.len() == MOST_SHAPES {
                    self.shapes.pop_front();
                }
                self.shapes.push_back(shape);
            }
            return Line::Text;
        }
        self.later = self.later.saturating_add(1);
        self.resumed += u32::from(shape.is_some_and(|shape| self.shapes.contains(&shape)));
        if self.later > HANDLED || self.resumed >= RESUMED {
            self.dropped = self.error.take().or_else(|| self.dropped.take());
            (self.is_consequence, self.status) = (false, None);
            return Line::Resumed;
        }
        Line::Text
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.error.is_none()
    }

    /// Whether it shows neither an error nor a consequence of another process's failure.
    pub(super) fn is_silent(&self) -> bool {
        self.error.is_none() && !self.is_consequence
    }

    /// Restores the last error after which the program seemed to continue, unless another one was found.
    pub(super) fn restore(&mut self) {
        self.error = self.error.take().or_else(|| self.dropped.take());
    }

    /// Adds the lines of the same process under another name.
    pub(super) fn merge(&mut self, other: Self) {
        if self.is_empty() {
            let dropped = self.dropped.take();
            *self = other;
            self.dropped = self.dropped.take().or(dropped);
        }
    }

    /// The error that ended the process, unless it followed from that of another one, and its kind.
    pub(super) fn finish(self) -> Option<(FailureKind, String)> {
        let status = self.status.filter(|_| !self.is_consequence);
        let status = status.map(|status| (FailureKind::ExitCode, status));
        self.error.map(|error| (FailureKind::Other, error)).or(status)
    }
}

impl Traceback {
    /// A line without the prefix of a logger, and without the bars of an exception group.
    fn body<'line>(&self, line: &'line str) -> &'line str {
        let at = self.prefix.len();
        let has_prefix = line.get(..at).is_some_and(|prefix| without_numbers(prefix) == self.prefix);
        let body = line.get(at..).filter(|_| has_prefix).unwrap_or(line);
        body.trim_start().strip_prefix("| ").unwrap_or(body)
    }
}

/// A text whose digits are all zero: of the same length.
fn without_numbers(text: &str) -> String {
    text.chars().map(|letter| if letter.is_ascii_digit() { '0' } else { letter }).collect()
}

/// A line without its numbers; `None` if nothing characteristic is left, and for the output of NCCL, which repeats itself.
fn shape(line: &str) -> Option<u64> {
    let letters = line.bytes().filter(u8::is_ascii_alphabetic).take(3).count();
    if letters < 3 || line.contains("NCCL") {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    let mut before = 0;
    for byte in line.trim().bytes().take(LONGEST_SHAPE) {
        let byte = if byte.is_ascii_digit() { b'0' } else { byte };
        if byte != b'0' || before != b'0' {
            byte.hash(&mut hasher);
        }
        before = byte;
    }
    Some(hasher.finish())
}

fn clipped(error: &str) -> String {
    let error = error.trim();
    match error.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", error.get(..end).unwrap_or_default()),
        None => error.to_owned(),
    }
}

#[cfg(test)]
#[path = "errors_tests.rs"]
mod tests;
