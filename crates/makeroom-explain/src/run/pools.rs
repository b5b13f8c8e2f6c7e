//! What makeroom's own pool did for a program, against what PyTorch's native allocator does with the same requests.

use makeroom_core::{Bytes, ProcessRecord, Trace};
use makeroom_sim::{AllocatorSpec, Program, Settings};

use super::PoolSummary;
use crate::trace::History;

/// What one kernel read of mapped host memory, and of its own, on an H200.
const BUS_BYTES_A_MICROSECOND: u64 = 51_000;
const DEVICE_BYTES_A_MICROSECOND: u64 = 3_844_000;

/// The pools of a process.
pub(super) fn summarise(trace: &Trace, process: &ProcessRecord) -> Vec<PoolSummary> {
    let of_device = |pool: &makeroom_core::PoolUse| {
        let device = trace.devices.iter().find(|device| device.device == pool.device)?;
        let history = History::new(device, &[]);
        let program = Program::new(device, &trace.stacks, &history.start);
        let native = AllocatorSpec::pytorch("pytorch", Settings::default()).run(&program, None);
        Some(PoolSummary {
            device: pool.device,
            peak_live: history.peak_live,
            peak_reserved: history.peak_reserved.unwrap_or(Bytes::ZERO),
            native_reserved: Bytes::new(native.peak_reserved),
            spilled_peak: pool.spilled_peak,
            spilled_blocks: pool.spilled_blocks,
            spilled_read_us: pool.spilled_peak.get() / BUS_BYTES_A_MICROSECOND,
            device_read_us: pool.spilled_peak.get() / DEVICE_BYTES_A_MICROSECOND,
        })
    };
    process.pools.iter().filter_map(of_device).collect()
}
