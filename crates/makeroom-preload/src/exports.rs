//! Functions that a recorded program can look up and call: `dlsym(RTLD_DEFAULT, "makeroom_recorder_flush")`. The
//! Python module does, to read the recording of its own process; benchmarks do, to measure the recorder.
//!
//! In a program that is not recorded, the lookup fails and the program carries on.

use std::ffi::c_int;
use std::panic::catch_unwind;

use crate::{cost, pages, pool, state, writer};

/// Flushes the recording and returns 0. Returns 1 if nothing is recorded: before the first use of CUDA, in a forked
/// child that has not used it, or after the disk was full.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn makeroom_recorder_flush() -> c_int {
    let is_recorded = catch_unwind(writer::flush_for_program).unwrap_or(false);
    c_int::from(!is_recorded)
}

/// Writes the recorder's overhead so far: nanoseconds, calls, events. Returns 0, or -1 if nothing is measured.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn makeroom_recorder_cost(figures: *mut [u64; 3]) -> c_int {
    let Some(now) = cost::of_recorder().filter(|_| state::is_recording() && !figures.is_null()) else {
        return -1;
    };
    // SAFETY: the caller passes space for three words, as documented.
    unsafe { figures.write(now) };
    0
}

/// Writes the pool's time so far: nanoseconds, calls. Returns 0, or -1 if nothing is measured.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn makeroom_pool_cost(figures: *mut [u64; 2]) -> c_int {
    let Some(now) = cost::of_pool_so_far().filter(|_| pool::is_on() && !figures.is_null()) else { return -1 };
    // SAFETY: the caller passes space for two words, as documented.
    unsafe { figures.write(now) };
    0
}

/// Writes the figures of a device's pages: peak of live bytes, peak of physical bytes, physical bytes, bytes in host
/// memory, bytes of mapped slots, moves, waits, nanoseconds inside, those of them in reports without driver calls, reports,
/// handles created, handles released. Returns 0, or -1 if the device has no pages.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn makeroom_pages_figures(device: c_int, figures: *mut [u64; 12]) -> c_int {
    let found = catch_unwind(|| pages::figures(device)).ok().flatten();
    let Some(now) = found.filter(|_| !figures.is_null()) else { return -1 };
    // SAFETY: the caller passes space for twelve words, as documented.
    unsafe { figures.write(now) };
    0
}
