//! Builds the summary of a process from its recording.

use makeroom_core::{
    Action, Bytes, DeviceTrace, Holder, PinnedBlock, ProcessEnd, ProcessRecord, StreamFrees, Taken, Trace,
};

use super::left::Left;
use super::{Kept, KernelHeap, LeftKind, Missing, RunSummary, WaitingFrees};
use crate::trace::{DEFAULT_HEAP, History, Places, is_outside, states_at};

/// The summary of a recorded process; `None` if only an allocator was recorded.
pub(crate) fn summarise(trace: &Trace) -> Option<RunSummary> {
    let process = trace.process.as_ref()?;
    let places = Places::new(trace);
    let executable = &process.identity.executable;
    let mut summary = RunSummary {
        program: executable.rsplit('/').next().unwrap_or(executable).to_owned(),
        pid: process.identity.pid,
        job: process.identity.job.clone(),
        end: process.end,
        pinned_peak: process.pinned.peak,
        limit: process.limit,
        reported: process.refused_as_reported.saturating_add(process.pinned.refusals),
        pinned_refusals: process.pinned.refusals,
        largest_pinned_refused: process.pinned.largest_refused,
        failed_launches: process
            .failed_launches
            .iter()
            .map(|launch| super::launches::explain(launch, places))
            .collect(),
        kernel_heap: kernel_heap(process),
        pending: process.stream_frees.iter().map(|frees| waiting(frees, places)).collect(),
        contexts: super::contexts::left(process, places),
        refused_contexts: super::contexts::refused(trace, process, places),
        freed_with_contexts: process.freed_with_contexts,
        host_growth: super::host::growth(process),
        dropped: process.dropped,
        recorded_us: process.recorded_us,
        missing: missing(process),
        remarks: process.remarks.iter().map(|remark| remark.text.clone()).collect(),
        ..RunSummary::default()
    };
    (summary.expandable, summary.pools) = super::pools::summarise(trace, process);
    summary.pages.clone_from(&process.pages);
    for device in &trace.devices {
        add_device(&mut summary, process, device, places);
    }
    for (kind, is_registered) in [(LeftKind::Pinned, false), (LeftKind::Registered, true)] {
        let blocks: Vec<&PinnedBlock> =
            process.pinned.live.iter().filter(|block| block.is_registered == is_registered).collect();
        let blocks = blocks.into_iter().map(|block| (block.stack, block.size));
        add_left(&mut summary, Left::new(kind, blocks, places));
    }
    Some(summary)
}

/// Why the recording does not show how the process ended.
fn missing(process: &ProcessRecord) -> Option<Missing> {
    match process.end {
        None if !process.unread.is_zero() => Some(Missing::Torn(process.unread)),
        None => Some(Missing::End),
        Some(ProcessEnd::Detached) => Some(Missing::Rest),
        Some(_) => None,
    }
}

fn add_device(summary: &mut RunSummary, process: &ProcessRecord, device: &DeviceTrace, places: Places<'_>) {
    let pool = process.pools.iter().find(|pool| pool.device == device.device);
    let is_pools = |address: u64| pool.is_some_and(|pool| pool.ranges.contains(address));
    let history = History::new(device, &[]);
    summary.peaks.push((device.device, Taken::peak(device, &history.start)));
    let refused = device.events.actions().iter().filter(|&&action| action == Action::OutOfMemory);
    summary.refusals += refused.count() as u64;
    let states = states_at(device, &history, &[device.events.len().checked_sub(1)]);
    let Some(state) = states.first() else { return };
    // Frameworks keep their memory until exit. As without the pool, memory that the program itself allocated from the
    // pool should have been freed, and libraries outside PyTorch's allocator are named.
    let is_shared_with_torch =
        summary.pools.iter().any(|pool| pool.device == device.device && pool.is_shared_with_torch);
    let (mut left, mut torch, mut pooled) = (Vec::new(), AllocatorHeld::default(), AllocatorHeld::default());
    for block in &state.blocks {
        let is_outside = is_outside(state, block);
        let is_pooled = !is_outside && is_pools(block.address);
        let is_own = is_outside
            || is_pooled && is_shared_with_torch
            || is_pooled && !process.sees_tensors && places.is_asked_by_program(block.stack);
        if !is_outside {
            let held = if is_pooled { &mut pooled } else { &mut torch };
            *(if is_own { &mut held.own } else { &mut held.live }) += block.requested;
        }
        if is_own && !block.is_pending() {
            left.push((block.stack, block.requested));
        }
    }
    add_left(summary, Left::new(LeftKind::Device(device.device), left.into_iter(), places));
    for segment in &state.segments {
        (if is_pools(segment.address) { &mut pooled } else { &mut torch }).reserved +=
            Bytes::new(segment.size);
    }
    for (by, held) in [(Holder::PyTorch, torch), (Holder::Pool, pooled)] {
        let AllocatorHeld { reserved, own, live } = held;
        if reserved > own {
            summary.kept.push(Kept { device: device.device, by, live, cached: reserved - own - live });
        }
    }
}

/// Memory of an allocator: `reserved = own + live + cached`.
#[derive(Clone, Copy, Default)]
struct AllocatorHeld {
    reserved: Bytes,
    /// Memory that is reported separately.
    own: Bytes,
    live: Bytes,
}

fn add_left(summary: &mut RunSummary, left: Left) {
    summary.left.extend(left.by_others);
    summary.held_by_libraries.extend(left.by_libraries);
}

fn kernel_heap(process: &ProcessRecord) -> Option<KernelHeap> {
    let modules = process.code.iter().filter(|code| code.imports_malloc).count() as u64;
    let set = process.heap_limits.iter().map(|limit| limit.limit).max();
    (modules > 0).then(|| KernelHeap {
        limit: set.unwrap_or(DEFAULT_HEAP),
        is_default: set.is_none(),
        modules,
    })
}

fn waiting(frees: &StreamFrees, places: Places<'_>) -> WaitingFrees {
    WaitingFrees {
        device: frees.device,
        at_end: frees.at_end,
        at_refusal: frees.at_refusal,
        asked: frees.asked.map(|asked| (asked, places.site_of(asked.stack))),
    }
}
