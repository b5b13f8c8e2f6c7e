//! Copies between host and device in one, two and three dimensions, synchronous or on a stream.
//!
//! A synchronous copy waits for its stream, as a real one does. Both kinds move the bytes before they return.

use crate::abi::{Copy2d, Copy3d, End2d, End3d, In};
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::{ArrayId, Copy, End, Operation, Side, Submitted};
use crate::status::{Result, Status};

/// Copies synchronously on the default stream.
fn now(call: Call<'_>, copy: Copy) -> Result<()> {
    submit(call, copy, 0)?;
    let (mut session, context) = call.in_context()?;
    let stream = session.machine.own_stream(context, call.stream(0))?;
    session.machine.finish(stream)
}

fn submit(call: Call<'_>, copy: Copy, stream: u64) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    let stream = session.machine.own_stream(context, call.stream(stream))?;
    match session.machine.submit(stream, Operation::Copy(copy), 0)? {
        Submitted::Now => session.copy(context, &copy),
        Submitted::Captured => Ok(()),
    }
}

fn to_device(address: u64, source: u64, bytes: u64) -> Copy {
    Copy::flat(End::flat(address, Side::Device), End::flat(source, Side::Host), bytes)
}

fn to_host(address: u64, source: u64, bytes: u64) -> Copy {
    Copy::flat(End::flat(address, Side::Host), End::flat(source, Side::Device), bytes)
}

fn on_device(address: u64, source: u64, bytes: u64) -> Copy {
    Copy::flat(End::flat(address, Side::Device), End::flat(source, Side::Device), bytes)
}

fn anywhere(address: u64, source: u64, bytes: u64) -> Copy {
    Copy::flat(End::flat(address, Side::Any), End::flat(source, Side::Any), bytes)
}

/// The source or the destination of a copy in several dimensions.
fn end(session: &Session, end: &End3d) -> Result<End> {
    const HOST: u32 = 1;
    const DEVICE: u32 = 2;
    const ARRAY: u32 = 3;
    const UNIFIED: u32 = 4;
    let (address, pitch, height, side) = match end.kind {
        HOST => (end.host, end.pitch, end.height, Side::Host),
        DEVICE => (end.device, end.pitch, end.height, Side::Device),
        UNIFIED => (end.device, end.pitch, end.height, Side::Any),
        ARRAY => {
            let place = session.machine.array_place(ArrayId(end.array))?;
            (place.address, place.pitch, place.height, Side::Device)
        }
        _ => return Err(Status::INVALID_VALUE),
    };
    let slice = pitch.checked_mul(height).ok_or(Status::INVALID_VALUE)?;
    let offset =
        || end.z.checked_mul(slice)?.checked_add(end.y.checked_mul(pitch)?)?.checked_add(end.x_bytes);
    let address = offset().and_then(|offset| address.checked_add(offset)).ok_or(Status::INVALID_VALUE)?;
    Ok(End { address, pitch, slice, side })
}

fn in_three_dimensions(call: Call<'_>, copy: &Copy3d, stream: Option<u64>) -> Result<()> {
    let (session, _) = call.in_context()?;
    let moved = Copy {
        destination: end(&session, &copy.destination)?,
        source: end(&session, &copy.source)?,
        width: copy.width_bytes,
        height: copy.height,
        depth: copy.depth,
    };
    drop(session);
    match stream {
        Some(stream) => submit(call, moved, stream),
        None => now(call, moved),
    }
}

fn in_two_dimensions(call: Call<'_>, copy: &Copy2d, stream: Option<u64>) -> Result<()> {
    let flat = |end: &End2d| End3d {
        x_bytes: end.x_bytes,
        y: end.y,
        z: 0,
        level: 0,
        kind: end.kind,
        host: end.host,
        device: end.device,
        array: end.array,
        reserved: 0,
        pitch: if end.pitch == 0 { copy.width_bytes } else { end.pitch },
        height: copy.height,
    };
    let copy = Copy3d {
        source: flat(&copy.source),
        destination: flat(&copy.destination),
        width_bytes: copy.width_bytes,
        height: copy.height,
        depth: 1,
    };
    in_three_dimensions(call, &copy, stream)
}

driver_functions! {
    fn cuMemcpy / cuMemcpy_ptds(to: u64, from: u64, bytes: u64) |call| {
        now(call, anywhere(to, from, bytes))
    }

    fn cuMemcpyAsync / cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: u64, stream: u64) |call| {
        submit(call, anywhere(to, from, bytes), stream)
    }

    fn cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds(to: u64, from: u64, bytes: u64) |call| {
        now(call, to_device(to, from, bytes))
    }

    fn cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, bytes: u64, stream: u64) |call| {
        submit(call, to_device(to, from, bytes), stream)
    }

    fn cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds(to: u64, from: u64, bytes: u64) |call| {
        now(call, to_host(to, from, bytes))
    }

    fn cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, bytes: u64, stream: u64) |call| {
        submit(call, to_host(to, from, bytes), stream)
    }

    fn cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: u64) |call| {
        now(call, on_device(to, from, bytes))
    }

    fn cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: u64, stream: u64) |call| {
        submit(call, on_device(to, from, bytes), stream)
    }

    /// Addresses determine their devices, so the contexts are not needed.
    fn cuMemcpyPeer / cuMemcpyPeer_ptds(
        to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: u64,
    ) |call| {
        now(call, on_device(to, from, bytes))
    }

    fn cuMemcpyPeerAsync / cuMemcpyPeerAsync_ptsz(
        to: u64, _to_context: u64, from: u64, _from_context: u64, bytes: u64, stream: u64,
    ) |call| {
        submit(call, on_device(to, from, bytes), stream)
    }

    fn cuMemcpy2D_v2 / cuMemcpy2D_v2_ptds(copy: In<Copy2d>) |call| {
        in_two_dimensions(call, &copy.get()?, None)
    }

    fn cuMemcpy2DUnaligned_v2 / cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) |call| {
        in_two_dimensions(call, &copy.get()?, None)
    }

    fn cuMemcpy2DAsync_v2 / cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, stream: u64) |call| {
        in_two_dimensions(call, &copy.get()?, Some(stream))
    }

    fn cuMemcpy3D_v2 / cuMemcpy3D_v2_ptds(copy: In<Copy3d>) |call| {
        in_three_dimensions(call, &copy.get()?, None)
    }

    fn cuMemcpy3DAsync_v2 / cuMemcpy3DAsync_v2_ptsz(copy: In<Copy3d>, stream: u64) |call| {
        in_three_dimensions(call, &copy.get()?, Some(stream))
    }
}
