//! Stream capture: whether work is recorded into a graph instead of done, and how not to break somebody's recording.
//!
//! While any stream of a process is captured in the strictest mode, `cuMemAlloc`, `cuEventQuery` and others on ANY
//! thread are refused and end the capture. Whoever calls them beside a program, as a pool does, takes a
//! [`CaptureModeGuard`] first.

use std::marker::PhantomData;

use crate::driver::Driver;
use crate::error::Result;
use crate::stream::Stream;

/// What captures may forbid; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CaptureMode {
    /// A capture on any thread forbids unsafe calls.
    Global = 0,
    /// A capture on this thread does.
    ThreadLocal = 1,
    /// None does.
    Relaxed = 2,
}

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureStatus {
    /// Its work is done.
    None,
    /// Its work becomes a graph: the capture of this number.
    Active(u64),
    /// Its capture was broken and has to be ended.
    Invalidated,
}

impl Stream {
    /// Whether its work is being recorded. The cheapest way to ask.
    pub fn is_capturing(&self) -> Result<bool> {
        let mut status = 0;
        // SAFETY: the stream is live, and the result has a place.
        unsafe { self.driver().capture_status(self.handle(), &raw mut status) }?;
        Ok(status != 0)
    }

    /// Whether and into which capture its work is recorded.
    pub fn capture(&self) -> Result<CaptureStatus> {
        let (mut status, mut capture) = (0, 0);
        let (nothing, no_count) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream is live; status and number have a place, and the driver lets the rest be left out.
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

    /// Records what comes next instead of doing it.
    pub fn begin_capture(&self, mode: CaptureMode) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { self.driver().capture_begin(self.handle(), mode as u32) }
    }

    /// Ends a capture and throws its graph away.
    pub fn discard_capture(&self) -> Result<()> {
        let mut graph = 0;
        // SAFETY: the stream is live, and the result has a place.
        unsafe { self.driver().capture_end(self.handle(), &raw mut graph) }?;
        // SAFETY: the graph is new, and nobody else knows it.
        unsafe { self.driver().graph_destroy(graph) }
    }
}

/// For as long as it lives, no capture forbids this thread's calls, and none is broken by them.
#[derive(Debug)]
#[must_use = "captures are safe from this thread until this is dropped"]
pub struct CaptureModeGuard {
    driver: &'static Driver,
    before: u32,
    // The mode belongs to the thread.
    not_send: PhantomData<*const ()>,
}

impl CaptureModeGuard {
    /// Takes this thread out of the reach of captures.
    pub fn relaxed(driver: &'static Driver) -> Result<Self> {
        let mut mode = CaptureMode::Relaxed as u32;
        // SAFETY: the mode has a place, into which the driver writes the one before.
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
