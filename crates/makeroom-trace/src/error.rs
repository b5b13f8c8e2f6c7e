//! What can go wrong with an input, each with the place and the value, and what to try next.
//!
//! Offsets count bytes of the decompressed stream: that is what `pickletools` and a hex dump of the unpacked file
//! count, too.

use std::path::PathBuf;

use makeroom_core::Bytes;

/// Why an input was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened.
    #[error("cannot open {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A directory was given where a file is needed.
    #[error("{} is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The stream failed: a broken disk, or compressed data that is damaged or cut off.
    #[error("reading failed after byte {offset}: {cause}")]
    Read {
        /// How many bytes had been read.
        offset: u64,
        /// What the system or the decompressor said.
        cause: std::io::Error,
    },
    /// There is nothing to read.
    #[error("the input is empty")]
    Empty,
    /// A known format, but not one that holds a recording.
    #[error("this is {format}, not a recording or a log")]
    OtherFormat {
        /// The format, with its article: "a zip archive".
        format: &'static str,
        /// What to do instead.
        hint: &'static str,
    },
    /// Neither a recording nor text.
    #[error("this is not a recording or a log: it starts with the bytes {head}")]
    Unrecognised {
        /// The first bytes, in hexadecimal.
        head: String,
    },
    /// A text that is too long to be held.
    #[error("this text is longer than {limit}")]
    TextTooLong {
        /// The longest text that is read.
        limit: Bytes,
    },
    /// A little compressed data that unpacks to an absurd amount.
    #[error("{packed} of compressed data expands to more than {unpacked}")]
    CompressionBomb {
        /// What had been read.
        packed: Bytes,
        /// What it had become.
        unpacked: Bytes,
    },
    /// The pickle contains a call.
    #[error(
        "the file calls {callable} at byte {offset}; memory snapshots contain only data, so makeroom does not read it"
    )]
    AsksToCall {
        /// The callable, as far as the file names it there.
        callable: String,
        /// Where.
        offset: u64,
    },
    /// The pickle stops in the middle.
    #[error("the file ends at byte {offset}; expected {expected}")]
    Truncated {
        /// How long the file is.
        offset: u64,
        /// What should have followed.
        expected: &'static str,
    },
    /// The pickle is damaged.
    #[error("byte {offset}: expected {expected}, found {found}")]
    Malformed {
        /// Where.
        offset: u64,
        /// What should have been there.
        expected: &'static str,
        /// What was there.
        found: String,
    },
    /// The file holds more of something than any recording has.
    #[error("byte {offset}: the file has more than {limit} {what}")]
    TooMany {
        /// Where the limit was reached.
        offset: u64,
        /// Of what.
        what: &'static str,
        /// How many are read.
        limit: u64,
    },
    /// The pickle is sound and holds something else.
    #[error("this pickle is not a memory snapshot: it ends at byte {offset} and contains {found}")]
    NotASnapshot {
        /// The length of the pickle.
        offset: u64,
        /// What it holds.
        found: String,
    },
    /// A `.room` recording ends before its header.
    #[error("the recording ends at byte {offset}, before its header: nothing was recorded")]
    NothingRecorded {
        /// How long the file is.
        offset: u64,
    },
    /// A line of an RMM log is damaged.
    #[error("line {line} (byte {offset}): expected {expected}, found `{found}`")]
    RmmLine {
        /// Which line, counted from 1.
        line: u64,
        /// Where the line begins.
        offset: u64,
        /// What should have been there.
        expected: &'static str,
        /// What was there.
        found: String,
    },
}

const DUMP_A_SNAPSHOT: &str = "write a snapshot with torch.cuda.memory._record_memory_history() at the start and \
                               torch.cuda.memory._dump_snapshot(\"run.pickle\") at the end of the program";

impl Error {
    /// What to try next, where that is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Directory { path } => {
                return Some(format!("pass a file in it: ls {}", path.display()));
            }
            Self::Open { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
                "check the name; `-` reads from standard input"
            }
            Self::Open { .. } => "check its permissions: ls -l",
            Self::Empty => {
                "a program killed while writing leaves an empty file; run it again, or pass its log"
            }
            Self::Read { .. } => {
                "the file is damaged or truncated; check a compressed file with `gzip -t` or `zstd -t`, \
                 and copy it again"
            }
            Self::OtherFormat { hint, .. } => hint,
            Self::Unrecognised { .. } => {
                "makeroom reads .room recordings, PyTorch memory snapshots (pickle), RMM logs (CSV) and text that contains an error, \
                 also compressed with gzip or zstd"
            }
            Self::TextTooLong { .. } => "pass the part with the error: tail -n 1000 LOG | makeroom why -",
            Self::CompressionBomb { .. } => {
                "recordings do not compress that well; if you trust the file, decompress it first: gzip -dk FILE"
            }
            Self::AsksToCall { .. } => {
                "do not load it with Python's pickle unless you trust its source; model checkpoints contain calls, \
                 memory snapshots do not"
            }
            Self::Truncated { .. } => {
                "the program was probably killed while writing the snapshot; write it again with fewer events: \
                 torch.cuda.memory._record_memory_history(max_entries=100000)"
            }
            Self::Malformed { .. } => "the file is damaged; copy it again and compare sha256sum",
            Self::TooMany { .. } | Self::NotASnapshot { .. } => DUMP_A_SNAPSHOT,
            Self::NothingRecorded { .. } => {
                "the program ended or the disk was full when recording started; check the disk with `df .` and run it again"
            }
            Self::RmmLine { .. } => {
                "several processes may have written to one file; give each its own: RMM_LOG_FILE=rmm.$$.csv"
            }
        };
        Some(hint.to_owned())
    }
}
