//! The writer: the single consumer thread of all rings, which drains them into the file and sleeps on a futex.
//!
//! It wakes 25 times a second, and at once when a ring is half full or an allocation failed. It appends whole frames
//! with `write`, so however the process ends, the file is readable up to the last of them. If the file can no longer
//! be written, recording stops, `run` is notified or a line is printed once, and the program continues; `run` still
//! receives failed allocations.
//!
//! The thread is created with `pthread_create`, not with the standard library, whose threads call the loader when
//! they start: a program that makes its first CUDA call inside `dlopen` holds the loader's lock while it waits here
//! for the file.

mod bounded;
mod definitions;
mod header;
mod host;
mod keeping;
mod live;
mod output;
mod reports;
mod secrets;
mod timeout;
mod turn;

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use makeroom_trace::protocol::Message;
use makeroom_trace::room::{End, EndReason};

use crate::config::config;
use crate::notices::{self, Notice, print, print_later, raise};
use crate::record::wake;
use crate::{clock, own_table, state, wait};
use output::Output;
use reports::Reports;
use timeout::Timeout;
use turn::Writer;

/// How old an event gets before it is written. A killed process loses at most this and one turn of the writer. The
/// promise is a tenth of a second, because on a busy machine the writer may run late.
const INTERVAL: Duration = Duration::from_millis(40);

const GO_ON: u32 = 0;
const FINISH: u32 = 1;
/// The writer's order: `GO_ON` or `FINISH`.
static ORDER: AtomicU32 = AtomicU32::new(GO_ON);
static EXIT_STATUS: AtomicI32 = AtomicI32::new(0);
/// 1 once the writer has finished.
static IS_FINISHED: AtomicU32 = AtomicU32::new(0);
/// Number of flush requests, and the last one served.
static ASKED: AtomicU32 = AtomicU32::new(0);
static WRITTEN: AtomicU32 = AtomicU32::new(0);
/// The expected end, as encoded by [`Expected`]; 0 is none.
static EXPECTED: AtomicI32 = AtomicI32::new(0);
/// The writer's thread id: it must never wait for itself.
static THREAD: AtomicI32 = AtomicI32::new(0);
/// Whether the file is being written.
static IS_WRITING: AtomicBool = AtomicBool::new(false);

/// The writer's stack size: reading symbols needs some.
const STACK: usize = 2 << 20;
const BEGINNING: u32 = 0;
const BEGUN: u32 = 1;
const FAILED: u32 = 2;

/// What the thread that starts the writer waits for.
#[derive(Debug, Default)]
struct Beginning {
    /// [`BEGINNING`], [`BEGUN`] or [`FAILED`].
    state: AtomicU32,
    /// Why it failed, if `run` was not notified.
    failure: OnceLock<String>,
}

/// How the process is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It executes another program.
    Exec,
    /// By a signal.
    Signal(i32),
}

impl Expected {
    /// As one nonzero number: signals count from 1.
    fn number(self) -> i32 {
        match self {
            Self::Exec => -1,
            Self::Signal(signal) => signal,
        }
    }
}

/// Starts the thread, which creates the file. Returns whether that succeeded.
pub(crate) fn start() -> bool {
    let beginning = Arc::new(Beginning::default());
    if !with_signals_blocked(|| spawn(Arc::clone(&beginning))) {
        return false;
    }
    let mut timeout = Timeout::new();
    while beginning.state.load(Ordering::Acquire) == BEGINNING && !timeout.is_over() {
        wait::sleep(&beginning.state, BEGINNING, INTERVAL);
    }
    if let Some(failure) = beginning.failure.get() {
        print(failure);
    }
    // If the file takes long, events wait for it in the rings.
    beginning.state.load(Ordering::Acquire) != FAILED
}

/// Creates the writer thread, detached.
fn spawn(beginning: Arc<Beginning>) -> bool {
    let argument = Arc::into_raw(beginning);
    // If that stack is too small for the program's thread-local storage, use the default size.
    let is_made = [Some(STACK), None].into_iter().any(|stack| {
        // SAFETY: the attributes are initialized before use, and all pointers are valid.
        unsafe {
            let mut attributes = std::mem::zeroed();
            let mut thread = std::mem::zeroed();
            libc::pthread_attr_init(&raw mut attributes);
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            if let Some(stack) = stack {
                libc::pthread_attr_setstacksize(&raw mut attributes, stack);
            }
            let place = argument.cast_mut().cast();
            let result = libc::pthread_create(&raw mut thread, &raw const attributes, main, place);
            libc::pthread_attr_destroy(&raw mut attributes);
            result == 0
        }
    });
    if !is_made {
        // SAFETY: no thread took over the reference.
        drop(unsafe { Arc::from_raw(argument) });
    }
    is_made
}

extern "C" fn main(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `spawn` passed ownership of this reference.
    let beginning = unsafe { Arc::from_raw(argument.cast_const().cast::<Beginning>()) };
    // SAFETY: `gettid` has no preconditions, and the name is NUL-terminated.
    unsafe {
        THREAD.store(libc::gettid(), Ordering::Relaxed);
        libc::prctl(libc::PR_SET_NAME, c"makeroom".as_ptr());
    }
    timeout::is_of_this_thread();
    if catch_unwind(AssertUnwindSafe(|| work(&beginning))).is_err() {
        state::disable();
        raise(Notice::Panicked);
        tell_panic();
    }
    IS_WRITING.store(false, Ordering::Release);
    notices::set_listener(false);
    IS_FINISHED.store(1, Ordering::Release);
    wait::wake(&IS_FINISHED);
    beginning.finish(FAILED);
    std::ptr::null_mut()
}

/// Reports that the recording stopped. The panic has lost the writer's state, so this uses a new connection.
fn tell_panic() {
    let _ = catch_unwind(|| {
        let mut reports = Reports::new(config().socket.as_deref());
        let (after, reason) = (Duration::ZERO, Notice::Panicked.text().to_owned());
        reports.send(&Message::Stopped { after, reason });
        reports.deliver_all();
        if !reports.are_heard() {
            print_later(Notice::Panicked.text().to_owned());
        }
    });
}

fn work(beginning: &Beginning) {
    own_table::leave_shared();
    let header = header::describe();
    let mut reports = Reports::new(config().socket.as_deref());
    let output = match Output::create(&config().file, config().makes_folder, &config().job, &header) {
        Ok(output) => output,
        Err(failure) => {
            reports.send(&Message::Unrecorded(failure.to_string()));
            reports.deliver_all();
            if !reports.are_heard() {
                let _ = beginning.failure.set(format!("nothing is recorded: {failure}"));
            }
            beginning.finish(FAILED);
            return;
        }
    };
    let mut writer = Writer::new(output, reports, header);
    // `run` must know about the file before anything can end the process.
    writer.tell_beginning();
    notices::set_listener(writer.is_heard());
    IS_WRITING.store(true, Ordering::Release);
    beginning.finish(BEGUN);
    work_until_end(writer);
}

impl Beginning {
    /// Sets the outcome, once.
    fn finish(&self, state: u32) {
        let _ = self.state.compare_exchange(BEGINNING, state, Ordering::AcqRel, Ordering::Relaxed);
        wait::wake(&self.state);
    }
}

/// Writes the remaining events and ends the file. Waits for that, with a timeout.
pub(crate) fn finish(status: i32) {
    if is_writer() {
        return;
    }
    EXIT_STATUS.store(status, Ordering::Relaxed);
    ORDER.store(FINISH, Ordering::Release);
    wake::wake();
    let mut timeout = Timeout::new();
    while IS_FINISHED.load(Ordering::Acquire) == 0 && !timeout.is_over() {
        wait::sleep(&IS_FINISHED, 0, INTERVAL);
    }
}

/// Writes the pending events and the expected end, then continues. Waits for that, with a timeout. Takes no lock: it
/// may be called in a signal handler.
pub(crate) fn flush(expected: Expected) {
    if is_writer() {
        return;
    }
    EXPECTED.store(expected.number(), Ordering::Release);
    bring_up_to_date();
}

/// Writes the pending events and continues. Returns whether a file is being written. For code in the program that
/// reads the file, which is then up to date.
pub(crate) fn flush_for_program() -> bool {
    if !IS_WRITING.load(Ordering::Acquire) {
        return false;
    }
    if !is_writer() {
        bring_up_to_date();
    }
    IS_WRITING.load(Ordering::Acquire)
}

/// Requests a turn of the writer and waits for it, with a timeout.
fn bring_up_to_date() {
    let own = ASKED.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    wake::wake();
    let mut timeout = Timeout::new();
    while IS_FINISHED.load(Ordering::Acquire) == 0 && !timeout.is_over() {
        let written = WRITTEN.load(Ordering::Acquire);
        if written.wrapping_sub(own).cast_signed() >= 0 {
            return;
        }
        wait::sleep(&WRITTEN, written, INTERVAL);
    }
}

fn is_writer() -> bool {
    // SAFETY: `gettid` has no preconditions.
    THREAD.load(Ordering::Relaxed) == unsafe { libc::gettid() }
}

/// Takes the expected end, if there is one.
fn take_expected_end() -> Option<End> {
    let (reason, status) = match EXPECTED.swap(0, Ordering::AcqRel) {
        0 => return None,
        signal @ 1.. => (EndReason::Signal, signal.unsigned_abs()),
        _ => (EndReason::Exec, 0),
    };
    Some(End { time_ns: clock::monotonic_ns(), reason, status })
}

/// A forked child has no writer.
pub(crate) fn reset_after_fork() {
    ORDER.store(GO_ON, Ordering::Relaxed);
    IS_FINISHED.store(0, Ordering::Relaxed);
    EXPECTED.store(0, Ordering::Relaxed);
    THREAD.store(0, Ordering::Relaxed);
    IS_WRITING.store(false, Ordering::Relaxed);
    notices::set_listener(false);
    timeout::reset_after_fork();
}

fn work_until_end(mut writer: Writer) {
    loop {
        let seen = wake::requests();
        let asked = ASKED.load(Ordering::Acquire);
        let is_last = ORDER.load(Ordering::Acquire) == FINISH;
        let is_detached = state::is_disabled();
        let turn = if is_last || is_detached {
            writer.last_turn((is_last).then(|| EXIT_STATUS.load(Ordering::Relaxed)))
        } else {
            writer.turn(take_expected_end())
        };
        if let Err(failure) = turn {
            IS_WRITING.store(false, Ordering::Release);
            if !writer.stop(&failure) {
                print_later(format!("recording stopped: {failure}; the program continues"));
            }
        }
        if writer.is_useless() {
            notices::set_listener(false);
            state::disable();
            return;
        }
        if is_last || is_detached {
            return;
        }
        if WRITTEN.swap(asked, Ordering::AcqRel) != asked {
            wait::wake(&WRITTEN);
        }
        wake::sleep_until_request(seen, INTERVAL);
    }
}

/// Runs `work` with all signals blocked, so that threads it creates receive none: signals are the program's.
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all sets are valid out-parameters, and the calling thread's mask is restored.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}
