//! Calls that are to fail: the n-th call of a named function returns a given error and does nothing else.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use makeroom_simcard::{Description, Fault};

use crate::status::Status;

const UNREAD: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Whether there are any, so that a call without any costs one load.
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
/// Those that are still to come; `call` counts down.
static FAULTS: Mutex<Vec<Fault>> = Mutex::new(Vec::new());

/// The error that this call is to return.
pub(crate) fn due(function: &str) -> Option<Status> {
    match STATE.load(Ordering::Acquire) {
        NONE => return None,
        UNREAD => {
            // A description that cannot be read is reported by cuInit.
            let faults =
                Description::from_environment().map(|description| description.faults).unwrap_or_default();
            add(faults);
        }
        _ => {}
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
    STATE.store(if faults.is_empty() { NONE } else { SOME }, Ordering::Release);
    error
}

/// Adds faults, counted from now.
pub(crate) fn add(more: Vec<Fault>) {
    let mut faults = FAULTS.lock().unwrap_or_else(PoisonError::into_inner);
    faults.extend(more);
    STATE.store(if faults.is_empty() { NONE } else { SOME }, Ordering::Release);
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
    }
}
