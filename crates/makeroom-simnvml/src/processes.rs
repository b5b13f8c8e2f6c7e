//! Which processes hold memory of a card.

use crate::abi::{Failure, Place, Result, management_functions};
use crate::state::{self, Handle};

/// The first form.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    id: u32,
    bytes: u64,
}

/// The second form, with the part of a divided card.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessOfPart {
    id: u32,
    bytes: u64,
    instance: u32,
    compute_instance: u32,
}

/// No part: the card is not divided.
const WHOLE: u32 = u32::MAX;

/// Writes a list into as much room as there is; too little is told with the number that is needed.
fn list<T: Copy>(
    device: Handle,
    count: Place<u32>,
    places: Place<T>,
    all: bool,
    form: impl Fn(u32, u64) -> T,
) -> Result<()> {
    state::with(|started| {
        let device = device.device(started)?;
        let room = count.get()? as usize;
        let holders = if all { started.ledger.holders(device) } else { Vec::new() };
        count.set(holders.len() as u32)?;
        if holders.is_empty() {
            return Ok(());
        }
        if room < holders.len() || places.is_null() {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        places.set_all(holders.iter().map(|holder| form(holder.process, holder.bytes)))
    })
}

fn first(id: u32, bytes: u64) -> Process {
    Process { id, bytes }
}

fn second(id: u32, bytes: u64) -> ProcessOfPart {
    ProcessOfPart { id, bytes, instance: WHOLE, compute_instance: WHOLE }
}

management_functions! {
    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: Place<u32>, places: Place<Process>) {
        list(device, count, places, true, first)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3 = nvmlDeviceGetComputeRunningProcesses_v2(
        device: Handle, count: Place<u32>, places: Place<ProcessOfPart>,
    ) {
        list(device, count, places, true, second)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(device: Handle, count: Place<u32>, places: Place<Process>) {
        list(device, count, places, false, first)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3 = nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: Handle, count: Place<u32>, places: Place<ProcessOfPart>,
    ) {
        list(device, count, places, false, second)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Handle, count: Place<u32>, places: Place<Process>) {
        list(device, count, places, false, first)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3 = nvmlDeviceGetMPSComputeRunningProcesses_v2(
        device: Handle, count: Place<u32>, places: Place<ProcessOfPart>,
    ) {
        list(device, count, places, false, second)
    }
}
