//! The arguments of `makeroom plan`.

use std::path::PathBuf;

use clap::Args;
use makeroom_core::Bytes;

/// Find offsets for buffers with known lifetimes
///
/// Reads a CSV file with the columns id, lower, upper, size and optionally alignment, as MiniMalloc does. A buffer is live
/// from time lower to just before time upper; buffers that are live at the same time must not overlap. Finds offsets that
/// need as little memory as possible or, with --capacity, that fit. Prints the peak, a lower bound for any plan, and the gap
/// between the two; a gap of zero proves that no plan needs less. Every plan is checked before it is written.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom plan buffers.csv                   how much memory is needed?
  makeroom plan buffers.csv -o planned.csv    write the offsets
  makeroom plan --capacity 1MiB buffers.csv   do the buffers fit in 1 MiB?

Exit status: 0 if a plan was found, 1 if none fits or on an error.")]
pub(crate) struct Plan {
    /// CSV file, `-` for standard input [default: standard input]
    #[arg(value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,

    /// Write the buffers and their offsets as CSV
    ///
    /// With `-` for standard output, the summary goes to stderr. If no plan fits the capacity, nothing is written.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Find any plan that fits in SIZE
    ///
    /// Stops at the first plan that fits, or when it is proven that none does.
    #[arg(long, value_name = "SIZE")]
    pub(crate) capacity: Option<Bytes>,

    /// Time limit [default: about 30]
    ///
    /// The default is a fixed number of steps, so that results are the same on every
    /// machine. The first plan is always finished, even past the limit.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    pub(crate) seconds: Option<u64>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A year: longer limits are not limits, and would overflow the clock.
const MOST_SECONDS: u64 = 365 * 24 * 3600;
