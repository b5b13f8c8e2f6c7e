//! The guard around one call of a hooked function.
//!
//! It is a reentrancy check: when the driver itself calls hooked functions, they pass straight through. It is
//! the address of the outermost hook's stack frame, with a canary in that frame. A `longjmp` over a hook leaves the
//! address behind but not the canary, so a stale guard has no effect.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::notices::{Notice, warn_once};
use crate::record::lost;
use crate::{cost, errno, state};

thread_local! {
    // Const-initialized and without destructors, so they can be used at any point in a thread's life.
    static OUTERMOST: Cell<usize> = const { Cell::new(0) };
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
}

/// Upper bound on the size of a thread's stack.
const LARGEST_STACK: usize = 1 << 30;
const MARK: usize = 0x6d61_6b65_726f_6f6d;

/// The frame of a hook.
pub(crate) struct Call {
    mark: Cell<usize>,
}

/// Whether to record a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Made by the program.
    Outermost,
    /// Made by the driver inside another call, or the recorder is off.
    Passing,
}

impl Call {
    /// A frame that does not guard yet.
    #[inline]
    pub(crate) fn new() -> Self {
        Self { mark: Cell::new(0) }
    }

    /// Begins the call. The frame must not move after this.
    #[inline]
    pub(crate) fn enter(&self) -> Role {
        if state::steps_aside() {
            return Role::Passing;
        }
        let here = std::ptr::from_ref(self) as usize;
        let outermost = OUTERMOST.get();
        if outermost > here && outermost - here < LARGEST_STACK && is_marked(outermost) {
            if IS_RECORDING.get() {
                lost::count_nested();
            }
            return Role::Passing;
        }
        self.mark.set(here ^ MARK);
        OUTERMOST.set(here);
        IS_RECORDING.set(false);
        Role::Outermost
    }

    /// Runs a hook's own work, apart from the driver call. Neither a panic nor a changed `errno` reaches the program.
    pub(crate) fn aside(work: impl FnOnce()) {
        let _errno = errno::ErrnoGuard::new();
        IS_RECORDING.set(true);
        if catch_unwind(AssertUnwindSafe(|| cost::of_call(work))).is_err() {
            state::disable();
            warn_once(Notice::Panicked);
        }
        IS_RECORDING.set(false);
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if self.mark.get() != 0 {
            self.mark.set(0);
            OUTERMOST.set(0);
        }
    }
}

/// Whether the frame at an address of this thread's stack belongs to a hook that is still running.
fn is_marked(frame: usize) -> bool {
    // SAFETY: the caller checked that the address lies in this thread's stack above the calling frame, so it is
    // readable; it may hold anything, which is why it is read as a plain number and compared.
    let found = unsafe { std::ptr::read_volatile(frame as *const usize) };
    found == frame ^ MARK
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call from a deeper frame, like one that the driver makes.
    #[inline(never)]
    fn role_of_inner_call() -> Role {
        let call = Call::new();
        std::hint::black_box(&call).enter()
    }

    #[test]
    fn a_panic_stays_inside_and_turns_the_recorder_off() {
        let call = Call::new();
        assert!(call.enter() == Role::Outermost);
        assert!(role_of_inner_call() == Role::Passing);
        drop(call);
        Call::aside(|| panic!("a bug"));
        assert!(state::is_disabled());
        assert!(Call::new().enter() == Role::Passing);
    }

    #[test]
    fn errno_survives_what_happens_aside() {
        // SAFETY: the calling thread's own `errno`.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above.
        unsafe { *errno = 42 };
        Call::aside(|| {
            let _ = std::fs::read("/no/such/file");
        });
        // SAFETY: as above.
        assert_eq!(unsafe { *errno }, 42);
    }
}
