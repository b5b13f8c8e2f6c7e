//! Streams.

use crate::abi::{Out, device_number};
use crate::call::driver_functions;
use crate::machine::{ContextId, EventId, StreamId};
use crate::status::Status;

driver_functions! {
    fn cuStreamCreate(stream: Out<u64>, flags: u32) |call| {
        let (mut session, context) = call.in_context()?;
        stream.required()?;
        stream.set(session.machine.create_stream(context, flags, 0)?.0)
    }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) |call| {
        let (mut session, context) = call.in_context()?;
        stream.required()?;
        stream.set(session.machine.create_stream(context, flags, priority)?.0)
    }

    fn cuStreamDestroy_v2 = cuStreamDestroy(stream: u64) |call| {
        let (mut session, _) = call.in_context()?;
        session.machine.destroy_stream(StreamId(stream))
    }

    fn cuStreamSynchronize / cuStreamSynchronize_ptsz(stream: u64) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        session.machine.refuse_captured(stream)?;
        session.machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        session.machine.synchronize_stream(stream)
    }

    fn cuStreamQuery / cuStreamQuery_ptsz(stream: u64) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        session.machine.refuse_captured(stream)?;
        session.machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        session.machine.query_stream(stream)
    }

    fn cuStreamWaitEvent / cuStreamWaitEvent_ptsz(stream: u64, event: u64, flags: u32) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        if flags > 1 {
            return Err(Status::INVALID_VALUE);
        }
        session.machine.wait_event(stream, EventId(event))
    }

    fn cuStreamGetPriority / cuStreamGetPriority_ptsz(stream: u64, priority: Out<i32>) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        priority.set(session.machine.stream_properties(stream)?.2)
    }

    fn cuStreamGetFlags / cuStreamGetFlags_ptsz(stream: u64, flags: Out<u32>) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        flags.set(session.machine.stream_properties(stream)?.1)
    }

    fn cuStreamGetId / cuStreamGetId_ptsz(stream: u64, identity: Out<u64>) |call| {
        let (mut session, context) = call.in_context()?;
        identity.set(session.machine.stream(context, call.stream(stream))?.0)
    }

    fn cuStreamGetCtx / cuStreamGetCtx_ptsz(stream: u64, context: Out<u64>) |call| {
        let (mut session, current) = call.in_context()?;
        let stream = session.machine.stream(current, call.stream(stream))?;
        let ContextId(found) = session.machine.stream_properties(stream)?.0;
        context.set(found)
    }

    fn cuStreamGetDevice / cuStreamGetDevice_ptsz(stream: u64, device: Out<i32>) |call| {
        let (mut session, current) = call.in_context()?;
        let stream = session.machine.stream(current, call.stream(stream))?;
        let context = session.machine.stream_properties(stream)?.0;
        device.set(device_number(session.machine.context_device(context)?))
    }
}
