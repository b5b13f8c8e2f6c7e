//! Signal dispositions: those this process inherited, and default actions.
//!
//! A signal that the caller ignores, as `nohup` and background jobs of scripts do, stays ignored, in this command
//! (unless it forwards signals) and in the programs it starts. The dispositions are read before `main`, because
//! Rust's runtime changes that of SIGPIPE, and `Command` gives children the default for SIGPIPE and an empty signal
//! mask.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest signal number on Linux.
pub(crate) const LAST_SIGNAL: i32 = 64;

/// A bit for each signal that was ignored when this process started, the lowest for signal 1.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// A bit for each signal that was blocked when this process started.
static BLOCKED: AtomicU64 = AtomicU64::new(0);

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = remember_inherited;

extern "C" fn remember_inherited() {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: the pointer is valid for the mask, and nothing is changed.
    let is_known = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) } == 0;
    for signal in 1..=LAST_SIGNAL {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: the pointer is valid for the action, which is read only if the call succeeded; nothing is changed.
        let is_ignored = unsafe {
            libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init_ref().sa_sigaction == libc::SIG_IGN
        };
        // SAFETY: the mask was written if the call above succeeded.
        let is_blocked = is_known && unsafe { libc::sigismember(mask.as_ptr(), signal) } == 1;
        IGNORED.fetch_or(u64::from(is_ignored) << (signal - 1), Ordering::Relaxed);
        BLOCKED.fetch_or(u64::from(is_blocked) << (signal - 1), Ordering::Relaxed);
    }
}

/// The signals of this list that the caller does not ignore.
pub(crate) fn not_ignored(signals: &[i32]) -> Vec<i32> {
    signals.iter().copied().filter(|&signal| !is_in(&IGNORED, signal)).collect()
}

/// Makes a write beyond the file size limit fail instead of ending this process, which would leave a partial file.
pub(crate) fn outlive_file_limit() {
    // SAFETY: an ignored signal calls no code of this process.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Restores the inherited dispositions and mask. For use between fork and exec: exec resets handlers to default
/// actions itself.
pub(crate) fn pass_on_inherited() {
    // SAFETY: `signal`, `sigaddset` and `pthread_sigmask` are async-signal-safe, and the set is initialized first.
    unsafe {
        for signal in (1..=LAST_SIGNAL).filter(|&signal| is_in(&IGNORED, signal)) {
            libc::signal(signal, libc::SIG_IGN);
        }
        // See `outlive_file_limit`.
        if !is_in(&IGNORED, libc::SIGXFSZ) {
            libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        }
        let mut mask = MaybeUninit::uninit();
        libc::sigemptyset(mask.as_mut_ptr());
        for signal in (1..=LAST_SIGNAL).filter(|&signal| is_in(&BLOCKED, signal)) {
            libc::sigaddset(mask.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut());
    }
}

/// Stops handling a signal: ignores it if the caller does, otherwise restores its default action. SIGXFSZ stays ignored:
/// see [`outlive_file_limit`].
pub(crate) fn restore_inherited(signal: i32) {
    if is_in(&IGNORED, signal) || signal == libc::SIGXFSZ {
        // SAFETY: an ignored signal calls no code of this process.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    } else {
        restore_default(signal);
    }
}

/// Restores the default action of a signal.
pub(crate) fn restore_default(signal: i32) {
    // SAFETY: the default action is the kernel's; it calls no code of this process.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Ends this process with a signal, without a core dump. Returns if the signal does not end processes.
pub(crate) fn die_of(signal: i32) {
    use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
    // Only the program's core dump is of interest. A limit of zero does not prevent a dump to a pipe in
    // `core_pattern`.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    restore_default(signal);
    // SAFETY: the set is initialized first; `raise` then ends the process, or does nothing.
    unsafe {
        let mut mask = MaybeUninit::uninit();
        libc::sigemptyset(mask.as_mut_ptr());
        libc::sigaddset(mask.as_mut_ptr(), signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, mask.as_ptr(), ptr::null_mut());
        libc::raise(signal);
    }
}

fn is_in(set: &AtomicU64, signal: i32) -> bool {
    (1..=LAST_SIGNAL).contains(&signal) && set.load(Ordering::Relaxed) >> (signal - 1) & 1 == 1
}
