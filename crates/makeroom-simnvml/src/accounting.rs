//! Accounting: peaks of processes, including those that have ended.

use crate::abi::{Failure, OutPointer, management_functions};
use crate::state::{self, Handle};

/// Accounting statistics of a process.
#[repr(C)]
#[derive(Clone, Copy)]
struct Statistics {
    gpu_utilization: u32,
    memory_utilization: u32,
    peak: u64,
    time: u64,
    start_time: u64,
    is_running: u32,
    reserved: [u32; 5],
}

management_functions! {
    fn nvmlDeviceGetAccountingMode(device: Handle, mode: OutPointer<u32>) {
        state::with(|started| {
            device.device(started)?;
            mode.set(u32::from(!started.scenario.accounting.is_empty()))
        })
    }

    fn nvmlDeviceGetAccountingStats(device: Handle, process: u32, statistics: OutPointer<Statistics>) {
        state::with(|started| {
            device.device(started)?;
            let known = started.scenario.accounting.iter().find(|(known, _)| *known == process);
            let (_, peak) = known.ok_or(Failure::NOT_FOUND)?;
            statistics.set(Statistics {
                gpu_utilization: 0,
                memory_utilization: 0,
                peak: *peak,
                time: 0,
                start_time: 0,
                is_running: 1,
                reserved: [0; 5],
            })
        })
    }
}
