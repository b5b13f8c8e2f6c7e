//! Arrays and mipmapped arrays.

use crate::abi::{Array3dDescription, ArrayDescription, In, Out};
use crate::call::driver_functions;
use crate::driver::Session;
use crate::machine::{ArrayId, ArrayShape};
use crate::status::Status;

fn shape(description: &Array3dDescription) -> ArrayShape {
    ArrayShape {
        width: description.width,
        height: description.height,
        depth: description.depth,
        format: description.format,
        channels: description.channels,
        flags: description.flags,
    }
}

driver_functions! {
    fn cuArrayCreate_v2(array: Out<u64>, description: In<ArrayDescription>) |call| {
        let (mut session, context) = call.outside_capture()?;
        array.required()?;
        let ArrayDescription { width, height, format, channels } = description.get()?;
        let shape = ArrayShape { width, height, depth: 0, format, channels, flags: 0 };
        array.set(session.machine.create_array(context, shape)?.0)
    }

    fn cuArray3DCreate_v2(array: Out<u64>, description: In<Array3dDescription>) |call| {
        let (mut session, context) = call.outside_capture()?;
        array.required()?;
        array.set(session.machine.create_array(context, shape(&description.get()?))?.0)
    }

    fn cuArrayDestroy(array: u64) |call| {
        let (mut session, _) = call.outside_capture()?;
        session.machine.destroy_array(ArrayId(array), false)
    }

    fn cuArrayGetDescriptor_v2(description: Out<ArrayDescription>, array: u64) |_| {
        let session = Session::open()?;
        let ArrayShape { width, height, format, channels, .. } = session.machine.array_shape(ArrayId(array))?;
        description.set(ArrayDescription { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2(description: Out<Array3dDescription>, array: u64) |_| {
        let session = Session::open()?;
        let ArrayShape { width, height, depth, format, channels, flags } =
            session.machine.array_shape(ArrayId(array))?;
        description.set(Array3dDescription { width, height, depth, format, channels, flags })
    }

    fn cuMipmappedArrayCreate(array: Out<u64>, description: In<Array3dDescription>, levels: u32) |call| {
        let (mut session, context) = call.outside_capture()?;
        array.required()?;
        if levels == 0 {
            return Err(Status::INVALID_VALUE);
        }
        array.set(session.machine.create_levels(context, shape(&description.get()?), levels)?.0)
    }

    fn cuMipmappedArrayGetLevel(level: Out<u64>, array: u64, number: u32) |_| {
        let mut session = Session::open()?;
        level.required()?;
        level.set(session.machine.array_level(ArrayId(array), number)?.0)
    }

    fn cuMipmappedArrayDestroy(array: u64) |call| {
        let (mut session, _) = call.outside_capture()?;
        session.machine.destroy_array(ArrayId(array), true)
    }
}
