//! Stream capture: whether work is recorded into a graph instead of executed, and how not to break a capture.
//!
//! While any stream of a process is captured in the strictest mode, `cuMemAlloc`, `cuEventQuery` and others fail on
//! ANY thread and invalidate the capture. Code that calls them inside another program, such as a pool, takes a
//! [`CaptureModeGuard`] first.

use std::marker::PhantomData;

use crate::driver::Driver;
use crate::error::Result;
use crate::stream::Stream;

/// Which captures forbid unsafe calls; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CaptureMode {
    /// A capture on any thread forbids unsafe calls.
    Global = 0,
    /// Only a capture on this thread does.
    ThreadLocal = 1,
    /// No capture does.
    Relaxed = 2,
}

/// Capture status of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// Not captured: its work is executed.
    None,
    /// Its work becomes a graph, in the capture with this id.
    Active(u64),
    /// Its capture was invalidated and has to be ended.
    Invalidated,
}

impl Stream {
    /// Whether it is being captured. The cheapest query.
    pub fn is_capturing(&self) -> Result<bool> {
        let mut status = 0;
        // SAFETY: the stream is live, and the out-parameter is valid.
        unsafe { self.driver().capture_status(self.handle(), &raw mut status) }?;
        Ok(status != 0)
    }

    /// Its capture status, with the capture's id.
    pub fn capture(&self) -> Result<CaptureStatus> {
        let (mut status, mut capture) = (0, 0);
        let (nothing, no_count) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream is live; status and id are valid out-parameters, and the driver accepts null for the
        // rest.
        unsafe {
            self.driver().capture_info(
                self.handle(),
                &raw mut status,
                &raw mut capture,
                nothing,
                nothing,
                no_count,
            )
        }?;
        Ok(match status {
            0 => CaptureStatus::None,
            1 => CaptureStatus::Active(capture),
            _ => CaptureStatus::Invalidated,
        })
    }

    /// Captures later work instead of executing it.
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { self.driver().capture_begin(self.handle(), mode as u32) }
    }

    /// Ends a capture and discards its graph.
    pub fn discard_capture(&self) -> Result<()> {
        let mut graph = 0;
        // SAFETY: the stream is live, and the out-parameter is valid.
        unsafe { self.driver().capture_end(self.handle(), &raw mut graph) }?;
        // SAFETY: the graph is new, and nothing else uses it.
        unsafe { self.driver().graph_destroy(graph) }
    }
}

/// While this lives, no capture forbids this thread's calls, and they break none.
#[derive(Debug)]
#[must_use = "captures are safe from this thread until this is dropped"]
pub struct CaptureModeGuard {
    driver: &'static Driver,
    before: u32,
    // The mode is per thread.
    not_send: PhantomData<*const ()>,
}

impl CaptureModeGuard {
    /// Puts this thread into relaxed mode.
    pub fn relaxed(driver: &'static Driver) -> Result<Self> {
        let mut mode = CaptureMode::Relaxed as u32;
        // SAFETY: the mode is a valid in-out-parameter, into which the driver writes the previous one.
        unsafe { driver.capture_mode(&raw mut mode) }?;
        Ok(Self { driver, before: mode, not_send: PhantomData })
    }
}

impl Drop for CaptureModeGuard {
    fn drop(&mut self) {
        // SAFETY: as above.
        let _ = unsafe { self.driver.capture_mode(&raw mut self.before) };
    }
}
