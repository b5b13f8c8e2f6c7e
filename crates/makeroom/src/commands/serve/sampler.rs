//! Looks when somebody asks: several askers at a time share one look, and a look is good for most of a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use makeroom_holders::{Account, Watcher};

/// How old an account may be that is given out again.
const GOOD_FOR: Duration = Duration::from_millis(900);

/// An account and how long it took.
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
    last: Option<Arc<Sample>>,
}

impl Sampler {
    pub(crate) fn new(watcher: Watcher) -> Self {
        Self { state: Mutex::new(State { watcher, last: None }) }
    }

    /// A sample of now. Blocks until the driver has answered, or its deadline is over.
    fn take(&self) -> Arc<Sample> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = state.last.as_ref().filter(|last| last.taken.elapsed() < GOOD_FOR) {
            return Arc::clone(last);
        }
        let began = Instant::now();
        let account = state.watcher.look();
        let sample = Arc::new(Sample { account, took: began.elapsed(), taken: Instant::now() });
        state.last = Some(Arc::clone(&sample));
        sample
    }

    /// A sample of now, taken beside the thread that waits for connections.
    pub(crate) async fn sample(self: &Arc<Self>) -> Option<Arc<Sample>> {
        let sampler = Arc::clone(self);
        tokio::task::spawn_blocking(move || sampler.take()).await.ok()
    }
}
