//! Takes samples on demand. Concurrent requests share one sample, which is reused for a while.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use makeroom_holders::{Account, Watcher};

/// Maximum age of a sample that is reused.
pub(crate) const GOOD_FOR: Duration = Duration::from_millis(900);

/// An account and the time it took.
pub(crate) struct Sample {
    pub(crate) account: Account,
    pub(crate) took: Duration,
    taken: Instant,
}

/// Takes samples.
pub(crate) struct Sampler {
    state: Mutex<State>,
}

struct State {
    watcher: Watcher,
    good_for: Duration,
    last: Option<Arc<Sample>>,
}

impl Sampler {
    /// A sampler that reuses a sample up to this age.
    pub(crate) fn new(watcher: Watcher, good_for: Duration) -> Self {
        Self { state: Mutex::new(State { watcher, good_for, last: None }) }
    }

    /// The current sample. Blocks until the driver responds or times out.
    fn take(&self) -> Arc<Sample> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = state.last.as_ref().filter(|last| last.taken.elapsed() < state.good_for) {
            return Arc::clone(last);
        }
        let began = Instant::now();
        let account = state.watcher.look();
        let sample = Arc::new(Sample { account, took: began.elapsed(), taken: Instant::now() });
        state.last = Some(Arc::clone(&sample));
        sample
    }

    /// The current sample, taken on a blocking thread.
    pub(crate) async fn sample(self: &Arc<Self>) -> Option<Arc<Sample>> {
        let sampler = Arc::clone(self);
        tokio::task::spawn_blocking(move || sampler.take()).await.ok()
    }
}
