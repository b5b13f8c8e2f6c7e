//! The index of recordings: the rows of `makeroom-job` as Parquet files that `DuckDB`, Polars and Spark read without makeroom.
//!
//! ```text
//! object.rs    an object in a store, and the name of its index file
//! summary.rs   an object's bytes to its rows
//! entry.rs     the rows of one object as rows of the file: one per recording, with the columns that queries need
//! records.rs   row types as columns;  cell.rs  what a column can be
//! schema.rs    columns as a Parquet schema;  shred.rs  nested rows to columns and back
//! write.rs     the file that is written;  read.rs  the file that is read, whole or only some columns
//! ```
//!
//! A file has no time of writing and no version other than that of the schema, so the same object always gives the same
//! bytes. Nothing here uses a network or knows how an index is stored.
#![forbid(unsafe_code)]

mod cell;
mod entry;
mod object;
mod read;
mod records;
mod schema;
mod shred;
mod summary;
mod write;

pub use entry::{Entry, job_name};
pub use makeroom_gather::is_recording_name;
pub use object::{OBJECTS, Object, SUFFIX, etag};
pub use read::{Column, IndexFile, decode};
pub use summary::{index_bytes, index_file, summarize_file};
pub use write::{IndexWriter, encode};

/// The version of the schema. It changes only if older files cannot be read as before.
pub const SCHEMA_VERSION: &str = "1";
/// The key of the version in the metadata of a file.
pub(crate) const VERSION_KEY: &str = "makeroom.index";

/// An index file could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The file is damaged, or no Parquet file.
    #[error("this is not a readable Parquet file: {0}")]
    Parquet(#[from] parquet::errors::ParquetError),
    /// Another program wrote the file.
    #[error("this Parquet file is not part of a makeroom index")]
    Foreign,
    /// A newer version wrote the file.
    #[error("this index file has schema version {found}; this makeroom reads version {SCHEMA_VERSION}")]
    Version {
        /// Its version.
        found: String,
    },
    /// A value has another type than expected.
    #[error("expected {wanted}")]
    Value {
        /// What was expected.
        wanted: String,
    },
    /// A column cannot be read.
    #[error("column {name}: {cause}")]
    Column {
        /// Its name.
        name: String,
        /// Why.
        cause: Box<Self>,
    },
    /// Nested columns contradict each other.
    #[error("nested columns have different lengths")]
    Levels,
    /// A file claims more rows or values than makeroom reads at once.
    #[error("a row group has more than {most} values in a column")]
    TooLarge {
        /// The bound.
        most: u64,
    },
    /// The Parquet reader crashed.
    #[error("the Parquet reader crashed on this file")]
    Crashed,
    /// The file could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl IndexError {
    /// The same error, with the name of the column.
    pub(crate) fn in_column(self, name: &str) -> Self {
        match self {
            Self::Column { name: inner, cause } => Self::Column { name: format!("{name}.{inner}"), cause },
            cause => Self::Column { name: name.to_owned(), cause: Box::new(cause) },
        }
    }
}
