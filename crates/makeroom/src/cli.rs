//! The command line, as clap reads it.

mod comparing;
mod devices;
mod environment;
mod planning;
mod seeing;
mod sizes;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use makeroom_core::Bytes;
use makeroom_sim::AllocatorSpec;

pub(crate) use comparing::{Diff, Gate, Grouping};
pub(crate) use devices::{Collector, Doctor, Looking, Ps, Serve, Top};
pub(crate) use environment::{Env, ring_size};
pub(crate) use planning::Plan;
pub(crate) use seeing::{Export, ExportForm, ExportTable, Job, View};
use sizes::card_size;

/// The first screen: without the options and a heading, it fits on a terminal with 24 rows.
const TEMPLATE: &str = "\
{about}
Start with: makeroom why error.txt    or: makeroom run -- python train.py
{subcommands}";

/// Find out why CUDA ran out of memory, and what to change
#[derive(Debug, Parser)]
#[command(name = "makeroom", version, long_version = crate::version::LONG.as_str(), max_term_width = 100, help_template = TEMPLATE)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands. Their help is on the structs: a comment here would replace a command's long description.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Why(Why),
    Job(Job),
    Index(Index),
    Fleet(Fleet),
    Run(Run),
    Env(Env),
    View(View),
    Diff(Diff),
    Gate(Gate),
    Ps(Ps),
    Top(Top),
    Doctor(Doctor),
    Fit(Fit),
    Tune(Tune),
    Replay(Replay),
    Plan(Plan),
    Export(Export),
    Serve(Serve),
    Demo(Demo),
    Mcp(Mcp),
    // Used once, when it is installed: the first screen has no row for it.
    #[command(hide = true)]
    Completions(Completions),
    #[command(hide = true)]
    Man(Man),
    #[command(hide = true)]
    DemoProgram(DemoProgram),
}

/// Run a program and record its GPU memory
///
/// Records every allocation of device and pinned memory, with its call stack. The program runs unchanged, with its own
/// output, signals and exit status. Each process that uses CUDA writes its own recording. If an allocation fails, the
/// cause is printed immediately; at the end, makeroom prints the peak and the memory that was never freed.
///
/// Set MAKEROOM=off in the environment to turn the recorder off.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom run -- python train.py                   record to makeroom.PID.room
  makeroom run -o run.room -- ./solver --steps 100  record to run.room
  makeroom run --limit 8GiB -- python train.py      simulate an 8 GiB GPU
  makeroom run --pool -- python train.py            avoid fragmentation")]
#[allow(clippy::struct_excessive_bools, reason = "each is a separate option")]
pub(crate) struct Run {
    /// Recording file [default: makeroom.PID.room]
    ///
    /// Child processes add their PID to the name.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write the final summary as JSON to FILE
    ///
    /// The summary is a list with one entry per recording.
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,

    /// Also show live memory at the failure or the peak, grouped by GROUP
    #[arg(long, value_name = "GROUP", value_enum, hide_short_help = true)]
    pub(crate) by: Option<Grouping>,

    /// Limit the GPU memory the program can see and use
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) limit: Option<Bytes>,

    /// Avoid fragmentation
    ///
    /// Turns on PyTorch's expandable segments and gives them physical memory only where tensors are (paging); other programs
    /// use makeroom's pool. KIND is paging, the default, or expandable, which turns paging off.
    #[arg(long, value_name = "KIND", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "paging", hide_possible_values = true)]
    pub(crate) pool: Option<PoolKind>,

    /// Spill up to SIZE to host memory when the GPU is full
    #[arg(long, value_name = "SIZE", requires = "pool")]
    pub(crate) spill: Option<Bytes>,

    /// Limit each recording to SIZE
    ///
    /// Drops the oldest events; the live memory stays exact.
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub(crate) ring: Option<Bytes>,

    /// Do not record call stacks
    #[arg(long)]
    pub(crate) no_stacks: bool,

    /// Do not record the program's arguments
    ///
    /// By default, they are recorded with secrets masked.
    #[arg(long, hide_short_help = true)]
    pub(crate) no_command_line: bool,

    /// Do not show the status line
    #[arg(long)]
    pub(crate) no_status: bool,

    /// Program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// The largest batch. Larger numbers are not batch sizes, and the models fitted through them would overflow.
pub(crate) const MOST_BATCH: u64 = u32::MAX as u64;

/// Find the largest batch size that fits
///
/// Runs the program for a few steps with two or three small batch sizes and learns how the size of every allocation
/// depends on the batch. Other batch sizes are then replayed exactly under the program's allocator, and one more run
/// confirms the result. {} in the command is replaced by the batch size; any parameter that increases memory use
/// works.
///
/// The program is started several times, gets no standard input, and is stopped after a few steps.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom fit -- python train.py --batch {}
  makeroom fit --memory 24GiB -- python train.py --batch {}   for a 24 GiB GPU
  makeroom fit --multiple 8 --max 512 -- ./serve --sequences={}
  makeroom fit --allocator makeroom -- python train.py --batch {}")]
pub(crate) struct Fit {
    /// Memory of the target GPU [default: the GPU of this machine]
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) memory: Option<Bytes>,

    /// Largest batch size to consider
    #[arg(long, value_name = "BATCH", value_parser = clap::value_parser!(u64).range(1..=MOST_BATCH))]
    pub(crate) max: Option<u64>,

    /// First batch size to run
    #[arg(long, value_name = "BATCH", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=MOST_BATCH))]
    pub(crate) start: u64,

    /// Consider only multiples of this number
    #[arg(long, value_name = "BATCH", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST_BATCH))]
    pub(crate) multiple: u64,

    /// Allocator to run and predict with [default: the program's own]
    ///
    /// One of `pytorch[:SETTINGS]`, `cuda-async` or `makeroom`.
    #[arg(long, value_name = "NAME", value_parser = makeroom_sim::parse)]
    pub(crate) allocator: Option<AllocatorSpec>,

    /// Memory to keep free, as a percentage of the GPU [default: 0.5 to 2]
    ///
    /// The default depends on the accuracy of the prediction and is at least 64 MiB.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) margin: Option<f64>,

    /// Maximum number of runs
    ///
    /// Up to two more runs are added if the first ones run out of memory.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = runs)]
    pub(crate) runs: usize,

    /// Steps to observe per run
    ///
    /// Observes four times as many if steps differ or no optimizer is found.
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = steps)]
    pub(crate) steps: usize,

    /// Time limit for each run
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) seconds: u64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Program to run, and its arguments, with {} for the batch size
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent),
        _ => Err("expected a number from 0 to 50".to_owned()),
    }
}

fn runs(text: &str) -> Result<usize, String> {
    at_least(text, 2)
}

fn steps(text: &str) -> Result<usize, String> {
    at_least(text, 2)
}

fn at_least(text: &str, least: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| *count >= least)
        .ok_or_else(|| format!("expected a number of at least {least}"))
}

/// Run out of GPU memory in nine ways; no GPU needed
///
/// Runs nine small programs, records each one as `makeroom run` does, and explains it as `makeroom why` does. Without a
/// GPU, they run on a software GPU that ships with makeroom; on a real GPU they use at most 2 GiB.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom demo                  run all nine, with a short verdict for each
  makeroom demo fragmentation    run one, with the full explanation
  makeroom demo -o recordings    keep the recordings")]
pub(crate) struct Demo {
    /// Program to run [default: all]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// List the programs without running them
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,

    /// GPU to use [default: a real one if present]
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(crate) gpu: Option<Gpu>,

    /// Keep the recordings in DIR
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What `--pool` does for PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PoolKind {
    /// Turns on PyTorch's expandable segments
    Expandable,
    /// Also gives them physical memory only where tensors are
    Paging,
}

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Gpu {
    /// The first GPU of this machine
    Real,
    /// The software GPU; it runs no kernels
    Software,
}

/// Run one program of `demo` in this process
#[derive(Debug, Args)]
pub(crate) struct DemoProgram {
    /// Name of the program
    pub(crate) name: String,

    /// Run its second process
    #[arg(long)]
    pub(crate) other: bool,
}

/// A recording to read.
#[derive(Debug, Args)]
pub(crate) struct Recording {
    /// File to read, or `-` for standard input
    #[arg(value_name = "FILE")]
    pub(crate) input: PathBuf,

    #[command(flatten)]
    pub(crate) options: RecordingOptions,
}

/// The options of every command that takes recordings.
#[derive(Debug, Args)]
pub(crate) struct RecordingOptions {
    /// Memory available to the allocator
    #[arg(long, value_name = "SIZE", value_parser = card_size, conflicts_with = "card")]
    pub(crate) memory: Option<Bytes>,

    /// Size of the GPU
    ///
    /// Memory for the driver and the CUDA context is subtracted.
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) card: Option<Bytes>,

    /// GPU to analyze [default: the one that failed, else the fullest]
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Replay a recording under other allocators
///
/// For each allocator, prints the peak reserved memory, the number of driver calls and their time, whether it runs out
/// of memory, and the least memory the run needs. PyTorch's allocator is simulated exactly; `--check` verifies this on
/// your recording.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom replay snapshot.pickle            compare the common allocators
  makeroom replay --check snapshot.pickle    verify the simulation
  makeroom replay --card 24GiB --allocator pytorch --allocator bfc run.pickle

Allocators:
  pytorch[:SETTINGS]      PyTorch's allocator; SETTINGS as in its environment
                          variable: pytorch:expandable_segments:True
  pytorch-2.9[:SETTINGS]  PyTorch's allocator as of release 2.9
  cuda-async              cudaMallocAsync (an estimate)
  bfc, cupy, rmm-pool     JAX and TensorFlow; CuPy; RMM
  makeroom                makeroom's pool
  planned                 an offline plan that knows all lifetimes
  ideal                   the peak of live memory")]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) recording: Recording,

    /// Allocator to simulate; can be repeated
    #[arg(long = "allocator", value_name = "NAME", value_parser = makeroom_sim::parse)]
    pub(crate) allocators: Vec<AllocatorSpec>,

    /// Simulate the recorded allocator and compare every address and driver call with the recording
    #[arg(long)]
    pub(crate) check: bool,

    /// Skip the search for the minimum memory
    #[arg(long)]
    pub(crate) no_smallest: bool,
}

/// Find the best PyTorch allocator settings for a recording
///
/// Replays the recording under every setting of PyTorch's allocator that could make a difference. Prints the setting
/// to use, the memory it saves and the driver time it costs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom tune snapshot.pickle                   reserve the least memory
  makeroom tune --memory 24GiB snapshot.pickle    fit in 24 GiB")]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) recording: Recording,
}

/// Explain why memory ran out, from a log, a snapshot or a recording
///
/// Reads a log of any size that contains an out-of-memory error, a `.room` recording, a PyTorch memory snapshot or an RMM
/// log. Each can be compressed with gzip or zstd. Names one cause with its figures, accounts for the memory, and lists
/// fixes.
///
/// To write a snapshot in PyTorch, call `torch.cuda.memory._record_memory_history()` at the start and
/// `torch.cuda.memory._dump_snapshot('snapshot.pickle')` at the end.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  python train.py 2>&1 | makeroom why         explain a program's output
  makeroom why error.txt                      explain an error message or a log
  makeroom why rank*.log                      explain the ranks of one job
  makeroom why --memory 6GiB snapshot.pickle  a run that was limited to 6 GiB

Exit status: 0 on success, 1 if an input could not be read.")]
pub(crate) struct Why {
    /// Files to explain, `-` for standard input [default: standard input]
    ///
    /// A directory, or the files of several ranks, is explained as one job: see `makeroom job`.
    #[arg(value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,

    /// Show everything, even if it does not fit on one screen
    #[arg(long, short)]
    pub(crate) verbose: bool,

    /// Show live memory at the failure or the peak, grouped by GROUP
    #[arg(long, value_name = "GROUP", value_enum, hide_short_help = true)]
    pub(crate) by: Option<Grouping>,

    #[command(flatten)]
    pub(crate) options: RecordingOptions,
}

/// Run an MCP server that lets AI assistants use makeroom
///
/// Starts makeroom-mcp, which is installed separately: cargo install --path crates/makeroom-mcp
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Mcp {
    /// Directories the server may read, and other arguments of makeroom-mcp
    #[arg(value_name = "DIR", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Index the recordings in a folder or bucket, for `makeroom fleet`
///
/// Starts makeroom-fleet, which is installed separately: cargo install --path crates/makeroom-fleet
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Index {
    /// Folder or URL to index, and other arguments of makeroom-fleet
    #[arg(value_name = "SOURCE", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Show why the jobs of an index ran out of memory, and what that costs
///
/// Starts makeroom-fleet, which is installed separately: cargo install --path crates/makeroom-fleet
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Fleet {
    /// Folder or URL of the index, and other arguments of makeroom-fleet
    #[arg(value_name = "INDEX", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}

/// Print a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom completions bash > ~/.local/share/bash-completion/completions/makeroom
  makeroom completions zsh > ~/.zfunc/_makeroom
  makeroom completions fish > ~/.config/fish/completions/makeroom.fish")]
pub(crate) struct Completions {
    /// Shell to print the script for
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Write the man pages to a directory
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Directory to write to; created if missing
    pub(crate) directory: PathBuf,
}
