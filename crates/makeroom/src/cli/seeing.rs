//! The arguments of the commands that show recordings elsewhere.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use makeroom_core::Bytes;

use super::sizes::card_size;

/// Show a recording in the browser, or as one file that can be mailed
///
/// Serves one page on this machine alone: the verdict and the account, live memory over time by site, the address space
/// and the stacks at any moment, and single allocations. Takes what `makeroom why` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom view snapshot.pickle                     open it in the browser
  makeroom view before.pickle after.pickle          two runs side by side
  makeroom view run.room -o report.html             one file that works from disk
  makeroom view --no-browser --port 8080 run.room   on a machine without a browser:
                                                    ssh -L 8080:127.0.0.1:8080 that-machine")]
pub(crate) struct View {
    /// The file to show, or `-` for standard input; and a second one to show beside it
    #[arg(required = true, num_args = 1..=2, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,

    /// Write the page with all it shows into this file, below 10 MB
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Put the comparison with other allocators into the file
    #[arg(long, requires = "output")]
    pub(crate) what_if: bool,

    /// The port to serve on; without it one that is free
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "output")]
    pub(crate) port: u16,

    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// What the allocator may take, nothing deducted
    #[arg(long, value_name = "SIZE", value_parser = card_size, conflicts_with = "card")]
    pub(crate) memory: Option<Bytes>,

    /// The size of a card; what driver and context take is deducted
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) card: Option<Bytes>,
}

/// Write a recording as a file for other programs
///
/// `docs/export.md` says what is in each, column by column.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom export run.room --to perfetto -o run.json          open it at https://ui.perfetto.dev
  makeroom export run.room --to speedscope -o run.speedscope.json
  makeroom export run.room --to snapshot -o run.pickle        for https://pytorch.org/memory_viz
  makeroom export run.room --to parquet -o run.parquet
  makeroom export run.room --to csv --table events | head")]
pub(crate) struct Export {
    /// The recording, or `-` for standard input
    pub(crate) input: PathBuf,

    /// What to write
    #[arg(long, value_name = "FORM", value_enum)]
    pub(crate) to: ExportForm,

    /// Which rows, for parquet and csv
    #[arg(long, value_name = "ROWS", value_enum, default_value_t = ExportTable::Allocations)]
    pub(crate) table: ExportTable,

    /// The file to write; without it, or with `-`, standard output
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// What `export` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportForm {
    /// Counters and slices over time, for ui.perfetto.dev
    Perfetto,
    /// Live memory by stack, for speedscope.app
    Speedscope,
    /// A memory snapshot, for PyTorch's own viewer
    Snapshot,
    /// A table for databases and data frames
    Parquet,
    /// A table as text
    Csv,
}

/// Which rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportTable {
    /// One row for each allocation
    Allocations,
    /// One row for each event
    Events,
}
