//! A callback before a request fails: it may free something and request a retry.
//!
//! It is called only when memory runs out; freeing fixes no other error. No lock is held while it runs, so it may use
//! the pool, including this layer: if its own request fails, it is called recursively.

use std::fmt;

use makeroom_core::{Address, Bytes, StreamId};

use super::pass_on;
use crate::allocator::Allocator;
use crate::error::{OutOfMemory, PoolError, Result};
use crate::site::Site;

/// A request that is about to fail.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'error> {
    /// Requested size.
    pub bytes: Bytes,
    /// The site of the request.
    pub site: Site,
    /// Earlier calls for this request.
    pub attempt: u32,
    /// Why there is no memory, with the account.
    pub error: &'error OutOfMemory,
}

/// What to do with a request that is about to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Retry: something was freed.
    TryAgain,
    /// Return the error to the caller.
    GiveUp,
}

type Ask = Box<dyn Fn(Failure<'_>) -> Answer + Send + Sync>;

/// An allocator with a callback on failure.
pub struct OnFailure<A> {
    upstream: A,
    ask: Ask,
}

impl<A: Allocator> OnFailure<A> {
    /// Calls `ask` for each request that is about to fail, until it gives up or the request succeeds.
    pub fn new(upstream: A, ask: impl Fn(Failure<'_>) -> Answer + Send + Sync + 'static) -> Self {
        Self { upstream, ask: Box::new(ask) }
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }
}

impl<A: fmt::Debug> fmt::Debug for OnFailure<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OnFailure").field("upstream", &self.upstream).finish_non_exhaustive()
    }
}

impl<A: Allocator> Allocator for OnFailure<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let mut attempt = 0;
        loop {
            let error = match self.upstream.allocate(bytes, stream, site) {
                Err(PoolError::OutOfMemory(error)) => error,
                answer => return answer,
            };
            let failure = Failure { bytes: Bytes::new(bytes), site, attempt, error: &error };
            if (self.ask)(failure) == Answer::GiveUp {
                return Err(PoolError::OutOfMemory(error));
            }
            attempt = attempt.saturating_add(1);
        }
    }

    pass_on!(upstream: free record_stream retire_stream trim reaches stats driver);
}
