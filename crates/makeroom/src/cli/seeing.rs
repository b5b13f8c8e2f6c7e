//! The arguments of the commands that show recordings elsewhere.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use makeroom_core::Bytes;
use makeroom_view::Layers;

use super::comparing::Grouping;
use super::sizes::card_size;

/// View a recording in the browser, or write it as one HTML file
///
/// Shows the verdict, live memory over time by line of code, the address space and call stacks at any moment, and
/// individual allocations. Reads the same recordings and snapshots as `makeroom why`. The page is served on this machine only.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom view snapshot.pickle              open in the browser
  makeroom view before.pickle after.pickle   compare two runs side by side
  makeroom view run.room -o report.html      write one file that works offline

To view a recording on a remote machine, run the first command there and the second one here:
  makeroom view --no-browser --port 8080 run.room
  ssh -L 8080:127.0.0.1:8080 REMOTE")]
pub(crate) struct View {
    /// One or two recordings or snapshots; `-` for standard input
    #[arg(required = true, num_args = 1..=2, value_name = "INPUT")]
    pub(crate) inputs: Vec<PathBuf>,

    /// Write one HTML file, smaller than 10 MB, instead of serving the page
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Include the comparison with other allocators in the file
    #[arg(long, requires = "output")]
    pub(crate) what_if: bool,

    /// Initial grouping of the chart's layers
    ///
    /// You can change it on the served page; in a file written with --output, it is fixed.
    #[arg(long, value_name = "GROUP", default_value = "line", value_parser = layers())]
    pub(crate) by: Layers,

    /// GPU to explain and show first [default: the one that failed, else the fullest]
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// Port to serve on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 0, conflicts_with = "output")]
    pub(crate) port: u16,

    /// Do not open a browser
    #[arg(long)]
    pub(crate) no_browser: bool,

    /// Memory available to the allocator
    #[arg(long, value_name = "SIZE", value_parser = card_size, conflicts_with = "card")]
    pub(crate) memory: Option<Bytes>,

    /// Size of the GPU
    ///
    /// Memory for the driver and the CUDA context is subtracted.
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) card: Option<Bytes>,
}

/// The groups of `view --by`. A recording is of one process.
fn layers() -> impl TypedValueParser<Value = Layers> {
    PossibleValuesParser::new(Layers::all().map(Layers::id).filter(|&id| id != "process"))
        .map(|name| Layers::named(&name).unwrap_or(Layers::Line))
}

/// Explain a job of many ranks: which rank failed, and why
///
/// Reads all recordings, PyTorch snapshots and logs of a job and gives one verdict: which rank caused the failure, and
/// why. Also lists ranks that hold more memory than comparable ranks, ranks that share a GPU by mistake, and ranks that
/// stopped only because another one failed. Ranks, hosts and jobs are recognized from the recordings, or from the names
/// of files and directories.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom job recordings/                    a directory with one file per rank
  makeroom job '/shared/dumps/*.pickle'       snapshots of all ranks
  makeroom job logs/ dumps.tar.gz             logs and an archive
  makeroom job recordings/ -o job.html        also write an HTML page

Exit status: 0 on success, 1 if nothing could be read.")]
pub(crate) struct Job {
    /// Directories, files, patterns and archives (tar, zip) of one job
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// Write an HTML page with one row per rank
    ///
    /// The pages of the most important ranks are written to a directory next to it.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Number of ranks that get their own page
    #[arg(long, value_name = "COUNT", default_value_t = 8, requires = "output")]
    pub(crate) pages: usize,

    /// Compare the live memory of the ranks, grouped by GROUP
    #[arg(long, value_name = "GROUP", value_enum, hide_short_help = true, conflicts_with = "output")]
    pub(crate) by: Option<Grouping>,

    /// Explain this job of an index (see `makeroom index`); PATH is the index
    #[arg(long = "job", value_name = "ID", hide_short_help = true, conflicts_with_all = ["output", "by"])]
    pub(crate) id: Option<String>,

    /// Show everything, even if it does not fit on one screen
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Export a recording to Perfetto, speedscope, Parquet or CSV
///
/// The `snapshot` format is for PyTorch's memory viewer at `pytorch.org/memory_viz`. docs/export.md describes the columns of the tables.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom export run.room --to perfetto -o run.json      for ui.perfetto.dev
  makeroom export run.room --to speedscope -o run.speedscope.json
  makeroom export run.room --to snapshot -o run.pickle    for memory_viz
  makeroom export run.room --to parquet -o run.parquet
  makeroom export run.room --to csv --table events | head")]
pub(crate) struct Export {
    /// Recording or snapshot, or `-` for standard input
    pub(crate) input: PathBuf,

    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) to: ExportForm,

    /// Table to write, for parquet and csv
    #[arg(long, value_name = "TABLE", value_enum, default_value_t = ExportTable::Allocations)]
    pub(crate) table: ExportTable,

    /// Group live memory by GROUP (only perfetto and speedscope)
    ///
    /// Each group becomes a counter in a Perfetto file, or an outermost frame in a speedscope profile. The table of allocations has columns
    /// for kind, module, stage and thread.
    #[arg(long, value_name = "GROUP", value_enum, hide_short_help = true)]
    pub(crate) by: Option<Grouping>,

    /// Output file [default: standard output]
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
    /// A memory snapshot, for PyTorch's viewer
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
