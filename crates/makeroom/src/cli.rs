//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use makeroom_core::Bytes;

/// Says why CUDA ran out of memory, and makes room.
#[derive(Debug, Parser)]
#[command(name = "makeroom", version, about, max_term_width = 100)]
#[command(
    after_help = "Start with what you have: `makeroom why error.txt`, or `makeroom why snapshot.pickle`."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say why memory ran out, from an error text or a recording
    Why(Why),
}

/// Say why memory ran out, from an error text or a recording
///
/// Reads any log with an out-of-memory error in it, a PyTorch memory snapshot (plain, gzip or zstd) or a log of
/// RMM. Names one cause with its figures, accounts for the memory, and says what to change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  python train.py 2>&1 | makeroom why -          explain the error in a program's output
  makeroom why error.txt                         explain an error text or a log
  makeroom why --memory 6GiB snapshot.pickle     judge a snapshot against the limit it ran under
  makeroom why --json snapshot.pickle.gz         the same answer for a program

A snapshot is made in PyTorch by
  torch.cuda.memory._record_memory_history(); …; torch.cuda.memory._dump_snapshot('snapshot.pickle')")]
pub(crate) struct Why {
    /// The file to read, or `-` for standard input
    pub(crate) input: PathBuf,

    /// What the allocator was allowed to take, nothing deducted (a snapshot does not say)
    #[arg(long, value_name = "SIZE", conflicts_with = "card")]
    pub(crate) memory: Option<Bytes>,

    /// The size of the card; what driver and context take is deducted
    #[arg(long, value_name = "SIZE")]
    pub(crate) card: Option<Bytes>,

    /// The device to explain; without it the one that failed, or that holds most
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
