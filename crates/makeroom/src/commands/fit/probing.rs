//! One run of the program: started, watched while it records, and stopped once it has shown what it needs.
//!
//! The program runs in a process group of its own, so that all of its processes can be stopped. It gets no input: a
//! program that waits for some has said nothing about memory. What it prints is kept and shown only if it fails.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use makeroom_core::{Action, Bytes, Trace};
use makeroom_explain::{Cause, explain_text};
use makeroom_fit::Probe;
use makeroom_report::FitEnd;
use makeroom_trace::Input;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::run::{library, preload, run_id};
use crate::failure::Failure;
use crate::signals::not_ignored;

/// How often a run is looked at, at first; reading a long recording takes longer, and is done less often.
const INTERVAL: Duration = Duration::from_millis(200);
/// A run is looked at for no more than one part in so many of its time.
const LOOKING_SHARE: u32 = 8;
/// How long a program has to end once it is told to.
const GRACE: Duration = Duration::from_secs(5);
/// So many times the steps are waited for where nothing was seen that ends a step.
const FURTHER: usize = 4;
/// Lines of a program's last words.
const LAST_LINES: usize = 12;
/// And how much of its output is looked at for them.
const LAST_BYTES: usize = 64 << 10;

/// How long a run goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Steps to see.
    pub(crate) steps: usize,
    /// Seconds after which it is stopped in any case.
    pub(crate) seconds: u64,
}

/// What came of a run.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It went through its steps.
    Ran { probe: Box<Probe>, trace: Box<Trace> },
    /// It was refused memory.
    Refused,
}

impl Ended {
    pub(crate) fn steps(&self) -> Option<usize> {
        match self {
            Self::Ran { probe, .. } => Some(probe.cycles.peaks.len()),
            Self::Refused => None,
        }
    }

    pub(crate) fn peak_live(&self) -> Option<Bytes> {
        match self {
            Self::Ran { probe, .. } => Some(Bytes::new(probe.program.peak_live())),
            Self::Refused => None,
        }
    }
}

/// Runs programs with the recorder in them.
pub(crate) struct Probing {
    library: PathBuf,
    folder: Folder,
    variables: Vec<(&'static str, OsString)>,
    limit: Option<Bytes>,
    patience: Patience,
    /// Set when the user wants to stop.
    is_interrupted: Arc<AtomicBool>,
}

impl Probing {
    /// Prepares runs in which the program sees a card of `limit` bytes.
    pub(crate) fn new(
        variables: Vec<(&'static str, OsString)>,
        limit: Option<Bytes>,
        patience: Patience,
    ) -> Result<Self, Failure> {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        for signal in not_ignored(&[SIGINT, SIGTERM, SIGHUP]) {
            signal_hook::flag::register(signal, Arc::clone(&is_interrupted))?;
        }
        Ok(Self {
            library: library::place().map_err(Failure::Library)?,
            folder: Folder::new()?,
            variables,
            limit,
            patience,
            is_interrupted,
        })
    }

    /// Runs a command line that stands for a batch; tells how many steps were seen, and what is live. Gives how it ended,
    /// too.
    pub(crate) fn run(
        &self,
        words: &[OsString],
        batch: u64,
        mut tell: impl FnMut(usize, Bytes),
    ) -> Result<(Ended, FitEnd), Failure> {
        let folder = self.folder.0.join(batch.to_string());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        let log = folder.join("output");
        let mut running = Running::start(self.command(words, &folder, &log)?, &words[0])?;
        let began = Instant::now();
        let (status, end) = loop {
            if let Some(status) = running.0.try_wait()? {
                break (Some(status), FitEnd::ByItself);
            }
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            let looked = Instant::now();
            let is_over = match seen(&folder, batch) {
                Some(Ended::Ran { probe, .. }) => {
                    let live =
                        probe.cycles.peaks.last().copied().unwrap_or_else(|| probe.program.peak_live());
                    tell(probe.cycles.peaks.len(), Bytes::new(live));
                    self.is_enough(&probe)
                }
                Some(Ended::Refused) => true,
                None => false,
            };
            if is_over {
                break (None, FitEnd::Shown);
            }
            if began.elapsed().as_secs() >= self.patience.seconds {
                break (None, FitEnd::OutOfTime);
            }
            wait(&mut running.0, INTERVAL.max(looked.elapsed() * LOOKING_SHARE), &self.is_interrupted)?;
        };
        running.stop();
        let ended = seen(&folder, batch);
        let result = self.judge(ended, status, &log, words, batch);
        let _ = fs::remove_dir_all(&folder);
        result.map(|ended| match ended {
            Ended::Refused => (ended, FitEnd::Refused),
            Ended::Ran { .. } => (ended, end),
        })
    }

    fn command(&self, words: &[OsString], folder: &Path, log: &Path) -> io::Result<Command> {
        let mut command = Command::new(&words[0]);
        let output = File::create(log)?;
        command
            .args(&words[1..])
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("LD_PRELOAD", preload(&self.library))
            .env("MAKEROOM_FILE", folder.join("%p.room"))
            .env("MAKEROOM_RUN_ID", run_id())
            .env_remove("MAKEROOM_SOCKET")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        if let Some(limit) = self.limit {
            command.env("MAKEROOM_LIMIT", limit.get().to_string());
        }
        Ok(command)
    }

    /// Whether a run has shown what it needs: memory has settled, and an optimizer has been at work, or nothing like
    /// one comes. Where steps differ, more of them are seen.
    fn is_enough(&self, probe: &Probe) -> bool {
        let seen = probe.cycles.peaks.len();
        let is_regular = probe.is_optimized && !probe.cycles.vary();
        let wanted = if is_regular { self.patience.steps } else { self.patience.steps * FURTHER };
        seen >= wanted && (probe.cycles.are_settled() || seen >= wanted * 2)
    }

    fn judge(
        &self,
        ended: Option<Ended>,
        status: Option<ExitStatus>,
        log: &Path,
        words: &[OsString],
        batch: u64,
    ) -> Result<Ended, Failure> {
        let failed = status.filter(|status| !status.success());
        match (ended, failed) {
            (Some(Ended::Refused), _) => Ok(Ended::Refused),
            (_, Some(_)) if says_out_of_memory(log) => Ok(Ended::Refused),
            (_, Some(status)) => {
                Err(Failure::ProbeFailed { batch, status: status.to_string(), said: last_words(log) })
            }
            (Some(ran), None) => Ok(ran),
            (None, None) => Err(Failure::NoCuda {
                program: words[0].to_string_lossy().into_owned(),
                seconds: status.is_none().then_some(self.patience.seconds),
            }),
        }
    }
}

/// Waits, but no longer than the program runs.
fn wait(child: &mut Child, time: Duration, is_interrupted: &AtomicBool) -> io::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end && child.try_wait()?.is_none() && !is_interrupted.load(Ordering::Relaxed) {
        thread::sleep(INTERVAL.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// What the recordings of a run say so far: of its processes, the one that holds most.
fn seen(folder: &Path, batch: u64) -> Option<Ended> {
    let mut most: Option<(u64, Box<Probe>, Box<Trace>)> = None;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "room") {
            continue;
        }
        // A file that is not readable yet has nothing to say yet.
        let Ok(Input::Trace(trace)) = makeroom_trace::open(&path) else { continue };
        if is_refused(&trace) {
            return Some(Ended::Refused);
        }
        let Some(device) = trace.device(None) else { continue };
        let probe = Probe::new(batch, &trace, device);
        let peak = probe.program.peak_live();
        if peak > 0 && most.as_ref().is_none_or(|(highest, ..)| peak > *highest) {
            most = Some((peak, Box::new(probe), Box::new(trace)));
        }
    }
    most.map(|(_, probe, trace)| Ended::Ran { probe, trace })
}

/// Whether the program was refused device memory, or a context for want of it.
fn is_refused(trace: &Trace) -> bool {
    let is_without_context =
        trace.process.as_ref().is_some_and(|process| !process.refused_contexts.is_empty());
    let mut devices = trace.devices.iter();
    is_without_context || devices.any(|device| device.events.actions().contains(&Action::OutOfMemory))
}

/// A program that runs; it is stopped when this goes.
struct Running(Child);

impl Running {
    fn start(mut command: Command, name: &std::ffi::OsStr) -> Result<Self, Failure> {
        let child = command.spawn();
        child.map(Self).map_err(|error| Failure::Program { name: name.to_string_lossy().into_owned(), error })
    }

    /// Ends the program and all of its processes: first they are asked, then they are not.
    fn stop(&mut self) {
        let group = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        let Some(group) = group else { return };
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = kill_process_group(group, Signal::TERM);
            let end = Instant::now() + GRACE;
            while Instant::now() < end && matches!(self.0.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(20));
            }
        }
        // What is left of the group, workers that outlived their parent among them.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failure> {
        let folder = library::folder().map_err(Failure::Library)?.join(format!("fit-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The end of what a program printed.
fn end_of(log: &Path) -> String {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES as u64)))?;
        let mut end = Vec::new();
        file.take(LAST_BYTES as u64).read_to_end(&mut end)?;
        Ok(end)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

fn last_words(log: &Path) -> String {
    let end = end_of(log);
    let lines: Vec<&str> = end.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Whether a program says that it died for want of memory: frameworks refuse from their own pools too.
fn says_out_of_memory(log: &Path) -> bool {
    let explanation = explain_text(&end_of(log));
    let is_of_host = explanation.verdict.cause == Cause::HostMemory;
    explanation.request.is_some() && !is_of_host
}
