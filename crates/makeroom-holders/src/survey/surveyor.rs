//! The process that asks NVML, and how long it may take.
//!
//! A driver that hangs is waited for no longer than the deadline. The process is then given up: it is told to end,
//! which it does when the driver lets it, and no other is started while it is still there.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::Survey;
use super::read::Answer;

/// How long a process that is asked no more may take to end.
const LONGEST_FAREWELL: Duration = Duration::from_secs(1);
/// How often it is looked whether it has.
const FAREWELL_LOOK: Duration = Duration::from_millis(1);

/// Asks for surveys, each within a deadline.
#[derive(Debug)]
pub struct Surveyor {
    command: Command,
    deadline: Duration,
    running: Option<Running>,
    stuck: Option<Stuck>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    questions: ChildStdin,
    answers: Receiver<io::Result<String>>,
}

/// A process that the driver does not let go.
#[derive(Debug)]
struct Stuck {
    child: Child,
    since: Instant,
}

/// Why there is no survey.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// The library could not be loaded.
    #[error("NVML not found: {0}")]
    NoLibrary(String),
    /// The driver is not loaded.
    #[error("the NVIDIA driver is not loaded")]
    NoDriver,
    /// The library and the loaded driver are of different versions.
    #[error("NVML and the loaded driver have different versions")]
    Mismatch,
    /// The driver refused.
    #[error("NVML failed: {0}")]
    Refused(String),
    /// The driver did not answer in time.
    #[error("the NVIDIA driver did not respond within {seconds} s{place}")]
    Hangs {
        /// How long it was waited for.
        seconds: u64,
        /// Where the asking process waits.
        place: String,
    },
    /// The process that asks could not be started or ended early.
    #[error("could not query NVML: {0}")]
    Asker(io::Error),
}

impl SurveyError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoLibrary(_) => {
                "install the NVIDIA driver; in a container, start it with the NVIDIA runtime (docker run --gpus all) so that libnvidia-ml.so.1 is available"
            }
            Self::NoDriver => "load it (modprobe nvidia); if that fails, look in dmesg for the reason",
            Self::Mismatch => {
                "the driver was updated while the system was running: reboot, or stop every process that uses a GPU and reload the module (rmmod nvidia_uvm nvidia && modprobe nvidia)"
            }
            Self::Refused(_) => "check whether nvidia-smi reports the same, and look for NVRM lines in dmesg",
            Self::Hangs { .. } => {
                "look for NVRM or Xid lines in dmesg; processes in state D cannot be killed, so reset the GPU or reboot"
            }
            Self::Asker(_) => {
                "check that the makeroom binary is still in place and executable: it starts itself to query NVML"
            }
        }
    }
}

impl Surveyor {
    /// A surveyor that starts `command`, which calls [`answer`](super::answer), when it is first asked.
    pub fn new(mut command: Command, deadline: Duration) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self { command, deadline, running: None, stuck: None }
    }

    /// The processes of this surveyor, which have the driver's files open as all users have.
    pub fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Asks once.
    pub fn take(&mut self) -> Result<Survey, SurveyError> {
        if let Some(stuck) = &mut self.stuck {
            if !matches!(stuck.child.try_wait(), Ok(Some(_))) {
                return Err(hang(&stuck.child, stuck.since.elapsed()));
            }
            self.stuck = None;
        }
        let mut running = match self.running.take() {
            Some(running) => running,
            None => start(&mut self.command).map_err(SurveyError::Asker)?,
        };
        let asked = Instant::now();
        if running.questions.write_all(b"survey\n").is_err() {
            return Err(ended(running.child));
        }
        match running.answers.recv_timeout(self.deadline) {
            Ok(line) => {
                let answer = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::from));
                self.running = Some(running);
                read(answer.map_err(SurveyError::Asker)?)
            }
            Err(RecvTimeoutError::Timeout) => {
                let error = hang(&running.child, asked.elapsed());
                // It may not die of this: in uninterruptible sleep nothing does.
                let _ = running.child.kill();
                self.stuck = Some(Stuck { child: running.child, since: asked });
                Err(error)
            }
            Err(RecvTimeoutError::Disconnected) => Err(ended(running.child)),
        }
    }
}

impl Drop for Surveyor {
    fn drop(&mut self) {
        if let Some(Running { mut child, questions, .. }) = self.running.take() {
            // Without questions it ends by itself, unless the driver does not let it go.
            drop(questions);
            farewell(&mut child, self.deadline);
        }
    }
}

fn start(command: &mut Command) -> io::Result<Running> {
    let mut child = command.spawn()?;
    let (Some(questions), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("the process has no pipes"));
    };
    let (sender, answers) = channel();
    std::thread::Builder::new().name("survey".to_owned()).spawn(move || {
        for line in BufReader::new(output).lines() {
            if sender.send(line).is_err() {
                return;
            }
        }
    })?;
    Ok(Running { child, questions, answers })
}

fn read(answer: Answer) -> Result<Survey, SurveyError> {
    match answer {
        Answer::Survey(survey) => Ok(survey),
        Answer::NoLibrary(error) => Err(SurveyError::NoLibrary(error)),
        Answer::NoDriver => Err(SurveyError::NoDriver),
        Answer::Mismatch => Err(SurveyError::Mismatch),
        Answer::Refused(error) => Err(SurveyError::Refused(error)),
    }
}

/// Waits for a process that is about to end, and tells one to that takes too long.
fn farewell(child: &mut Child, deadline: Duration) -> Option<ExitStatus> {
    let given_up = Instant::now() + deadline.min(LONGEST_FAREWELL);
    while Instant::now() < given_up {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        std::thread::sleep(FAREWELL_LOOK);
    }
    let _ = child.kill();
    None
}

/// Why a process does not answer that has closed its pipes.
fn ended(mut child: Child) -> SurveyError {
    let status = farewell(&mut child, LONGEST_FAREWELL);
    let status = status.map_or("unknown status".to_owned(), |status| status.to_string());
    SurveyError::Asker(io::Error::other(format!("the process that queries NVML ended: {status}")))
}

fn hang(child: &Child, waited: Duration) -> SurveyError {
    let folder = Path::new("/proc").join(child.id().to_string());
    let state = std::fs::read_to_string(folder.join("stat"))
        .ok()
        .and_then(|line| line.rsplit_once(')')?.1.trim_start().chars().next());
    let function = std::fs::read_to_string(folder.join("wchan")).unwrap_or_default();
    let place = match (state, function.as_str()) {
        (Some('D'), "" | "0") => ": the process that queries NVML is in uninterruptible sleep".to_owned(),
        (Some('D'), function) => {
            format!(": the process that queries NVML is in uninterruptible sleep in {function}")
        }
        _ => String::new(),
    };
    SurveyError::Hangs { seconds: waited.as_secs().max(1), place }
}
