//! Primary contexts: one per device, reference-counted.

use crate::abi::Out;
use crate::call::driver_functions;
use crate::driver::Session;

driver_functions! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        context.required()?;
        let retained = session.machine.retain_primary(device)?;
        context.set(retained.0)
    }

    fn cuDevicePrimaryCtxRelease_v2 = cuDevicePrimaryCtxRelease(device: i32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.release_primary(device)
    }

    fn cuDevicePrimaryCtxReset_v2 = cuDevicePrimaryCtxReset(device: i32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.reset_primary(device);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |_| {
        let session = Session::open()?;
        let state = session.machine.primary_state(session.machine.device(device)?);
        flags.set(state.0)?;
        active.set(i32::from(state.1))
    }

    fn cuDevicePrimaryCtxSetFlags_v2 = cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.set_primary_flags(device, flags)
    }
}
