//! Memory pools.

use std::ffi::c_void;

use super::interop::FILE_DESCRIPTOR;
use crate::abi::{AccessDescription, In, LocationAbi, Out, PoolProperties};
use crate::call::driver_functions;
use crate::driver::Session;
use crate::machine::{Machine, PoolAttribute, PoolId};
use crate::status::{Result, Status};

const PINNED: i32 = 1;
const ON_DEVICE: i32 = 1;

/// The GPU of a location; pools exist only on GPUs.
fn device(machine: &Machine, location: LocationAbi) -> Result<usize> {
    if location.kind != ON_DEVICE {
        return Err(Status::NOT_SUPPORTED);
    }
    machine.device(location.id).map_err(|_| Status::INVALID_VALUE)
}

driver_functions! {
    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) |_| {
        let mut session = Session::open()?;
        let properties = properties.get()?;
        pool.required()?;
        if properties.kind != PINNED {
            return Err(Status::INVALID_VALUE);
        }
        if ![0, FILE_DESCRIPTOR].contains(&properties.handle_types) {
            return Err(Status::NOT_SUPPORTED);
        }
        let device = device(&session.machine, properties.location)?;
        pool.set(session.machine.create_pool(device, properties.largest).0)
    }

    fn cuMemPoolDestroy(pool: u64) |_| { Session::open()?.machine.destroy_pool(PoolId(pool)) }

    fn cuMemPoolTrimTo(pool: u64, keep: u64) |_| { Session::open()?.machine.trim_pool(PoolId(pool), keep) }

    fn cuMemPoolGetAttribute(pool: u64, number: u32, place: Out<c_void>) |_| {
        let session = Session::open()?;
        let attribute = PoolAttribute::from_number(number)?;
        let value = session.machine.pool_attribute(PoolId(pool), attribute)?;
        if attribute.is_switch() { place.cast().set(value as i32) } else { place.cast().set(value) }
    }

    fn cuMemPoolSetAttribute(pool: u64, number: u32, place: Out<c_void>) |_| {
        let mut session = Session::open()?;
        let attribute = PoolAttribute::from_number(number)?;
        let value = if attribute.is_switch() {
            u64::from(place.cast::<i32>().get()? != 0)
        } else {
            place.cast::<u64>().get()?
        };
        session.machine.set_pool_attribute(PoolId(pool), attribute, value)
    }

    fn cuMemPoolGetAccess(flags: Out<u32>, pool: u64, location: In<LocationAbi>) |_| {
        let session = Session::open()?;
        let device = device(&session.machine, location.get()?)?;
        flags.set(session.machine.pool_access(PoolId(pool), device)?)
    }

    fn cuMemPoolSetAccess(pool: u64, descriptions: In<AccessDescription>, count: u64) |_| {
        let mut session = Session::open()?;
        for description in descriptions.list(count as usize)? {
            let device = device(&session.machine, description.location)?;
            session.machine.set_pool_access(PoolId(pool), device, description.flags)?;
        }
        Ok(())
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) |_| {
        let session = Session::open()?;
        pool.set(session.machine.default_pool(session.machine.device(device)?).0)
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) |_| {
        let session = Session::open()?;
        pool.set(session.machine.current_pool(session.machine.device(device)?).0)
    }

    fn cuDeviceSetMemPool(device: i32, pool: u64) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.set_current_pool(device, PoolId(pool))
    }
}
