//! The exported `dlsym`, `dlvsym` and `dlopen`. Each keeps its arguments, asks a function of the module above, and jumps
//! to the real one with the caller's return address in place, or answers itself.
//!
//! ```text
//! ask(first, second, third, who calls) = 0: go on to the real function, 1: answer null, else: answer this
//! ```
//!
//! Each begins with the instruction at which processors let an indirect call arrive (`endbr64`; `bti c`, which older
//! assemblers know as `hint #34`).

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

        /// The same under a name that no other library can take.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $own() -> *mut c_void {
            naked_asm!(
                "endbr64",
                // Three arguments and the return address keep the stack aligned to sixteen.
                "push rdi",
                "push rsi",
                "push rdx",
                // Who calls is the fourth argument.
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

        /// The same under a name that no other library can take.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $own() -> *mut c_void {
            naked_asm!(
                "hint #34",
                "stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                // Who calls is the fourth argument.
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
                // By way of this register a jump may arrive where a call may.
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

shim!(dlsym is own_dlsym asks super::choose, jumps super::REAL_DLSYM);
shim!(dlvsym is own_dlvsym asks super::choose_version, jumps super::REAL_DLVSYM);
shim!(dlopen is own_dlopen asks super::look_at_dlopen, jumps super::REAL_DLOPEN);
