//! How a command fails: one line with the failure and the value, a hint, and exit status 1.

use std::io::ErrorKind;
use std::process::ExitCode;

use crate::commands::Kind;

/// The name of standard input in messages.
pub(crate) const STANDARD_INPUT: &str = "standard input";

/// The hint where the system refused a process or a file.
const CHECK_LIMITS: &str =
    "check the limits on processes and open files and the space for temporary files: ulimit -a; df -h /tmp";
/// The hint where the recorder cannot be placed.
const USE_OTHER_DIRECTORY: &str =
    "export XDG_RUNTIME_DIR=DIR, with a directory that you own and that is not mounted noexec";

/// The exit status for wrong usage, the same as clap's.
const WRONG_USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The input could not be opened; the error names it.
    #[error("{0}")]
    Open(makeroom_trace::Error),
    /// The input could not be parsed.
    #[error("{name}: {error}")]
    Input {
        /// The file, as the user named it.
        name: String,
        /// What is wrong with it.
        error: makeroom_trace::Error,
    },
    /// The files are unrelated.
    #[error("none of the {count} files identifies its rank, so they cannot be explained as one job")]
    NotOneJob {
        /// Number of files.
        count: usize,
        /// The first of them.
        first: String,
    },
    /// No file of a job could be read.
    #[error("{name}: no recording, snapshot or log{}", first.as_ref().map_or(String::new(), |first| format!(" could be read; the first of {files}: {first}")))]
    NoRecordings {
        /// The first path, as the user named it.
        name: String,
        /// Whether it is the directory of a `makeroom env`.
        is_recorded: bool,
        /// Number of files that could not be read.
        files: usize,
        /// The first of them, and why.
        first: Option<String>,
    },
    /// A directory has logs, but a comparison needs recordings.
    #[error("{name}: contains only logs, which do not show how much memory each line of code holds")]
    OnlyLogs {
        /// The directory, as the user named it.
        name: String,
    },
    /// No file was named, and standard input is a terminal.
    #[error("no input: pass a file, or pipe a program's output into `makeroom why`")]
    NoInput,
    /// No file of buffers was named, and standard input is a terminal.
    #[error("no input: pass a CSV file, or pipe one into `makeroom plan`")]
    NoBuffers,
    /// The plan and the JSON would both be on stdout.
    #[error("--json and -o - both write to standard output")]
    TwoOutputs,
    /// A file of buffers could not be parsed.
    #[error("{name}: {error}")]
    Csv {
        /// The file, as the user named it.
        name: String,
        /// What is wrong with it.
        error: makeroom_plan::csv::CsvError,
    },
    /// The buffers cannot be planned.
    #[error("{name}: {error}")]
    Buffers {
        /// The file, as the user named it.
        name: String,
        /// What is wrong with them.
        error: makeroom_plan::ProblemError,
    },
    /// A plan did not pass its check: a bug in the planner.
    #[error("the plan is invalid: {0}")]
    InvalidPlan(makeroom_plan::Violation),
    /// The command line has no placeholder for the batch size.
    #[error("the command has no {{}} for the batch size")]
    NoPlaceholder,
    /// Programs cannot be run under this allocator.
    #[error("cannot run a program with the allocator `{allocator}`")]
    NoRunUnder {
        /// The allocator, as it was typed.
        allocator: String,
    },
    /// A run failed, and not because of memory.
    #[error("with batch size {batch}, the program ended with {status}{}", if said.is_empty() { String::new() } else { format!("\n\n{said}\n") })]
    ProbeFailed {
        /// The batch size of the run.
        batch: u64,
        /// Its exit status.
        status: String,
        /// The end of its output.
        said: String,
    },
    /// A run allocated no GPU memory.
    #[error("{program} allocated no GPU memory{}", seconds.map_or(String::new(), |seconds| format!(" within {seconds} s")))]
    NoCuda {
        /// The program.
        program: String,
        /// The time limit, if the program had not ended before it.
        seconds: Option<u64>,
    },
    /// The user interrupted the command.
    #[error("interrupted; the program was stopped")]
    Interrupted,
    /// There is no program to run.
    #[error("no program to run")]
    NoProgram,
    /// The recorder could not be installed.
    #[error("could not install the recorder: {0}")]
    Library(std::io::Error),
    /// A CUDA call failed, or there is no driver.
    #[error("{0}")]
    Gpu(#[from] makeroom_cuda::Error),
    /// The named demonstration does not exist.
    #[error("unknown demonstration `{name}`")]
    NoSuchSituation {
        /// The requested name.
        name: String,
    },
    /// A demonstration left no recording.
    #[error("the demonstration `{name}` wrote no recording: {said}")]
    NoRecording {
        /// The situation.
        name: &'static str,
        /// The program's output.
        said: String,
    },
    /// The program could not be started.
    #[error("{name}: {error}")]
    Program {
        /// The program, as the user named it.
        name: String,
        /// The error from the system.
        error: std::io::Error,
    },
    /// The `--proc` directory is not a process file system.
    #[error("{} is not a /proc file system", folder.display())]
    NoProcesses {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// There is no terminal to draw on.
    #[error("top needs a terminal")]
    NoTerminal,
    /// The metrics server could not listen.
    #[error("{address}: {error}")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The error from the system.
        error: std::io::Error,
    },
    /// The web configuration cannot be used.
    #[cfg(feature = "tls")]
    #[error("{name}: {problem}")]
    WebConfig {
        /// The file.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// This build cannot encrypt or authenticate.
    #[cfg(not(feature = "tls"))]
    #[error("this build of makeroom has no TLS and no authentication")]
    NoTls,
    /// The page could not be served.
    #[error("{address}: {error}")]
    ListenToView {
        /// The address.
        address: std::net::SocketAddr,
        /// The error from the system.
        error: std::io::Error,
    },
    /// A report could not be created.
    #[error("{0}")]
    View(makeroom_view::Refusal),
    /// A baseline cannot be used.
    #[error("{name}: this is not a baseline: {problem}")]
    Baseline {
        /// The file, as the user named it.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A baseline would be that of a run in which an allocation failed.
    #[error(
        "{name}: an allocation failed in this run, so the recorded peak is too low; no baseline was written"
    )]
    IncompletePeak {
        /// The run, as messages name it.
        name: String,
    },
    /// A file could not be read.
    #[error("{name}: {error}")]
    Read {
        /// The file, as the user named it.
        name: String,
        /// The error from the system.
        error: std::io::Error,
    },
    /// A file could not be written.
    #[error("{name}: {error}")]
    Write {
        /// The file, as the user named it.
        name: String,
        /// The error from the system.
        error: std::io::Error,
    },
    /// A program that implements a command is not installed.
    #[error("{name} is not installed")]
    NoCompanion {
        /// Its name.
        name: &'static str,
    },
    /// It is installed and could not be started.
    #[error("{name} could not be started: {error}")]
    Companion {
        /// Its name.
        name: &'static str,
        /// The system's reason.
        error: std::io::Error,
    },
    /// A failure with a hint for the command that failed.
    #[error("{failure}")]
    Hinted {
        /// The failure.
        failure: Box<Self>,
        /// The hint, instead of the failure's own.
        hint: String,
    },
    /// The recording or the summary would overwrite the program or one of its files.
    #[error("{name} is the program or one of its files: it would be overwritten")]
    OverProgram {
        /// The file, as the user named it.
        name: String,
    },
    /// The result would overwrite another kind of file.
    #[error("{name} exists and is not {}", kind.name())]
    NotReplaced {
        /// The file, as the user named it.
        name: String,
        /// What would be written.
        kind: Kind,
    },
    /// A process reported a file that is not a recording of this run.
    #[error("{name} is not a recording of this run")]
    OfAnotherRun {
        /// The file.
        name: String,
    },
    /// The output would overwrite the input.
    #[error("{name} is the input: it would be overwritten")]
    OverInput {
        /// The file, as the user named it.
        name: String,
    },
    /// A recording could not be exported.
    #[error("{name}: {error}")]
    Export {
        /// The output, as the user named it.
        name: String,
        /// What went wrong.
        error: makeroom_export::ExportError,
    },
    /// Binary output would have gone to a terminal.
    #[error("this format is binary and cannot be written to a terminal")]
    BinaryToTerminal,
    /// `export --by` with a format that has no groups.
    #[error("this format has no groups")]
    NoGroups,
    /// The driver could not be queried.
    #[error("{0}")]
    Driver(makeroom_holders::SurveyError),
    /// Writing to stdout failed.
    #[error("could not write the result: {0}")]
    Output(std::io::Error),
    /// A process, a pipe or a temporary file could not be created.
    #[error("a system call failed: {0}")]
    System(#[from] std::io::Error),
    /// No batch size is within the bounds.
    #[error("no multiple of {multiple} is at most {most}")]
    NoBatch {
        /// Batch sizes must be multiples of this.
        multiple: u64,
        /// The largest batch size.
        most: u64,
    },
    /// A value cannot be represented as JSON.
    #[error("could not write the result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The input does not have this device.
    #[error("{name} has no device {asked}, only {present}")]
    NoSuchDevice {
        /// The file, as the user named it.
        name: String,
        /// The requested device.
        asked: u32,
        /// The devices in the input.
        present: String,
    },
    /// The input is text, and the command needs a recording.
    #[error("{name}: this is text, not a recording")]
    NotARecording {
        /// The file, as the user named it.
        name: String,
    },
    /// The recording contains no device.
    #[error("{name}: the recording is empty")]
    EmptyRecording {
        /// The file, as the user named it.
        name: String,
    },
    /// The command needs PyTorch's allocator, and the recording does not contain it.
    #[error("{name}: {error}")]
    NoPytorch {
        /// The file, as the user named it.
        name: String,
        /// What the recording is instead.
        error: makeroom_sim::NoPytorch,
    },
    /// The recording lacks what the model of the allocator is compared with.
    #[error("cannot check: the recording lacks segment events")]
    Unchecked,
    /// The simulation and the recording differ.
    #[error("{count} predictions differ from the recording")]
    Mismatched {
        /// Number of differences.
        count: usize,
    },
}

impl Failure {
    /// An input could not be read; `name` is as the user gave it.
    pub(crate) fn input(name: &str, error: makeroom_trace::Error) -> Self {
        match error {
            makeroom_trace::Error::Open { .. } | makeroom_trace::Error::Directory { .. } => Self::Open(error),
            error => Self::Input { name: name.to_owned(), error },
        }
    }

    /// The same failure with another hint.
    pub(crate) fn with_hint(self, hint: String) -> Self {
        Self::Hinted { failure: Box::new(self), hint }
    }

    /// Prints the failure to stderr and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if let Self::Output(error) = self
            && error.kind() == ErrorKind::BrokenPipe
        {
            // The reader has seen enough (`makeroom why … | head`).
            return ExitCode::SUCCESS;
        }
        crate::output::error(&self.to_string(), self.hint().as_deref());
        match self {
            Self::NoInput | Self::NoBuffers | Self::TwoOutputs => ExitCode::from(WRONG_USAGE),
            _ => ExitCode::FAILURE,
        }
    }

    /// The hint.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Input { error, .. } | Self::Open(error) => error.hint(),
            Self::Hinted { hint, .. } => Some(hint.clone()),
            Self::NoRecordings { is_recorded, .. } => Some(no_recordings(*is_recorded).to_owned()),
            Self::NotOneJob { first, .. } => Some(format!(
                "explain one of them: makeroom why {first}; ranks are recognized by their launcher's variables, or by names such as rank0.log"
            )),
            Self::OnlyLogs { name } => Some(only_logs(name)),
            Self::NoInput => Some("for example: python train.py 2>&1 | makeroom why".to_owned()),
            Self::NoBuffers => Some("for example: makeroom plan buffers.csv".to_owned()),
            Self::TwoOutputs => Some("the JSON contains the offsets: omit -o -".to_owned()),
            Self::Csv { error, .. } => error.hint().map(str::to_owned),
            Self::Buffers { .. } => Some("use a larger unit for sizes, such as KiB instead of bytes".to_owned()),
            Self::InvalidPlan(_) => Some("nothing was written; please report this bug with the input".to_owned()),
            Self::NoProcesses { .. } => {
                Some("pass the directory where the host's /proc is mounted: --proc /host/proc".to_owned())
            }
            Self::NoPlaceholder => Some("for example: makeroom fit -- python train.py --batch {}".to_owned()),
            Self::NoRunUnder { .. } => Some(
                "use pytorch[:SETTINGS], pytorch-2.9[:SETTINGS], cuda-async or makeroom; to predict others: makeroom replay"
                    .to_owned(),
            ),
            Self::ProbeFailed { .. } => Some(
                "check that the command works without makeroom; `makeroom fit` runs it without standard input or a terminal".to_owned(),
            ),
            Self::NoCuda { seconds: Some(_), .. } => Some("to wait longer: --seconds 600".to_owned()),
            Self::NoCuda { .. } => Some("to check that the recorder works with it: makeroom run -- COMMAND".to_owned()),
            Self::NoTerminal => Some("for scripts and files: makeroom ps --json".to_owned()),
            Self::Listen { .. } => Some("try another address: makeroom serve --listen 127.0.0.1:9402".to_owned()),
            #[cfg(not(feature = "tls"))]
            Self::NoTls => Some("build it with: cargo install --path crates/makeroom --features tls".to_owned()),
            #[cfg(feature = "tls")]
            Self::WebConfig { .. } => Some(
                "makeroom reads tls_server_config (cert_file, key_file) and basic_auth_users (name: bcrypt hash)".to_owned(),
            ),
            Self::ListenToView { .. } => Some("omit --port to use a free one".to_owned()),
            Self::BinaryToTerminal => Some("write to a file with -o FILE, or to a pipe".to_owned()),
            Self::NoGroups => Some(
                "use --by with perfetto or speedscope; the table of allocations has columns for kind, module, stage and thread"
                    .to_owned(),
            ),
            Self::OverInput { .. } => Some("write to another file with -o".to_owned()),
            Self::OverProgram { .. } => Some("write to another file with -o or --summary".to_owned()),
            Self::NotReplaced { kind: Kind::ManPage, .. } => {
                Some("write to another directory, or remove this file first".to_owned())
            }
            Self::NotReplaced { .. } => Some("write to another file, or remove this one first".to_owned()),
            Self::View(refusal) => Some(refusal.hint.clone()),
            Self::Driver(error) => Some(error.hint().to_owned()),
            Self::Gpu(error) => error.hint().map(str::to_owned),
            Self::NoSuchSituation { .. } => Some("makeroom demo --list".to_owned()),
            Self::NotARecording { name } if name == STANDARD_INPUT => {
                Some("to explain an error message: makeroom why -".to_owned())
            }
            Self::NotARecording { name } => Some(format!("to explain an error message: makeroom why {name}")),
            Self::NoSuchDevice { .. } => Some("omit --device to have makeroom choose".to_owned()),
            Self::EmptyRecording { .. } => Some(
                "this happens when a program allocates no GPU memory; to see what else the file contains: makeroom why FILE".to_owned(),
            ),
            Self::NoPytorch { name, .. } => {
                let name = if name == STANDARD_INPUT { "-" } else { name };
                Some(format!(
                    "to replay it with other allocators: makeroom replay {name}; to run the program with makeroom's pool: makeroom run --pool -- PROGRAM"
                ))
            }
            Self::NoBatch { .. } => Some("use a larger --max or a smaller --multiple".to_owned()),
            Self::Program { error, .. } => Some(
                match error.kind() {
                    ErrorKind::NotFound => "check the name; if the program is not on PATH, include its directory: ./program",
                    ErrorKind::PermissionDenied => {
                        "it is not executable; run a script with its interpreter: makeroom run -- python script.py"
                    }
                    _ => "check that it starts without makeroom",
                }
                .to_owned(),
            ),
            Self::Write { .. } | Self::Export { .. } => {
                Some("write to another file or directory: -o PATH".to_owned())
            }
            Self::Output(_) => Some("free space there, or write elsewhere: makeroom … > FILE".to_owned()),
            Self::System(_) => Some(CHECK_LIMITS.to_owned()),
            Self::Library(_) => Some(USE_OTHER_DIRECTORY.to_owned()),
            Self::Baseline { .. } => Some("to create one: makeroom gate RUN --against FILE --write".to_owned()),
            Self::IncompletePeak { .. } => {
                Some("record a run that fits in memory, or write this peak with --force".to_owned())
            }
            Self::Read { .. } => Some("check the path and its permissions".to_owned()),
            Self::NoProgram => Some("for example: makeroom run -- python train.py".to_owned()),
            Self::NoRecording { .. } => Some("to check whether programs can be recorded here: makeroom doctor".to_owned()),
            Self::Unchecked => Some("record the memory history without `skip_actions`".to_owned()),
            Self::Mismatched { .. } => Some(
                "the run may have used a different PyTorch version, a memory limit (pass it with --memory), or a setting that the snapshot does not contain"
                    .to_owned(),
            ),
            // There is nothing to suggest after an interrupt, or for a value that JSON cannot represent.
            Self::Interrupted | Self::Json(_) | Self::OfAnotherRun { .. } | Self::NoCompanion { .. } | Self::Companion { .. } => None,
        }
    }
}

/// What to do about a directory without recordings.
fn no_recordings(is_recorded: bool) -> &'static str {
    if is_recorded {
        "the recorder was set up here, but no recording was left: with `makeroom env --keep failed`, processes that succeed leave none, and programs that do not use CUDA write none"
    } else {
        "files in directories are recognized by their names: .room, .pickle, .pkl, .log, .txt, .out, .err, .csv, .tar, .zip; pass others by name"
    }
}

fn only_logs(name: &str) -> String {
    let name = makeroom_core::shell_word(name);
    format!("to explain the logs: makeroom job {name}; to compare runs, record both: makeroom run -- COMMAND")
}
