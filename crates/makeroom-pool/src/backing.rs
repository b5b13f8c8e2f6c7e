//! The device behind a pool: the policy's requests as driver calls.
//!
//! One kind of backing serves both sides of the bus. Device memory is created on the device, spilled and pinned
//! memory on a host node; both are mapped at addresses that the device reaches, and the policy sees no difference.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use makeroom_core::{Address, Bytes, StreamId};
use makeroom_cuda::{
    Access, AddressRange, CaptureModeGuard, Code, Context, Driver, Error, Location, PhysicalMemory,
};
use makeroom_place::pool::{Backing, Fence, Handle, Piece, Refused, SegmentView, Timeout};

use crate::fences::Fences;

/// How long to wait for the GPU if new memory could be allocated instead. Beyond this, the one-time cost of new
/// memory is lower.
pub(crate) const BRIEFLY: Duration = Duration::from_millis(100);

/// Observes the memory that a pool takes from the device, piece by piece. Called with the pool's lock held: it must
/// not use the pool.
pub trait Watcher: Send + Sync + fmt::Debug {
    /// Addresses were reserved. Every address that the pool hands out is in such a range.
    fn reserved(&self, _address: Address, _bytes: u64) {}

    /// Whether this many bytes may be taken; the driver is called afterwards.
    fn may_take(&self, _bytes: u64) -> bool {
        true
    }

    /// Bytes that may still be taken, if there is a limit.
    fn available(&self) -> u64 {
        u64::MAX
    }

    /// Runs work that would invalidate a capture of a CUDA graph, unless one is open. No capture begins during the work.
    fn unless_capturing(&self, work: &mut dyn FnMut()) {
        work();
    }

    /// Whether memory may be unmapped. A captured graph, for example, uses addresses long after their blocks were
    /// freed.
    fn may_unmap(&self) -> bool {
        true
    }

    /// Whether other devices may know memory by its physical addresses. Asked before memory moves.
    fn may_be_registered(&self) -> bool {
        false
    }

    /// Memory that `may_take` allowed was not taken: the driver failed.
    fn was_refused(&self, _bytes: u64) {}

    /// Memory was released to the device.
    fn gave_back(&self, _piece: Piece) {}

    /// Memory was taken from the device.
    fn took(&self, _piece: Piece) {}

    /// Memory was mapped at an address.
    fn mapped(&self, _address: Address, _piece: Piece) {}

    /// Memory was unmapped from an address.
    fn unmapped(&self, _address: Address, _piece: Piece) {}
}

/// Where addresses come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The driver.
    Driver,
    /// Part of another pool's range: first address and length, 0 once it was handed out.
    Part(Address, u64),
}

/// Memory at one location, mapped for a device and, if it is host memory, for the host.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    driver: &'static Driver,
    context: Arc<Context>,
    place: Location,
    readers: Vec<(Location, Access)>,
    /// Indexed by the lower half of their handles; the upper half identifies this backing.
    handles: Vec<Option<PhysicalMemory>>,
    names: u64,
    vacant: Vec<u64>,
    ranges: Vec<Arc<AddressRange>>,
    source: Source,
    fences: Fences,
    refusal: Option<Error>,
    spent: Duration,
    longest_wait: Duration,
    watcher: Option<Arc<dyn Watcher>>,
}

impl MappedMemory {
    /// Memory at `place`, accessible to all `readers`. Events are created in `context`.
    pub(crate) fn new(
        driver: &'static Driver,
        context: Arc<Context>,
        place: Location,
        readers: &[Location],
        longest_wait: Duration,
        watcher: Option<Arc<dyn Watcher>>,
    ) -> Self {
        Self {
            driver,
            context,
            place,
            readers: readers.iter().map(|&reader| (reader, Access::ReadWrite)).collect(),
            handles: Vec::new(),
            names: 0,
            vacant: Vec::new(),
            ranges: Vec::new(),
            source: Source::Driver,
            fences: Fences::new(driver),
            refusal: None,
            spent: Duration::ZERO,
            longest_wait,
            watcher,
        }
    }

    /// Reserves addresses for the arenas.
    pub(crate) fn reserve_arena_addresses(&self, bytes: Bytes) -> Option<Arc<AddressRange>> {
        let range = AddressRange::reserve(self.driver, bytes, Bytes::new(0)).ok()?;
        if let Some(watcher) = &self.watcher {
            watcher.reserved(range.address(), bytes.get());
        }
        Some(Arc::new(range))
    }

    /// Memory of the same kind, for an arena, at part of a reserved range. Its nonzero number keeps its handles
    /// distinct.
    pub(crate) fn for_arena(&self, number: u64, range: Arc<AddressRange>, part: (Address, u64)) -> Self {
        Self {
            driver: self.driver,
            context: self.context.clone(),
            place: self.place,
            readers: self.readers.clone(),
            handles: Vec::new(),
            names: number << 32,
            vacant: Vec::new(),
            ranges: vec![range],
            source: Source::Part(part.0, part.1),
            fences: Fences::new(self.driver),
            refusal: None,
            spent: Duration::ZERO,
            longest_wait: self.longest_wait,
            watcher: self.watcher.clone(),
        }
    }

    /// Waits for all work submitted in its context.
    pub(crate) fn synchronize(&self) -> Result<(), Error> {
        let _entered = self.context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.driver)?;
        self.driver.synchronize()
    }

    /// Gives one more device access to current and future mappings. A device that cannot reach the memory fails
    /// first: with it among the readers nothing could be mapped anymore.
    pub(crate) fn grant(&mut self, device: i32, owner: i32, segments: &[SegmentView]) -> Result<(), Error> {
        let reader = Location::device(device);
        if self.readers.iter().any(|(known, _)| *known == reader) {
            return Ok(());
        }
        if self.place == Location::device(owner) {
            self.driver.device(device)?.check_reach(owner)?;
        }
        let access = [(reader, Access::ReadWrite)];
        for segment in segments {
            if let Some(range) = self.range(segment.address) {
                let start = Bytes::new(segment.address.0 - range.address().0);
                range.set_access(start, Bytes::new(segment.size), &access)?;
            }
        }
        self.readers.push(access[0]);
        Ok(())
    }

    /// Drops all fences: their streams and events are gone, or about to be.
    pub(crate) fn forget_time(&mut self) {
        self.fences = Fences::new(self.driver);
    }

    /// Waits for all work submitted in its context. Returns whether none can still be running: also true after other
    /// errors, because a destroyed or failed context runs nothing, but false if the driver is not initialized or a
    /// capture prevents the wait.
    pub(crate) fn come_to_rest(&self) -> bool {
        let wait = || self.synchronize();
        let Err(error) = wait().or_else(|_| wait()) else { return true };
        let gone = [Code::NOT_INITIALIZED, Code::DEINITIALIZED];
        let captures = Code::STREAM_CAPTURE_UNSUPPORTED.0..=Code::STREAM_CAPTURE_WRONG_THREAD.0;
        error.code().is_some_and(|code| !gone.contains(&code) && !captures.contains(&code.0))
    }

    /// Takes the driver's last error.
    pub(crate) fn take_refusal(&mut self) -> Option<Error> {
        self.refusal.take()
    }

    /// Time spent in driver calls for memory, including waits.
    pub(crate) fn spent(&self) -> Duration {
        self.spent
    }

    /// Whether an address is in a reserved range.
    pub(crate) fn reaches(&self, address: Address) -> bool {
        self.range(address).is_some()
    }

    fn range(&self, address: Address) -> Option<&AddressRange> {
        let holds = |range: &&AddressRange| {
            address.0 >= range.address().0 && address.0 - range.address().0 < range.bytes().get()
        };
        self.ranges.iter().map(AsRef::as_ref).find(holds)
    }

    fn memory(&self, handle: Handle) -> Option<&PhysicalMemory> {
        self.handles.get(place_of(handle))?.as_ref()
    }

    /// Calls the driver: adds up the time, and keeps an error for the report that follows.
    fn ask<T>(&mut self, what: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Refused> {
        let start = Instant::now();
        let answer = what(self);
        self.spent += start.elapsed();
        answer.map_err(|error| {
            self.refusal = Some(error);
            Refused
        })
    }

    fn map_all(&self, address: Address, pieces: &[Piece]) -> Result<(), Error> {
        let not_ours = Error::OutOfBounds { end: Bytes::new(address.0), region: Bytes::new(0) };
        let range = self.range(address).ok_or_else(|| not_ours.clone())?;
        let start = address.0 - range.address().0;
        let mut mapped: u64 = 0;
        let result = pieces.iter().try_for_each(|piece| {
            let memory = self.memory(piece.handle).ok_or_else(|| not_ours.clone())?;
            range.map(Bytes::new(start + mapped), memory)?;
            mapped += piece.size;
            Ok(())
        });
        let result =
            result.and_then(|()| range.set_access(Bytes::new(start), Bytes::new(mapped), &self.readers));
        if result.is_err() && mapped > 0 {
            // Nothing in it was handed out, so the GPU cannot be using it.
            let unmap = || range.unmap(Bytes::new(start), Bytes::new(mapped));
            unmap().or_else(|_| unmap())?;
        }
        result
    }
}

/// The index of a handle.
fn place_of(handle: Handle) -> usize {
    handle.0 as u32 as usize
}

impl Backing for MappedMemory {
    fn reserve(&mut self, size: u64) -> Result<Address, Refused> {
        match self.source {
            Source::Driver => {}
            Source::Part(first, length) if size <= length => {
                self.source = Source::Part(first, 0);
                return Ok(first);
            }
            Source::Part(..) => return Err(Refused),
        }
        self.ask(|this| {
            let range = AddressRange::reserve(this.driver, Bytes::new(size), Bytes::new(0))?;
            let address = range.address();
            this.ranges.push(Arc::new(range));
            if let Some(watcher) = &this.watcher {
                watcher.reserved(address, size);
            }
            Ok(address)
        })
    }

    fn create(&mut self, size: u64) -> Result<Handle, Refused> {
        let watcher = self.watcher.clone();
        if watcher.as_ref().is_some_and(|watcher| !watcher.may_take(size)) {
            return Err(Refused);
        }
        let created = self.ask(|this| {
            let memory = PhysicalMemory::create(this.driver, this.place, Bytes::new(size))?;
            let index = this.vacant.pop().unwrap_or(this.handles.len() as u64);
            if index as usize == this.handles.len() {
                this.handles.push(Some(memory));
            } else if let Some(place) = this.handles.get_mut(index as usize) {
                *place = Some(memory);
            }
            Ok(Handle(this.names | index))
        });
        if let Some(watcher) = watcher {
            match created {
                Ok(handle) => watcher.took(Piece { handle, size }),
                Err(_) => watcher.was_refused(size),
            }
        }
        created
    }

    fn release(&mut self, piece: Piece) -> Result<(), Refused> {
        self.ask(|this| {
            let Some(memory) = this.handles.get_mut(place_of(piece.handle)).and_then(Option::take) else {
                return Ok(());
            };
            // If the driver fails to release it, the memory leaks, and its index is never reused.
            match memory.release() {
                Ok(()) => this.vacant.push(place_of(piece.handle) as u64),
                Err(error) => this.refusal = Some(error),
            }
            if let Some(watcher) = &this.watcher {
                watcher.gave_back(piece);
            }
            Ok(())
        })
    }

    fn map(&mut self, address: Address, pieces: &[Piece]) -> Result<(), Refused> {
        self.ask(|this| this.map_all(address, pieces))?;
        if let Some(watcher) = &self.watcher {
            let mut next = address;
            for &piece in pieces {
                watcher.mapped(next, piece);
                next = Address(next.0 + piece.size);
            }
        }
        Ok(())
    }

    fn unmap(&mut self, address: Address, piece: Piece) -> Result<(), Refused> {
        if self.watcher.as_ref().is_some_and(|watcher| !watcher.may_unmap()) {
            return Err(Refused);
        }
        self.ask(|this| {
            if let Some(range) = this.range(address) {
                range.unmap(Bytes::new(address.0 - range.address().0), Bytes::new(piece.size))?;
            }
            if let Some(watcher) = &this.watcher {
                watcher.unmapped(address, piece);
            }
            Ok(())
        })
    }

    fn fence(&mut self, stream: StreamId) -> Result<Fence, Refused> {
        self.fences.fence(&self.context, stream)
    }

    fn passed(&mut self, stream: StreamId) -> Fence {
        self.fences.passed(&self.context, stream)
    }

    fn wait(&mut self, stream: StreamId, fence: Fence, timeout: Timeout) -> Result<(), Refused> {
        let longest = match timeout {
            Timeout::DoNotWait => Duration::ZERO,
            Timeout::WaitBriefly => self.longest_wait.min(BRIEFLY),
            Timeout::Wait => self.longest_wait,
        };
        let start = Instant::now();
        let answer = self.fences.wait(&self.context, stream, fence, longest);
        self.spent += start.elapsed();
        answer
    }
}
