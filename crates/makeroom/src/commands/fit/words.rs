//! The end of a failed program's output.

use std::fs::File;
use std::io;
use std::path::Path;

use makeroom_explain::Cause;
use makeroom_text::explain_text;

/// Number of lines to show.
const LAST_LINES: usize = 12;
/// How much of the end of the output to read.
const LAST_BYTES: usize = 64 << 10;

/// The end of a program's output.
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

/// The last lines of a program's output.
pub(super) fn last_words(log: &Path) -> String {
    let end = end_of(log);
    let lines: Vec<&str> = end.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Whether a program's output reports that it ran out of GPU memory. Frameworks also fail allocations from their own
/// pools, which the recorder does not see.
pub(super) fn says_out_of_memory(log: &Path) -> bool {
    let explanation = explain_text(&end_of(log));
    let is_of_host = explanation.verdict.cause == Cause::HostMemory;
    explanation.request.is_some() && !is_of_host
}
