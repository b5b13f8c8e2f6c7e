//! The two barriers of hazard pointers: cheap for users, dear for removers.
//!
//! A user writes what it uses and then reads whether that is still there; a remover writes that it is gone and then reads
//! who uses it. One of them has to see the other, so both need a full barrier in between. Users are frequent and removers
//! rare: a remover has the kernel put a barrier into all running threads (`membarrier`), and users keep the compiler from
//! reordering. Where the kernel does not help, both use the processor's barrier; loom checks that case, and the other
//! rests on what the kernel promises.

#[cfg(not(loom))]
use std::sync::Once;
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// Whether the kernel puts barriers into threads. Written once, before the first value is in a table; who finds a value there
/// finds this too.
#[cfg(not(loom))]
static HAS_BARRIERS: AtomicBool = AtomicBool::new(false);

#[cfg(not(loom))]
const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
#[cfg(not(loom))]
const PRIVATE_EXPEDITED: i32 = 1 << 3;

#[cfg(not(loom))]
fn membarrier(command: i32) -> bool {
    // SAFETY: it takes numbers only and touches no memory.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Asks the kernel for its help, once. When this returns the answer is known, also where another thread asks at the same
/// time: a user that goes by one answer and a remover that goes by the other would not see each other.
#[cfg(not(loom))]
pub(crate) fn prepare() {
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        let helps = membarrier(REGISTER_PRIVATE_EXPEDITED) && membarrier(PRIVATE_EXPEDITED);
        HAS_BARRIERS.store(helps, Ordering::Relaxed);
    });
}

/// Between an announcement and the look that follows.
#[cfg(not(loom))]
#[inline]
pub(crate) fn of_user() {
    if HAS_BARRIERS.load(Ordering::Relaxed) {
        compiler_fence(Ordering::SeqCst);
    } else {
        crate::sync::fence(Ordering::SeqCst);
    }
}

/// Between a removal and the look for announcements. Whether it stands in all threads.
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
