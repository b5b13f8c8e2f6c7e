//! The error that ended a process, from its output: the first exception of a traceback, or the message of a crash.
//!
//! A program can print a traceback and continue, so an error counts only if little output follows it. Exceptions that
//! only pass on the failure of another process do not count.

use super::phrases;

/// A program that prints this many more lines has handled the error.
const HANDLED: u32 = 60;
/// Length of an error that is shown.
const LONGEST: usize = 160;
/// Messages of a crash, which no traceback precedes.
const CRASHES: [&str; 6] = [
    "Segmentation fault",
    "terminate called after throwing an instance of",
    "Fatal Python error:",
    "Bus error",
    "Illegal instruction",
    "double free or corruption",
];
/// Exceptions that report the failure of another process, or a request to end.
const PASSED_ON: [&str; 9] = [
    "DistBackendError",
    "DistStoreError",
    "DistNetworkError",
    "ChildFailedError",
    "ProcessRaisedException",
    "ProcessExitedException",
    "SignalException",
    "RayTaskError",
    "CalledProcessError",
];

/// Finds the error in the lines of one process.
#[derive(Debug, Default)]
pub(super) struct ErrorFinder {
    in_traceback: bool,
    error: Option<String>,
    /// Lines since the error.
    later: u32,
    /// A consequence of another process's failure came first.
    is_consequence: bool,
}

impl ErrorFinder {
    /// Reads a line without the launcher's prefix.
    pub(super) fn read(&mut self, line: &str) {
        self.later = self.later.saturating_add(1);
        if self.error.is_some() && self.later <= HANDLED {
            return;
        }
        let is_consequence = !phrases::kinds(line.as_bytes()).is_empty();
        if line.contains("Traceback (most recent call last)") {
            self.in_traceback = true;
        }
        let exception = exception(line).filter(|_| self.in_traceback);
        let crash = || CRASHES.iter().find_map(|message| line.get(line.find(message)?..));
        if let Some(error) = exception.or_else(crash).filter(|_| !is_consequence) {
            self.in_traceback = false;
            self.later = 0;
            self.error = (!is_passed_on(error)).then(|| clipped(error));
        } else if is_consequence && self.error.is_none() {
            self.is_consequence = true;
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.error.is_none()
    }

    /// The error that ended the process, unless it followed from that of another one.
    pub(super) fn finish(self) -> Option<String> {
        self.error.filter(|_| !self.is_consequence && self.later <= HANDLED)
    }
}

/// `ValueError: x`, also after the prefix of a logger.
fn exception(line: &str) -> Option<&str> {
    let mut from = 0;
    for word in line.split(' ') {
        let name = word.split_once(':').map_or(word, |(name, _)| name);
        let last = name.rsplit('.').next().unwrap_or(name);
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
        let is_exception =
            ["Error", "Exception"].iter().any(|end| last.len() > end.len() && last.ends_with(end));
        if is_name && is_exception && last.starts_with(|letter: char| letter.is_ascii_uppercase()) {
            // Of the text of a sentence, `an Error: x`, only the whole line counts.
            let ends_name = word.len() > name.len() || line.len() == from + word.len();
            return line.get(from..).filter(|_| ends_name);
        }
        from += word.len() + 1;
    }
    None
}

fn is_passed_on(error: &str) -> bool {
    let name = error.split([':', '(']).next().unwrap_or(error);
    PASSED_ON.iter().any(|passed| name.ends_with(passed))
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
    use super::*;

    fn found(text: &str) -> Option<String> {
        let mut finder = ErrorFinder::default();
        text.lines().for_each(|line| finder.read(line));
        finder.finish()
    }

    #[test]
    fn the_exception_of_a_traceback_is_found() {
        let traceback =
            "Traceback (most recent call last):\n  File \"t.py\", line 3\n    raise ValueError(x)\n";
        assert_eq!(
            found(&format!("{traceback}ValueError: bad shape\n")).as_deref(),
            Some("ValueError: bad shape")
        );
        assert_eq!(
            found(&format!("ERROR 10:00:00 {traceback}ERROR 10:00:00 a.b.MyError: x\n")).as_deref(),
            Some("a.b.MyError: x")
        );
        assert_eq!(found("WARNING: ValueError: retrying\n"), None, "no traceback");
        assert_eq!(found(&format!("{traceback}ValueError: x\n{}", "step 1\n".repeat(100))), None, "handled");
        assert_eq!(found("*** Signal: Segmentation fault (11)").as_deref(), Some("Segmentation fault (11)"));
        let long = found(&format!("{traceback}ValueError: {}\n", "é".repeat(1000)));
        assert_eq!(long.map(|error| error.chars().count()), Some(LONGEST + 1));
    }

    #[test]
    fn consequences_of_other_processes_are_not_errors() {
        let traceback = "Traceback (most recent call last):\n";
        for error in [
            "RuntimeError: Connection closed by peer [10.0.0.8]:9123",
            "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled system error",
            "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        ] {
            assert_eq!(found(&format!("{traceback}{error}\n")), None, "{error}");
        }
        let lost = "[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n";
        assert_eq!(found(&format!("{lost}{traceback}RuntimeError: aborted\n")), None);
        assert_eq!(
            found(&format!("{traceback}KeyError: 'x'\n{lost}")).as_deref(),
            Some("KeyError: 'x'"),
            "the error came first"
        );
    }
}
