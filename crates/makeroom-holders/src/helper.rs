//! Work with a timeout, on a helper thread that is abandoned when it blocks.
//!
//! A file system that does not respond, or a lock that another process never releases, blocks its caller forever. Such
//! work therefore runs on a separate thread, which can be abandoned and ends when this process exits.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

type Work = Box<dyn FnOnce() + Send>;

/// A thread that runs one piece of work at a time. Drop it after a timeout, because it may still be busy.
#[derive(Debug)]
pub(crate) struct Helper {
    work: Sender<Work>,
    done: Receiver<()>,
}

impl Helper {
    /// Starts a thread with this name.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (work, given) = channel::<Work>();
        let (finished, done) = channel();
        let run = move || {
            for work in given {
                work();
                if finished.send(()).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { work, done })
    }

    /// Runs work and returns its result; `None` on timeout or if the work panicked.
    pub(crate) fn within<Result: Send + 'static>(
        &self,
        time: Duration,
        work: impl FnOnce() -> Result + Send + 'static,
    ) -> Option<Result> {
        let result = Arc::new(Mutex::new(None));
        let place = Arc::clone(&result);
        let run = move || {
            let result = work();
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        };
        // A channel of results would be compiled once per result type.
        if !self.is_done_within(time, Box::new(run)) {
            return None;
        }
        result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_done_within(&self, time: Duration, work: Work) -> bool {
        self.work.send(work).is_ok() && self.done.recv_timeout(time).is_ok()
    }
}

/// Runs work on a new thread and returns its result; `None` on timeout, or if the work panicked or no thread could start.
pub(crate) fn within<Result: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> Result + Send + 'static,
) -> Option<Result> {
    if time.is_zero() {
        return None;
    }
    Helper::start("recording").ok()?.within(time, work)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn work_that_does_not_end_is_abandoned() {
        let began = Instant::now();
        assert_eq!(within(Duration::from_millis(10), || std::thread::sleep(Duration::from_secs(600))), None);
        assert!(began.elapsed() < Duration::from_secs(60));
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
    }

    #[test]
    fn one_thread_does_several_things() {
        let helper = Helper::start("helper").unwrap();
        let name = || std::thread::current().name().map(str::to_owned);
        for _ in 0..2 {
            assert_eq!(helper.within(Duration::from_secs(60), name), Some(Some("helper".to_owned())));
        }
    }

    #[test]
    fn work_that_panics_has_no_result() {
        let helper = Helper::start("panics").unwrap();
        let began = Instant::now();
        assert_eq!(helper.within::<()>(Duration::from_secs(60), || panic!("on purpose")), None);
        assert_eq!(helper.within(Duration::from_secs(60), || 7), None);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
