//! Events.

use crate::abi::Out;
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::{ContextId, EventFlags, EventId, Operation};
use crate::status::{Result, Status};

fn record(call: Call<'_>, event: u64, stream: u64) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    let stream = session.machine.stream(context, call.stream(stream))?;
    if session.machine.captured(stream)?.is_some() {
        session.machine.submit(stream, Operation::Nothing, 0)?;
    }
    session.machine.record_event(EventId(event), stream)
}

driver_functions! {
    fn cuEventCreate(event: Out<u64>, flags: u32) |call| {
        let (mut session, context) = call.in_context()?;
        event.required()?;
        event.set(session.machine.create_event(context, EventFlags(flags))?.0)
    }

    fn cuEventDestroy_v2 = cuEventDestroy(event: u64) |call| {
        let (mut session, _) = call.in_context()?;
        session.machine.destroy_event(EventId(event))
    }

    fn cuEventRecord / cuEventRecord_ptsz(event: u64, stream: u64) |call| { record(call, event, stream) }

    fn cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz(event: u64, stream: u64, flags: u32) |call| {
        if flags > 1 { call.in_context().and(Err(Status::INVALID_VALUE)) } else { record(call, event, stream) }
    }

    fn cuCtxRecordEvent(context: u64, event: u64) |_| {
        Session::open()?.machine.record_context_event(EventId(event), ContextId(context))
    }

    fn cuEventQuery(event: u64) |call| {
        let (mut session, _) = call.in_context()?;
        session.machine.refuse_captured_event(EventId(event))?;
        session.machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        session.machine.query_event(EventId(event))
    }

    fn cuEventSynchronize(event: u64) |call| {
        let (mut session, _) = call.in_context()?;
        session.machine.refuse_captured_event(EventId(event))?;
        session.machine.refuse_in_capture(call.thread(), call.capture_mode())?;
        session.machine.synchronize_event(EventId(event))
    }

    fn cuEventElapsedTime_v2 = cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) |call| {
        let (mut session, _) = call.in_context()?;
        milliseconds.set(session.machine.elapsed(EventId(start), EventId(end))?)
    }
}
