//! Whether the recorder records: its states, its start, what a fork does to it.
//!
//! ```text
//!                     first successful call              a panic, a full disk,
//!  0 uninitialised ──────────────────────▶ 1 starting ─▶ 2 recording ──────────▶ 3 disabled for good
//!        ▲                                                    │  │     the end        ▲
//!        └─────────────── fork: the child ────────────────────┘  └── MAKEROOM=off ────┘
//! ```
//!
//! Events count from state 1 on: rings work without a writer, which drains them when it is there. A forked child
//! begins anew, with a file of its own, at its first successful call.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::config::config;
use crate::hooks::tensors;
use crate::record::threads;
use crate::{cost, exits, limit, lookup, notices, pool, python, sanitizer, writer};

const UNINITIALISED: u32 = 0;
const STARTING: u32 = 1;
const RECORDING: u32 = 2;
const DISABLED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNINITIALISED);
/// The process that records. A child of `vfork` shares this memory and is another process.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Whether the recorder is off for good.
#[inline]
pub(crate) fn is_disabled() -> bool {
    STATE.load(Ordering::Relaxed) == DISABLED
}

/// Whether hooks are to do nothing: the recorder is off for good, and there is neither a limit nor a pool, which go on
/// without it.
#[inline]
pub(crate) fn steps_aside() -> bool {
    is_disabled() && {
        notices::print_what_is_left();
        !config().goes_on()
    }
}

/// Whether events are wanted.
#[inline]
pub(crate) fn is_recording() -> bool {
    matches!(STATE.load(Ordering::Relaxed), STARTING | RECORDING)
}

/// Whether the driver is in use, so that its library is held.
pub(crate) fn has_started() -> bool {
    STATE.load(Ordering::Relaxed) != UNINITIALISED
}

/// Whether this very process records and has a writer.
pub(crate) fn is_own() -> bool {
    // SAFETY: `getpid` has no conditions.
    STATE.load(Ordering::Acquire) == RECORDING && PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// Steps aside for good.
pub(crate) fn disable() {
    STATE.store(DISABLED, Ordering::Release);
}

/// Starts recording if that has not been tried; says whether events are wanted now.
#[cold]
pub(crate) fn start() -> bool {
    if STATE.compare_exchange(UNINITIALISED, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return is_recording();
    }
    cost::of_beginning(begin)
}

/// Makes everything ready and starts the writer.
fn begin() -> bool {
    // SAFETY: `getpid` has no conditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    // A panic is said in one line of our own. The hook is this library's: the program's Rust, if any, has another.
    std::panic::set_hook(Box::new(|_| {}));
    lookup::loaded(c"libcuda.so.1");
    tensors::start();
    python::start();
    threads::start();
    if !IS_REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function that stays loaded: preloaded libraries are never closed.
        unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
        exits::register();
    }
    // A successful lookup, so that the error of one above is not the program's to see.
    lookup::real(libc::RTLD_NEXT, c"dlopen");
    let has_writer = writer::start();
    // Whoever disabled the recorder meanwhile keeps it disabled.
    let next = if has_writer { RECORDING } else { DISABLED };
    let _ = STATE.compare_exchange(STARTING, next, Ordering::AcqRel, Ordering::Relaxed);
    is_recording()
}

/// The child of a fork has one thread and no writer: it starts anew at its next call.
unsafe extern "C" fn after_fork_in_child() {
    pool::forked();
    if STATE.load(Ordering::Relaxed) != DISABLED {
        threads::reset_after_fork();
        limit::reset();
        cost::reset();
        writer::reset_after_fork();
        STATE.store(UNINITIALISED, Ordering::Release);
    }
}

/// Runs when the library is loaded: reads the environment and prepares for the end, nothing more.
#[cfg(not(test))]
extern "C" fn constructor() {
    if config().is_off {
        disable();
        if let Some(runtime) = sanitizer::present() {
            sanitizer::report(runtime);
        }
    }
    notices::remember_stderr();
    exits::prepare();
}

/// Runs when the program has returned from `main` or called `exit`, after all that it registered itself.
#[cfg(not(test))]
extern "C" fn destructor() {
    exits::finish(None);
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;
