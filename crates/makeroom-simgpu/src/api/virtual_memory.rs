//! Virtual memory: reservations, handles, mappings, access.

use makeroom_simcard::PAGE;

use super::interop::FILE_DESCRIPTOR;
use crate::abi::{AccessDescription, AllocationProperties, In, LocationAbi, Out, device_number};
use crate::backing::Backing;
use crate::call::driver_functions;
use crate::driver::Session;
use crate::machine::{Access, HandleId, Location, Machine};
use crate::status::{Result, Status};

const PINNED: i32 = 1;
const DEVICE: i32 = 1;
const HOST: i32 = 2;
const HOST_NODE: i32 = 3;
const HOST_NODE_CURRENT: i32 = 4;

fn location(machine: &Machine, location: LocationAbi) -> Result<Location> {
    match location.kind {
        DEVICE => machine.device(location.id).map(Location::Device),
        // The simulated host has one node.
        HOST_NODE if location.id == 0 => Ok(Location::Host(0)),
        HOST | HOST_NODE_CURRENT => Ok(Location::Host(0)),
        _ => Err(Status::INVALID_VALUE),
    }
}

fn properties(machine: &Machine, place: In<AllocationProperties>) -> Result<Location> {
    let properties = place.get()?;
    if properties.kind != PINNED {
        return Err(Status::INVALID_VALUE);
    }
    if ![0, FILE_DESCRIPTOR].contains(&properties.handle_types) {
        return Err(Status::NOT_SUPPORTED);
    }
    location(machine, properties.location)
}

driver_functions! {
    fn cuMemGetAllocationGranularity(bytes: Out<u64>, wanted: In<AllocationProperties>, _option: u32) |_| {
        let session = Session::open()?;
        properties(&session.machine, wanted)?;
        bytes.set(PAGE)
    }

    fn cuMemAddressReserve(address: Out<u64>, bytes: u64, alignment: u64, wish: u64, flags: u64) |_| {
        let mut session = Session::open()?;
        address.required()?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        address.set(session.machine.reserve(bytes, alignment, wish)?)
    }

    fn cuMemAddressFree(address: u64, bytes: u64) |_| { Session::open()?.machine.unreserve(address, bytes) }

    fn cuMemCreate(handle: Out<u64>, bytes: u64, wanted: In<AllocationProperties>, flags: u64) |_| {
        let mut session = Session::open()?;
        handle.required()?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let location = properties(&session.machine, wanted)?;
        handle.set(session.machine.create_handle(bytes, location)?.0)
    }

    fn cuMemRelease(handle: u64) |_| {
        let mut session = Session::open()?;
        if session.machine.release_multicast(handle) {
            return Ok(());
        }
        session.machine.release_handle(HandleId(handle))
    }

    fn cuMemMap(address: u64, bytes: u64, offset: u64, handle: u64, flags: u64) |_| {
        let mut session = Session::open()?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        session.machine.map(address, bytes, offset, HandleId(handle))
    }

    fn cuMemUnmap(address: u64, bytes: u64) |_| {
        let mut session = Session::open()?;
        let views = session.machine.host_views(address, bytes);
        session.machine.unmap(address, bytes)?;
        for (start, frames) in views {
            Backing::hide(start, frames.len() as u64);
        }
        Ok(())
    }

    fn cuMemSetAccess(address: u64, bytes: u64, descriptions: In<AccessDescription>, count: u64) |_| {
        let mut session = Session::open()?;
        let mut who = Vec::new();
        for description in descriptions.list(count as usize)? {
            let location = location(&session.machine, description.location)?;
            who.push((location, Access::from_number(description.flags)?));
        }
        session.machine.set_access(address, bytes, &who)?;
        for (start, frames) in session.machine.host_views(address, bytes) {
            session.backing.show(start, &frames)?;
        }
        Ok(())
    }

    fn cuMemGetAccess(flags: Out<u64>, place: In<LocationAbi>, address: u64) |_| {
        let session = Session::open()?;
        let location = location(&session.machine, place.get()?)?;
        flags.set(u64::from(session.machine.access(address, location)?.number()))
    }

    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) |_| {
        let mut session = Session::open()?;
        handle.required()?;
        handle.set(session.machine.retain_handle(address)?.0)
    }

    fn cuMemGetAllocationPropertiesFromHandle(place: Out<AllocationProperties>, handle: u64) |_| {
        let session = Session::open()?;
        let location = match session.machine.handle_location(HandleId(handle))? {
            Location::Device(device) => LocationAbi { kind: DEVICE, id: device_number(device) },
            Location::Host(node) => LocationAbi { kind: HOST_NODE, id: node },
        };
        place.set(AllocationProperties { kind: PINNED, location, ..AllocationProperties::default() })
    }
}
