//! Startup and shutdown of the recorder, and its restart in a forked child.
//!
//! Loading the library only reads the environment. The first successful call of a hooked function starts the recorder.

use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(not(test))]
use crate::config::config;
use crate::record::threads;
use crate::{cost, exits, limit, lookup, python, state, tensors, writer};
#[cfg(not(test))]
use crate::{notices, sanitizer};

/// Whether the handlers for forks and exits are registered; a forked child inherits them.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Starts recording unless that was already tried. Returns whether to send events now.
#[cold]
pub(crate) fn start() -> bool {
    if !state::begin_start() {
        return state::is_recording();
    }
    cost::of_beginning(begin)
}

/// Initializes everything and starts the writer.
fn begin() -> bool {
    state::set_own_process();
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
    state::end_start(writer::start());
    state::is_recording()
}

/// Runs in a forked child, which has one thread and no writer: recording restarts at its next call.
unsafe extern "C" fn after_fork_in_child() {
    state::mark_child();
    if !state::is_disabled() {
        threads::reset_after_fork();
        limit::reset();
        cost::reset();
        writer::reset_after_fork();
        state::restart_after_fork();
    }
}

/// Runs when the library is loaded: reads the environment and prepares for exit, nothing more.
#[cfg(not(test))]
extern "C" fn constructor() {
    if config().is_off {
        state::disable();
        if let Some(runtime) = sanitizer::present() {
            sanitizer::report(runtime, config().socket.as_deref());
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
