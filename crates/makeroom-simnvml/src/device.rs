//! Devices: handles and identities.

use std::ffi::c_char;

use makeroom_simcard as card;

use crate::abi::{Failure, Place, Result, Text, management_functions, write_text};
use crate::state::{self, Handle};

/// Where a card sits.
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

/// The first device for which something holds.
fn find(handle: Place<Handle>, is_it: impl Fn(usize) -> bool) -> Result<()> {
    state::with(|started| {
        let device =
            (0..started.description.devices).find(|device| is_it(*device)).ok_or(Failure::NOT_FOUND)?;
        handle.set(Handle::of(device))
    })
}

management_functions! {
    fn nvmlDeviceGetCount_v2 = nvmlDeviceGetCount(count: Place<u32>) {
        state::with(|started| count.set(started.description.devices as u32))
    }

    fn nvmlDeviceGetHandleByIndex_v2 = nvmlDeviceGetHandleByIndex(index: u32, handle: Place<Handle>) {
        state::with(|started| {
            if index as usize >= started.description.devices {
                return Err(Failure::INVALID_ARGUMENT);
            }
            handle.set(Handle::of(index as usize))
        })
    }

    fn nvmlDeviceGetHandleByUUID(text: Text, handle: Place<Handle>) {
        let wanted = text.bytes()?;
        find(handle, |device| card::uuid_text(device).as_bytes() == wanted)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2 = nvmlDeviceGetHandleByPciBusId(text: Text, handle: Place<Handle>) {
        let wanted = text.bytes()?.to_ascii_uppercase();
        find(handle, |device| {
            let whole = card::bus_id(device);
            wanted == whole.as_bytes() || wanted == whole.as_bytes()[4..]
        })
    }

    fn nvmlDeviceGetName(device: Handle, text: Place<c_char>, size: u32) {
        state::with(|started| write_text(text, size, &card::name(device.device(started)?)))
    }

    fn nvmlDeviceGetUUID(device: Handle, text: Place<c_char>, size: u32) {
        state::with(|started| write_text(text, size, &card::uuid_text(device.device(started)?)))
    }

    fn nvmlDeviceGetIndex = nvmlDeviceGetMinorNumber(device: Handle, index: Place<u32>) {
        state::with(|started| index.set(device.device(started)? as u32))
    }

    fn nvmlDeviceGetPciInfo_v3 = nvmlDeviceGetPciInfo_v2(device: Handle, information: Place<BusInformation>) {
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

    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: Place<i32>, minor: Place<i32>) {
        state::with(|started| {
            device.device(started)?;
            major.set(9)?;
            minor.set(0)
        })
    }

    /// Any number of processes may use a card.
    fn nvmlDeviceGetComputeMode(device: Handle, mode: Place<u32>) {
        state::with(|started| {
            device.device(started)?;
            mode.set(0)
        })
    }

    /// Cards cannot be divided.
    fn nvmlDeviceGetMigMode(device: Handle, _current: Place<u32>, _pending: Place<u32>) {
        state::with(|started| device.device(started).and(Err(Failure::NOT_SUPPORTED)))
    }
}
