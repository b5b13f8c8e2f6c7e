//! A function of the program's own is asked before a request fails: it may free something and say "try again".
//!
//! It is asked for refused memory only; no other error goes away by freeing. No lock is held while it runs, so it may
//! use the pool, also this layer of it: a request of its own that fails asks it again, one level deeper.

use std::fmt;

use makeroom_core::{Address, Bytes, StreamId};

use super::pass_on;
use crate::allocator::Allocator;
use crate::error::{OutOfMemory, PoolError, Result};
use crate::site::Site;

/// A request that would fail.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'error> {
    /// How much was asked for.
    pub bytes: Bytes,
    /// Who asked.
    pub site: Site,
    /// How often the function was asked about this request before.
    pub attempt: u32,
    /// Why there is no memory, with the account.
    pub error: &'error OutOfMemory,
}

/// What to do with a request that would fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Something was freed.
    TryAgain,
    /// The caller gets the error.
    GiveUp,
}

type Ask = Box<dyn Fn(Failure<'_>) -> Answer + Send + Sync>;

/// An allocator that asks before it fails.
pub struct OnFailure<A> {
    upstream: A,
    ask: Ask,
}

impl<A: Allocator> OnFailure<A> {
    /// Asks `ask` about each request that would fail, until it gives up or there is memory.
    pub fn new(upstream: A, ask: impl Fn(Failure<'_>) -> Answer + Send + Sync + 'static) -> Self {
        Self { upstream, ask: Box::new(ask) }
    }

    /// What stands below.
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
