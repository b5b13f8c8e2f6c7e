//! One run of the program: starts it, watches its recordings, and stops it after enough steps.
//!
//! The program gets its own process group, so that all of its processes can be stopped, and no standard input,
//! because a run that waits for input tells nothing about memory. Its output goes to a file and is shown only if it
//! fails.

use std::cmp::Reverse;
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

use makeroom_core::{Bytes, Trace};
use makeroom_fit::Probe;
use makeroom_report::{FitEnd, FitRank};
use makeroom_trace::Input;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::course::{Course, Timeout, Watch, is_stuck};
use super::words::{last_words, says_out_of_memory};
use crate::commands::run::{library, preload, run_id};
use crate::failure::Failure;
use crate::signals::not_ignored;

/// Minimum time between looks at a run's recordings.
const INTERVAL: Duration = Duration::from_millis(200);
/// Pause this many times as long as a look took, so that reading long recordings takes at most 1/9 of the time.
const LOOKING_SHARE: u32 = 8;
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// The result of a run.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It completed its steps.
    Ran { probe: Box<Probe>, trace: Box<Trace> },
    /// It ran out of memory.
    Refused(Option<Box<Probe>>),
}

impl Ended {
    pub(crate) fn steps(&self) -> Option<usize> {
        match self {
            Self::Ran { probe, .. } => Some(probe.cycles.peaks.len()),
            Self::Refused(_) => None,
        }
    }

    pub(crate) fn peak_live(&self) -> Option<Bytes> {
        match self {
            Self::Ran { probe, .. } => Some(Bytes::new(probe.program.peak_live())),
            Self::Refused(_) => None,
        }
    }

    fn probe(self) -> Option<Box<Probe>> {
        match self {
            Self::Ran { probe, .. } => Some(probe),
            Self::Refused(probe) => probe,
        }
    }

    /// Failed allocations after which the run continued.
    pub(crate) fn refusals(&self) -> u64 {
        match self {
            Self::Ran { probe, trace } => {
                let again = trace.process.as_ref().map_or(0, |process| process.refused_then_served);
                probe.refusals as u64 + again
            }
            Self::Refused(_) => 0,
        }
    }
}

/// Runs programs under the recorder.
pub(crate) struct Probing {
    library: PathBuf,
    folder: Folder,
    variables: Vec<(&'static str, OsString)>,
    limit: Option<Bytes>,
    timeout: Timeout,
    /// Set by SIGINT, SIGTERM or SIGHUP.
    is_interrupted: Arc<AtomicBool>,
}

impl Probing {
    /// Prepares runs in which the program sees a GPU of `limit` bytes.
    pub(crate) fn new(
        variables: Vec<(&'static str, OsString)>,
        limit: Option<Bytes>,
        timeout: Timeout,
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
            timeout,
            is_interrupted,
        })
    }

    /// Runs the command line for one batch size. Calls `tell` with the number of completed steps and the live memory
    /// while it runs. Returns the result, how the run ended, and its ranks.
    pub(crate) fn run(
        &self,
        words: &[OsString],
        batch: u64,
        mut tell: impl FnMut(usize, Bytes),
    ) -> Result<(Ended, FitEnd, Vec<FitRank>), Failure> {
        let folder = self.folder.0.join(batch.to_string());
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder)?;
        let log = folder.join("output");
        let mut running = Running::start(self.command(words, &folder, &log)?, &words[0])?;
        let began = Instant::now();
        let mut watch = Watch::new(self.timeout);
        let (status, end) = loop {
            if let Some(status) = running.0.try_wait()? {
                break (Some(status), FitEnd::ByItself);
            }
            if self.is_interrupted.load(Ordering::Relaxed) {
                return Err(Failure::Interrupted);
            }
            let looked = Instant::now();
            let course = match seen(&folder, batch).map(|seen| seen.ended) {
                Some(Ended::Ran { probe, .. }) => {
                    let live =
                        probe.cycles.peaks.last().copied().unwrap_or_else(|| probe.program.peak_live());
                    tell(probe.cycles.peaks.len(), Bytes::new(live));
                    watch.look(&probe)
                }
                Some(Ended::Refused(_)) => Course::Stuck,
                None => Course::Open,
            };
            match course {
                Course::Enough => break (None, FitEnd::Shown),
                Course::Stuck => break (None, FitEnd::Refused),
                Course::Open => {}
            }
            if began.elapsed().as_secs() >= self.timeout.seconds {
                break (None, FitEnd::OutOfTime);
            }
            wait(&mut running.0, INTERVAL.max(looked.elapsed() * LOOKING_SHARE), &self.is_interrupted)?;
        };
        running.stop();
        let (ended, ranks) = seen(&folder, batch).map(|seen| (seen.ended, seen.ranks)).unzip();
        let result = self.judge(ended, status, end, &log, words, batch);
        let _ = fs::remove_dir_all(&folder);
        let ranks = ranks.unwrap_or_default();
        result.map(|ended| match ended {
            Ended::Refused(_) => (ended, FitEnd::Refused, ranks),
            Ended::Ran { .. } => (ended, end, ranks),
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
            .env("MAKEROOM_KEEP", "all")
            .env("MAKEROOM_RING", "")
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

    /// The result of a run, from its recordings, its exit status and its output.
    fn judge(
        &self,
        ended: Option<Ended>,
        status: Option<ExitStatus>,
        end: FitEnd,
        log: &Path,
        words: &[OsString],
        batch: u64,
    ) -> Result<Ended, Failure> {
        let failed = status.filter(|status| !status.success());
        let is_end = |probe: &Probe| match end {
            // It was stopped after enough steps, perhaps between a failed allocation and its retry.
            FitEnd::Shown => false,
            FitEnd::Refused => true,
            FitEnd::ByItself | FitEnd::OutOfTime => is_stuck(probe),
        };
        match (ended, failed) {
            (Some(Ended::Refused(probe)), _) => Ok(Ended::Refused(probe)),
            (Some(Ended::Ran { probe, .. }), _) if is_end(&probe) => Ok(Ended::Refused(Some(probe))),
            (ended, Some(_)) if says_out_of_memory(log) => Ok(Ended::Refused(ended.and_then(Ended::probe))),
            (_, Some(status)) => {
                Err(Failure::ProbeFailed { batch, status: status.to_string(), said: last_words(log) })
            }
            (Some(ran), None) => Ok(ran),
            (None, None) => Err(Failure::NoCuda {
                program: words[0].to_string_lossy().into_owned(),
                seconds: status.is_none().then_some(self.timeout.seconds),
            }),
        }
    }
}

/// Waits for a time, or until the program has ended or the user interrupts.
fn wait(child: &mut Child, time: Duration, is_interrupted: &AtomicBool) -> io::Result<()> {
    let end = Instant::now() + time;
    while Instant::now() < end && child.try_wait()?.is_none() && !is_interrupted.load(Ordering::Relaxed) {
        thread::sleep(INTERVAL.min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// What the recordings of a run show so far.
struct Seen {
    ended: Ended,
    /// The ranks by weight, if there are several.
    ranks: Vec<FitRank>,
}

/// The result so far, from the process that is stuck or, if none is, from the one with the highest peak. Of several
/// ranks with the same peak, it is the lowest, so that all runs are judged by the same one.
fn seen(folder: &Path, batch: u64) -> Option<Seen> {
    let mut most: Option<(Weight, Box<Probe>, Box<Trace>)> = None;
    let mut weights = Vec::new();
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "room") {
            continue;
        }
        // A file that is not readable yet is skipped.
        let Ok(Input::Trace(trace)) = makeroom_trace::open(&path) else { continue };
        let process = trace.process.as_ref();
        if process.is_some_and(|process| !process.refused_contexts.is_empty()) {
            return Some(Seen { ended: Ended::Refused(None), ranks: Vec::new() });
        }
        let rank = process.and_then(|process| process.identity.job.rank);
        let Some(device) = trace.device(None) else { continue };
        let probe = Probe::new(batch, &trace, device);
        let weight = (is_stuck(&probe), probe.program.peak_live_if_granted(), Reverse(rank));
        weights.push(weight);
        if (weight.0 || weight.1 > 0) && most.as_ref().is_none_or(|(highest, ..)| weight > *highest) {
            most = Some((weight, Box::new(probe), Box::new(trace)));
        }
    }
    most.map(|(_, probe, trace)| Seen { ended: Ended::Ran { probe, trace }, ranks: ranks(weights) })
}

/// How much a process decides about a run: whether it is stuck, its peak, and its rank.
type Weight = (bool, u64, Reverse<Option<u32>>);

/// The ranks, the most important first; none if a launcher did not start several. Of the processes of a rank, the most
/// important counts.
fn ranks(mut weights: Vec<Weight>) -> Vec<FitRank> {
    weights.sort_unstable_by_key(|&weight| Reverse(weight));
    let mut ranks: Vec<FitRank> = Vec::new();
    for (_, peak, Reverse(rank)) in weights {
        let Some(rank) = rank else { continue };
        if !ranks.iter().any(|known| known.rank == rank) {
            ranks.push(FitRank { rank, peak_live: Bytes::new(peak) });
        }
    }
    if ranks.len() < 2 { Vec::new() } else { ranks }
}

/// A running program, stopped on drop.
struct Running(Child);

impl Running {
    fn start(mut command: Command, name: &std::ffi::OsStr) -> Result<Self, Failure> {
        let child = command.spawn();
        child.map(Self).map_err(|error| Failure::Program { name: name.to_string_lossy().into_owned(), error })
    }

    /// Stops the program and all of its processes, first with SIGTERM, then with SIGKILL.
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
        // The rest of the group, including workers that outlived their parent.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A directory, removed on drop.
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
