//! Stream capture: work becomes a graph instead of being done, and calls that would wait or allocate invalidate the
//! capture.
//!
//! Measured on an H200: during a capture in global mode, such a call from any thread returns 900, and the end of the
//! capture then returns 901. In thread-local mode, only calls of the capturing thread do. In relaxed mode none do,
//! except those that wait for the captured stream or its context. A thread can relax its own calls.

use super::graph::Graph;
use super::{CaptureId, ContextId, GraphId, Machine, Operation, StreamId};
use crate::status::{Result, Status};

/// Which calls a capture forbids, or which a thread allows it to forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Those of all threads.
    Global,
    /// Those of its own thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

impl CaptureMode {
    /// The mode with this number.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::Global),
            1 => Ok(Self::ThreadLocal),
            2 => Ok(Self::Relaxed),
            _ => Err(Status::INVALID_VALUE),
        }
    }
}

/// Whether a stream is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// Not captured.
    None,
    /// Captured.
    Active,
    /// Captured, and the capture is invalid.
    Invalidated,
}

/// The effect of submitting work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// Do it now.
    Now,
    /// It became part of a graph.
    Captured,
}

/// A capture in progress.
#[derive(Debug)]
pub(super) struct Capture {
    pub(super) context: ContextId,
    origin: StreamId,
    mode: CaptureMode,
    thread: u64,
    invalid: bool,
    pub(super) graph: Graph,
}

impl Machine {
    /// Returns an error for a call that is illegal during a capture, and invalidates the capture.
    pub fn refuse_in_capture(&mut self, thread: u64, own_mode: CaptureMode) -> Result<()> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let mut refused = false;
        for capture in self.captures.values_mut() {
            let own = capture.thread == thread && capture.mode != CaptureMode::Relaxed;
            let forbids = match own_mode {
                CaptureMode::Global => own || capture.mode == CaptureMode::Global,
                CaptureMode::ThreadLocal => own,
                CaptureMode::Relaxed => false,
            };
            capture.invalid |= forbids;
            refused |= forbids;
        }
        if refused { Err(Status::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Returns an error for waiting for a captured stream.
    pub fn refuse_captured(&mut self, stream: StreamId) -> Result<()> {
        let Some(capture) = self.stream_ref(stream)?.capture else { return Ok(()) };
        self.invalidate(capture);
        Err(Status::STREAM_CAPTURE_UNSUPPORTED)
    }

    /// Returns an error for waiting for a context with captured streams.
    pub fn refuse_captured_context(&mut self, context: ContextId) -> Result<()> {
        let mut own = self.captures.values_mut().filter(|capture| capture.context == context).peekable();
        if own.peek().is_none() {
            return Ok(());
        }
        own.for_each(|capture| capture.invalid = true);
        Err(Status::STREAM_CAPTURE_UNSUPPORTED)
    }

    pub(super) fn invalidate(&mut self, capture: CaptureId) {
        if let Some(capture) = self.captures.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// `cuStreamBeginCapture`. The legacy stream cannot be captured.
    pub fn begin_capture(&mut self, stream: StreamId, mode: CaptureMode, thread: u64) -> Result<()> {
        let found = self.stream_ref(stream)?;
        let context = found.context;
        if self.context(context)?.legacy == stream {
            return Err(Status::STREAM_CAPTURE_UNSUPPORTED);
        }
        if found.capture.is_some() {
            return Err(Status::ILLEGAL_STATE);
        }
        let id: CaptureId = self.identities.fresh();
        let graph = Graph::default();
        self.captures.insert(id, Capture { context, origin: stream, mode, thread, invalid: false, graph });
        self.stream_mut(stream)?.capture = Some(id);
        Ok(())
    }

    /// A stream that waits for a captured event joins the capture.
    pub(super) fn join_capture(&mut self, stream: StreamId, capture: CaptureId) -> Result<()> {
        if !self.captures.contains_key(&capture) {
            return Err(Status::CAPTURED_EVENT);
        }
        let found = self.stream_mut(stream)?;
        if found.capture.is_some_and(|own| own != capture) {
            return Err(Status::STREAM_CAPTURE_UNMATCHED);
        }
        found.capture = Some(capture);
        Ok(())
    }

    /// `cuStreamEndCapture`.
    pub fn end_capture(&mut self, stream: StreamId, thread: u64) -> Result<GraphId> {
        let id = self.stream_ref(stream)?.capture.ok_or(Status::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(Status::ILLEGAL_STATE)?;
        if capture.origin != stream {
            return Err(Status::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != CaptureMode::Relaxed && capture.thread != thread {
            return Err(Status::STREAM_CAPTURE_WRONG_THREAD);
        }
        for stream in self.streams.values_mut().filter(|stream| stream.capture == Some(id)) {
            stream.capture = None;
        }
        let capture = self.captures.remove(&id).ok_or(Status::ILLEGAL_STATE)?;
        if capture.invalid {
            self.retire_graph_ranges();
            return Err(Status::STREAM_CAPTURE_INVALIDATED);
        }
        let graph = self.identities.fresh();
        self.graphs.insert(graph, capture.graph);
        Ok(graph)
    }

    /// Whether a stream is being captured, and by which capture.
    pub fn capture_status(&self, stream: StreamId) -> Result<(CaptureStatus, Option<CaptureId>)> {
        let Some(id) = self.stream_ref(stream)?.capture else { return Ok((CaptureStatus::None, None)) };
        let invalid = self.captures.get(&id).is_some_and(|capture| capture.invalid);
        Ok((if invalid { CaptureStatus::Invalidated } else { CaptureStatus::Active }, Some(id)))
    }

    /// Submits work to a stream: it is done now, or becomes a node of the captured graph.
    pub fn submit(&mut self, stream: StreamId, operation: Operation, nanoseconds: u64) -> Result<Submitted> {
        if let Some(id) = self.stream_ref(stream)?.capture {
            let node = self.identities.fresh();
            let capture = self.captures.get_mut(&id).ok_or(Status::ILLEGAL_STATE)?;
            if capture.invalid {
                return Err(Status::STREAM_CAPTURE_INVALIDATED);
            }
            capture.graph.push(node, operation);
            return Ok(Submitted::Captured);
        }
        self.refuse_implicit_dependency(stream)?;
        self.enqueue(stream, nanoseconds)?;
        Ok(Submitted::Now)
    }

    /// Work on the legacy stream would wait for all blocking streams, including captured ones.
    fn refuse_implicit_dependency(&mut self, stream: StreamId) -> Result<()> {
        if self.captures.is_empty() {
            return Ok(());
        }
        let context = self.stream_ref(stream)?.context;
        if self.context(context)?.legacy != stream {
            return Ok(());
        }
        let waits = |other: &&super::stream::Stream| other.context == context && other.blocking;
        let broken: Vec<_> = self.streams.values().filter(waits).filter_map(|other| other.capture).collect();
        for capture in &broken {
            self.invalidate(*capture);
        }
        if broken.is_empty() { Ok(()) } else { Err(Status::STREAM_CAPTURE_IMPLICIT) }
    }

    /// The capture of a stream, if it is being captured.
    pub fn captured(&self, stream: StreamId) -> Result<Option<CaptureId>> {
        Ok(self.stream_ref(stream)?.capture)
    }
}
