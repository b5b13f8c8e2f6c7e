//! The command line, as clap reads it.

mod devices;
mod seeing;
mod sizes;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use makeroom_core::Bytes;
use makeroom_sim::AllocatorSpec;

pub(crate) use devices::{Collector, Doctor, Looking, Ps, Serve, Top};
pub(crate) use seeing::{Export, ExportForm, ExportTable, View};
use sizes::card_size;

/// Says why CUDA ran out of memory, and makes room.
#[derive(Debug, Parser)]
#[command(name = "makeroom", version, about, max_term_width = 100)]
#[command(
    after_help = "Start with what you have: `makeroom why error.txt`, `makeroom run -- your program`, or `makeroom demo`."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explain why memory ran out, from a log or a recording
    Why(Why),
    /// Run a program and record every byte it takes on the GPU
    Run(Run),
    /// Run a recording under other allocators, exactly
    Replay(Replay),
    /// Find the allocator setting that serves a recording best
    Tune(Tune),
    /// Find the largest batch that fits, from a few short runs
    Fit(Fit),
    /// Show a recording in the browser, or as one file that can be mailed
    View(View),
    /// Write a recording for Perfetto, speedscope or PyTorch's viewer, or as a table
    Export(Export),
    /// Say who holds the memory of each GPU, and why some is held by nobody
    Ps(Ps),
    /// Watch who holds the memory of each GPU
    Top(Top),
    /// Say what can go wrong here before anything runs
    Doctor(Doctor),
    /// Serve who holds what as metrics, for Prometheus and OpenTelemetry
    Serve(Serve),
    /// Ask the driver, for another process of makeroom
    #[command(name = crate::commands::SURVEY, hide = true)]
    Survey,
    /// Run out of GPU memory in nine ways, recorded and explained; no GPU needed
    Demo(Demo),
    /// One of the programs of `demo`
    #[command(hide = true)]
    DemoProgram(DemoProgram),
}

/// Run a program and record every byte it takes on the GPU
///
/// The program runs as it would without makeroom: its output, its signals and its exit status are its own. Each of its
/// processes that uses CUDA writes a recording. When an allocation is refused, the reason is printed at once; at the
/// end, what the program took at its peak and what it never gave back. MAKEROOM=off in the environment turns the
/// recorder off.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom run -- python train.py                       record into makeroom.PID.room
  makeroom run -o run.room -- ./solver --steps 100      record into run.room
  makeroom run --limit 8GiB -- python train.py          as on a card of 8 GiB
  makeroom run --pool -- python train.py                on memory that does not fragment
  makeroom run --pool --spill 32GiB -- python train.py  the same, spilling to host memory when the GPU is full")]
#[allow(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Run {
    /// The file to record into; further processes get their process id into the name
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Write what is said at the end as JSON into this file: a list with an entry for each recording
    #[arg(long, value_name = "FILE")]
    pub(crate) summary: Option<PathBuf>,

    /// Let the program see a smaller card; what goes beyond is refused
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) limit: Option<Bytes>,

    /// Use memory that does not fragment: PyTorch with expandable segments, other programs on makeroom's pool
    #[arg(long)]
    pub(crate) pool: bool,

    /// Spill up to SIZE to host memory when the GPU is full
    #[arg(long, value_name = "SIZE", requires = "pool")]
    pub(crate) spill: Option<Bytes>,

    /// Record no call stacks
    #[arg(long)]
    pub(crate) no_stacks: bool,

    /// Leave the program's arguments out of the recording [default: keep them, with secrets masked]
    #[arg(long)]
    pub(crate) no_command_line: bool,

    /// Show no status line while the program runs
    #[arg(long)]
    pub(crate) no_status: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// Larger numbers are no batches, and the laws that are drawn through them would outgrow what they are computed in.
pub(crate) const MOST_BATCH: u64 = u32::MAX as u64;

/// Find the largest batch that fits, from a few short runs
///
/// Runs the program with two or three small batches, each for a few steps, and reads off how the size of every
/// allocation follows the batch. A run with any other batch is then replayed exactly under the program's allocator. The
/// answer is confirmed by one run. {} stands for the batch; it can be any number that memory grows with. A program gets
/// no input, is ended once it has shown what it needs, and must not mind being started several times.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom fit -- python train.py --batch {}
  makeroom fit --memory 24GiB -- python train.py --batch {}     for another card than this one
  makeroom fit --multiple 8 --max 512 -- ./serve --sequences={}
  makeroom fit --allocator pytorch:expandable_segments:True -- python train.py --batch {}")]
pub(crate) struct Fit {
    /// The memory of the card that it is for; without it the card here
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) memory: Option<Bytes>,

    /// The largest batch that makes sense
    #[arg(long, value_name = "BATCH", value_parser = clap::value_parser!(u64).range(1..=MOST_BATCH))]
    pub(crate) max: Option<u64>,

    /// The first batch to run
    #[arg(long, value_name = "BATCH", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=MOST_BATCH))]
    pub(crate) start: u64,

    /// Only multiples of this
    #[arg(long, value_name = "BATCH", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MOST_BATCH))]
    pub(crate) multiple: u64,

    /// The allocator to run under: `pytorch[:SETTINGS]`, `cuda-async` or `makeroom`; without it the program's own
    #[arg(long, value_name = "NAME", value_parser = makeroom_sim::parse)]
    pub(crate) allocator: Option<AllocatorSpec>,

    /// How much of the card to keep free, in percent; without it 0.5, or 2 where the batch does not decide all sizes, and at
    /// least 64 MiB
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    pub(crate) margin: Option<f64>,

    /// How many runs there may be; two more if the first of them are refused memory
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = runs)]
    pub(crate) runs: usize,

    /// How many steps of a run to see; four times as many where steps differ or no optimizer is seen at work
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = steps)]
    pub(crate) steps: usize,

    /// How long a run may take before it is ended
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) seconds: u64,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The program and its arguments, with {} for the batch
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=50.0).contains(&percent) => Ok(percent),
        _ => Err("it is a number from 0 to 50".to_owned()),
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
        .ok_or_else(|| format!("it is a number of at least {least}"))
}

/// Run out of GPU memory in nine ways, recorded and explained; no GPU needed
///
/// Each situation is a small program that runs in a process of its own, is recorded as `makeroom run` records, and is
/// explained from the recording as `makeroom why` explains. On a real GPU a program gets little of it; without one
/// there is a GPU in software, which comes with makeroom.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom demo                          all of them, a few lines each
  makeroom demo fragmentation            one of them, with the whole explanation
  makeroom demo -o recordings            keep the recordings, for makeroom why and others")]
pub(crate) struct Demo {
    /// The situation; without it all of them
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// List the situations and run none
    #[arg(long, conflicts_with = "name")]
    pub(crate) list: bool,

    /// The GPU to run on; without it a real one if there is one
    #[arg(long, value_name = "WHICH", value_enum)]
    pub(crate) gpu: Option<Gpu>,

    /// Keep the recordings in this folder
    #[arg(short, long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Gpu {
    /// The machine's first one
    Real,
    /// The one that comes with makeroom; it runs no kernels
    Software,
}

/// One of the programs of `demo`
#[derive(Debug, Args)]
pub(crate) struct DemoProgram {
    /// The situation
    pub(crate) name: String,

    /// Be the other process of the situation
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

    /// Size of the GPU; the share of the driver and the CUDA context is deducted
    #[arg(long, value_name = "SIZE", value_parser = card_size)]
    pub(crate) card: Option<Bytes>,

    /// GPU to analyze [default: the one that failed, else the fullest]
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Run a recording under other allocators, exactly
///
/// Shows for each allocator what it reserves at its peak, what it asks of the driver, whether it runs out of
/// memory, and the smallest memory in which the run completes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom replay snapshot.pickle                                 the recorded allocator beside others
  makeroom replay --check snapshot.pickle                         prove the model on the recording
  makeroom replay --card 24GiB --allocator pytorch --allocator cuda-async snapshot.pickle

Allocators:
  pytorch[:SETTINGS]      PyTorch's own, to the byte; SETTINGS as in PYTORCH_CUDA_ALLOC_CONF,
                          e.g. pytorch:expandable_segments:True,roundup_power2_divisions:8
  pytorch-2.9[:SETTINGS]  the same, as of that release
  cuda-async              cudaMallocAsync; an estimate
  bfc, cupy, rmm-pool     JAX and TensorFlow; CuPy; RMM
  makeroom                makeroom's own pool
  planned                 addresses chosen with the future known
  ideal                   the peak of live bytes")]
pub(crate) struct Replay {
    #[command(flatten)]
    pub(crate) recording: Recording,

    /// An allocator to run under; may be given several times
    #[arg(long = "allocator", value_name = "NAME", value_parser = makeroom_sim::parse)]
    pub(crate) allocators: Vec<AllocatorSpec>,

    /// Replay the recording's own allocator and compare every prediction with the recording
    #[arg(long)]
    pub(crate) check: bool,

    /// Do not search for the smallest memory
    #[arg(long)]
    pub(crate) no_smallest: bool,
}

/// Find the allocator setting that serves a recording best
///
/// Runs the recording under every setting of PyTorch's allocator that can matter for it, exactly, and prints the
/// line to paste, what it saves and what it costs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom tune snapshot.pickle                   the setting that reserves least
  makeroom tune --memory 24GiB snapshot.pickle    the setting with which the run fits")]
pub(crate) struct Tune {
    #[command(flatten)]
    pub(crate) recording: Recording,
}

/// Explain why memory ran out, from a log or a recording
///
/// Reads any log with an out-of-memory error in it, of any size; a `.room` recording; a PyTorch memory snapshot; or a log
/// of RMM. Each can be compressed with gzip or zstd. Names one cause with its figures, accounts for the memory, and lists
/// fixes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  python train.py 2>&1 | makeroom why            explain the error in a program's output
  makeroom why error.txt                         explain an error message or a log
  makeroom why rank*.log                         explain several logs
  makeroom why --memory 6GiB snapshot.pickle     explain a run that was limited to 6 GiB
  makeroom why --json snapshot.pickle.gz         print the explanation as JSON

To write a snapshot in PyTorch:
  torch.cuda.memory._record_memory_history(); …; torch.cuda.memory._dump_snapshot('snapshot.pickle')

Exit status: 0 on success, 1 if an input could not be read, 2 on wrong usage.")]
pub(crate) struct Why {
    /// Files to explain, `-` for standard input [default: standard input]
    #[arg(value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) options: RecordingOptions,
}
