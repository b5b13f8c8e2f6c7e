//! Initialization, the driver's version, and error texts.

use std::ffi::{c_char, c_void};

use crate::abi::{In, Out};
use crate::call::driver_functions;
use crate::driver;
use crate::status::Status;

/// The CUDA version that the driver reports: 13.0.
pub(super) const VERSION: i32 = 13000;

driver_functions! {
    fn cuInit(flags: u32) |_| {
        driver::refuse_after_exit()?;
        if flags == 0 { driver::start() } else { Err(Status::INVALID_VALUE) }
    }

    fn cuDriverGetVersion(version: Out<i32>) |_| {
        driver::refuse_after_exit()?;
        version.set(VERSION)
    }

    fn cuGetErrorName(error: u32, text: Out<*const c_char>) |_| {
        let name = Status(error).texts().map(|(name, _)| name.as_ptr().cast());
        text.set(name.unwrap_or(std::ptr::null()))?;
        if name.is_some() { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuGetErrorString(error: u32, text: Out<*const c_char>) |_| {
        let words = Status(error).texts().map(|(_, words)| words.as_ptr().cast());
        text.set(words.unwrap_or(std::ptr::null()))?;
        if words.is_some() { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    /// These tables are undocumented, and there are none here.
    fn cuGetExportTable(table: Out<*const c_void>, _identity: In<[u8; 16]>) |_| {
        table.set(std::ptr::null())?;
        Err(Status::INVALID_VALUE)
    }

    fn cuProfilerStart() |call| { call.in_context().map(|_| ()) }

    fn cuProfilerStop() |call| { call.in_context().map(|_| ()) }
}
