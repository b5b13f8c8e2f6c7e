//! The child process that calls NVML, with a timeout.
//!
//! If the driver does not respond within the deadline, the child is killed, which takes effect once the driver
//! releases it. No other child is started until then.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Survey;
use super::read::Answer;
use crate::helper::Helper;

/// How long to wait for a child to exit after its input was closed.
const LONGEST_FAREWELL: Duration = Duration::from_secs(1);
/// Polling interval for that.
const FAREWELL_LOOK: Duration = Duration::from_millis(1);

/// Takes surveys, each with a deadline.
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
    answers: Arc<Mutex<BufReader<ChildStdout>>>,
    helper: Helper,
}

/// A child that is stuck in the driver.
#[derive(Debug)]
struct Stuck {
    child: Child,
    since: Instant,
}

/// Why a survey failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SurveyError {
    /// The library could not be loaded.
    #[error("NVML not found: {0}")]
    NoLibrary(String),
    /// The driver is not loaded.
    #[error("the NVIDIA driver is not loaded")]
    NoDriver,
    /// The library and the loaded driver have different versions.
    #[error("NVML and the loaded driver have different versions")]
    Mismatch,
    /// NVML returned an error.
    #[error("NVML failed: {0}")]
    Refused(String),
    /// The driver did not respond in time.
    #[error("the NVIDIA driver did not respond within {seconds} s{place}")]
    Hangs {
        /// How long it has been stuck.
        seconds: u64,
        /// Where in the kernel the child is blocked.
        place: String,
    },
    /// The child could not be started, or ended early.
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
            Self::Refused(_) => {
                "check whether nvidia-smi reports the same error, and look for NVRM lines in dmesg"
            }
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
    /// A surveyor that starts `command` on first use. The command must call [`answer`](super::answer).
    pub fn new(mut command: Command, deadline: Duration) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Self { command, deadline, running: None, stuck: None }
    }

    /// The PID of the child, which has the driver's files open like any other user of it.
    pub fn process(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.child.id())
    }

    /// Takes one survey.
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
        let answers = Arc::clone(&running.answers);
        let next_line = move || {
            let mut line = String::new();
            answers.lock().unwrap_or_else(PoisonError::into_inner).read_line(&mut line).map(|_| line)
        };
        match running.helper.within(self.deadline, next_line) {
            // The end of its output.
            Some(Ok(line)) if line.is_empty() => Err(ended(running.child)),
            Some(line) => {
                let answer = line.and_then(|line| serde_json::from_str(&line).map_err(io::Error::from));
                self.running = Some(running);
                read(answer.map_err(SurveyError::Asker)?)
            }
            None => {
                let error = hang(&running.child, asked.elapsed());
                // This has no effect while the child is in uninterruptible sleep.
                let _ = running.child.kill();
                self.stuck = Some(Stuck { child: running.child, since: asked });
                Err(error)
            }
        }
    }
}

impl Drop for Surveyor {
    fn drop(&mut self) {
        if let Some(Running { mut child, questions, .. }) = self.running.take() {
            // The child exits at the end of its input, unless it is stuck in the driver.
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
    let answers = Arc::new(Mutex::new(BufReader::new(output)));
    Ok(Running { child, questions, answers, helper: Helper::start("survey")? })
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

/// Waits for a child to exit, and kills it on timeout.
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

/// Why a child has closed its pipes.
fn ended(mut child: Child) -> SurveyError {
    let status = farewell(&mut child, LONGEST_FAREWELL);
    let status = status.map_or("unknown status".to_owned(), |status| status.to_string());
    SurveyError::Asker(io::Error::other(format!("the process that queries NVML exited: {status}")))
}

fn hang(child: &Child, waited: Duration) -> SurveyError {
    let directory = Path::new("/proc").join(child.id().to_string());
    // The name before the parenthesis need not be text.
    let state = std::fs::read(directory.join("stat"))
        .ok()
        .and_then(|line| String::from_utf8_lossy(&line).rsplit_once(')')?.1.trim_start().chars().next());
    let function = std::fs::read_to_string(directory.join("wchan")).unwrap_or_default();
    let place = match (state, function.as_str()) {
        (Some('D'), "" | "0") => ": the process that queries NVML is in uninterruptible sleep".to_owned(),
        (Some('D'), function) => {
            format!(": the process that queries NVML is in uninterruptible sleep in {function}")
        }
        _ => String::new(),
    };
    SurveyError::Hangs { seconds: waited.as_secs().max(1), place }
}
