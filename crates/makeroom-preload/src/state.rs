//! Lock-free state machine on one atomic word: whether the recorder is off, starting or recording. `startup` drives it.
//!
//! ```text
//!                     first successful call              a panic, a full disk,
//!  0 uninitialised ──────────────────────▶ 1 starting ─▶ 2 recording ──────────▶ 3 disabled for good
//!        ▲                                                    │  │     the end        ▲
//!        └─────────────── fork: the child ────────────────────┘  └── MAKEROOM=off ────┘
//! ```
//!
//! Hooks send events from state 1 on: rings work without a writer, which drains them once it runs. A forked child
//! starts over, with its own file, at its first successful call.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::config::config;
use crate::notices;

const UNINITIALISED: u32 = 0;
const STARTING: u32 = 1;
const RECORDING: u32 = 2;
const DISABLED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNINITIALISED);
/// The process that records. A child of `vfork` shares this memory but is another process.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Set in a forked child of a process that used CUDA: the driver does not work there, and another thread may have held
/// any lock.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether the recorder is off for good.
#[inline]
pub(crate) fn is_disabled() -> bool {
    STATE.load(Ordering::Relaxed) == DISABLED
}

/// Whether hooks should do nothing: the recorder is disabled, and neither a limit nor a pool is set, both of which
/// outlive it.
#[inline]
pub(crate) fn steps_aside() -> bool {
    is_disabled() && {
        notices::print_what_is_left();
        !config().goes_on()
    }
}

/// Whether hooks should send events.
#[inline]
pub(crate) fn is_recording() -> bool {
    matches!(STATE.load(Ordering::Relaxed), STARTING | RECORDING)
}

/// Whether recording was started, which holds `libcuda` open, or disabled.
pub(crate) fn has_started() -> bool {
    STATE.load(Ordering::Relaxed) != UNINITIALISED
}

/// Whether this process records and has a writer. False in a child of `vfork`.
pub(crate) fn is_own() -> bool {
    // SAFETY: `getpid` has no preconditions.
    STATE.load(Ordering::Acquire) == RECORDING && PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// Disables the recorder for good.
pub(crate) fn disable() {
    STATE.store(DISABLED, Ordering::Release);
}

/// Whether this is a forked child of a process that used CUDA. If the parent did not, the child can use it itself.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Moves to "starting". False if recording was already started or disabled.
pub(crate) fn begin_start() -> bool {
    STATE.compare_exchange(UNINITIALISED, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Remembers that the calling process is the one that records.
pub(crate) fn set_own_process() {
    // SAFETY: `getpid` has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Ends the start: to "recording", or to "disabled" without a writer. If another thread disabled the recorder in the
/// meantime, it stays disabled.
pub(crate) fn end_start(has_writer: bool) {
    let next = if has_writer { RECORDING } else { DISABLED };
    let _ = STATE.compare_exchange(STARTING, next, Ordering::AcqRel, Ordering::Relaxed);
}

/// Marks a forked child. Call it before [`restart_after_fork`].
pub(crate) fn mark_child() {
    if has_started() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }
}

/// Starts over, in a forked child.
pub(crate) fn restart_after_fork() {
    STATE.store(UNINITIALISED, Ordering::Release);
}
