//! The arguments of the commands that compare runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use makeroom_diff::Allowance;
use makeroom_explain::By;

/// Compare the peak memory of two runs, by kind and by line
///
/// Reads two recordings, snapshots, RMM logs, JAX profiles or baselines of `makeroom gate`, and reports what changed
/// between their peaks: which kinds of memory (parameters, gradients, optimizer state, activations, …) and which lines of code. Runs that differ
/// only in their batch size are recognized. A directory stands for the recording in it with the highest peak.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom diff before.pickle after.pickle
  makeroom diff runs/monday/ runs/tuesday/     the fullest rank of each job
  makeroom diff baseline.json run.room --json

Exit status: 0 on success, 1 if an input could not be read.")]
pub(crate) struct Diff {
    /// The earlier run
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,

    /// The later run
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,

    /// GPU to compare [default: the one that failed, else the fullest]
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// Show all lines that changed
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Fail if a run needs more memory than a baseline allows
///
/// Compares the peak of live memory of a run with a baseline: a small JSON file for version control, or another
/// recording. Prints one line, and exits with status 3 if the allowance is exceeded.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom gate run.room --against memory.json --write       create or update the baseline
  makeroom gate run.room --against memory.json --allow 2%    fail if the peak grew by more than 2 %
  makeroom gate run.room --against memory.json --junit gate.xml --github

Exit status: 0 if within the allowance, 3 if not, 1 if an input could not be read
or if --write is given for a run in which an allocation failed.")]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate option")]
pub(crate) struct Gate {
    /// Recording or snapshot of the run
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,

    /// Baseline, or a recording to compare with
    #[arg(long, value_name = "BASE")]
    pub(crate) against: PathBuf,

    /// How much the peak may grow, as a percentage or a size
    #[arg(long, value_name = "AMOUNT", default_value = "2%")]
    pub(crate) allow: Allowance,

    /// Write the run to BASE instead of comparing
    #[arg(long, conflicts_with_all = ["allow", "junit", "github"])]
    pub(crate) write: bool,

    /// With --write: write the baseline even if an allocation failed in the run
    #[arg(long, requires = "write")]
    pub(crate) force: bool,

    /// Also write a JUnit report to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Print the result as an annotation of a GitHub workflow
    #[arg(long, conflicts_with = "json")]
    pub(crate) github: bool,

    /// GPU to compare [default: the one that failed, else the fullest]
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--by` groups memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Grouping {
    /// Parameters, gradients, optimizer state, activations, …
    Kind,
    /// Lines of code
    Line,
    /// Source files
    Module,
    /// The program's labels and scopes, or else the phases of training
    Stage,
    /// Threads
    Thread,
    /// CUDA streams
    Stream,
    /// Processes
    Process,
}

impl From<Grouping> for By {
    fn from(grouping: Grouping) -> Self {
        match grouping {
            Grouping::Kind => Self::Kind,
            Grouping::Line => Self::Line,
            Grouping::Module => Self::Module,
            Grouping::Stage => Self::Stage,
            Grouping::Thread => Self::Thread,
            Grouping::Stream => Self::Stream,
            Grouping::Process => Self::Process,
        }
    }
}
