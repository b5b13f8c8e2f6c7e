//! The arguments of the commands that show recordings elsewhere.

use std::path::PathBuf;

use clap::Args;
use makeroom_core::Bytes;

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
    #[arg(long, value_name = "SIZE", conflicts_with = "card")]
    pub(crate) memory: Option<Bytes>,

    /// The size of a card; what driver and context take is deducted
    #[arg(long, value_name = "SIZE")]
    pub(crate) card: Option<Bytes>,
}
