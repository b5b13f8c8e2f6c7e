//! What a program printed, for when it failed.

use std::fs::File;
use std::io;
use std::path::Path;

use makeroom_explain::{Cause, explain_text};

/// Lines of a program's last words.
const LAST_LINES: usize = 12;
/// And how much of its output is looked at for them.
const LAST_BYTES: usize = 64 << 10;

/// The end of what a program printed.
fn end_of(log: &Path) -> String {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES as u64)))?;
        let mut end = Vec::new();
        file.take(LAST_BYTES as u64).read_to_end(&mut end)?;
        Ok(end)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last lines of it.
pub(super) fn last_words(log: &Path) -> String {
    let end = end_of(log);
    let lines: Vec<&str> = end.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Whether a program says that it died for want of memory: frameworks refuse from their own pools too.
pub(super) fn says_out_of_memory(log: &Path) -> bool {
    let explanation = explain_text(&end_of(log));
    let is_of_host = explanation.verdict.cause == Cause::HostMemory;
    explanation.request.is_some() && !is_of_host
}
