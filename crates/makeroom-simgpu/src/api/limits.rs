//! A context's limits and preferences.

use crate::abi::Out;
use crate::call::driver_functions;
use crate::machine::Limit;
use crate::status::Status;

driver_functions! {
    fn cuCtxGetLimit(value: Out<u64>, limit: u32) |call| {
        let (session, context) = call.in_context()?;
        value.required()?;
        value.set(session.machine.limit(context, Limit::from_number(limit)?)?)
    }

    fn cuCtxSetLimit(limit: u32, value: u64) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.set_limit(context, Limit::from_number(limit)?, value)
    }

    /// No preference.
    fn cuCtxGetCacheConfig(configuration: Out<u32>) |call| {
        call.in_context()?;
        configuration.set(0)
    }

    /// A preference, which has no effect here.
    fn cuCtxSetCacheConfig(configuration: u32) |call| {
        call.in_context()?;
        if configuration <= 3 { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuCtxGetStreamPriorityRange(lowest: Out<i32>, highest: Out<i32>) |call| {
        call.in_context()?;
        lowest.set_if_wanted(0);
        highest.set_if_wanted(-5);
        Ok(())
    }
}
