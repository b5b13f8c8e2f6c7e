//! IPC handles, which work only within one process here.
//!
//! A handle is 64 bytes: the PID, the address, and the size. In another process, opening it is an error.

use crate::abi::Out;
use crate::call::driver_functions;
use crate::status::Status;

/// The content of a handle.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct ExchangeHandle {
    process: u64,
    address: u64,
    unused: [u64; 6],
}

driver_functions! {
    fn cuIpcGetMemHandle(handle: Out<ExchangeHandle>, address: u64) |call| {
        let (session, _) = call.in_context()?;
        handle.required()?;
        let address = session.machine.exchangeable(address)?;
        handle.set(ExchangeHandle { process: u64::from(std::process::id()), address, unused: [0; 6] })
    }

    fn cuIpcOpenMemHandle_v2 = cuIpcOpenMemHandle(
        address: Out<u64>, handle: ExchangeHandle, flags: u32,
    ) |call| {
        let (mut session, context) = call.in_context()?;
        address.required()?;
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        if handle.process != u64::from(std::process::id()) {
            return Err(Status::NOT_SUPPORTED);
        }
        address.set(session.machine.open_import(context, handle.address)?)
    }

    fn cuIpcCloseMemHandle(address: u64) |call| {
        let (mut session, _) = call.in_context()?;
        session.machine.close_import(address)
    }
}
