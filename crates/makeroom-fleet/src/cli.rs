//! Arguments of the commands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Index recordings, and answer questions about all of them
#[derive(Debug, Parser)]
#[command(name = "makeroom-fleet", bin_name = "makeroom", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// The makeroom command that started this one
    #[arg(long = "command", value_name = "FILE", hide = true)]
    pub(crate) started_by: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Index(Index),
    Fleet(Fleet),
    #[command(hide = true)]
    Job(Job),
}

/// Index the recordings, snapshots and logs in a folder or bucket
///
/// Each object is read once and becomes one small Parquet file in INDEX. Objects that are already indexed are skipped, so
/// the command can be repeated, interrupted, and run in parallel with --shard.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom index s3://bucket/recordings -o index       a bucket; credentials from the environment
  makeroom index /shared/runs -o s3://bucket/index     a folder; the index in a bucket
  makeroom index s3://bucket/recordings -o index --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT
  makeroom index --compact -o index                    merge the files of the index

Exit status: 0 if every object is indexed; 1 if an object could not be fetched or the index could not be written. Objects \
that are not recordings are listed and do not change the status.")]
pub(crate) struct Index {
    /// Folder, file or URL to index: s3://, gs://, az://, http:// or https://
    #[arg(value_name = "SOURCE", required_unless_present = "compact")]
    pub(crate) source: Option<String>,

    /// Folder or URL of the index
    #[arg(long, short, value_name = "INDEX")]
    pub(crate) output: String,

    /// Index only part I of N, from 0 to N - 1
    #[arg(long, value_name = "I/N", value_parser = shard)]
    pub(crate) shard: Option<(u64, u64)>,

    /// Merge the files of the index, after indexing SOURCE if one is given
    #[arg(long)]
    pub(crate) compact: bool,

    /// Objects to read at the same time [default: one per CPU core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show why the jobs of an index ran out of memory, and what that costs
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom fleet index                     all jobs of the index
  makeroom fleet index --since 30d         those that started in the last 30 days
  makeroom fleet index --job 4711          one job
  makeroom fleet index --html fleet.html   the answer as a page")]
pub(crate) struct Fleet {
    /// Folder or URL of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: String,

    /// Only recordings that started since then: 36h, 30d, 8w or 2026-01-31
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// Only this job
    #[arg(long, value_name = "ID")]
    pub(crate) job: Option<String>,

    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write the answer as a page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Show everything, even if it does not fit on one screen
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// Show one job of an index, as `makeroom job` shows recordings
#[derive(Debug, Args)]
pub(crate) struct Job {
    /// Folder or URL of the index
    #[arg(value_name = "INDEX")]
    pub(crate) index: String,

    /// The job
    #[arg(long = "job", value_name = "ID")]
    pub(crate) id: String,

    /// Print the answer as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Show everything, even if it does not fit on one screen
    #[arg(long, short)]
    pub(crate) verbose: bool,
}

/// `3/8`.
fn shard(text: &str) -> Result<(u64, u64), String> {
    let parts = text.split_once('/').and_then(|(part, of)| Some((part.parse().ok()?, of.parse().ok()?)));
    match parts {
        Some((part, of)) if part < of => Ok((part, of)),
        _ => Err("expected I/N with I from 0 to N - 1, for example 0/8".to_owned()),
    }
}
