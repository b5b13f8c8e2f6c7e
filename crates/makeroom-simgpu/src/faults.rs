//! Calls that are to fail: the n-th call of a named function returns a given error and does nothing else; and calls
//! that are to take long, which they do before anything is locked, so that a signal handler may jump out of them.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use makeroom_simcard::{Delay, Description, Fault};

use crate::status::Status;

const UNREAD: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Whether there are any, so that a call without any costs one load.
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
/// Those that are still to come; `call` counts down.
static FAULTS: Mutex<Vec<Fault>> = Mutex::new(Vec::new());
/// The same for calls that take long.
static DELAYS: Mutex<Vec<Delay>> = Mutex::new(Vec::new());

/// The error that this call is to return. If it is to take long, that time passes first.
pub(crate) fn due(function: &str) -> Option<Status> {
    match STATE.load(Ordering::Acquire) {
        NONE => return None,
        UNREAD => {
            // A description that cannot be read is reported by cuInit.
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

/// How long this call is to take.
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

/// Notes whether anything is still to come.
fn settle(faults: &[Fault]) {
    let is_over = faults.is_empty() && DELAYS.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
    STATE.store(if is_over { NONE } else { SOME }, Ordering::Release);
}

/// Adds faults, counted from now.
pub(crate) fn add(more: Vec<Fault>) {
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    faults.extend(more);
    settle(&faults);
}

/// Forgets those that have not come; how many they were.
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
