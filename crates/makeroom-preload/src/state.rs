//! The recorder's state machine: startup, shutdown, and what a fork does to it.
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
use crate::hooks::tensors;
use crate::record::threads;
use crate::{cost, exits, limit, lookup, notices, pool, python, sanitizer, writer};

const UNINITIALISED: u32 = 0;
const STARTING: u32 = 1;
const RECORDING: u32 = 2;
const DISABLED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNINITIALISED);
/// The process that records. A child of `vfork` shares this memory but is another process.
static PROCESS: AtomicI32 = AtomicI32::new(0);
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

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

/// Starts recording unless that was already tried. Returns whether to send events now.
#[cold]
pub(crate) fn start() -> bool {
    if STATE.compare_exchange(UNINITIALISED, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return is_recording();
    }
    cost::of_beginning(begin)
}

/// Initializes everything and starts the writer.
fn begin() -> bool {
    // SAFETY: `getpid` has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    // A panic prints one line of ours instead. The hook is private to this library: the program's Rust has its own.
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
    // End with a successful lookup, so that the program's `dlerror` does not return an error from one above.
    lookup::real(libc::RTLD_NEXT, c"dlopen");
    let has_writer = writer::start();
    // If another thread disabled the recorder in the meantime, it stays disabled.
    let next = if has_writer { RECORDING } else { DISABLED };
    let _ = STATE.compare_exchange(STARTING, next, Ordering::AcqRel, Ordering::Relaxed);
    is_recording()
}

/// Runs in a forked child, which has one thread and no writer: recording restarts at its next call.
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

/// Runs when the library is loaded: reads the environment and prepares for exit, nothing more.
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

/// Runs after `main` returns or `exit` is called, after all the handlers that the program registered.
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
