//! Events: marks on streams.

use crate::driver::Driver;
use crate::error::Result;
use crate::stream::{Stream, done};

/// A mark that a stream passes.
#[derive(Debug)]
pub struct Event {
    driver: &'static Driver,
    handle: u64,
}

/// What an event keeps; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum EventKind {
    /// When it was passed.
    Timing = 0,
    /// That it was passed: cheaper.
    NoTiming = 2,
}

impl Event {
    /// Creates an event in the current context.
    pub fn create(driver: &'static Driver, kind: EventKind) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the result has a place.
        unsafe { driver.event_create(&raw mut handle, kind as u32) }?;
        Ok(Self { driver, handle })
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Puts the mark behind what the stream has to do now.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: both are live.
        unsafe { self.driver.event_record(self.handle, stream.handle()) }
    }

    /// Whether the stream has passed the mark; one that was never recorded counts as passed.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the event is live.
        done(unsafe { self.driver.event_query(self.handle) })
    }

    /// Waits until the stream has passed the mark.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event is live.
        unsafe { self.driver.event_synchronize(self.handle) }
    }

    /// Milliseconds from an earlier mark to this one.
    pub fn milliseconds_since(&self, earlier: &Self) -> Result<f32> {
        let mut milliseconds = 0.0;
        // SAFETY: both are live, and the result has a place.
        unsafe { self.driver.event_elapsed(&raw mut milliseconds, earlier.handle, self.handle) }?;
        Ok(milliseconds)
    }

    /// Destroys it and says how that went.
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
        // At the end of the process, and in a forked child, the driver is gone before the event is.
        let _ = self.end();
    }
}
