//! Injected faults and delays. A fault makes the n-th call of a function return an error without doing anything else.
//! A delay happens before any lock is taken, so that a signal handler may jump out of it.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use makeroom_simcard::{Delay, Description, Fault};

use crate::status::Status;

const UNREAD: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Whether there are any, so that calls without one cost a single load.
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
/// The pending faults; `call` counts down.
static FAULTS: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
/// The pending delays.
static DELAYS: Mutex<Vec<Delay>> = Mutex::new(Vec::new());

/// The error for this call, if any. Waits first if it has a delay.
pub(crate) fn due(function: &str) -> Option<Status> {
    match STATE.load(Ordering::Acquire) {
        NONE => return None,
        UNREAD => {
            // `cuInit` reports an invalid description.
            let description = Description::from_environment().unwrap_or_default();
            DELAYS.lock().unwrap_or_else(PoisonError::into_inner).extend(description.delays);
            add(description.faults);
        }
        _ => {}
    }
    if let Some(delay) = delay(function) {
        std::thread::sleep(delay);
    }
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut error = None;
    faults.retain_mut(|fault| {
        if fault.function != function {
            return true;
        }
        fault.call -= 1;
        if fault.call == 0 {
            error = Some(Status(fault.error));
        }
        fault.call > 0
    });
    settle(&faults);
    error
}

/// The delay of this call.
fn delay(function: &str) -> Option<Duration> {
    let mut delays = DELAYS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut due = None;
    delays.retain_mut(|delay| {
        if delay.function != function {
            return true;
        }
        delay.call -= 1;
        if delay.call == 0 {
            due = Some(Duration::from_millis(delay.milliseconds));
        }
        delay.call > 0
    });
    due
}

/// Updates `STATE`.
fn settle(faults: &[Fault]) {
    let is_over = faults.is_empty() && DELAYS.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    STATE.store(if is_over { NONE } else { SOME }, Ordering::Release);
}

/// Adds faults, counted from now on.
pub(crate) fn add(more: Vec<Fault>) {
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    faults.extend(more);
    settle(&faults);
}

/// Removes all pending faults and returns their number.
pub(crate) fn clear() -> usize {
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    let left = std::mem::take(&mut *faults).len();
    STATE.store(NONE, Ordering::Release);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_once() {
        add(vec![Fault { function: "cuExample".into(), call: 3, error: 701 }]);
        let answers: Vec<_> = (0..5).map(|_| due("cuExample")).collect();
        assert_eq!(answers, [None, None, Some(Status(701)), None, None]);
        assert_eq!(due("cuOther"), None);
        add(vec![Fault { function: "cuExample".into(), call: 1, error: 701 }]);
        assert_eq!((clear(), clear()), (1, 0));
        assert_eq!(due("cuExample"), None);
    }
}
