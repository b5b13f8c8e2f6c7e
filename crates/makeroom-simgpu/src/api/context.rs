//! Contexts and each thread's stack of them.

use crate::abi::{In, Out, device_number};
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::ContextId;
use crate::status::{Result, Status};

fn create(call: Call<'_>, place: Out<u64>, flags: u32, device: i32) -> Result<()> {
    let mut session = Session::open()?;
    let device = session.machine.device(device)?;
    place.required()?;
    let context = session.machine.create_context(device, flags)?;
    call.push(context);
    place.set(context.0)
}

/// A context that exists or existed.
fn known(handle: u64) -> Result<ContextId> {
    let context = ContextId(handle);
    Session::open()?.machine.any_context_device(context).map(|_| context)
}

driver_functions! {
    fn cuCtxCreate_v2(context: Out<u64>, flags: u32, device: i32) |call| {
        create(call, context, flags, device)
    }

    /// Execution affinity has no effect here.
    fn cuCtxCreate_v3(context: Out<u64>, _shares: In<u32>, _count: i32, flags: u32, device: i32) |call| {
        create(call, context, flags, device)
    }

    fn cuCtxCreate_v4(context: Out<u64>, _parameters: In<u64>, flags: u32, device: i32) |call| {
        create(call, context, flags, device)
    }

    fn cuCtxDestroy_v2 = cuCtxDestroy(context: u64) |call| {
        let mut session = Session::open()?;
        if context == 0 {
            return Err(Status::INVALID_VALUE);
        }
        session.machine.destroy_context(ContextId(context))?;
        if call.current() == Some(ContextId(context)) {
            call.pop();
        }
        Ok(())
    }

    fn cuCtxPushCurrent_v2 = cuCtxPushCurrent(context: u64) |call| {
        if context == 0 {
            Session::open()?;
            return Err(Status::INVALID_VALUE);
        }
        call.push(known(context)?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2 = cuCtxPopCurrent(context: Out<u64>) |call| {
        Session::open()?;
        let popped = call.pop().ok_or(Status::INVALID_CONTEXT)?;
        context.set_if_wanted(popped.0);
        Ok(())
    }

    fn cuCtxSetCurrent(context: u64) |call| {
        let next = if context == 0 { Session::open().map(|_| None)? } else { Some(known(context)?) };
        call.pop();
        if let Some(next) = next {
            call.push(next);
        }
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<u64>) |call| {
        Session::open()?;
        context.set(call.current().map_or(0, |context| context.0))
    }

    fn cuCtxGetDevice(device: Out<i32>) |call| {
        let session = Session::open()?;
        let context = call.current().ok_or(Status::INVALID_CONTEXT)?;
        device.set(device_number(session.machine.any_context_device(context)?))
    }

    fn cuCtxGetDevice_v2(device: Out<i32>, context: u64) |call| {
        let (session, current) = call.in_context()?;
        let wanted = if context == 0 { current } else { ContextId(context) };
        device.set(device_number(session.machine.context_device(wanted)?))
    }

    fn cuCtxGetId(context: u64, identity: Out<u64>) |call| {
        let (session, current) = call.in_context()?;
        let wanted = if context == 0 { current } else { ContextId(context) };
        session.machine.context_device(wanted)?;
        identity.set(wanted.0)
    }

    fn cuCtxGetFlags(flags: Out<u32>) |call| {
        let (session, context) = call.in_context()?;
        flags.set(session.machine.context_flags(context)?)
    }

    fn cuCtxSetFlags(flags: u32) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.set_context_flags(context, flags)
    }

    fn cuCtxGetApiVersion(context: u64, version: Out<u32>) |call| {
        const LATEST: u32 = 3020;
        let (session, current) = call.in_context()?;
        let wanted = if context == 0 { current } else { ContextId(context) };
        session.machine.context_device(wanted)?;
        version.set(LATEST)
    }

    fn cuCtxSynchronize() |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.refuse_captured_context(context)?;
        session.machine.synchronize_context(context)
    }

    fn cuCtxSynchronize_v2(context: u64) |call| {
        let (mut session, current) = call.in_context()?;
        let wanted = if context == 0 { current } else { ContextId(context) };
        session.machine.refuse_captured_context(wanted)?;
        session.machine.synchronize_context(wanted)
    }

    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) |call| {
        let (mut session, context) = call.in_context()?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        session.machine.enable_peer(context, ContextId(peer))
    }

    fn cuCtxDisablePeerAccess(peer: u64) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.disable_peer(context, ContextId(peer))
    }
}
