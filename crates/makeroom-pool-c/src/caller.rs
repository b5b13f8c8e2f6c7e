//! Passes an exported function's return address on as an extra argument, to identify the caller.
//!
//! Rust cannot read its own return address, and walking a stack costs more than an allocation. So such a function is
//! a jump: it puts the address into the register of the next argument and jumps to the function that does the work.

/// Defines an exported function that jumps to `$inner`, which takes the same arguments and then the return address as
/// a `usize`. `$x86_64` and `$aarch64` are the registers of that last argument.
macro_rules! jump_with_caller {
    ($(#[$about:meta])* $abi:literal fn $name:ident($($argument:ident: $kind:ty),*) -> $result:ty,
     $x86_64:literal, $aarch64:literal, $inner:path) => {
        #[cfg(target_arch = "x86_64")]
        $(#[$about])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern $abi fn $name($($argument: $kind),*) -> $result {
            core::arch::naked_asm!(concat!("mov ", $x86_64, ", [rsp]"), "jmp {inner}", inner = sym $inner)
        }

        #[cfg(target_arch = "aarch64")]
        $(#[$about])*
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub(crate) unsafe extern $abi fn $name($($argument: $kind),*) -> $result {
            core::arch::naked_asm!(concat!("mov ", $aarch64, ", x30"), "b {inner}", inner = sym $inner)
        }

        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        $(#[$about])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern $abi fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the arguments are the caller's; address 0 means unknown.
            unsafe { $inner($($argument),*, 0) }
        }
    };
}

pub(crate) use jump_with_caller;
