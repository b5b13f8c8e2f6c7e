//! Preserves the program's `errno`: hooks make system calls after the driver returns.

/// Restores `errno` on drop.
pub(crate) struct ErrnoGuard(i32);

impl ErrnoGuard {
    /// Saves `errno`.
    pub(crate) fn new() -> Self {
        // SAFETY: glibc's `__errno_location` always points to the calling thread's own `errno`.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for ErrnoGuard {
    fn drop(&mut self) {
        // SAFETY: as above; the value goes back to the thread it came from, because `ErrnoGuard` never crosses threads.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
