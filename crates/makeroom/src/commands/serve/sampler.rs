//! Takes samples on demand. Concurrent requests share one sample, which is reused for a while.
//!
//! Each sample also follows the recordings of running programs, and passes on those that ran out of memory. A program
//! that fails ends soon afterwards, so samples are taken even if there are no requests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use makeroom_holders::{Account, Recorder, Recorders, Watcher};
use tokio::time::{MissedTickBehavior, interval};

use super::failures::Failures;

/// Maximum age of a sample that is reused.
pub(crate) const GOOD_FOR: Duration = Duration::from_millis(900);

/// The longest time without a sample. A program that runs for less may fail unseen.
const AT_LEAST_EVERY: Duration = Duration::from_secs(2);

/// An account, the time it took, and the recorded programs.
pub(crate) struct Sample {
    pub(crate) account: Account,
    pub(crate) took: Duration,
    pub(crate) recorders: Vec<Recorder>,
    taken: Instant,
}

/// Takes samples.
pub(crate) struct Sampler {
    state: Mutex<State>,
}

struct State {
    watcher: Watcher,
    recorders: Recorders,
    failures: Arc<Failures>,
    good_for: Duration,
    last: Option<Arc<Sample>>,
}

impl Sampler {
    /// A sampler that reuses a sample up to this age, and reports programs that ran out of memory to `failures`.
    pub(crate) fn new(
        watcher: Watcher,
        processes: PathBuf,
        failures: Arc<Failures>,
        good_for: Duration,
    ) -> Self {
        let recorders = Recorders::new(processes);
        Self { state: Mutex::new(State { watcher, recorders, failures, good_for, last: None }) }
    }

    /// Takes samples at a minimum rate, until the task is dropped.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut ticks = interval(AT_LEAST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.sample().await;
        }
    }

    /// The current sample. Blocks until the driver responds or times out.
    fn take(&self) -> Arc<Sample> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        if let Some(last) = state.last.as_ref().filter(|last| last.taken.elapsed() < state.good_for) {
            return Arc::clone(last);
        }
        let began = Instant::now();
        let account = state.watcher.look();
        let took = began.elapsed();
        for failure in state.recorders.turn(&account) {
            state.failures.report(failure);
        }
        let recorders = state.recorders.list();
        let sample = Arc::new(Sample { account, took, recorders, taken: Instant::now() });
        state.last = Some(Arc::clone(&sample));
        sample
    }

    /// The current sample, taken on a blocking thread.
    pub(crate) async fn sample(self: &Arc<Self>) -> Option<Arc<Sample>> {
        let sampler = Arc::clone(self);
        tokio::task::spawn_blocking(move || sampler.take()).await.ok()
    }
}
