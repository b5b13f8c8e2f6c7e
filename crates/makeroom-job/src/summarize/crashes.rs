//! Messages without a traceback that report how a process ended: those of the C library and of shells, exit codes that a
//! launcher or a build tool prints, and errors of a program that did not start.
//!
//! ```text
//! Segmentation fault (core dumped)
//! run.sh: line 3:  4711 Killed                  python train.py
//! command terminated with exit code 137
//! train.py: error: unrecognized arguments: --batch
//! ```
//!
//! Lines about commands that scripts run next to the program, such as `nvidia-smi`, `tail` and uploaders, are not about it.
//!
//! An exit code above 128 is that of a process that a signal ended. Other codes show only that something failed.

use super::exceptions::exception;
use crate::tables::FailureKind;

/// Messages of a crash, anywhere in a line.
const CRASHES: [&str; 8] = [
    "CUDA error: ",
    "Segmentation fault",
    "terminate called after throwing an instance of",
    "Fatal Python error:",
    "Bus error",
    "Illegal instruction",
    "double free or corruption",
    "Aborted (core dumped)",
];
/// Words of shells for signals.
const SIGNALS: [(&str, u32); 10] = [
    ("Killed", 9),
    ("Terminated", 15),
    ("User defined signal 1", 10),
    ("User defined signal 2", 12),
    ("Aborted", 6),
    ("Segmentation fault", 11),
    ("Bus error", 7),
    ("Illegal instruction", 4),
    ("Floating point exception", 8),
    ("Trace/breakpoint trap", 5),
];
/// Phrases before an exit code.
const STATUSES: [&str; 12] = [
    "exited with code ",
    "exited with exit code ",
    "exited with status ",
    "exited with exit status ",
    "terminated with exit code ",
    "completed with exit code ",
    "finished with exit code ",
    "failed with exit code ",
    "returned non-zero exit status ",
    "exits with return code = ",
    "exited with return code ",
    "failed (exitcode: ",
];
/// Commands that scripts run next to the program.
const HELPERS: [&str; 34] = [
    "aws",
    "azcopy",
    "cat",
    "curl",
    "dcgmi",
    "df",
    "dstat",
    "du",
    "free",
    "gcloud",
    "gpustat",
    "grep",
    "gsutil",
    "head",
    "htop",
    "iostat",
    "nvidia-smi",
    "nvtop",
    "ping",
    "ps",
    "rclone",
    "rsync",
    "s3cmd",
    "s5cmd",
    "scp",
    "sleep",
    "tail",
    "tee",
    "tensorboard",
    "top",
    "vmstat",
    "watch",
    "wget",
    "while",
];
/// Parts of their names.
const HELPER_PARTS: [&str; 6] = ["dcgm", "upload", "monitor", "exporter", "heartbeat", "backup"];
/// Words in front of a command.
const WRAPPERS: [&str; 9] = ["(", "{", "Command", "exec", "nohup", "sudo", "python", "python3", "bash"];
const SIGKILL: u32 = 9;
/// SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE and SIGSEGV: a process causes them itself.
const OWN: [u32; 6] = [4, 5, 6, 7, 8, 11];
/// The exit status of a process that a signal ended is this plus the signal, as shells report it.
const BY_SIGNAL: u32 = 128;

/// What a line reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Crash<'line> {
    /// The error of the process.
    Error(&'line str),
    /// A signal ended it.
    Signal(u32),
    /// An exit code other than 0, which names no reason.
    Status,
}

impl Crash<'_> {
    /// The kind of failure, of signals that come from outside.
    pub(super) fn kind(&self) -> Option<FailureKind> {
        match self {
            Self::Signal(SIGKILL) => Some(FailureKind::Killed),
            Self::Signal(signal) if !OWN.contains(signal) => Some(FailureKind::Terminated),
            _ => None,
        }
    }
}

/// What a line outside of tracebacks reports about the end of a process.
pub(super) fn read<'line>(line: &'line str) -> Option<Crash<'line>> {
    if is_about_helper(line) {
        return None;
    }
    let from_shell = shell(line).map(|(signal, _)| signal).or_else(|| bare(line)).map(Crash::Signal);
    let message = || CRASHES.iter().find_map(|message| line.get(line.find(message)?..));
    // `Caught signal 11 (Segmentation fault: …)`: the text starts within the parentheses.
    let unbracketed = |text: &'line str| if text.contains('(') { text } else { text.trim_end_matches(')') };
    let crash = || message().map(unbracketed).map(Crash::Error);
    from_shell.or_else(crash).or_else(|| status(line)).or_else(|| start(line).map(Crash::Error))
}

/// Whether a line reports the end of a command that a script runs next to the program.
pub(super) fn is_about_helper(line: &str) -> bool {
    let before = || status_at(line).and_then(|(start, _)| line.get(..start));
    shell(line).is_some_and(|(_, command)| runs_helper(command)) || before().is_some_and(is_of_helper)
}

/// The signal of an exit status above 128, or of a negative one.
pub(super) fn signal_of(status: i32) -> Option<u32> {
    match status {
        ..0 => Some(status.unsigned_abs()),
        _ => status.unsigned_abs().checked_sub(BY_SIGNAL).filter(|signal| (1..=31).contains(signal)),
    }
}

/// `run.sh: line 3:  4711 Killed                  python train.py`.
fn shell(line: &str) -> Option<(u32, &str)> {
    let (_, rest) = line.split_once(": line ")?;
    let (number, rest) = rest.split_once(':')?;
    let (pid, rest) = rest.trim_start().split_once(' ')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, signal) = signal(rest.trim_start())?;
    let command = rest.trim_start().strip_prefix(name)?.trim_start();
    let command = command.strip_prefix("(core dumped)").unwrap_or(command);
    (is_number(number) && is_number(pid)).then_some((signal, command))
}

/// Whether a command is one that scripts run next to the program: `nvidia-smi -l 5`, `python3 upload.py`.
fn runs_helper(command: &str) -> bool {
    let words = command.split(|letter: char| letter.is_whitespace() || "[]'\",;".contains(letter));
    let is_skipped = |word: &&str| {
        word.is_empty() || word.starts_with('-') || word.contains('=') || WRAPPERS.contains(word)
    };
    let mut words = words.filter(|word| !is_skipped(word));
    words.next().is_some_and(is_helper)
}

/// Whether a name is that of such a command.
fn is_helper(word: &str) -> bool {
    let name = word.trim_start_matches('(').rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    HELPERS.contains(&name.as_str()) || HELPER_PARTS.iter().any(|part| name.contains(part))
}

/// Whether the text before an exit code names such a command: `Command '['aws', 's3']'`, `uploader`, `tail (pid 7)`.
fn is_of_helper(before: &str) -> bool {
    if let Some(at) = before.find("Command '") {
        return before.get(at..).is_some_and(runs_helper);
    }
    let before = before.trim_end();
    let before = before.strip_suffix(')').and_then(|text| Some(text.rsplit_once('(')?.0)).unwrap_or(before);
    let last = before.split_whitespace().next_back().unwrap_or_default();
    is_helper(last.trim_matches(|letter: char| "'\"`:[]".contains(letter)))
}

/// `Killed`, `Segmentation fault (core dumped)`: nothing else on the line.
fn bare(line: &str) -> Option<u32> {
    let line = line.trim_end();
    let word = line.strip_suffix("(core dumped)").unwrap_or(line).trim_end();
    SIGNALS.iter().find(|(name, _)| *name == word).map(|(_, signal)| *signal)
}

fn signal(text: &str) -> Option<(&'static str, u32)> {
    SIGNALS.iter().find(|(name, _)| text.starts_with(name)).copied()
}

/// Where the phrase before an exit code starts and ends.
fn status_at(line: &str) -> Option<(usize, usize)> {
    // A fast filter: all phrases contain it.
    if !line.contains("xit") {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    STATUSES.iter().find_map(|phrase| lower.find(phrase).map(|start| (start, start + phrase.len())))
}

fn status(line: &str) -> Option<Crash<'static>> {
    let (_, at) = status_at(line)?;
    let rest = line.get(at..)?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(rest.len());
    let status: i32 = rest.get(..end)?.parse().ok()?;
    match (status, signal_of(status)) {
        (0, _) => None,
        (_, Some(signal)) => Some(Crash::Signal(signal)),
        (_, None) => Some(Crash::Status),
    }
}

/// A program that did not start, or an exception without a traceback: `ModuleNotFoundError: No module named 'x'`.
fn start(line: &str) -> Option<&str> {
    let is_whole = exception(line).is_some_and(|error| error.len() == line.len() && error.contains(": "));
    let is_usage = line
        .split_once(": error: ")
        .is_some_and(|(name, _)| name.strip_suffix(".py").is_some_and(|name| !name.contains(' ')));
    let is_missing = line.ends_with(": command not found") || line.contains(": can't open file '");
    (is_whole || is_usage || is_missing).then_some(line)
}

/// The name of a signal: `SIGSEGV (segmentation fault)`.
pub(crate) fn signal_words(signal: u32) -> String {
    match signal {
        4 => "SIGILL (illegal instruction)".to_owned(),
        5 => "SIGTRAP".to_owned(),
        6 => "SIGABRT (abort)".to_owned(),
        7 => "SIGBUS (bus error)".to_owned(),
        8 => "SIGFPE (floating-point exception)".to_owned(),
        9 => "SIGKILL".to_owned(),
        11 => "SIGSEGV (segmentation fault)".to_owned(),
        15 => "SIGTERM".to_owned(),
        other => format!("signal {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_without_a_traceback_are_read() {
        for (line, signal) in [
            ("Segmentation fault (core dumped)", 11),
            ("Aborted (core dumped)", 6),
            ("Killed", 9),
            ("run.sh: line 3:  4711 Killed                  python train.py", 9),
            ("/bin/bash: line 1: 77 Bus error               (core dumped) python t.py", 7),
            ("command terminated with exit code 137", 9),
            ("Process completed with exit code 143.", 15),
            ("x exits with return code = -11", 11),
        ] {
            assert_eq!(read(line), Some(Crash::Signal(signal)), "{line}");
        }
        for line in [
            "ModuleNotFoundError: No module named 'flash_attn'",
            "train.py: error: unrecognized arguments: --batch",
            "bash: torchrun: command not found",
            "python: can't open file '/app/t.py': [Errno 2] No such file or directory",
        ] {
            assert_eq!(read(line), Some(Crash::Error(line)));
        }
        assert_eq!(
            read("Caught signal 11 (Segmentation fault: x)"),
            Some(Crash::Error("Segmentation fault: x"))
        );
        assert_eq!(read("worker exited with code 1"), Some(Crash::Status));
        for line in [
            "exited with code 0",
            "Killed 3 idle workers",
            "run.sh: line 9: 4712 Terminated              nvidia-smi -l 5 > gpu.log",
            "run.sh: line 9: 4712 Killed                  ( while true; do nvidia-smi; done )",
            "run.sh: line 9: 4712 Killed                  python3 -u /opt/upload_logs.py",
            "uploader exited with code 137",
            "process tail (pid 77) exited with status 143",
            "Command '['/usr/bin/aws', 's3', 'cp']' returned non-zero exit status 255.",
            "srun: error: x",
            "WARNING: ValueError: x",
            "é: line é",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }
}
