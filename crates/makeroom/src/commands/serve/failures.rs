//! Explains programs that ran out of memory, counts them by cause, and keeps the verdicts for the collector.
//!
//! Each recording is explained by `makeroom why` in a child process, one at a time. A recording may come from any user
//! and be made to take much time or memory, so the child has limits for both. A failure that cannot be explained within
//! them counts with the cause `unexplained`.

use std::collections::VecDeque;
use std::io::{Read as _, Seek as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use makeroom_explain::Cause;
use makeroom_holders::{LatestFailure, OutOfMemory, Tally};
use makeroom_report::OomVerdict;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// Failures that wait to be explained. Beyond that, they count without an explanation.
const MOST_WAITING: usize = 64;
/// Verdicts that wait for the collector. Beyond that, the oldest are dropped.
const MOST_VERDICTS: usize = 256;
/// Limits for explaining one recording: time, CPU seconds, and bytes of address space and of output.
const TIMEOUT: Duration = Duration::from_secs(60);
const MOST_SECONDS: u64 = 30;
const MOST_MEMORY: u64 = 1 << 30;
const MOST_OUTPUT: u64 = 4 << 20;
/// Maximum length of the texts of a verdict, in characters.
const LONGEST_TEXT: usize = 1000;

/// The cause of a failure that could not be explained.
const UNEXPLAINED: &str = "unexplained";

/// The failures since this program started.
pub(crate) struct Failures {
    tally: Mutex<Tally>,
    /// Verdicts for the collector; `None` without a collector.
    verdicts: Option<Mutex<VecDeque<OomVerdict>>>,
    waiting: Sender<OutOfMemory>,
}

/// The end of the queue of failures to explain.
pub(crate) struct Queue(Receiver<OutOfMemory>);

impl Failures {
    /// No failures. Verdicts are kept if there is a collector.
    pub(crate) fn new(has_collector: bool) -> (Arc<Self>, Queue) {
        let causes = Cause::ALL.into_iter().filter(|&cause| cause != Cause::None).map(Cause::name);
        let (waiting, queue) = channel(MOST_WAITING);
        let tally = Mutex::new(Tally::new(causes.chain([UNEXPLAINED])));
        let verdicts = has_collector.then(Mutex::default);
        (Arc::new(Self { tally, verdicts, waiting }), Queue(queue))
    }

    /// Queues a failure to be explained.
    pub(crate) fn report(&self, failure: OutOfMemory) {
        if let Err(error) = self.waiting.try_send(failure) {
            self.add(&error.into_inner(), None);
        }
    }

    /// The failures so far.
    pub(crate) fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The verdicts that wait for the collector.
    pub(crate) fn verdicts(&self) -> Vec<OomVerdict> {
        self.verdicts.as_ref().map_or_else(Vec::new, |verdicts| lock(verdicts).iter().cloned().collect())
    }

    /// Removes this many verdicts, oldest first: the collector has them.
    pub(crate) fn forget(&self, count: usize) {
        if let Some(verdicts) = &self.verdicts {
            let mut verdicts = lock(verdicts);
            let count = count.min(verdicts.len());
            verdicts.drain(..count);
        }
    }

    /// Counts a failure.
    fn add(&self, failure: &OutOfMemory, explained: Option<Explained>) {
        let explained = explained.unwrap_or_default();
        // Nothing ran out: the program's allocator freed memory and succeeded.
        if explained.cause == Cause::None.name() {
            return;
        }
        let (process, at, cause) = (failure.process.clone(), failure.at, explained.cause);
        self.tally().add(LatestFailure { process: process.clone(), cause, at });
        if let Some(verdicts) = &self.verdicts {
            let Explained { title, certainty, summary, .. } = explained;
            let mut verdicts = lock(verdicts);
            if verdicts.len() >= MOST_VERDICTS {
                verdicts.pop_front();
            }
            let allocations = failure.allocations;
            verdicts.push_back(OomVerdict { process, at, allocations, cause, title, certainty, summary });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Explains failures as they come, until the task is dropped.
pub(crate) async fn explain_all(failures: Arc<Failures>, mut queue: Queue) {
    while let Some(failure) = queue.0.recv().await {
        let explained = explain(&failure).await;
        failures.add(&failure, explained);
    }
}

/// The verdict of `makeroom why`.
struct Explained {
    cause: &'static str,
    title: String,
    certainty: String,
    summary: String,
}

impl Default for Explained {
    fn default() -> Self {
        let summary = "The recording was too large to explain here, or it was incomplete.".to_owned();
        Self { cause: UNEXPLAINED, title: "OUT OF MEMORY".to_owned(), certainty: String::new(), summary }
    }
}

impl Explained {
    /// Reads the output of `why --json`.
    fn parse(output: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(output).ok()?;
        let text = |name: &str| -> Option<String> {
            Some(value["verdict"][name].as_str()?.chars().take(LONGEST_TEXT).collect())
        };
        let cause = Cause::named(&text("cause")?)?;
        let (title, certainty, summary) = (text("title")?, text("certainty")?, text("summary")?);
        Some(Self { cause: cause.name(), title, certainty, summary })
    }
}

async fn explain(failure: &OutOfMemory) -> Option<Explained> {
    let mut child = start(failure)?;
    let output = child.stdout.take()?;
    let reading = tokio::task::spawn_blocking(move || read(output));
    let output = timeout(TIMEOUT, reading).await;
    // It has ended, or it must end.
    let _ = child.kill();
    tokio::task::spawn_blocking(move || child.wait());
    Explained::parse(&output.ok()?.ok()?)
}

fn start(failure: &OutOfMemory) -> Option<Child> {
    let mut recording = failure.recording.try_clone().ok()?;
    recording.rewind().ok()?;
    let child = Command::new(std::env::current_exe().ok()?)
        .args(["why", "--json", "-"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(recording))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let pid = Pid::from_child(&child);
    for (resource, most) in [(Resource::As, MOST_MEMORY), (Resource::Cpu, MOST_SECONDS)] {
        // If this fails, the timeout still applies.
        let _ = prlimit(Some(pid), resource, Rlimit { current: Some(most), maximum: Some(most) });
    }
    Some(child)
}

fn read(output: ChildStdout) -> Vec<u8> {
    let mut text = Vec::new();
    // An incomplete text is not valid JSON.
    let _ = output.take(MOST_OUTPUT).read_to_end(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_causes_become_labels() {
        let json = |cause: &str| {
            format!(
                r#"{{"verdict":{{"cause":"{cause}","title":"T","certainty":"likely","summary":"{}"}}}}"#,
                "s".repeat(5000)
            )
        };
        let parsed = Explained::parse(json("leak").as_bytes()).unwrap();
        assert_eq!((parsed.cause, parsed.summary.len()), ("leak", LONGEST_TEXT));
        for text in [&json("made up")[..], "", "[]", "{}"] {
            assert!(Explained::parse(text.as_bytes()).is_none(), "{text}");
        }
    }
}
