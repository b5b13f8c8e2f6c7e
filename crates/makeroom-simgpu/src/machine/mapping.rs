//! Virtual memory: reserved addresses, handles of physical memory, mappings, access.
//!
//! As measured on an H200, a handle is mapped as a whole, at any number of addresses; unmapping and setting access
//! work on whole mappings and skip gaps. Unlike there, a mapping beyond the end of its reservation is an error.

use makeroom_simcard::PAGE;

use super::{HandleId, Machine};
use crate::status::{Result, Status};

/// Location of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// On a card.
    Device(usize),
    /// In host memory, on a NUMA node.
    Host(i32),
}

/// Permitted access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    /// The access with this number.
    pub fn from_number(number: u32) -> Result<Self> {
        match number {
            0 => Ok(Self::None),
            1 => Ok(Self::Read),
            3 => Ok(Self::ReadWrite),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    /// The driver's number.
    pub fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Read => 1,
            Self::ReadWrite => 3,
        }
    }
}

/// Physical memory from `cuMemCreate`.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) location: Location,
    owner: usize,
    pub(super) frames: Vec<u32>,
    references: u64,
    mappings: u64,
}

impl Handle {
    pub(super) fn hold(&mut self) {
        self.references += 1;
    }
}

/// A mapping of a handle at an address.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) bytes: u64,
    pub(super) handle: HandleId,
    /// For each GPU, then for the host.
    access: Vec<Access>,
}

impl Machine {
    /// `cuMemAddressReserve`.
    pub fn reserve(&mut self, bytes: u64, alignment: u64, wish: u64) -> Result<u64> {
        let aligned = alignment == 0 || alignment.is_power_of_two();
        if bytes == 0 || !bytes.is_multiple_of(PAGE) || !aligned {
            return Err(Status::INVALID_VALUE);
        }
        let alignment = alignment.max(PAGE);
        let address = if wish > 0 && wish.is_multiple_of(alignment) && self.space.take_at(wish, bytes) {
            wish
        } else {
            self.space.take_aligned(bytes, alignment).ok_or(Status::OUT_OF_MEMORY)?
        };
        self.reservations.insert(address, bytes);
        Ok(address)
    }

    /// `cuMemAddressFree`: a whole reservation without mappings.
    pub fn unreserve(&mut self, address: u64, bytes: u64) -> Result<()> {
        let whole = self.reservations.get(&address) == Some(&bytes);
        if !whole || self.mappings.range(address..address + bytes).next().is_some() {
            return Err(Status::INVALID_VALUE);
        }
        self.reservations.remove(&address);
        self.space.insert(address, bytes);
        Ok(())
    }

    /// Whether a range is within one reservation.
    fn is_reserved(&self, address: u64, end: u64) -> bool {
        let before = self.reservations.range(..=address).next_back();
        before.is_some_and(|(start, bytes)| end <= start + bytes)
    }

    /// `cuMemCreate`. Needs no context.
    pub fn create_handle(&mut self, bytes: u64, location: Location) -> Result<HandleId> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE) {
            return Err(Status::INVALID_VALUE);
        }
        let pages = bytes / PAGE;
        let (owner, frames) = match location {
            Location::Device(device) => (device, self.take_frames(device, pages)?),
            Location::Host(_) => {
                let host = self.devices();
                if self.host_room() < bytes {
                    return Err(Status::OUT_OF_MEMORY);
                }
                (host, self.frames[host].take(pages).ok_or(Status::OUT_OF_MEMORY)?)
            }
        };
        let handle = self.identities.fresh();
        self.handles.insert(handle, Handle { location, owner, frames, references: 1, mappings: 0 });
        Ok(handle)
    }

    fn handle_ref(&self, handle: HandleId) -> Result<&Handle> {
        self.handles.get(&handle).filter(|handle| handle.references > 0).ok_or(Status::INVALID_VALUE)
    }

    /// Location of a handle's memory.
    pub fn handle_location(&self, handle: HandleId) -> Result<Location> {
        Ok(self.handle_ref(handle)?.location)
    }

    /// `cuMemRelease`: frees the memory if it is not mapped either.
    pub fn release_handle(&mut self, handle: HandleId) -> Result<()> {
        self.handle_ref(handle)?;
        if let Some(found) = self.handles.get_mut(&handle) {
            found.references -= 1;
        }
        self.drop_handle(handle);
        Ok(())
    }

    fn drop_handle(&mut self, handle: HandleId) {
        if self.handles.get(&handle).is_some_and(|handle| handle.references == 0 && handle.mappings == 0)
            && let Some(gone) = self.handles.remove(&handle)
        {
            self.give_frames(gone.owner, &gone.frames);
        }
    }

    /// `cuMemMap`.
    pub fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: HandleId) -> Result<()> {
        let size = self.handle_ref(handle)?.frames.len() as u64 * PAGE;
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        if !address.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) || bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        if offset != 0 || bytes != size {
            return Err(Status::NOT_SUPPORTED);
        }
        let before = self.mappings.range(..end).next_back();
        let taken = before.is_some_and(|(start, mapping)| start + mapping.bytes > address);
        if taken || !self.is_reserved(address, end) {
            return Err(Status::INVALID_VALUE);
        }
        let access = vec![Access::None; self.devices() + 1];
        self.mappings.insert(address, Mapping { bytes, handle, access });
        if let Some(found) = self.handles.get_mut(&handle) {
            found.mappings += 1;
        }
        Ok(())
    }

    /// The mappings in a reserved range. One that extends beyond the range is an invalid value.
    fn whole_mappings(&self, address: u64, bytes: u64) -> Result<Vec<u64>> {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        if bytes == 0 || !self.is_reserved(address, end) {
            return Err(Status::INVALID_VALUE);
        }
        let before = self.mappings.range(..address).next_back();
        let cut_before = before.is_some_and(|(start, mapping)| start + mapping.bytes > address);
        let inside = self.mappings.range(address..end);
        let cut_after =
            inside.clone().next_back().is_some_and(|(start, mapping)| start + mapping.bytes > end);
        if cut_before || cut_after {
            return Err(Status::INVALID_VALUE);
        }
        Ok(inside.map(|(start, _)| *start).collect())
    }

    /// `cuMemUnmap`.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<()> {
        for start in self.whole_mappings(address, bytes)? {
            let Some(mapping) = self.mappings.remove(&start) else { continue };
            if let Some(handle) = self.handles.get_mut(&mapping.handle) {
                handle.mappings -= 1;
            }
            self.drop_handle(mapping.handle);
        }
        Ok(())
    }

    /// `cuMemSetAccess`.
    pub fn set_access(&mut self, address: u64, bytes: u64, who: &[(Location, Access)]) -> Result<()> {
        let starts = self.whole_mappings(address, bytes)?;
        if who.is_empty() || starts.is_empty() {
            return Err(Status::INVALID_VALUE);
        }
        let host = self.devices();
        for start in starts {
            let Some(mapping) = self.mappings.get_mut(&start) else { continue };
            for (location, access) in who {
                let index = if let Location::Device(device) = location { *device } else { host };
                mapping.access[index] = *access;
            }
        }
        Ok(())
    }

    /// The mappings of host memory in a range that the host may access: their addresses and frames.
    pub fn host_views(&self, address: u64, bytes: u64) -> Vec<(u64, Vec<u32>)> {
        let host = self.devices();
        let inside = self.mappings.range(address..address.saturating_add(bytes));
        let visible = inside.filter(|(_, mapping)| mapping.access[host] > Access::None);
        visible
            .filter_map(|(start, mapping)| {
                let handle = self.handles.get(&mapping.handle)?;
                (handle.owner == host).then(|| (*start, handle.frames.clone()))
            })
            .collect()
    }

    /// `cuMemGetAccess`.
    pub fn access(&self, address: u64, location: Location) -> Result<Access> {
        let (_, mapping) = self.mapping_at(address).ok_or(Status::INVALID_VALUE)?;
        let index = if let Location::Device(device) = location { device } else { self.devices() };
        Ok(mapping.access[index])
    }

    pub(super) fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start + mapping.bytes).then_some((*start, mapping))
    }

    /// `cuMemRetainAllocationHandle`.
    pub fn retain_handle(&mut self, address: u64) -> Result<HandleId> {
        let (_, mapping) = self.mapping_at(address).ok_or(Status::INVALID_VALUE)?;
        let id = mapping.handle;
        self.handles.get_mut(&id).ok_or(Status::INVALID_VALUE)?.hold();
        Ok(id)
    }

    /// The frames behind a mapped address that a GPU may access: the mapping's start, the owner, and the frames.
    pub(super) fn mapped_frames(
        &self,
        address: u64,
        device: usize,
        write: bool,
    ) -> Option<(u64, usize, &Vec<u32>)> {
        let (start, mapping) = self.mapping_at(address)?;
        let needed = if write { Access::ReadWrite } else { Access::Read };
        let handle = self.handles.get(&mapping.handle)?;
        (mapping.access[device] >= needed).then_some((start, handle.owner, &handle.frames))
    }
}
