//! Launches, the attributes of functions, and occupancy.

use crate::abi::{In, LaunchConfiguration, Out};
use crate::call::{Call, driver_functions};
use crate::machine::Launch;
use crate::status::{Result, Status};

fn launch(call: Call<'_>, function: u64, launch: Launch, stream: u64) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    let stream = session.machine.own_stream(context, call.stream(stream))?;
    let function = session.machine.function(function, context)?;
    session.machine.launch(function, &launch, stream)
}

fn occupancy(call: Call<'_>, blocks: Out<i32>, function: u64, threads: i32, shared: u64) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    blocks.required()?;
    let function = session.machine.function(function, context)?;
    blocks.set(session.machine.occupancy(function, threads, shared)?)
}

driver_functions! {
    fn cuLaunchKernel / cuLaunchKernel_ptsz(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: u64, _parameters: In<u64>, _extra: In<u64>,
    ) |call| {
        let wanted = Launch { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        launch(call, function, wanted, stream)
    }

    fn cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz(
        function: u64, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: u64, _parameters: In<u64>,
    ) |call| {
        let wanted = Launch { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        launch(call, function, wanted, stream)
    }

    fn cuLaunchKernelEx / cuLaunchKernelEx_ptsz(
        configuration: In<LaunchConfiguration>, function: u64, _parameters: In<u64>, _extra: In<u64>,
    ) |call| {
        // A thread without a context is told so before the configuration is read.
        drop(call.in_context()?);
        let LaunchConfiguration { grid, block, shared, stream, .. } = configuration.get()?;
        launch(call, function, Launch { grid, block, shared }, stream)
    }

    fn cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: u64) |call| {
        let (mut session, context) = call.in_context()?;
        value.required()?;
        let function = session.machine.function(function, context)?;
        value.set(session.machine.function_attribute(function, attribute)?)
    }

    fn cuFuncSetAttribute(function: u64, attribute: u32, value: i32) |call| {
        let (mut session, context) = call.in_context()?;
        let function = session.machine.function(function, context)?;
        session.machine.set_function_attribute(function, attribute, value)
    }

    fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: u64, device: i32) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.device(device)?;
        value.required()?;
        let function = session.machine.function(kernel, context)?;
        value.set(session.machine.function_attribute(function, attribute)?)
    }

    fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: u64, device: i32) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.device(device)?;
        let function = session.machine.function(kernel, context)?;
        session.machine.set_function_attribute(function, attribute, value)
    }

    /// A preference, which has no effect here.
    fn cuFuncSetCacheConfig(function: u64, configuration: u32) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.function(function, context)?;
        if configuration <= 3 { Ok(()) } else { Err(Status::INVALID_VALUE) }
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<i32>, function: u64, threads: i32, shared: u64,
    ) |call| {
        occupancy(call, blocks, function, threads, shared)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<i32>, function: u64, threads: i32, shared: u64, flags: u32,
    ) |call| {
        if flags > 1 {
            return call.in_context().and(Err(Status::INVALID_VALUE));
        }
        occupancy(call, blocks, function, threads, shared)
    }
}
