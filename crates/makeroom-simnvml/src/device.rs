//! Devices: handles and properties.

use std::ffi::c_char;
use std::sync::atomic::Ordering;

use makeroom_simcard as card;

use crate::abi::{Failure, OutPointer, Result, Text, management_functions, write_text};
use crate::state::{self, Handle, Started};

/// PCI location of a GPU.
#[repr(C)]
#[derive(Clone, Copy)]
struct BusInformation {
    short: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_identity: u32,
    subsystem_identity: u32,
    long: [u8; 32],
}

fn padded<const SIZE: usize>(text: &str) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let length = text.len().min(SIZE - 1);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

/// The first device that matches.
fn find(handle: OutPointer<Handle>, is_it: impl Fn(usize) -> bool) -> Result<()> {
    state::with(|started| {
        let device =
            (0..started.description.devices).find(|device| is_it(*device)).ok_or(Failure::NOT_FOUND)?;
        handle.set(Handle::for_device(device))
    })
}

management_functions! {
    fn nvmlDeviceGetCount_v2 = nvmlDeviceGetCount(count: OutPointer<u32>) {
        state::with(|started| {
            started.looks.fetch_add(1, Ordering::Relaxed);
            count.set(started.description.devices as u32)
        })
    }

    fn nvmlDeviceGetHandleByIndex_v2 = nvmlDeviceGetHandleByIndex(index: u32, handle: OutPointer<Handle>) {
        state::with(|started| {
            if index as usize >= started.description.devices {
                return Err(Failure::INVALID_ARGUMENT);
            }
            handle.set(Handle::for_device(index as usize))
        })
    }

    fn nvmlDeviceGetHandleByUUID(text: Text, handle: OutPointer<Handle>) {
        let wanted = text.bytes()?;
        find(handle, |device| card::uuid_text(device).as_bytes() == wanted)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2 = nvmlDeviceGetHandleByPciBusId(text: Text, handle: OutPointer<Handle>) {
        let wanted = text.bytes()?.to_ascii_uppercase();
        find(handle, |device| {
            let whole = card::bus_id(device);
            wanted == whole.as_bytes() || wanted == whole.as_bytes()[4..]
        })
    }

    fn nvmlDeviceGetName(device: Handle, text: OutPointer<c_char>, size: u32) {
        state::with(|started| {
            let (device, part) = device.place(started)?;
            let whole = card::name(device);
            let name = part.map_or(whole.clone(), |_| format!("{whole} MIG 1g"));
            write_text(text, size, &name)
        })
    }

    fn nvmlDeviceGetUUID(device: Handle, text: OutPointer<c_char>, size: u32) {
        state::with(|started| {
            let uuid = match device.place(started)? {
                (device, None) => card::uuid_text(device),
                (device, Some(part)) => part_uuid(device, part),
            };
            write_text(text, size, &uuid)
        })
    }

    fn nvmlDeviceGetIndex(device: Handle, index: OutPointer<u32>) {
        state::with(|started| index.set(device.device(started)? as u32))
    }

    fn nvmlDeviceGetMinorNumber(device: Handle, number: OutPointer<u32>) {
        state::with(|started| {
            let device = device.device(started)?;
            let told = started.scenario.minors.iter().find(|(card, _)| *card == device);
            number.set(told.map_or(device as u32, |(_, number)| *number))
        })
    }

    fn nvmlDeviceGetPciInfo_v3 = nvmlDeviceGetPciInfo_v2(device: Handle, information: OutPointer<BusInformation>) {
        state::with(|started| {
            let device = device.device(started)?;
            let bus_id = card::bus_id(device);
            information.set(BusInformation {
                short: padded(&bus_id[4..]),
                domain: 0,
                bus: device as u32 + 1,
                device: 0,
                device_identity: 0,
                subsystem_identity: 0,
                long: padded(&bus_id),
            })
        })
    }

    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: OutPointer<i32>, minor: OutPointer<i32>) {
        state::with(|started| {
            device.device(started)?;
            major.set(9)?;
            minor.set(0)
        })
    }

    /// The compute mode: whether several processes may use a GPU.
    fn nvmlDeviceGetComputeMode(device: Handle, mode: OutPointer<u32>) {
        state::with(|started| {
            device.device(started)?;
            mode.set(started.scenario.mode)
        })
    }

    fn nvmlDeviceGetPersistenceMode(device: Handle, mode: OutPointer<u32>) {
        state::with(|started| {
            device.device(started)?;
            mode.set(u32::from(started.scenario.is_persistent))
        })
    }

    fn nvmlDeviceGetDisplayActive = nvmlDeviceGetDisplayMode(device: Handle, mode: OutPointer<u32>) {
        state::with(|started| {
            let device = device.device(started)?;
            mode.set(u32::from(started.scenario.displays.contains(&device)))
        })
    }

    fn nvmlDeviceGetMigMode(device: Handle, current: OutPointer<u32>, pending: OutPointer<u32>) {
        state::with(|started| {
            let parts = parts(device, started)?;
            current.set(u32::from(parts > 0))?;
            pending.set(u32::from(parts > 0))
        })
    }

    /// Maximum number of MIG instances of a GPU.
    fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: OutPointer<u32>) {
        state::with(|started| count.set(if parts(device, started)? > 0 { 7 } else { 0 }))
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, index: u32, handle: OutPointer<Handle>) {
        state::with(|started| {
            if index as usize >= parts(device, started)? {
                return Err(Failure::NOT_FOUND);
            }
            handle.set(Handle::of_part(device.device(started)?, index as usize))
        })
    }
}

/// Number of MIG instances of a GPU. An instance has none.
fn parts(device: Handle, started: &Started) -> Result<usize> {
    match device.place(started)? {
        (device, None) => Ok(started.scenario.parts_of(device)),
        (_, Some(_)) => Err(Failure::INVALID_ARGUMENT),
    }
}

/// A MIG instance's UUID in NVML's format.
fn part_uuid(device: usize, part: usize) -> String {
    let whole = card::uuid_text(device);
    format!("MIG-{}{part:02x}", &whole[4..whole.len() - 2])
}
