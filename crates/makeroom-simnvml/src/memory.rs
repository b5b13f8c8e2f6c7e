//! Total, used and free memory of a GPU.

use crate::abi::{Failure, OutPointer, Result, management_functions};
use crate::state::{self, Handle, Started};

/// Version 1: the reserve is part of used memory. `total = free + used`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// Version 2. `total = reserved + free + used`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryWithReserve {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

/// The structure's size and version.
const SECOND_FORM: u32 = size_of::<MemoryWithReserve>() as u32 | 2 << 24;

fn memory(started: &Started, device: Handle) -> Result<MemoryWithReserve> {
    let (device, part) = device.open_place(started)?;
    let (card, reserve) = (started.description.memory, started.description.reserve);
    let (card, reserved) = match part {
        None => (card, reserve),
        Some(_) => (card / started.scenario.parts_of(device) as u64, 0),
    };
    let account = if part.is_none() { started.ledger.used(device) } else { 0 };
    let used = (account + started.scenario.used(device, part)).min(card);
    Ok(MemoryWithReserve { version: SECOND_FORM, total: card + reserved, reserved, free: card - used, used })
}

management_functions! {
    fn nvmlDeviceGetMemoryInfo(device: Handle, place: OutPointer<Memory>) {
        state::with(|started| {
            let MemoryWithReserve { total, reserved, free, used, .. } = memory(started, device)?;
            place.set(Memory { total, free, used: used + reserved })
        })
    }

    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, place: OutPointer<MemoryWithReserve>) {
        state::with(|started| {
            if place.get()?.version != SECOND_FORM {
                return Err(Failure::INVALID_ARGUMENT);
            }
            place.set(memory(started, device)?)
        })
    }
}
