//! How a command fails: one line that says what and with which value, a hint, exit status 1.

use std::io::ErrorKind;
use std::process::ExitCode;

/// What standard input is called in messages.
pub(crate) const STANDARD_INPUT: &str = "standard input";

/// The exit status for wrong usage, as clap has it.
const WRONG_USAGE: u8 = 2;

/// A command that could not do its work.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The input could not be opened; the error names it.
    #[error("{0}")]
    Open(makeroom_trace::Error),
    /// The input could not be read as anything.
    #[error("{name}: {error}")]
    Input {
        /// The file, as the user named it.
        name: String,
        /// What is wrong with it.
        error: makeroom_trace::Error,
    },
    /// No file was named, and standard input is a terminal.
    #[error("no input: name a file, or pipe a program's output into `makeroom why`")]
    NoInput,
    /// The command has no place for the batch.
    #[error("the command has no {{}} where the batch goes")]
    NoPlaceholder,
    /// The runs cannot be made under this allocator.
    #[error("a program cannot be run under `{allocator}`")]
    NoRunUnder {
        /// The allocator, as it was typed.
        allocator: String,
    },
    /// A run ended badly, and not for want of memory.
    #[error("with {batch} the program ended with {status}{}", if said.is_empty() { String::new() } else { format!("\n\n{said}\n") })]
    ProbeFailed {
        /// What was put into the command.
        batch: u64,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        said: String,
    },
    /// A run took no device memory.
    #[error("{program} took no memory of a GPU{}", seconds.map_or(String::new(), |seconds| format!(" within {seconds} s")))]
    NoCuda {
        /// The program.
        program: String,
        /// How long it was waited for, if it had not ended by itself.
        seconds: Option<u64>,
    },
    /// The user wanted to stop.
    #[error("stopped; the program was ended")]
    Interrupted,
    /// There is no program to run.
    #[error("no program to run")]
    NoProgram,
    /// The recorder could not be put where programs can load it.
    #[error("the recorder could not be set up: {0}")]
    Library(std::io::Error),
    /// The CUDA driver refused, or there is none.
    #[error("{0}")]
    Gpu(#[from] makeroom_cuda::Error),
    /// A demonstration was asked for that there is not.
    #[error("there is no demonstration `{name}`")]
    NoSuchSituation {
        /// The name asked for.
        name: String,
    },
    /// A demonstration left no recording.
    #[error("the demonstration `{name}` left nothing to explain: {said}")]
    NoRecording {
        /// The situation.
        name: &'static str,
        /// What its program said.
        said: String,
    },
    /// The program could not be started.
    #[error("{name}: {error}")]
    Program {
        /// The program, as the user named it.
        name: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// The folder that should hold the processes does not.
    #[error("{}: there are no processes here", folder.display())]
    NoProcesses {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// There is no terminal to draw on.
    #[error("top needs a terminal")]
    NoTerminal,
    /// Nobody could be listened to.
    #[error("{address}: {error}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The page could not be served.
    #[error("{address}: {error}")]
    ListenToView {
        /// Where.
        address: std::net::SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// A report could not be made.
    #[error("{0}")]
    View(makeroom_view::Refusal),
    /// A file could not be written.
    #[error("{name}: {error}")]
    Write {
        /// The file, as the user named it.
        name: String,
        /// What the system said.
        error: std::io::Error,
    },
    /// A result would have taken the place of what it is made of.
    #[error("{name} is the input itself")]
    OverInput {
        /// The file, as the user named it.
        name: String,
    },
    /// A recording could not be exported.
    #[error("{name}: {error}")]
    Export {
        /// Where to, as the user named it.
        name: String,
        /// What went wrong.
        error: makeroom_export::ExportError,
    },
    /// Bytes that are no text would have gone to a terminal.
    #[error("this form is not for a terminal")]
    BinaryToTerminal,
    /// The driver could not be asked.
    #[error("{0}")]
    Driver(makeroom_holders::SurveyError),
    /// The result could not be written.
    #[error("the result could not be written: {0}")]
    Output(std::io::Error),
    /// Something that every program needs could not be had: a process, a pipe, a file of its own.
    #[error("the system refused: {0}")]
    System(#[from] std::io::Error),
    /// No batch is within the bounds.
    #[error("no multiple of {multiple} is at most {most}")]
    NoBatch {
        /// What batches have to be multiples of.
        multiple: u64,
        /// The largest that makes sense.
        most: u64,
    },
    /// A result is too large or odd to be written as JSON.
    #[error("the result could not be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A device was asked for that the input does not have.
    #[error("{name}: holds no device {asked}; it has {present}")]
    NoSuchDevice {
        /// The file, as the user named it.
        name: String,
        /// The device asked for.
        asked: u32,
        /// The devices there are.
        present: String,
    },
    /// A recording was wanted and a text came.
    #[error("{name}: this is a text, not a recording")]
    NotARecording {
        /// The file, as the user named it.
        name: String,
    },
    /// A program named something else as its recording.
    #[error("{name}: this is not a plain file, so it is not read")]
    NotAPlainFile {
        /// The file, as the program named it.
        name: String,
    },
    /// The recording holds no device.
    #[error("{name}: the recording is empty")]
    EmptyRecording {
        /// The file, as the user named it.
        name: String,
    },
    /// PyTorch's allocator was asked about, and the recording has none.
    #[error("{name}: {error}")]
    NoPytorch {
        /// The file, as the user named it.
        name: String,
        /// What the recording is instead.
        error: makeroom_sim::NoPytorch,
    },
    /// The model of the allocator and the recording disagree.
    #[error("{count} predictions differ from the recording")]
    Mismatched {
        /// How many.
        count: usize,
    },
}

impl Failure {
    /// The input of this name could not be read.
    pub(crate) fn input(name: &str, error: makeroom_trace::Error) -> Self {
        match error {
            makeroom_trace::Error::Open { .. } | makeroom_trace::Error::Directory { .. } => Self::Open(error),
            error => Self::Input { name: name.to_owned(), error },
        }
    }

    /// Prints the failure to stderr and gives the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        if let Self::Output(error) = self
            && error.kind() == ErrorKind::BrokenPipe
        {
            // The reader has seen enough (`makeroom why … | head`).
            return ExitCode::SUCCESS;
        }
        crate::output::error(&self.to_string(), self.hint().as_deref());
        match self {
            Self::NoInput => ExitCode::from(WRONG_USAGE),
            _ => ExitCode::FAILURE,
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Input { error, .. } | Self::Open(error) => error.hint(),
            Self::NoInput => Some("for example: python train.py 2>&1 | makeroom why".to_owned()),
            Self::NoProcesses { .. } => {
                Some("name the folder where /proc, or the host's, is mounted: --proc /host/proc".to_owned())
            }
            Self::NoPlaceholder => Some("for example: makeroom fit -- python train.py --batch {}".to_owned()),
            Self::NoRunUnder { .. } => Some(
                "there are pytorch[:SETTINGS], pytorch-2.9[:SETTINGS], cuda-async and makeroom; to predict others: makeroom replay"
                    .to_owned(),
            ),
            Self::ProbeFailed { .. } => Some(
                "run the command by itself first; it gets no input and no terminal here".to_owned(),
            ),
            Self::NoCuda { seconds: Some(_), .. } => Some("to wait for longer: --seconds 600".to_owned()),
            Self::NoCuda { .. } => Some("to see whether the recorder reaches it: makeroom run -- and the command".to_owned()),
            Self::NoTerminal => Some("for a program or a file: makeroom ps --json".to_owned()),
            Self::Listen { .. } => Some("another address: makeroom serve --listen 127.0.0.1:9402".to_owned()),
            Self::ListenToView { .. } => Some("leave --port out to have a free one chosen".to_owned()),
            Self::BinaryToTerminal => Some("name a file with -o FILE, or pass it on with a pipe".to_owned()),
            Self::OverInput { .. } => Some("name another file with -o".to_owned()),
            Self::View(refusal) => Some(refusal.hint.clone()),
            Self::Driver(error) => Some(error.hint().to_owned()),
            Self::Gpu(error) => error.hint().map(str::to_owned),
            Self::NoSuchSituation { .. } => Some("makeroom demo --list".to_owned()),
            Self::NotARecording { name } if name == STANDARD_INPUT => {
                Some("to explain an error text: makeroom why -".to_owned())
            }
            Self::NotARecording { name } => Some(format!("to explain an error text: makeroom why {name}")),
            Self::NoSuchDevice { .. } => Some("leave --device out to have one chosen".to_owned()),
            Self::EmptyRecording { .. } => Some(
                "a program that took no memory leaves such a file; what else it holds: makeroom why FILE".to_owned(),
            ),
            Self::NoPytorch { name, .. } => {
                let name = if name == STANDARD_INPUT { "-" } else { name };
                Some(format!(
                    "its requests under other allocators: makeroom replay {name}; the program with makeroom's pool: makeroom run --pool -- PROGRAM"
                ))
            }
            Self::NoBatch { .. } => Some("a larger --max, or a smaller --multiple".to_owned()),
            Self::Program { error, .. } => Some(
                match error.kind() {
                    ErrorKind::NotFound => "check the name; a program that is not on the PATH needs its folder: ./program",
                    ErrorKind::PermissionDenied => {
                        "it may not be executed; a script runs under its interpreter: makeroom run -- python script.py"
                    }
                    _ => "try to start it without makeroom",
                }
                .to_owned(),
            ),
            Self::Write { .. } | Self::Export { .. } => {
                Some("name another file or folder: -o PATH".to_owned())
            }
            Self::Output(_) => Some("make room where it goes, or send it elsewhere: makeroom … > FILE".to_owned()),
            Self::System(_) => Some(
                "it needs processes, open files and a little room for files of its own: ulimit -a; df -h /tmp".to_owned(),
            ),
            Self::Library(_) => Some(
                "export XDG_RUNTIME_DIR=FOLDER: a folder of your own in which files may be executed".to_owned(),
            ),
            Self::NoProgram => Some("for example: makeroom run -- python train.py".to_owned()),
            Self::NoRecording { .. } => Some("to see whether programs can be recorded here: makeroom doctor".to_owned()),
            Self::Mismatched { .. } => Some(
                "the run was made by another version of PyTorch, under a limit (pass it with --memory), or with a setting that the snapshot does not hold"
                    .to_owned(),
            ),
            // Whoever stopped it knows why; a number or a text that no JSON holds is nobody's to mend.
            Self::Interrupted | Self::Json(_) | Self::NotAPlainFile { .. } => None,
        }
    }
}
