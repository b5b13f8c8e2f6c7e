//! The memory of pages: the requests of the policy as driver calls.
//!
//! Addresses belong to PyTorch, which reserved them; the physical memory under them is created here, with the properties
//! that PyTorch asked for, and mapped for the devices to which PyTorch gave access.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::{Duration, Instant};

use makeroom_core::{Address, Bytes};
use makeroom_cuda::{
    Access, AddressRange, AllocationProperties, CaptureModeGuard, Context, Driver, Error, Location,
    PhysicalMemory,
};
use makeroom_place::paged::{Mark, PageBacking, Pause};
use makeroom_place::pool::{Handle, Piece, Refused};

use super::marks::Marks;
use crate::backing::Watcher;

/// Sets these handles apart from those of the pool on the same device, which have 39 bits.
const NAMES: u64 = 1 << 39;

/// A range of addresses that PyTorch reserved, and the devices that may access it.
#[derive(Debug)]
struct Range {
    addresses: ManuallyDrop<AddressRange>,
    readers: Vec<(Location, Access)>,
}

impl Range {
    fn offset(&self, address: u64) -> Option<Bytes> {
        let offset = address.checked_sub(self.addresses.address().0)?;
        (offset < self.addresses.bytes().get()).then_some(Bytes::new(offset))
    }
}

/// Where a handle's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Device,
    Host,
}

/// Host memory that may take the place of device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostMemory {
    /// The host's NUMA node that is closest to the device.
    pub(super) node: i32,
    /// Bytes that may be used.
    pub(super) most: u64,
}

/// What [`PageMemory`] is made with.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) driver: &'static Driver,
    pub(super) device: i32,
    pub(super) context: Arc<Context>,
    pub(super) host: Option<HostMemory>,
    pub(super) watcher: Option<Arc<dyn Watcher>>,
    pub(super) host_watcher: Option<Arc<dyn Watcher>>,
}

/// The physical memory of one device's pages.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PageMemory {
    marks: Marks,
    parts: Parts,
    properties: AllocationProperties,
    host_left: u64,
    ranges: Vec<Range>,
    handles: Vec<Option<(PhysicalMemory, Place)>>,
    vacant: Vec<usize>,
    /// Addresses at which whole handles are mapped while contents are copied into them.
    copies: Vec<(Handle, AddressRange)>,
    spent: Duration,
    /// No memory is unmapped anymore.
    is_over: bool,
}

impl PageMemory {
    pub(super) fn new(parts: Parts) -> Self {
        let marks = Marks::new(parts.driver, parts.context.clone(), parts.watcher.clone());
        Self {
            properties: AllocationProperties::pinned(Location::device(parts.device)),
            host_left: parts.host.map_or(0, |host| host.most),
            ranges: Vec::new(),
            handles: Vec::new(),
            vacant: Vec::new(),
            copies: Vec::new(),
            marks,
            spent: Duration::ZERO,
            is_over: false,
            parts,
        }
    }

    /// The properties of all memory created from now on.
    pub(super) fn set_properties(&mut self, properties: AllocationProperties) {
        self.properties = properties;
    }

    /// Time spent in driver calls, including waits.
    pub(super) fn spent(&self) -> Duration {
        self.spent
    }

    /// Prepares a wait. Returns whether it may begin.
    pub(super) fn begin_wait(&mut self, pause: Pause) -> bool {
        !self.marks.is_stuck(pause) && self.marks.cover(pause.mark)
    }

    /// Whether all work before a mark has finished. If the driver fails, waiting for it is of no use.
    pub(super) fn has_passed(&mut self, mark: Mark) -> Result<bool, Error> {
        self.marks.has_passed(mark)
    }

    /// A wait timed out.
    pub(super) fn time_out(&mut self, pause: Pause) {
        self.marks.time_out(pause);
    }

    /// Whether no memory has moved for a while.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.marks.is_quiet(now)
    }

    /// Marks were made: makes sure that the GPU passes them some time.
    pub(super) fn look(&mut self) {
        let begun = Instant::now();
        self.marks.record_if_due();
        self.spent += begun.elapsed();
    }

    /// Adds the time of a wait.
    pub(super) fn waited(&mut self, time: Duration) {
        self.spent += time;
    }

    /// Whether other devices may know memory by its physical addresses.
    pub(super) fn may_be_registered(&self) -> bool {
        self.parts.watcher.as_ref().is_some_and(|watcher| watcher.may_be_registered())
    }

    /// The context ends, or the tables may be wrong: nothing moves from now on.
    pub(super) fn end_time(&mut self) {
        self.is_over = true;
        self.marks.end();
    }

    /// The device's free memory, up to the limit.
    pub(super) fn free(&self) -> Result<u64, Error> {
        let _entered = self.parts.context.enter()?;
        let _relaxed = CaptureModeGuard::relaxed(self.parts.driver)?;
        let free = self.parts.driver.memory()?.free.get();
        Ok(self.parts.watcher.as_ref().map_or(free, |watcher| free.min(watcher.available())))
    }

    /// PyTorch reserved a range.
    pub(super) fn reserve(&mut self, address: u64, bytes: u64) {
        let (address, bytes) = (Address(address), Bytes::new(bytes));
        // SAFETY: PyTorch reserved the range, which is removed here before it is freed. Memory in it is unmapped only
        // through this type: other calls for these addresses do not reach the driver.
        let addresses = unsafe { AddressRange::borrow(self.parts.driver, address, bytes) };
        self.ranges.push(Range { addresses, readers: Vec::new() });
    }

    /// PyTorch frees a range.
    pub(super) fn unreserve(&mut self, address: u64) {
        self.ranges.retain(|range| range.addresses.address().0 != address);
    }

    /// Gives a location access to a range. The memory that is mapped already needs [`Self::apply_access`].
    pub(super) fn grant(&mut self, address: u64, who: Location, access: Access) -> Result<(), Error> {
        let own = self.parts.device;
        if let Some(device) = who.device_number().filter(|&device| device != own) {
            // With a device that cannot reach the memory among the readers, nothing could be mapped anymore.
            self.parts.driver.device(device)?.check_reach(own)?;
        }
        let Some(range) = self.ranges.iter_mut().find(|range| range.offset(address).is_some()) else {
            return Ok(());
        };
        match range.readers.iter_mut().find(|(known, _)| *known == who) {
            Some((_, known)) => *known = access,
            None => range.readers.push((who, access)),
        }
        Ok(())
    }

    /// The access that a location was given to a range.
    pub(super) fn access(&self, address: u64, who: Location) -> Access {
        let found = self.range(address).ok().and_then(|(range, _)| {
            range.readers.iter().find(|(known, _)| *known == who).map(|&(_, access)| access)
        });
        found.unwrap_or(Access::None)
    }

    /// Sets the access rights of mapped memory to those of its range.
    pub(super) fn apply_access(&mut self, address: u64, bytes: u64) -> Result<(), Error> {
        let (range, offset) = self.range(address)?;
        range.addresses.set_access(offset, Bytes::new(bytes), self.readers(range).as_ref())
    }

    /// The driver's handle of a piece.
    pub(super) fn driver_handle(&self, handle: Handle) -> Option<u64> {
        self.handles.get(index_of(handle))?.as_ref().map(|(memory, _)| memory.handle())
    }

    fn range(&self, address: u64) -> Result<(&Range, Bytes), Error> {
        let found = self.ranges.iter().find_map(|range| Some((range, range.offset(address)?)));
        found.ok_or_else(|| Error::OutOfBounds { end: Bytes::new(address), region: Bytes::ZERO })
    }

    /// Who may access a range; before PyTorch says so, the device itself.
    fn readers<'range>(&self, range: &'range Range) -> std::borrow::Cow<'range, [(Location, Access)]> {
        if range.readers.is_empty() {
            return vec![(Location::device(self.parts.device), Access::ReadWrite)].into();
        }
        range.readers.as_slice().into()
    }

    /// Calls the driver, and adds up the time.
    fn timed<T>(&mut self, call: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Refused> {
        let start = Instant::now();
        let relaxed = CaptureModeGuard::relaxed(self.parts.driver);
        let result = relaxed.and_then(|_relaxed| call(self));
        self.spent += start.elapsed();
        result.map_err(|_| Refused)
    }

    /// Maps a handle at addresses of its own, and starts to copy the contents of mapped parts there.
    fn copy(&mut self, address: u64, whole: Piece, parts: &[(u64, Piece)]) -> Result<(), Error> {
        let out_of_bounds = || Error::OutOfBounds { end: Bytes::new(address), region: Bytes::ZERO };
        let size = Bytes::new(whole.size);
        let context = Arc::clone(&self.parts.context);
        let _entered = context.enter()?;
        let Some(Some((memory, _))) = self.handles.get(index_of(whole.handle)) else {
            return Err(out_of_bounds());
        };
        let (range, _) = self.range(address)?;
        let aside = AddressRange::reserve(self.parts.driver, size, Bytes::ZERO)?;
        aside.map(Bytes::ZERO, memory)?;
        let own = [(Location::device(self.parts.device), Access::ReadWrite)];
        let mut has_begun = false;
        let copied = aside.set_access(Bytes::ZERO, size, &own).and_then(|()| {
            parts.iter().try_for_each(|&(at, part)| {
                let offset = range.offset(at).ok_or_else(out_of_bounds)?;
                let from = range.addresses.region().part(offset, Bytes::new(part.size))?;
                let to = aside.region().part(Bytes::new(at - address), Bytes::new(part.size))?;
                has_begun = true;
                to.copy_from(from)
            })
        });
        if copied.is_ok() {
            self.copies.push((whole.handle, aside));
        } else if has_begun {
            // Copies of earlier parts may still run: their addresses stay.
            std::mem::forget(aside);
        } else {
            let unmap = || aside.unmap(Bytes::ZERO, size);
            unmap().or_else(|_| unmap())?;
        }
        copied
    }

    /// Undoes unmapping. If the driver fails twice, the contents are lost, as after any failed unmap.
    fn map_again(&mut self, parts: &[(u64, Piece)]) {
        for &(at, part) in parts {
            let _ = self.map(at, part).or_else(|_| self.map(at, part));
        }
    }

    fn watcher(&self, place: Place) -> Option<Arc<dyn Watcher>> {
        match place {
            Place::Device => self.parts.watcher.clone(),
            Place::Host => self.parts.host_watcher.clone(),
        }
    }

    fn create_at(
        &mut self,
        place: Place,
        properties: AllocationProperties,
        size: u64,
    ) -> Result<Handle, Refused> {
        let watcher = self.watcher(place);
        if watcher.as_ref().is_some_and(|watcher| !watcher.may_take(size)) {
            return Err(Refused);
        }
        let created = self.timed(|this| {
            let memory = PhysicalMemory::create_with(this.parts.driver, &properties, Bytes::new(size))?;
            let index = this.vacant.pop().unwrap_or(this.handles.len());
            match this.handles.get_mut(index) {
                Some(vacant) => *vacant = Some((memory, place)),
                None => this.handles.push(Some((memory, place))),
            }
            Ok(Handle(NAMES | index as u64))
        });
        if let Some(watcher) = watcher {
            match created {
                Ok(handle) => watcher.took(Piece { handle, size }),
                Err(_) => watcher.was_refused(size),
            }
        }
        created
    }
}

/// The index of a handle.
fn index_of(handle: Handle) -> usize {
    handle.0 as u32 as usize
}

impl PageBacking for PageMemory {
    fn create(&mut self, size: u64) -> Result<Handle, Refused> {
        self.create_at(Place::Device, self.properties, size)
    }

    fn create_on_host(&mut self, size: u64) -> Result<Handle, Refused> {
        let Some(host) = self.parts.host.filter(|_| size <= self.host_left) else { return Err(Refused) };
        let properties = AllocationProperties::pinned(Location::host_node(host.node));
        let handle = self.create_at(Place::Host, properties, size)?;
        self.host_left -= size;
        Ok(handle)
    }

    fn release(&mut self, piece: Piece) -> Result<(), Refused> {
        let index = index_of(piece.handle);
        let Some((memory, place)) = self.handles.get_mut(index).and_then(Option::take) else { return Ok(()) };
        if place == Place::Host {
            self.host_left += piece.size;
        }
        // If the driver fails to release it, the memory leaks, and its index is never reused.
        if self.timed(|_| memory.release()).is_ok() {
            self.vacant.push(index);
        }
        if let Some(watcher) = self.watcher(place) {
            watcher.gave_back(piece);
        }
        Ok(())
    }

    fn map(&mut self, address: u64, piece: Piece) -> Result<(), Refused> {
        let place = self.timed(|this| {
            let (range, offset) = this.range(address)?;
            let Some(Some((memory, place))) = this.handles.get(index_of(piece.handle)) else {
                return Err(Error::OutOfBounds { end: Bytes::new(piece.size), region: Bytes::ZERO });
            };
            range.addresses.map(offset, memory)?;
            let set = range.addresses.set_access(offset, memory.bytes(), this.readers(range).as_ref());
            if set.is_err() {
                // No block is there yet, so the GPU cannot be using it.
                let unmap = || range.addresses.unmap(offset, memory.bytes());
                unmap().or_else(|_| unmap())?;
            }
            set.map(|()| *place)
        })?;
        if let Some(watcher) = self.watcher(place) {
            watcher.mapped(Address(address), piece);
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, piece: Piece) -> Result<(), Refused> {
        if self.is_over {
            return Err(Refused);
        }
        self.timed(|this| {
            let (range, offset) = this.range(address)?;
            range.addresses.unmap(offset, Bytes::new(piece.size))
        })?;
        let place = self.handles.get(index_of(piece.handle)).and_then(Option::as_ref);
        if let Some(watcher) = place.and_then(|(_, place)| self.watcher(*place)) {
            watcher.unmapped(Address(address), piece);
        }
        Ok(())
    }

    fn begin_copy(&mut self, address: u64, whole: Piece, parts: &[(u64, Piece)]) -> Result<(), Refused> {
        self.timed(|this| this.copy(address, whole, parts))
    }

    fn end_copy(&mut self, whole: Piece, is_finished: bool) -> Result<(), Refused> {
        let Some(index) = self.copies.iter().position(|(handle, _)| *handle == whole.handle) else {
            return Err(Refused);
        };
        let (_, aside) = self.copies.swap_remove(index);
        let is_unmapped = is_finished
            && self
                .timed(|_| {
                    let unmap = || aside.unmap(Bytes::ZERO, Bytes::new(whole.size));
                    unmap().or_else(|_| unmap())
                })
                .is_ok();
        if is_unmapped {
            return Ok(());
        }
        // The copy may still run: its addresses stay, and its memory.
        std::mem::forget(aside);
        Err(Refused)
    }

    fn replace(&mut self, address: u64, whole: Piece, parts: &[(u64, Piece)]) -> Result<(), Refused> {
        for (done, &(at, part)) in parts.iter().enumerate() {
            if self.unmap(at, part).is_err() {
                self.map_again(&parts[..done]);
                return Err(Refused);
            }
        }
        self.map(address, whole).inspect_err(|_| self.map_again(parts))
    }

    fn mark(&mut self) -> Mark {
        self.marks.mark()
    }

    fn passed(&mut self) -> Mark {
        self.marks.passed()
    }

    fn passes_within(&mut self, mark: Mark, time: Duration) -> bool {
        let start = Instant::now();
        let mut has_passed = false;
        if self.marks.cover(mark) {
            has_passed = loop {
                match self.marks.has_passed(mark) {
                    Ok(false) if start.elapsed() < time => std::hint::spin_loop(),
                    result => break result.unwrap_or(false),
                }
            };
        }
        self.spent += start.elapsed();
        has_passed
    }
}
