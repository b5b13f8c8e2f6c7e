//! Why a CSV file could not be read. Lines count from 1, the header included.

use super::{MAX_ID, MAX_LINE};
use crate::MAX_BUFFERS;

/// Why a file could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The file has no header.
    #[error("file is empty")]
    Empty,
    /// Reading failed.
    #[error("line {line}: {problem}")]
    Read {
        /// Number of the line.
        line: usize,
        /// The error from the system.
        problem: String,
    },
    /// A line is not UTF-8.
    #[error("line {line}: not UTF-8 text")]
    NotText {
        /// Number of the line.
        line: usize,
    },
    /// A line is too long.
    #[error("line {line}: longer than {MAX_LINE} bytes")]
    LongLine {
        /// Number of the line.
        line: usize,
    },
    /// The name of a buffer is too long.
    #[error("line {line}: `id` is longer than {MAX_ID} bytes")]
    LongId {
        /// Number of the line.
        line: usize,
    },
    /// The file has too many lines.
    #[error("line {line}: more than {MAX_BUFFERS} buffers")]
    TooManyBuffers {
        /// Number of the line.
        line: usize,
    },
    /// An empty line is followed by another line.
    #[error("line {line}: text after an empty line")]
    AfterEmptyLine {
        /// Number of the line.
        line: usize,
    },
    /// A required column is missing.
    #[error("line 1: column `{column}` is missing")]
    MissingColumn {
        /// Its name.
        column: &'static str,
    },
    /// A column occurs twice, perhaps under an alias.
    #[error("line 1: duplicate column `{column}`")]
    DuplicateColumn {
        /// Its name.
        column: &'static str,
    },
    /// A column is unknown.
    #[error("line 1: unknown column `{column}`")]
    UnknownColumn {
        /// Its name, shortened.
        column: String,
    },
    /// A line has too few or too many fields.
    #[error("line {line}: {found} fields, but the header has {expected}")]
    Fields {
        /// Number of the line.
        line: usize,
        /// Fields in the line.
        found: usize,
        /// Fields in the header.
        expected: usize,
    },
    /// A field is not a 64-bit integer.
    #[error("line {line}: `{column}` is not a whole number below 2^64: `{value}`")]
    Number {
        /// Number of the line.
        line: usize,
        /// Name of the column.
        column: &'static str,
        /// The field, shortened.
        value: String,
    },
    /// A lifetime ends before it begins.
    #[error("line {line}: lifetime ends at {upper}, before it begins at {lower}")]
    Lifetime {
        /// Number of the line.
        line: usize,
        /// Start of the lifetime.
        lower: u64,
        /// End of the lifetime.
        upper: u64,
    },
    /// An alignment is not a power of two.
    #[error("line {line}: alignment is not a power of two: {alignment}")]
    Alignment {
        /// Number of the line.
        line: usize,
        /// The alignment.
        alignment: u64,
    },
    /// Buffers with gaps in their lifetimes.
    #[error("line {line}: `gaps` are not supported")]
    Gaps {
        /// Number of the line.
        line: usize,
    },
}

impl CsvError {
    /// What to do about it, if there is anything to say.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Empty
            | Self::NotText { line: 1 }
            | Self::LongLine { line: 1 }
            | Self::MissingColumn { .. }
            | Self::UnknownColumn { .. } => {
                Some("the first line names the columns: id,lower,upper,size, and optionally alignment")
            }
            Self::AfterEmptyLine { .. } => Some("remove the empty line"),
            Self::Gaps { .. } => Some("put each part of the lifetime on its own line, with its own id"),
            _ => None,
        }
    }
}
