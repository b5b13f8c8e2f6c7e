//! The writer: one thread that turns what hooks leave in their rings into the file.
//!
//! It wakes every tenth of a second, and at once when a ring is half full or an allocation was refused. What it writes
//! are whole frames, appended by `write`: whatever ends the process, the file is readable up to the last of them. When
//! the file cannot be written any more, recording stops, it is said once, and the program goes on.

mod definitions;
mod header;
mod host;
mod live;
mod output;
mod patience;
mod turn;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

use makeroom_trace::room::{End, EndReason};

use crate::config::config;
use crate::notices::{Notice, print, raise_loudly};
use crate::{clock, files, state, wait};
pub(crate) use definitions::spell_uuid;
use output::Output;
use patience::Patience;
use turn::Writer;

/// How old an event becomes before it is in the file.
const INTERVAL: Duration = Duration::from_millis(100);

/// Counts reasons to wake.
static CALLS: AtomicU32 = AtomicU32::new(0);
const GO_ON: u32 = 0;
const FINISH: u32 = 1;
/// What the writer is to do.
static ORDER: AtomicU32 = AtomicU32::new(GO_ON);
static EXIT_STATUS: AtomicI32 = AtomicI32::new(0);
/// 1 once the writer has finished.
static IS_FINISHED: AtomicU32 = AtomicU32::new(0);
/// How often somebody asked for all events to be in the file, and up to which of these that was done.
static ASKED: AtomicU32 = AtomicU32::new(0);
static WRITTEN: AtomicU32 = AtomicU32::new(0);
/// The end that is expected, as [`Expected`] writes it; 0 is none.
static EXPECTED: AtomicI32 = AtomicI32::new(0);
/// The writer's thread: it must never wait for itself.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// How the process is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It becomes another program.
    Exec,
    /// By a signal.
    Signal(i32),
}

impl Expected {
    /// As one number that is not 0: signals count from 1.
    fn number(self) -> i32 {
        match self {
            Self::Exec => -1,
            Self::Signal(signal) => signal,
        }
    }
}

/// Makes the file and starts the thread; says whether that went well.
pub(crate) fn start() -> bool {
    let header = header::describe();
    let output = match Output::create(&config().file, &header) {
        Ok(output) => output,
        Err(failure) => {
            print(&format!("nothing is recorded: {failure}"));
            if let Some(socket) = &config().socket {
                files::send(socket, format!("unrecorded {} {failure}", header.pid).as_bytes());
            }
            return false;
        }
    };
    let writer = Writer::new(output);
    // Before anything can end the process: `run` must know of the file.
    writer.tell_beginning();
    with_signals_blocked(|| {
        let thread = std::thread::Builder::new().name("makeroom".to_owned());
        thread.spawn(move || work(writer)).is_ok()
    })
}

/// Wakes the writer before its time.
pub(crate) fn wake() {
    CALLS.fetch_add(1, Ordering::Release);
    wait::wake(&CALLS);
}

/// Writes what is left and ends the file. Waits for it, but not forever.
pub(crate) fn finish(status: i32) {
    if is_writer() {
        return;
    }
    EXIT_STATUS.store(status, Ordering::Relaxed);
    ORDER.store(FINISH, Ordering::Release);
    wake();
    let mut patience = Patience::new();
    while IS_FINISHED.load(Ordering::Acquire) == 0 && !patience.is_over() {
        wait::sleep(&IS_FINISHED, 0, INTERVAL);
    }
}

/// Writes what is there and the end that is expected, and goes on. Waits for it, but not forever. Takes no lock: it may
/// be called in a signal handler.
pub(crate) fn flush(expected: Expected) {
    if is_writer() {
        return;
    }
    EXPECTED.store(expected.number(), Ordering::Release);
    bring_up_to_date();
}

/// Writes what is there, and goes on; says whether anybody does. For code in the program itself, which wants to read the
/// file: it is as the program is at this moment.
pub(crate) fn flush_for_program() -> bool {
    let is_there = THREAD.load(Ordering::Relaxed) != 0 && IS_FINISHED.load(Ordering::Acquire) == 0;
    if is_there && !is_writer() {
        bring_up_to_date();
    }
    is_there
}

/// Asks the writer for a turn and waits until it is over, but not forever.
fn bring_up_to_date() {
    let own = ASKED.fetch_add(1, Ordering::AcqRel).wrapping_add(1);
    wake();
    let mut patience = Patience::new();
    while IS_FINISHED.load(Ordering::Acquire) == 0 && !patience.is_over() {
        let written = WRITTEN.load(Ordering::Acquire);
        if written.wrapping_sub(own).cast_signed() >= 0 {
            return;
        }
        wait::sleep(&WRITTEN, written, INTERVAL);
    }
}

fn is_writer() -> bool {
    // SAFETY: `gettid` has no conditions.
    THREAD.load(Ordering::Relaxed) == unsafe { libc::gettid() }
}

/// The end that somebody expects, once.
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
    patience::reset_after_fork();
}

fn work(writer: Writer) {
    if catch_unwind(AssertUnwindSafe(|| work_until_end(writer))).is_err() {
        state::disable();
        raise_loudly(Notice::Panicked);
    }
    IS_FINISHED.store(1, Ordering::Release);
    wait::wake(&IS_FINISHED);
}

fn work_until_end(mut writer: Writer) {
    // SAFETY: `gettid` has no conditions.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    patience::is_of_this_thread();
    loop {
        let seen = CALLS.load(Ordering::Acquire);
        let asked = ASKED.load(Ordering::Acquire);
        let is_last = ORDER.load(Ordering::Acquire) == FINISH;
        let is_detached = state::is_disabled();
        let turn = if is_last || is_detached {
            writer.last_turn((is_last).then(|| EXIT_STATUS.load(Ordering::Relaxed)))
        } else {
            writer.turn(take_expected_end())
        };
        if let Err(failure) = turn {
            state::disable();
            print(&format!("recording stopped: {failure}; the program goes on"));
            return;
        }
        if is_last || is_detached {
            return;
        }
        if WRITTEN.swap(asked, Ordering::AcqRel) != asked {
            wait::wake(&WRITTEN);
        }
        wait::sleep(&CALLS, seen, INTERVAL);
    }
}

/// Runs something whose threads get no signals: those are the program's.
fn with_signals_blocked<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: all sets are valid places, and the calling thread gets its own set back.
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
