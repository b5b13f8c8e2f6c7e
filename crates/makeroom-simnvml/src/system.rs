//! Initialization, shutdown, versions and error texts.

use std::ffi::c_char;

use crate::abi::{Failure, OutPointer, management_functions, words, write_text};
use crate::state::{self, Started};

fn driver(started: &Started) -> &str {
    started.scenario.driver.as_deref().unwrap_or(makeroom_simcard::driver_version())
}

management_functions! {
    fn nvmlInit_v2 = nvmlInit() { state::start() }

    fn nvmlInitWithFlags(_flags: u32) { state::start() }

    fn nvmlShutdown() { state::end() }

    fn nvmlSystemGetDriverVersion(text: OutPointer<c_char>, size: u32) {
        state::with(|started| write_text(text, size, driver(started)))
    }

    fn nvmlSystemGetNVMLVersion(text: OutPointer<c_char>, size: u32) {
        state::with(|started| write_text(text, size, &format!("13.{}", driver(started))))
    }

    fn nvmlSystemGetCudaDriverVersion_v2 = nvmlSystemGetCudaDriverVersion(version: OutPointer<i32>) {
        state::with(|started| version.set(started.scenario.cuda.unwrap_or(13000)))
    }

    /// The program of a process, truncated to the buffer.
    fn nvmlSystemGetProcessName(process: u32, text: OutPointer<c_char>, size: u32) {
        state::with(|_| {
            let line = std::fs::read(format!("/proc/{process}/cmdline")).map_err(|_| Failure::NOT_FOUND)?;
            let name = line.split(|byte| *byte == 0).next().unwrap_or_default();
            let room = (size as usize).checked_sub(1).ok_or(Failure::INVALID_ARGUMENT)?;
            text.set_all(name.iter().take(room).chain([&0]).map(|byte| c_char::from_ne_bytes([*byte])))
        })
    }
}

/// The description of a result.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is NVML's")]
extern "C" fn nvmlErrorString(result: u32) -> *const c_char {
    words(result).as_ptr()
}
