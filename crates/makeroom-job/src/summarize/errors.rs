//! The error that ended a process, from its output: the exception of its last traceback, or the message of a crash.
//!
//! ```text
//! a traceback, and the program continues                 handled: it does not count
//! source lines that a traceback quotes                   never an error
//! an exception that passes on the failure of another     a consequence, and errors right after it are too
//! process, or a message about a lost connection
//! several tracebacks                                     the last one that was not handled
//! ```
//!
//! A program continues if it prints many more lines, or lines like those that it printed before the error: the digits of
//! `step 7: loss 2.71` change, the rest stays. Where several processes print to one log without prefixes, these may be lines
//! of another process: the last error that was dropped is kept, and restored if a launcher reports a failure that nothing
//! else explains.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::exceptions::{exception, is_passed_on, unusual_exception};

/// A program that prints this many more lines has handled the error.
const HANDLED: u32 = 60;
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
/// Messages of a crash, which no traceback precedes.
const CRASHES: [&str; 7] = [
    "CUDA error: ",
    "Segmentation fault",
    "terminate called after throwing an instance of",
    "Fatal Python error:",
    "Bus error",
    "Illegal instruction",
    "double free or corruption",
];
/// Bytes of a logger's prefix in front of a traceback. A longer text is not one.
const LONGEST_PREFIX: usize = 256;

/// Finds the error in the lines of one process.
#[derive(Debug, Default)]
pub(super) struct ErrorFinder {
    traceback: Option<Traceback>,
    error: Option<String>,
    /// The last error after which the program seemed to continue.
    dropped: Option<String>,
    /// Whether a consequence of another process's failure came before any error.
    is_consequence: bool,
    /// Lines since the error or the consequence.
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

    /// The process reports the failure of another one.
    fn follow(&mut self) {
        if self.error.is_none() {
            self.is_consequence = true;
            (self.later, self.resumed) = (0, 0);
        }
    }

    /// A line outside of tracebacks.
    fn text(&mut self, line: &str, is_consequence: bool) -> Line {
        let crash = || CRASHES.iter().find_map(|message| line.get(line.find(message)?..));
        if is_consequence {
            self.follow();
        } else if let Some(reason) = line.trim_start().strip_prefix("what():") {
            // C++ prints the reason below the type of the exception.
            let is_terminated =
                self.error.as_ref().is_some_and(|error| error.starts_with("terminate called"));
            if is_terminated {
                self.set(reason);
            }
        } else if let Some(error) = crash().filter(|error| !error.contains("out of memory")) {
            if self.error.is_none() && !self.is_consequence {
                self.set(error);
            }
        } else {
            return self.output(line);
        }
        Line::Text
    }

    /// A line of ordinary output.
    fn output(&mut self, line: &str) -> Line {
        let shape = shape(line);
        if self.error.is_none() && !self.is_consequence {
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
            self.is_consequence = false;
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

    /// The error that ended the process, unless it followed from that of another one.
    pub(super) fn finish(self) -> Option<String> {
        self.error
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
mod tests {
    use super::super::phrases;
    use super::*;

    const TRACEBACK: &str =
        "Traceback (most recent call last):\n  File \"t.py\", line 3\n    raise ValueError(x)\n";
    const CHAINED: &str = "During handling of the above exception, another exception occurred:\n\n";
    const LOST: &str = "[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n";

    fn read(finder: &mut ErrorFinder, line: &str) -> Line {
        finder.read(line, !phrases::kinds(line.as_bytes()).is_empty())
    }

    fn found(text: &str) -> Option<String> {
        let mut finder = ErrorFinder::default();
        text.lines().for_each(|line| _ = read(&mut finder, line));
        finder.finish()
    }

    #[test]
    fn the_exception_of_a_traceback_is_found() {
        for (text, error) in [
            (format!("{TRACEBACK}ValueError: bad shape\n"), "ValueError: bad shape"),
            (format!("ERROR 10:00:00 {TRACEBACK}ERROR 10:00:09 a.b.MyError: x\n"), "a.b.MyError: x"),
            (format!("{TRACEBACK}queue.Empty\n"), "queue.Empty"),
            ("*** Signal: Segmentation fault (11)".to_owned(), "Segmentation fault (11)"),
            (
                "terminate called after throwing an instance of 'c10::Error'\n  what():  bad stream\n"
                    .to_owned(),
                "bad stream",
            ),
            (
                "[E1] watchdog thread terminated with exception: CUDA error: an illegal memory access\n"
                    .to_owned(),
                "CUDA error: an illegal memory access",
            ),
        ] {
            assert_eq!(found(&text).as_deref(), Some(error), "{text}");
        }
        assert_eq!(found("WARNING: ValueError: retrying\n"), None, "no traceback");
        assert_eq!(found(&format!("{TRACEBACK}ValueError: x\n{}", "done\n".repeat(100))), None, "handled");
        let long = found(&format!("{TRACEBACK}ValueError: {}\n", "é".repeat(1000)));
        assert_eq!(long.map(|error| error.chars().count()), Some(LONGEST + 1));
    }

    #[test]
    fn a_handled_error_does_not_hide_the_last_one() {
        let steps = |from: u32| {
            format!(
                "step {from}: loss 2.{from}
"
            )
            .repeat(4)
        };
        let handled = format!("{}{TRACEBACK}KeyError: 'a'\nskipped\n{}", steps(1), steps(5));
        assert_eq!(found(&handled), None);
        let fatal = format!("{handled}{TRACEBACK}ValueError: bad shape\n");
        assert_eq!(found(&fatal).as_deref(), Some("ValueError: bad shape"));
        // Nothing between them: the last traceback is that of the exception that was not caught.
        let close = format!("{TRACEBACK}KeyError: 'a'\nskipped\n{TRACEBACK}ValueError: bad shape\n");
        assert_eq!(found(&close).as_deref(), Some("ValueError: bad shape"));
        let ignored = format!("{fatal}Exception ignored in: <function f>\n{TRACEBACK}TypeError: x\n");
        assert_eq!(found(&ignored).as_deref(), Some("ValueError: bad shape"));
        // A line in between: the next traceback is not that of the destructor.
        let expired = format!("Exception ignored in: <function f>\n\nstep 7\n{TRACEBACK}TypeError: x\n");
        assert_eq!(found(&expired).as_deref(), Some("TypeError: x"));
        let blank = format!("Exception ignored in: <function f>\n\n{TRACEBACK}TypeError: x\n");
        assert_eq!(found(&blank), None);
        let chained = format!("{TRACEBACK}KeyError: 'a'\n\n{CHAINED}{TRACEBACK}ValueError: no a\n");
        assert_eq!(found(&chained).as_deref(), Some("ValueError: no a"));
    }

    #[test]
    fn the_last_dropped_error_can_be_restored() {
        let step = "step 1: loss 2.7\n";
        let dropped = |error: &str| format!("{step}{TRACEBACK}{error}\n{}", step.repeat(4));
        let restored = |text: &str| {
            let mut finder = ErrorFinder::default();
            text.lines().for_each(|line| _ = read(&mut finder, line));
            finder.restore();
            finder.finish()
        };
        let both = dropped("KeyError: 'a'") + &dropped("ValueError: b");
        assert_eq!((found(&both), restored(&both).as_deref()), (None, Some("ValueError: b")));
        // A lost connection after it does not replace it; an error that was not dropped does.
        assert_eq!(restored(&format!("{both}{LOST}{}", step.repeat(4))).as_deref(), Some("ValueError: b"));
        let fatal = format!("{both}{TRACEBACK}TypeError: c\n");
        assert_eq!(restored(&fatal).as_deref(), Some("TypeError: c"));
        assert_eq!(restored(step), None);
    }

    #[test]
    fn a_long_text_in_front_of_a_traceback_is_not_kept() {
        for (length, kept) in [(LONGEST_PREFIX, LONGEST_PREFIX), (LONGEST_PREFIX + 1, 0), (1 << 14, 0)] {
            let mut finder = ErrorFinder::default();
            read(&mut finder, &format!("{}{TRACEBACK}", "x".repeat(length)));
            assert_eq!(finder.traceback.map(|traceback| traceback.prefix.len()), Some(kept));
        }
    }

    #[test]
    fn source_lines_are_not_errors() {
        let source = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    except KeyError: pass\n  \
            File \"t.py\", line 9, in g\n    raise RuntimeError(\"Connection closed by peer\")  # Segmentation fault\n";
        let mut finder = ErrorFinder::default();
        let lines: Vec<Line> = source.lines().skip(1).map(|line| read(&mut finder, line)).collect();
        assert_eq!(lines, [Line::Text; 4], "outside of a traceback");
        let lines: Vec<Line> = source.lines().map(|line| read(&mut finder, line)).collect();
        assert_eq!(lines[1..], [Line::Source; 4]);
        assert_eq!(found(source), None, "the exception is missing");
        assert_eq!(found(&format!("{source}ValueError: x\n")).as_deref(), Some("ValueError: x"));
        let logged =
            format!("ERROR 10:00:07 {}", source.trim_end().replace('\n', "\nERROR 10:00:07 ")) + "\n";
        assert_eq!(
            found(&format!("{logged}ERROR 10:00:07 ValueError: x\n")).as_deref(),
            Some("ValueError: x")
        );
    }

    #[test]
    fn consequences_of_other_processes_are_not_errors() {
        for error in [
            "RuntimeError: Connection closed by peer [10.0.0.8]:9123",
            "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled system error",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
            "KeyboardInterrupt",
        ] {
            assert_eq!(found(&format!("{TRACEBACK}{error}\n")), None, "{error}");
            let cleanup = format!("{TRACEBACK}{error}\n\n{CHAINED}{TRACEBACK}RuntimeError: x\n");
            assert_eq!(found(&cleanup), None, "{error}");
        }
        assert_eq!(found(&format!("{LOST}{TRACEBACK}RuntimeError: aborted\n")), None);
        assert_eq!(
            found(&format!("{TRACEBACK}KeyError: 'x'\n{LOST}")).as_deref(),
            Some("KeyError: 'x'"),
            "the error came first"
        );
    }

    #[test]
    fn a_connection_that_was_lost_long_before_does_not_explain_an_error() {
        let pipe = "[W socket.cpp] sendBytes failed: Broken pipe (errno: 32)\n";
        let failed = format!("{TRACEBACK}ValueError: bad shape\n");
        let step = "step 1: loss 2.7\n";
        let early = format!("{step}{pipe}{}{failed}", step.repeat(4));
        assert_eq!(found(&early).as_deref(), Some("ValueError: bad shape"));
        assert_eq!(
            found(&format!("{pipe}{}{failed}", "other\n".repeat(100))).as_deref(),
            Some("ValueError: bad shape")
        );
        assert_eq!(found(&format!("{step}{pipe}{failed}")), None, "right after it");
    }
}
