//! Streams: ordered queues of work.

use crate::driver::Driver;
use crate::error::{Code, Error, Result};
use crate::event::Event;

/// A stream. A created one is destroyed on drop; the driver finishes its work first.
#[derive(Debug)]
pub struct Stream {
    driver: &'static Driver,
    handle: u64,
    is_owned: bool,
}

/// How a stream synchronizes with the default stream; the numbers are CUDA's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StreamKind {
    /// It waits for work on the default stream, and that for it.
    Blocking = 0,
    /// It does not synchronize with the default stream.
    NonBlocking = 1,
}

impl Stream {
    /// Creates a stream in the current context.
    pub fn create(driver: &'static Driver, kind: StreamKind) -> Result<Self> {
        let mut handle = 0;
        // SAFETY: the out-parameter is valid.
        unsafe { driver.stream_create(&raw mut handle, kind as u32) }?;
        Ok(Self { driver, handle, is_owned: true })
    }

    /// The default stream, which all threads share.
    pub fn default_of(driver: &'static Driver) -> Self {
        Self { driver, handle: 0, is_owned: false }
    }

    /// A stream owned elsewhere; it is not destroyed on drop.
    ///
    /// # Safety
    ///
    /// The handle is that of a live stream for as long as the result is used.
    pub unsafe fn borrow(driver: &'static Driver, handle: u64) -> Self {
        Self { driver, handle, is_owned: false }
    }

    /// The driver's handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.driver
    }

    /// Waits for all its work.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        unsafe { self.driver.stream_synchronize(self.handle) }
    }

    /// Whether its work is done.
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the stream is live.
        done(unsafe { self.driver.stream_query(self.handle) })
    }

    /// Makes later work wait for an event.
    pub fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: both are live.
        unsafe { self.driver.stream_wait(self.handle, event.handle(), 0) }
    }

    /// Destroys it and returns the result.
    pub fn destroy(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_owned) {
            return Ok(());
        }
        // SAFETY: created here, and not destroyed before.
        unsafe { self.driver.stream_destroy(self.handle) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // At process exit, and in a forked child, the driver is gone before the stream.
        let _ = self.end();
    }
}

/// Converts a query's result: "not ready" is not an error.
pub(crate) fn done(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(Error::Refused(refusal)) if refusal.code == Code::NOT_READY => Ok(false),
        Err(error) => Err(error),
    }
}
