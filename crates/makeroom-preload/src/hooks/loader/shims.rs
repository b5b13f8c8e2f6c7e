//! The exported `dlsym`, `dlvsym` and `dlopen`. Each saves its arguments, calls a function of the parent module, and
//! then jumps to the real one with the caller's return address in place, or returns a result itself.
//!
//! ```text
//! ask(first, second, third, caller) = 0: jump to the real function, 1: return null, else: return this
//! ```
//!
//! Each starts with the landing pad for indirect calls (`endbr64`; `bti c`, which older assemblers accept as `hint
//! #34`).

use std::arch::naked_asm;
use std::ffi::c_void;

macro_rules! shim {
    ($name:ident is $own:ident asks $ask:path, jumps $real:path) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!("endbr64", "jmp {own}", own = sym $own);
            #[cfg(target_arch = "aarch64")]
            naked_asm!("hint #34", "b {own}", own = sym $own);
        }

        /// The same under a name that no other library can interpose.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $own() -> *mut c_void {
            naked_asm!(
                "endbr64",
                // Three arguments and the return address keep the stack 16-byte aligned.
                "push rdi",
                "push rsi",
                "push rdx",
                // The fourth argument is the caller's address.
                "mov rcx, qword ptr [rsp + 24]",
                "call {ask}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "cmp rax, 1",
                "ja 3f",
                "je 2f",
                "mov rax, qword ptr [rip + {real}]",
                "jmp rax",
                "2: xor eax, eax",
                "3: ret",
                ask = sym $ask,
                real = sym $real,
            )
        }

        /// The same under a name that no other library can interpose.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $own() -> *mut c_void {
            naked_asm!(
                "hint #34",
                "stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                // The fourth argument is the caller's address.
                "mov x3, x30",
                "bl {ask}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "cmp x16, #1",
                "b.hi 3f",
                "b.eq 2f",
                "adrp x16, {real}",
                "ldr x16, [x16, :lo12:{real}]",
                // A `br` through x16 may land on `bti c`.
                "br x16",
                "2: mov x16, xzr",
                "3: mov x0, x16",
                "ret",
                ask = sym $ask,
                real = sym $real,
            )
        }
    };
}

shim!(dlsym is own_dlsym asks super::choose, jumps crate::lookup::REAL_DLSYM);
shim!(dlvsym is own_dlvsym asks super::choose_version, jumps crate::lookup::REAL_DLVSYM);
shim!(dlopen is own_dlopen asks super::look_at_dlopen, jumps super::REAL_DLOPEN);
