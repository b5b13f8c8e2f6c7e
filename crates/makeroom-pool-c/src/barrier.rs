//! Asymmetric barriers for hazard pointers: cheap for readers, expensive for removers.
//!
//! A reader writes which value it uses, and then rereads whether the value is still there. A remover writes that the
//! value is gone, and then reads who uses it. One of them must see the other, so both need a full barrier in between.
//! Reads are frequent and removals rare, so a remover has the kernel issue a barrier in all running threads
//! (`membarrier`), and readers need only a compiler barrier. If the kernel does not support that, both use a CPU
//! fence. loom checks that case; the other relies on the kernel's guarantee.

#[cfg(not(loom))]
use std::sync::Once;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// Whether `membarrier` is available. Written once, before the first value enters a table; a thread that finds a
/// value there also sees this.
#[cfg(not(loom))]
static HAS_BARRIERS: AtomicBool = AtomicBool::new(false);

#[cfg(not(loom))]
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
#[cfg(not(loom))]
const PRIVATE_EXPEDITED: i32 = 1 << 3;

#[cfg(not(loom))]
fn membarrier(command: i32) -> bool {
    // SAFETY: it takes only numbers and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Registers for `membarrier`, once. Returns only when the result is known, even if another thread registers at the
/// same time: a reader and a remover that used different results would not see each other.
#[cfg(not(loom))]
pub(crate) fn prepare() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        let helps = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        HAS_BARRIERS.store(helps, Ordering::Relaxed);
    });
}

/// The reader's barrier, between announcing a value and rereading it.
#[cfg(not(loom))]
#[inline]
pub(crate) fn of_user() {
    if HAS_BARRIERS.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        crate::sync::fence(Ordering::SeqCst);
    }
}

/// The remover's barrier, between removing a value and reading the announcements. Returns whether it took effect in
/// all threads.
#[cfg(not(loom))]
pub(crate) fn of_remover() -> bool {
    crate::sync::fence(Ordering::SeqCst);
    !HAS_BARRIERS.load(Ordering::Relaxed) || membarrier(PRIVATE_EXPEDITED)
}

#[cfg(loom)]
pub(crate) fn of_user() {
    crate::sync::fence(crate::sync::Ordering::SeqCst);
}

#[cfg(loom)]
pub(crate) fn of_remover() -> bool {
    crate::sync::fence(crate::sync::Ordering::SeqCst);
    true
}
