//! Host memory: pinned by the driver, or registered by the program.

use crate::abi::Out;
use crate::call::{Call, driver_functions};
use crate::machine::{HostBlock, HostKind};
use crate::status::{Result, Status};

/// Flags of pinned memory: portable, mapped, write-combined.
const PINNED_FLAGS: u32 = 7;
/// Memory is always mapped for the GPU.
const MAPPED: u32 = 2;
/// Flags of registered memory: portable, mapped, I/O memory, read-only.
const REGISTERED_FLAGS: u32 = 15;

fn allocate(call: Call<'_>, place: Out<u64>, bytes: u64, flags: u32) -> Result<()> {
    let (mut session, context) = call.outside_capture()?;
    place.required()?;
    if flags & !PINNED_FLAGS != 0 {
        return Err(Status::INVALID_VALUE);
    }
    place.set(session.allocate_host(HostBlock { bytes, context, flags, kind: HostKind::Pinned })?)
}

driver_functions! {
    fn cuMemHostAlloc(address: Out<u64>, bytes: u64, flags: u32) |call| {
        allocate(call, address, bytes, flags)
    }

    fn cuMemAllocHost_v2(address: Out<u64>, bytes: u64) |call| { allocate(call, address, bytes, 0) }

    fn cuMemFreeHost(address: u64) |call| {
        let (mut session, _) = call.outside_capture()?;
        let freed = address == 0 || session.free_host(address, HostKind::Pinned);
        if freed { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuMemHostRegister_v2 = cuMemHostRegister(address: u64, bytes: u64, flags: u32) |call| {
        let (mut session, context) = call.outside_capture()?;
        let empty = address == 0 || bytes == 0;
        if empty || flags & !REGISTERED_FLAGS != 0 || session.machine.is_device_address(address) {
            return Err(Status::INVALID_VALUE);
        }
        session.machine.add_host(address, HostBlock { bytes, context, flags, kind: HostKind::Registered })
    }

    fn cuMemHostUnregister(address: u64) |call| {
        let (mut session, _) = call.outside_capture()?;
        session.machine.unregister(address)
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<u64>, address: u64, flags: u32) |call| {
        let (session, _) = call.in_context()?;
        device.required()?;
        if flags != 0 || session.machine.host_at(address).is_none() {
            return Err(Status::INVALID_VALUE);
        }
        device.set(address)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, address: u64) |call| {
        let (session, _) = call.in_context()?;
        let (_, block) = session.machine.host_at(address).ok_or(Status::INVALID_VALUE)?;
        flags.set(block.flags | MAPPED)
    }
}
