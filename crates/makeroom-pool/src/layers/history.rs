//! The most recent events of a pool: allocations and frees with their sites, and the memory mapped for them.
//!
//! A history is both a layer and a watcher. As a layer ([`Recorded`]) it sees allocations and frees with their sites;
//! as the pool's [`Watcher`] it sees the mappings in between. Events are in a ring buffer, so a long run keeps its
//! end. Live blocks are tracked separately, with their sites.
//!
//! A free is noted before it is forwarded and an allocation after it returns, so an address is never noted as
//! allocated twice, whatever other threads do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use makeroom_core::{Address, FastMap, StreamId};
use makeroom_place::pool::Piece;

use super::pass_on;
use crate::allocator::Allocator;
use crate::backing::Watcher;
use crate::error::{PoolError, Result};
use crate::fork::Lock;
use crate::site::Site;

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A block was allocated.
    Allocated,
    /// A block was freed.
    FreeRequested,
    /// Its memory can be reused.
    FreeCompleted,
    /// Memory was mapped.
    Mapped,
    /// Memory was unmapped.
    Unmapped,
    /// A request failed; the address field holds the device's free memory.
    Refused,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastEvent {
    /// Its kind.
    pub what: Happened,
    /// The address.
    pub address: Address,
    /// Size in bytes, requested or mapped.
    pub bytes: u64,
    /// The stream; 0 if none is involved.
    pub stream: StreamId,
    /// Microseconds since the Unix epoch.
    pub time_us: u64,
    /// The site of the call, if there was one.
    pub site: Option<Site>,
}

/// A live block.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    bytes: u64,
    site: Site,
    is_shared: bool,
}

/// The state under the lock. `events.len() ≤ most`
#[derive(Debug, Default)]
struct Past {
    events: VecDeque<PastEvent>,
    most: usize,
    dropped: u64,
    held: FastMap<u64, LiveBlock>,
    /// Freed blocks that wait for another stream, by address. Their completion is noted when their memory is reused,
    /// or when the events are read.
    waiting: BTreeMap<u64, PastEvent>,
}

/// The most recent events of a pool.
#[derive(Debug)]
pub struct History {
    past: Lock<Past>,
}

impl History {
    /// A history of at most `most` events.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { past: Lock::new(Past { most, ..Past::default() }) })
    }

    /// The events, oldest first, and the number of older ones dropped. A free that waits for a stream is complete
    /// unless `is_pending` says that the memory at its address is still waiting.
    pub fn events(&self, is_pending: impl Fn(Address) -> bool) -> (Vec<PastEvent>, u64) {
        let Ok(mut past) = self.past.lock() else { return (Vec::new(), 0) };
        let done: Vec<u64> =
            past.waiting.keys().copied().filter(|address| !is_pending(Address(*address))).collect();
        for address in done {
            past.complete(address);
        }
        (past.events.iter().copied().collect(), past.dropped)
    }

    /// The site that allocated the block at an address.
    pub fn site_at(&self, address: Address) -> Option<Site> {
        self.past.lock().ok()?.held.get(&address.0).map(|held| held.site)
    }

    /// Notes that memory was mapped or unmapped.
    fn moved(&self, what: Happened, address: Address, piece: Piece) {
        if let Ok(mut past) = self.past.lock() {
            past.note(what, address, piece.size, StreamId(0), None);
        }
    }
}

impl Past {
    fn note(&mut self, what: Happened, address: Address, bytes: u64, stream: StreamId, site: Option<Site>) {
        let time_us =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        self.push(PastEvent { what, address, bytes, stream, time_us, site });
    }

    fn push(&mut self, event: PastEvent) {
        if self.events.len() >= self.most {
            self.events.pop_front();
            self.dropped += 1;
        }
        if self.most > 0 {
            self.events.push_back(event);
        }
    }

    fn complete(&mut self, address: u64) {
        if let Some(free) = self.waiting.remove(&address) {
            self.note(Happened::FreeCompleted, free.address, free.bytes, free.stream, free.site);
        }
    }

    fn allocated(&mut self, address: Address, bytes: u64, stream: StreamId, site: Site) {
        let end = address.0 + bytes.max(1);
        // Downward from the last one that starts below the end: waiting blocks do not overlap.
        while let Some((&start, _)) = self
            .waiting
            .range(..end)
            .next_back()
            .filter(|(start, free)| **start + free.bytes.max(1) > address.0)
        {
            self.complete(start);
        }
        self.held.insert(address.0, LiveBlock { bytes, site, is_shared: false });
        self.note(Happened::Allocated, address, bytes, stream, Some(site));
    }

    fn freed(&mut self, address: Address, held: LiveBlock, stream: StreamId, site: Site) {
        self.note(Happened::FreeRequested, address, held.bytes, stream, Some(site));
        if held.is_shared {
            let (what, bytes, site) = (Happened::FreeRequested, held.bytes, Some(site));
            let free = PastEvent { what, address, bytes, stream, time_us: 0, site };
            self.waiting.insert(address.0, free);
        } else {
            self.note(Happened::FreeCompleted, address, held.bytes, stream, Some(site));
        }
    }
}

impl Watcher for History {
    fn mapped(&self, address: Address, piece: Piece) {
        self.moved(Happened::Mapped, address, piece);
    }

    fn unmapped(&self, address: Address, piece: Piece) {
        self.moved(Happened::Unmapped, address, piece);
    }
}

/// An allocator that records its events in a history.
#[derive(Debug)]
pub struct Recorded<A> {
    upstream: A,
    history: Arc<History>,
}

impl<A: Allocator> Recorded<A> {
    /// Records all calls. The same history should be the watcher of the pool below.
    pub fn new(upstream: A, history: Arc<History>) -> Self {
        Self { upstream, history }
    }

    /// The upstream allocator.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// The history.
    pub fn history(&self) -> &Arc<History> {
        &self.history
    }
}

impl<A: Allocator> Allocator for Recorded<A> {
    fn allocate(&self, bytes: u64, stream: StreamId, site: Site) -> Result<Address> {
        let allocated = self.upstream.allocate(bytes, stream, site);
        match &allocated {
            Ok(address) => self.history.past.lock()?.allocated(*address, bytes, stream, site),
            Err(PoolError::OutOfMemory(error)) => {
                let free = Address(error.device.map_or(0, |device| device.free.get()));
                self.history.past.lock()?.note(Happened::Refused, free, bytes, stream, Some(site));
            }
            Err(_) => {}
        }
        allocated
    }

    unsafe fn free(&self, address: Address, stream: StreamId, site: Site) -> Result<()> {
        let held = {
            let mut past = self.history.past.lock()?;
            let held = past.held.remove(&address.0);
            if let Some(held) = held {
                past.freed(address, held, stream, site);
            }
            held
        };
        // SAFETY: guaranteed by the caller.
        let freed = unsafe { self.upstream.free(address, stream, site) };
        if let (Err(_), Some(held)) = (&freed, held) {
            let mut past = self.history.past.lock()?;
            past.complete(address.0);
            past.allocated(address, held.bytes, stream, held.site);
        }
        freed
    }

    fn record_stream(&self, address: Address, stream: StreamId) -> Result<()> {
        self.upstream.record_stream(address, stream)?;
        if let Some(held) = self.history.past.lock()?.held.get_mut(&address.0) {
            held.is_shared = true;
        }
        Ok(())
    }

    pass_on!(upstream: retire_stream trim reaches stats driver);
}
