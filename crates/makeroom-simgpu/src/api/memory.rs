//! Linear, stream-ordered and managed memory, and memory info.

use crate::abi::Out;
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::{HostBlock, HostKind, PoolId};
use crate::status::{Result, Status};

fn allocate_on_stream(
    call: Call<'_>,
    place: Out<u64>,
    bytes: u64,
    pool: Option<u64>,
    stream: u64,
) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    place.required()?;
    let machine = &mut session.machine;
    let stream = machine.own_stream(context, call.stream(stream))?;
    let device = machine.context_device(context)?;
    let address = if machine.captured(stream)?.is_some() {
        machine.capture_allocation(stream, device, bytes)?
    } else {
        machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        let pool = pool.map_or_else(|| machine.current_pool(device), PoolId);
        machine.allocate_ordered(context, pool, bytes, stream)?
    };
    place.set(address)
}

driver_functions! {
    fn cuMemAlloc_v2(address: Out<u64>, bytes: u64) |call| {
        let (mut session, context) = call.outside_capture()?;
        address.required()?;
        address.set(session.machine.allocate(context, bytes)?)
    }

    fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<u64>, width: u64, height: u64, element: u32) |call| {
        let (mut session, context) = call.outside_capture()?;
        address.required()?;
        pitch.required()?;
        let made = session.machine.allocate_pitched(context, width, height, element)?;
        address.set(made.0)?;
        pitch.set(made.1)
    }

    fn cuMemAllocManaged(address: Out<u64>, bytes: u64, flags: u32) |call| {
        let (mut session, context) = call.outside_capture()?;
        address.required()?;
        if bytes == 0 || !(1..=2).contains(&flags) {
            return Err(Status::INVALID_VALUE);
        }
        let block = HostBlock { bytes, context, flags, kind: HostKind::Managed };
        address.set(session.allocate_host(block)?)
    }

    /// Needs no context: the address determines the allocation.
    fn cuMemFree_v2(address: u64) |call| {
        let mut session = Session::open()?;
        session.machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        if session.machine.is_device_address(address) || address == 0 {
            return session.machine.free(address);
        }
        if session.free_host(address, HostKind::Managed) { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuMemAllocAsync / cuMemAllocAsync_ptsz(address: Out<u64>, bytes: u64, stream: u64) |call| {
        allocate_on_stream(call, address, bytes, None, stream)
    }

    fn cuMemAllocFromPoolAsync / cuMemAllocFromPoolAsync_ptsz(
        address: Out<u64>, bytes: u64, pool: u64, stream: u64,
    ) |call| {
        allocate_on_stream(call, address, bytes, Some(pool), stream)
    }

    fn cuMemFreeAsync / cuMemFreeAsync_ptsz(address: u64, stream: u64) |call| {
        let (mut session, context) = call.in_context()?;
        let machine = &mut session.machine;
        let stream = machine.own_stream(context, call.stream(stream))?;
        if let Some(capture) = machine.captured(stream)? {
            return machine.capture_free(stream, capture, address);
        }
        machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        machine.free_on_stream(address, stream)
    }

    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) |call| {
        let (session, context) = call.in_context()?;
        let memory = session.machine.memory(session.machine.context_device(context)?);
        free.set_if_wanted(memory.0);
        total.set_if_wanted(memory.1);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(start: Out<u64>, bytes: Out<u64>, address: u64) |call| {
        // A call that fails writes zeros.
        start.set_if_wanted(0);
        bytes.set_if_wanted(0);
        let (session, _) = call.in_context()?;
        let found = session.machine.pointed(address).ok_or(Status::NOT_FOUND)?;
        start.set_if_wanted(found.start);
        bytes.set_if_wanted(found.bytes);
        Ok(())
    }
}
