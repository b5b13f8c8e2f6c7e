//! `errno` as the program left it: hooks make system calls between the driver's return and their own.

/// Puts `errno` back when it goes.
pub(crate) struct Kept(i32);

impl Kept {
    /// Remembers `errno`.
    pub(crate) fn new() -> Self {
        // SAFETY: glibc's `__errno_location` always points to the calling thread's own `errno`.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // SAFETY: as above; the value goes back to the thread it came from, because `Kept` is never sent.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
