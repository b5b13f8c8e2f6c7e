//! Stream capture.

use crate::abi::Out;
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::{CaptureMode, CaptureStatus, StreamId};
use crate::status::{Result, Status};

fn begin(call: Call<'_>, stream: u64, mode: CaptureMode) -> Result<()> {
    let (mut session, context) = call.in_context()?;
    let stream = session.machine.stream(context, call.stream(stream))?;
    session.machine.begin_capture(stream, mode, call.thread())
}

/// Status and ID of a stream's capture.
fn status(call: Call<'_>, stream: u64) -> Result<(u32, u64)> {
    let (mut session, context) = call.in_context()?;
    let stream: StreamId = session.machine.stream(context, call.stream(stream))?;
    let (status, capture) = session.machine.capture_status(stream)?;
    let number = match status {
        CaptureStatus::None => 0,
        CaptureStatus::Active => 1,
        CaptureStatus::Invalidated => 2,
    };
    Ok((number, capture.map_or(0, |capture| capture.0)))
}

driver_functions! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz(stream: u64) |call| {
        begin(call, stream, CaptureMode::Global)
    }

    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz(stream: u64, mode: u32) |call| {
        begin(call, stream, CaptureMode::from_number(mode)?)
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz(stream: u64, graph: Out<u64>) |call| {
        let (mut session, context) = call.in_context()?;
        graph.required()?;
        let stream = session.machine.stream(context, call.stream(stream))?;
        let ended = session.machine.end_capture(stream, call.thread());
        graph.set(ended.map_or(0, |graph| graph.0))?;
        ended.map(|_| ())
    }

    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz(stream: u64, place: Out<u32>) |call| {
        place.set(status(call, stream)?.0)
    }

    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz(
        stream: u64, place: Out<u32>, identity: Out<u64>,
    ) |call| {
        let found = status(call, stream)?;
        place.set(found.0)?;
        identity.set_if_wanted(found.1);
        Ok(())
    }

    /// The graph under construction and its last nodes are not available: requesting them is an error.
    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz(
        stream: u64, place: Out<u32>, identity: Out<u64>, graph: Out<u64>, nodes: Out<u64>, count: Out<u64>,
    ) |call| {
        let found = status(call, stream)?;
        place.set(found.0)?;
        identity.set_if_wanted(found.1);
        let asked = [graph, nodes, count].iter().any(|place| place.required().is_ok());
        if asked && found.0 != 0 { Err(Status::NOT_SUPPORTED) } else { Ok(()) }
    }

    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz(
        stream: u64, place: Out<u32>, identity: Out<u64>, graph: Out<u64>, nodes: Out<u64>, edges: Out<u64>,
        count: Out<u64>,
    ) |call| {
        let found = status(call, stream)?;
        place.set(found.0)?;
        identity.set_if_wanted(found.1);
        let asked = [graph, nodes, edges, count].iter().any(|place| place.required().is_ok());
        if asked && found.0 != 0 { Err(Status::NOT_SUPPORTED) } else { Ok(()) }
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) |call| {
        Session::open()?;
        let wanted = CaptureMode::from_number(mode.get()?)?;
        mode.set(call.exchange_capture_mode(wanted) as u32)
    }
}
