//! Converts recordings to files for other programs. `docs/export.md` documents their content.
//!
//! ```text
//! history.rs      shared by all formats: allocations, times, names of sites;  groups.rs  their groups
//! perfetto.rs     counters and slices, as a trace-event file
//! speedscope.rs   live memory by stack at the most relevant moments
//! snapshot.rs     PyTorch's memory snapshot
//! table.rs        rows of events and of allocations, which parquet/ and csv.rs write
//! recognize.rs    whether a file is one of these
//! ```
#![forbid(unsafe_code)]

mod csv;
mod groups;
mod history;
mod parquet;
mod perfetto;
mod recognize;
mod snapshot;
mod speedscope;
mod table;

use std::io::{self, Write};

use makeroom_core::Trace;
use makeroom_explain::By;

pub use recognize::is_export;
pub use table::TableKind;

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A trace-event file for Perfetto, with a counter for each group.
    Perfetto(Option<By>),
    /// A profile for speedscope, with the groups as outermost frames.
    Speedscope(Option<By>),
    /// PyTorch's memory snapshot.
    Snapshot,
    /// A table as Parquet.
    Parquet(TableKind),
    /// A table as CSV.
    Csv(TableKind),
}

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    /// The JSON writer failed.
    #[error("could not write the file: {0}")]
    Json(#[from] serde_json::Error),
    /// The CSV writer failed.
    #[error("could not write the table: {0}")]
    Csv(#[from] ::csv::Error),
}

impl ExportError {
    /// The I/O error of the output, if that was the cause.
    pub fn of_writing(&self) -> Option<&io::Error> {
        match self {
            Self::Write(error) => Some(error),
            Self::Csv(error) => match error.kind() {
                ::csv::ErrorKind::Io(error) => Some(error),
                _ => None,
            },
            Self::Json(_) => None,
        }
    }

    /// Whether the reader of the output has closed it.
    pub fn is_broken_pipe(&self) -> bool {
        let is_broken = |kind: io::ErrorKind| kind == io::ErrorKind::BrokenPipe;
        self.of_writing().is_some_and(|error| is_broken(error.kind()))
            || matches!(self, Self::Json(error) if error.io_error_kind().is_some_and(is_broken))
    }
}

/// Writes a recording in a format. Returns a note about what was left out, if anything.
pub fn export(trace: &Trace, form: Form, mut to: impl Write) -> Result<Option<String>, ExportError> {
    export_to(trace, form, &mut to)
}

/// Not generic: otherwise every crate that exports would compile all formats again.
fn export_to(trace: &Trace, form: Form, to: &mut dyn Write) -> Result<Option<String>, ExportError> {
    match form {
        Form::Perfetto(by) => perfetto::write(trace, by, to),
        Form::Speedscope(by) => speedscope::write(trace, by, to).map(|()| None),
        Form::Snapshot => Ok(snapshot::write(trace, to).map(|()| None)?),
        Form::Parquet(kind) => parquet::write(trace, kind, to).map(|()| None),
        Form::Csv(kind) => csv::write(trace, kind, to).map(|()| None),
    }
}
