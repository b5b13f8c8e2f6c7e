//! Fills with 8-bit, 16-bit and 32-bit values, in one and two dimensions.

use crate::call::{Call, driver_functions};
use crate::machine::{Fill, Operation, Submitted};
use crate::status::Result;

/// Fills synchronously on the default stream.
fn now(call: Call<'_>, fill: Fill) -> Result<()> {
    on_stream(call, fill, 0)
}

fn on_stream(call: Call<'_>, fill: Fill, stream: u64) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    let stream = session.machine.own_stream(context, call.stream(stream))?;
    fill.row_bytes()?;
    match session.machine.submit(stream, Operation::Fill(fill), 0)? {
        Submitted::Now => session.fill(context, &fill),
        Submitted::Captured => Ok(()),
    }
}

fn row(address: u64, element: u64, value: u32, width: u64) -> Fill {
    Fill { address, pitch: 0, element, value, width, height: 1 }
}

driver_functions! {
    fn cuMemsetD8_v2 / cuMemsetD8_v2_ptds(address: u64, value: u8, count: u64) |call| {
        now(call, row(address, 1, u32::from(value), count))
    }

    fn cuMemsetD16_v2 / cuMemsetD16_v2_ptds(address: u64, value: u16, count: u64) |call| {
        now(call, row(address, 2, u32::from(value), count))
    }

    fn cuMemsetD32_v2 / cuMemsetD32_v2_ptds(address: u64, value: u32, count: u64) |call| {
        now(call, row(address, 4, value, count))
    }

    fn cuMemsetD2D8_v2 / cuMemsetD2D8_v2_ptds(
        address: u64, pitch: u64, value: u8, width: u64, height: u64,
    ) |call| {
        now(call, Fill { address, pitch, element: 1, value: u32::from(value), width, height })
    }

    fn cuMemsetD2D16_v2 / cuMemsetD2D16_v2_ptds(
        address: u64, pitch: u64, value: u16, width: u64, height: u64,
    ) |call| {
        now(call, Fill { address, pitch, element: 2, value: u32::from(value), width, height })
    }

    fn cuMemsetD2D32_v2 / cuMemsetD2D32_v2_ptds(
        address: u64, pitch: u64, value: u32, width: u64, height: u64,
    ) |call| {
        now(call, Fill { address, pitch, element: 4, value, width, height })
    }

    fn cuMemsetD8Async / cuMemsetD8Async_ptsz(address: u64, value: u8, count: u64, stream: u64) |call| {
        on_stream(call, row(address, 1, u32::from(value), count), stream)
    }

    fn cuMemsetD16Async / cuMemsetD16Async_ptsz(address: u64, value: u16, count: u64, stream: u64) |call| {
        on_stream(call, row(address, 2, u32::from(value), count), stream)
    }

    fn cuMemsetD32Async / cuMemsetD32Async_ptsz(address: u64, value: u32, count: u64, stream: u64) |call| {
        on_stream(call, row(address, 4, value, count), stream)
    }

    fn cuMemsetD2D8Async / cuMemsetD2D8Async_ptsz(
        address: u64, pitch: u64, value: u8, width: u64, height: u64, stream: u64,
    ) |call| {
        on_stream(call, Fill { address, pitch, element: 1, value: u32::from(value), width, height }, stream)
    }

    fn cuMemsetD2D16Async / cuMemsetD2D16Async_ptsz(
        address: u64, pitch: u64, value: u16, width: u64, height: u64, stream: u64,
    ) |call| {
        on_stream(call, Fill { address, pitch, element: 2, value: u32::from(value), width, height }, stream)
    }

    fn cuMemsetD2D32Async / cuMemsetD2D32Async_ptsz(
        address: u64, pitch: u64, value: u32, width: u64, height: u64, stream: u64,
    ) |call| {
        on_stream(call, Fill { address, pitch, element: 4, value, width, height }, stream)
    }
}
