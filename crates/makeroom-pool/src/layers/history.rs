//! The last events of a pool: who took and gave back what, and which memory the pool took for it.
//!
//! A history is a layer and a watcher at once. As a layer ([`Recorded`]) it sees allocations and frees with their
//! sites; as the pool's [`Watcher`] it sees memory being mapped, in between. Events stand in a ring, so a long run
//! keeps its end; what is in use is known besides, with who asked for it.
//!
//! A free is noted before it is passed on and an allocation after it came back: an address is then never noted as
//! taken twice, whatever other threads do.

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

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A block was handed out.
    Allocated,
    /// A block was given back.
    FreeRequested,
    /// Its memory may be used again.
    FreeCompleted,
    /// Memory was put at addresses.
    Mapped,
    /// Memory was taken away from addresses.
    Unmapped,
    /// A request could not be served; the address is what the device had free.
    Refused,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastEvent {
    /// What happened.
    pub what: Happened,
    /// Where.
    pub address: Address,
    /// How many bytes: what was asked for, or what was mapped.
    pub bytes: u64,
    /// On which stream; 0 where no stream is concerned.
    pub stream: StreamId,
    /// When, in microseconds since the epoch.
    pub time_us: u64,
    /// Who asked, where somebody did.
    pub site: Option<Site>,
}

/// A block in use.
#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: u64,
    site: Site,
    is_shared: bool,
}

/// What the lock guards. `events.len() ≤ most`
#[derive(Debug, Default)]
struct Past {
    events: VecDeque<PastEvent>,
    most: usize,
    dropped: u64,
    held: FastMap<u64, Held>,
    /// Blocks that were freed and wait for another stream, by address: when that stream has passed is noted when
    /// their memory is used again, or when somebody looks.
    waiting: BTreeMap<u64, PastEvent>,
}

/// The last events of a pool.
#[derive(Debug)]
pub struct History {
    past: Lock<Past>,
}

impl History {
    /// Remembers so many events.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { past: Lock::new(Past { most, ..Past::default() }) })
    }

    /// The events, oldest first, and how many older ones were forgotten. Frees that wait for a stream are complete
    /// unless `is_pending` says that the memory at their address still waits.
    pub fn events(&self, is_pending: impl Fn(Address) -> bool) -> (Vec<PastEvent>, u64) {
        let Ok(mut past) = self.past.lock() else { return (Vec::new(), 0) };
        let done: Vec<u64> =
            past.waiting.keys().copied().filter(|address| !is_pending(Address(*address))).collect();
        for address in done {
            past.complete(address);
        }
        (past.events.iter().copied().collect(), past.dropped)
    }

    /// Who asked for the block at an address.
    pub fn site_at(&self, address: Address) -> Option<Site> {
        self.past.lock().ok()?.held.get(&address.0).map(|held| held.site)
    }

    /// Memory is put at an address or taken away from it.
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
        // From the last one that begins below the end downwards: blocks that wait do not overlap each other.
        while let Some((&start, _)) = self
            .waiting
            .range(..end)
            .next_back()
            .filter(|(start, free)| **start + free.bytes.max(1) > address.0)
        {
            self.complete(start);
        }
        self.held.insert(address.0, Held { bytes, site, is_shared: false });
        self.note(Happened::Allocated, address, bytes, stream, Some(site));
    }

    fn freed(&mut self, address: Address, held: Held, stream: StreamId, site: Site) {
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

/// An allocator whose events are remembered.
#[derive(Debug)]
pub struct Recorded<A> {
    upstream: A,
    history: Arc<History>,
}

impl<A: Allocator> Recorded<A> {
    /// Notes what passes. The same history should be the watcher of the pool below.
    pub fn new(upstream: A, history: Arc<History>) -> Self {
        Self { upstream, history }
    }

    /// What stands below.
    pub fn upstream(&self) -> &A {
        &self.upstream
    }

    /// What was noted.
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
        // SAFETY: passed on to the caller.
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
