//! Exported shims for the functions by which a program leaves.
//!
//! Some are variadic (`execl`), some never return. So each export is a few instructions that save the arguments,
//! flush the file, and jump to the real function with the caller's return address and stack in place, as if it had
//! been called directly.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::{Departure, before};
use crate::lookup;

/// The instructions: `leave(shim, first, second)` returns the address to jump to.
#[cfg(target_arch = "x86_64")]
macro_rules! shim {
    ($shim:expr) => {
        naked_asm!(
            "endbr64",
            // Six arguments, and the vector register count of a variadic call. Seven words and the return address
            // keep the stack 16-byte aligned.
            "push rax",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "mov edx, esi",
            "mov esi, edi",
            "mov edi, {shim}",
            "call {leave}",
            "mov r11, rax",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "pop rax",
            "jmp r11",
            shim = const $shim,
            leave = sym leave,
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! shim {
    ($shim:expr) => {
        naked_asm!(
            // `bti c`, in the form that older assemblers accept.
            "hint #34",
            // Eight arguments; none of these functions takes any in vector registers.
            "stp x29, x30, [sp, #-80]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "mov w2, w1",
            "mov w1, w0",
            "mov x0, #{shim}",
            "bl {leave}",
            // A `br` through x16 may land on `bti c`.
            "mov x16, x0",
            "ldp x6, x7, [sp, #64]",
            "ldp x4, x5, [sp, #48]",
            "ldp x2, x3, [sp, #32]",
            "ldp x0, x1, [sp, #16]",
            "ldp x29, x30, [sp], #80",
            "br x16",
            shim = const $shim,
            leave = sym leave,
        )
    };
}

macro_rules! shims {
    ($($name:ident $departure:ident;)*) => {
        /// An exported function.
        #[derive(Clone, Copy)]
        #[allow(non_camel_case_types, reason = "the C library's own names")]
        #[repr(usize)]
        enum Shim {
            $($name,)*
        }

        const COUNT: usize = [$(Shim::$name),*].len();

        const NAMES: [&CStr; COUNT] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            }
        ),*];

        const DEPARTURES: [Departure; COUNT] = [$(Departure::$departure),*];

        mod exported {
            use super::{Shim, leave};
            use std::arch::naked_asm;

            $(
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C" fn $name() {
                    shim!(Shim::$name as usize)
                }
            )*
        }
    };
}

shims! {
    execve Exec;
    execv Exec;
    execvp Exec;
    execvpe Exec;
    execl Exec;
    execlp Exec;
    execle Exec;
    fexecve Exec;
    execveat Exec;
    abort Abort;
    __assert_fail Abort;
    __assert_perror_fail Abort;
    __assert Abort;
    raise Raise;
    kill Kill;
    quick_exit QuickExit;
}

static REAL: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(std::ptr::null_mut()) }; COUNT];

/// Called by every shim: prepares for the departure and returns the address to jump to.
extern "C" fn leave(shim: usize, first: i32, second: i32) -> *mut c_void {
    if let Some(&departure) = DEPARTURES.get(shim) {
        before(departure, first, second);
    }
    real(shim).unwrap_or(missing as *mut c_void)
}

/// Looks up all real functions.
pub(super) fn find_all() {
    for shim in 0..COUNT {
        real(shim);
    }
}

/// The real function, which may be that of another preloaded library.
fn real(shim: usize) -> Option<*mut c_void> {
    let place = REAL.get(shim)?;
    let mut address = place.load(Ordering::Acquire);
    if address.is_null() {
        address = lookup::real(libc::RTLD_NEXT, NAMES.get(shim)?);
        place.store(address, Ordering::Release);
    }
    (!address.is_null()).then_some(address)
}

/// Replaces a function that this C library does not have.
extern "C" fn missing() -> i32 {
    // SAFETY: the calling thread's own `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}
