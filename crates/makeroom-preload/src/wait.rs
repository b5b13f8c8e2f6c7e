//! Futex wait and wake. Needs no lock and works after a fork.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word is `seen`, until a wake-up or the timeout. May return spuriously.
pub(crate) fn sleep(word: &AtomicU32, seen: u32, longest: Duration) {
    let timeout =
        libc::timespec { tv_sec: longest.as_secs().cast_signed(), tv_nsec: longest.subsec_nanos().into() };
    // SAFETY: the word outlives the call, and the kernel only reads it and the timeout.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            seen,
            &raw const timeout,
        );
    }
}

/// Wakes all threads that sleep on the word.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the word's address only as a key.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX);
    }
}
