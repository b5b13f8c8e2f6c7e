//! Functions that a recorded program can look up and call: `dlsym(RTLD_DEFAULT, "makeroom_recorder_flush")`. The
//! Python module does, to read the recording of its own process.
//!
//! In a program that is not recorded, the lookup fails and the program carries on.

use std::ffi::c_int;
use std::panic::catch_unwind;

use crate::writer;

/// Flushes the recording and returns 0. Returns 1 if nothing is recorded: before the first use of CUDA, in a forked
/// child that has not used it, or after the disk was full.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn makeroom_recorder_flush() -> c_int {
    let is_recorded = catch_unwind(writer::flush_for_program).unwrap_or(false);
    c_int::from(!is_recorded)
}
