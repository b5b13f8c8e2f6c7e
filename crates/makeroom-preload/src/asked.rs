//! What a program may ask of the recorder that is in it, by name: `dlsym(RTLD_DEFAULT, "makeroom_recorder_flush")`. The
//! Python module does, to read the recording of the process that it is in.
//!
//! A program that is not recorded does not find the function, and goes on without.

use std::ffi::c_int;
use std::panic::catch_unwind;

use crate::writer;

/// Brings the recording up to date and answers 0; 1 where nothing is recorded: before the first use of CUDA, in a forked
/// child that has not used it, after a disk was full.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn makeroom_recorder_flush() -> c_int {
    let is_recorded = catch_unwind(writer::flush_for_program).unwrap_or(false);
    c_int::from(!is_recorded)
}
