//! The processes that hold memory of a GPU.

use std::sync::atomic::Ordering;

use crate::abi::{Failure, OutPointer, Result, management_functions};
use crate::scenario::List;
use crate::state::{self, Handle, Started};

/// Version 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    id: u32,
    bytes: u64,
}

/// Version 2, with the MIG instance.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProcessOfPart {
    id: u32,
    bytes: u64,
    instance: u32,
    compute_instance: u32,
}

/// No MIG instance.
const WHOLE: u32 = u32::MAX;
/// The size if memory is not available.
const NOT_AVAILABLE: u64 = u64::MAX;

/// A process, independent of the structure's version.
#[derive(Clone, Copy)]
struct Listed {
    id: u32,
    bytes: u64,
    part: Option<usize>,
}

fn listed(started: &Started, device: Handle, list: List) -> Result<Vec<Listed>> {
    let (device, part) = device.open_place(started)?;
    let scenario = started.scenario;
    let account = started.ledger.holders(device).into_iter();
    let account = account.map(|holder| Listed { id: holder.process, bytes: holder.bytes, part: None });
    let holds = scenario.holds.iter().filter(|hold| hold.device == device);
    let holds = holds.map(|hold| Listed { id: hold.process, bytes: hold.bytes, part: hold.part });
    let all = account.chain(holds);
    let all =
        all.filter(|one| started.looks.load(Ordering::Relaxed) < 2 || !scenario.brief.contains(&one.id));
    let wanted = all.filter(|one| scenario.list_of(one.id) == list && (part.is_none() || one.part == part));
    Ok(wanted
        .map(|one| {
            let is_blind = scenario.blind.contains(&one.id);
            Listed { bytes: if is_blind { NOT_AVAILABLE } else { one.bytes }, ..one }
        })
        .collect())
}

/// Writes a list to the caller's buffer. If that is too small, the error comes with the required size.
fn list<T: Copy>(
    device: Handle,
    count: OutPointer<u32>,
    places: OutPointer<T>,
    list: List,
    form: impl Fn(Listed) -> T,
) -> Result<()> {
    state::with(|started| {
        let room = count.get()? as usize;
        let holders = listed(started, device, list)?;
        count.set(holders.len() as u32)?;
        if holders.is_empty() {
            return Ok(());
        }
        if room < holders.len() || places.is_null() {
            return Err(Failure::INSUFFICIENT_SIZE);
        }
        places.set_all(holders.into_iter().map(form))
    })
}

fn first(one: Listed) -> Process {
    Process { id: one.id, bytes: one.bytes }
}

fn second(one: Listed) -> ProcessOfPart {
    let part = one.part.map_or(WHOLE, |part| part as u32);
    ProcessOfPart { id: one.id, bytes: one.bytes, instance: part, compute_instance: part }
}

management_functions! {
    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: OutPointer<u32>, places: OutPointer<Process>) {
        list(device, count, places, List::Compute, first)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3 = nvmlDeviceGetComputeRunningProcesses_v2(
        device: Handle, count: OutPointer<u32>, places: OutPointer<ProcessOfPart>,
    ) {
        list(device, count, places, List::Compute, second)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(device: Handle, count: OutPointer<u32>, places: OutPointer<Process>) {
        list(device, count, places, List::Graphics, first)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3 = nvmlDeviceGetGraphicsRunningProcesses_v2(
        device: Handle, count: OutPointer<u32>, places: OutPointer<ProcessOfPart>,
    ) {
        list(device, count, places, List::Graphics, second)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Handle, count: OutPointer<u32>, places: OutPointer<Process>) {
        list(device, count, places, List::Mps, first)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3 = nvmlDeviceGetMPSComputeRunningProcesses_v2(
        device: Handle, count: OutPointer<u32>, places: OutPointer<ProcessOfPart>,
    ) {
        list(device, count, places, List::Mps, second)
    }
}
