//! Errors in inputs, with position and value, and a hint.
//!
//! Offsets are in the decompressed stream, as `pickletools` and a hex dump of the decompressed file show them.

use std::path::PathBuf;

use makeroom_core::Bytes;

/// Why an input could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened.
    #[error("cannot open {}: {cause}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error from the system.
        cause: std::io::Error,
    },
    /// A directory was given where a file is needed.
    #[error("{} is a directory", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The stream failed: a disk error, or compressed data that is damaged or truncated.
    #[error("reading failed after byte {offset}: {cause}")]
    Read {
        /// Number of bytes read before.
        offset: u64,
        /// The error from the system or the decompressor.
        cause: std::io::Error,
    },
    /// The input is empty.
    #[error("the input is empty")]
    Empty,
    /// A known format that is not a recording.
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
    /// A text that is too long to hold in memory.
    #[error("this text is longer than {limit}")]
    TextTooLong {
        /// Maximum length of a text.
        limit: Bytes,
    },
    /// Compressed data that expands by an implausible factor.
    #[error("{packed} of compressed data expands to more than {unpacked}")]
    CompressionBomb {
        /// Compressed bytes read.
        packed: Bytes,
        /// Bytes they expanded to.
        unpacked: Bytes,
    },
    /// An archive is damaged.
    #[error("{problem} (at byte {offset})")]
    Archive {
        /// Where.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// The pickle contains a call.
    #[error(
        "the file calls {callable} at byte {offset}; memory snapshots contain only data, so makeroom does not read it"
    )]
    AsksToCall {
        /// The callable, as far as the file names it.
        callable: String,
        /// Offset of the opcode.
        offset: u64,
    },
    /// The pickle is truncated.
    #[error("the file ends at byte {offset}; expected {expected}")]
    Truncated {
        /// Length of the file.
        offset: u64,
        /// What should follow.
        expected: &'static str,
    },
    /// The pickle is damaged.
    #[error("byte {offset}: expected {expected}, found {found}")]
    Malformed {
        /// Offset.
        offset: u64,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// The file exceeds a limit that no recording reaches.
    #[error("byte {offset}: the file has more than {limit} {what}")]
    TooMany {
        /// Offset where the limit was reached.
        offset: u64,
        /// What is limited.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A valid pickle that is not a snapshot.
    #[error("this pickle is not a memory snapshot: it ends at byte {offset} and contains {found}")]
    NotASnapshot {
        /// The length of the pickle.
        offset: u64,
        /// What it contains.
        found: String,
    },
    /// A `.room` recording ends before its header.
    #[error("the recording ends at byte {offset}, before its header: nothing was recorded")]
    NothingRecorded {
        /// Length of the file.
        offset: u64,
    },
    /// A memory profile is damaged.
    #[error("byte {offset}: {problem}")]
    Profile {
        /// Offset.
        offset: u64,
        /// What is wrong.
        problem: &'static str,
    },
    /// A line of an RMM log is damaged.
    #[error("line {line} (byte {offset}): expected {expected}, found `{found}`")]
    RmmLine {
        /// Line number, from 1.
        line: u64,
        /// Offset of the line.
        offset: u64,
        /// What should be there.
        expected: &'static str,
        /// What is there.
        found: String,
    },
}

const DUMP_A_SNAPSHOT: &str = "write a snapshot with torch.cuda.memory._record_memory_history() at the start and \
                               torch.cuda.memory._dump_snapshot(\"run.pickle\") at the end of the program";

/// Whether a directory has anything to explain: hidden entries are not recordings.
fn has_files(directory: &std::path::Path) -> bool {
    let is_shown = |entry: std::fs::DirEntry| !entry.file_name().as_encoded_bytes().starts_with(b".");
    std::fs::read_dir(directory).is_ok_and(|entries| entries.flatten().any(is_shown))
}

impl Error {
    /// What to try next, if known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Directory { path } if !has_files(path) => {
                "this directory contains no files; pass a recording, a snapshot or a log"
            }
            Self::Directory { path } => {
                return Some(format!(
                    "pass a file in it, or explain all recordings of a job: makeroom job {}",
                    path.display()
                ));
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
            Self::Archive { .. } => {
                "check the archive with `tar -tf FILE` or `unzip -t FILE`, or unpack it and pass the directory"
            }
            Self::Unrecognised { .. } => {
                "makeroom reads .room recordings, PyTorch memory snapshots (pickle), RMM logs (CSV), JAX memory profiles (pprof) and text \
                 that contains an error, \
                 plain or compressed with gzip or zstd"
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
            Self::Profile { .. } => {
                "save the profile again: jax.profiler.save_device_memory_profile(\"memory.prof\")"
            }
            Self::RmmLine { .. } => {
                "several processes may have written to one file; give each its own: RMM_LOG_FILE=rmm.$$.csv"
            }
        };
        Some(hint.to_owned())
    }
}
