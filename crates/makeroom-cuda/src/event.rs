//! Events: markers on streams.

use crate::context::Context;
use crate::driver::Driver;
use crate::error::Result;
use crate::stream::{Stream, done};

/// A marker that a stream passes.
#[derive(Debug)]
pub struct Event {
    driver: &'static Driver,
    handle: u64,
}

/// What an event records; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// The time at which it was passed.
    Timing = 0,
    /// Only that it was passed: cheaper.
    NoTiming = 2,
}

impl Event {
    /// Creates an event in the current context.
    pub fn create(driver: &'static Driver, kind: EventKind) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { driver.event_create(&raw mut handle, kind as u32) }?;
        Ok(Self { driver, handle })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Records it after the stream's current work.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are live.
        unsafe { self.driver.event_record(self.handle, stream.handle()) }
    }

    /// Records it after the current work of a context, on all of its streams. Fails while one of them is being captured,
    /// and invalidates that capture.
    pub fn record_context(&self, context: &Context) -> Result<()> {
        // SAFETY: both are live.
        unsafe { self.driver.context_record(context.handle(), self.handle) }
    }

    /// Whether the stream has passed it; an event that was never recorded counts as passed.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the event is live.
        done(unsafe { self.driver.event_query(self.handle) })
    }

    /// Waits until the stream has passed it.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is live.
        unsafe { self.driver.event_synchronize(self.handle) }
    }

    /// Milliseconds from an earlier event to this one.
    pub fn milliseconds_since(&self, earlier: &Self) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both are live, and the out-parameter is valid.
        unsafe { self.driver.event_elapsed(&raw mut milliseconds, earlier.handle, self.handle) }?;
        Ok(milliseconds)
    }

    /// Destroys it and returns the result.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        match std::mem::take(&mut self.handle) {
            0 => Ok(()),
            // SAFETY: created here, and not destroyed before.
            handle => unsafe { self.driver.event_destroy(handle) },
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // At process exit, and in a forked child, the driver is gone before the event.
        let _ = self.end();
    }
}
