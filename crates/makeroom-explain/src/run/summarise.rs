//! From the recording of a process to what it left behind or missed.

use makeroom_core::{Action, Bytes, DeviceTrace, PinnedBlock, ProcessRecord, StreamFrees, Trace};

use super::left::Left;
use super::{Kept, KernelHeap, LeftKind, RunSummary, WaitingFrees};
use crate::trace::{DEFAULT_HEAP, History, Places, is_outside, peak_taken, states_at};

/// The summary of a recorded process; `None` where only an allocator was recorded.
pub(crate) fn summarise(trace: &Trace) -> Option<RunSummary> {
    let process = trace.process.as_ref()?;
    let places = Places::new(trace);
    let executable = &process.identity.executable;
    let mut summary = RunSummary {
        program: executable.rsplit('/').next().unwrap_or(executable).to_owned(),
        pid: process.identity.pid,
        end: process.end,
        pinned_peak: process.pinned.peak,
        limit: process.limit,
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
        pools: super::pools::summarise(trace, process),
        refused_contexts: super::contexts::refused(trace, process, places),
        freed_with_contexts: process.freed_with_contexts,
        host_growth: super::host::growth(process),
        dropped: process.dropped,
        remarks: process.remarks.iter().map(|remark| remark.text.clone()).collect(),
        ..RunSummary::default()
    };
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

fn add_device(summary: &mut RunSummary, process: &ProcessRecord, device: &DeviceTrace, places: Places<'_>) {
    let is_pooled = process.pools.iter().any(|pool| pool.device == device.device);
    let history = History::new(device, &[]);
    summary.peaks.push((device.device, peak_taken(device, &history.start)));
    let refused = device.events.actions().iter().filter(|&&action| action == Action::OutOfMemory);
    summary.refusals += refused.count() as u64;
    let states = states_at(device, &history, &[device.events.len().checked_sub(1)]);
    let Some(state) = states.first() else { return };
    // Frameworks keep what they have to the end. What the program itself asked the pool for it should have freed, as
    // without the pool.
    let may_be_own = is_pooled && !process.sees_tensors;
    let (mut left, mut own, mut live) = (Vec::new(), Bytes::ZERO, Bytes::ZERO);
    for block in &state.blocks {
        let is_outside = is_outside(state, block);
        let is_own = is_outside || may_be_own && places.is_asked_by_program(block.stack);
        if !is_outside {
            *(if is_own { &mut own } else { &mut live }) += block.requested;
        }
        if is_own && !block.is_pending {
            left.push((block.stack, block.requested));
        }
    }
    add_left(summary, Left::new(LeftKind::Device(device.device), left.into_iter(), places));
    let held: Bytes = state.segments.iter().map(|segment| Bytes::new(segment.size)).sum();
    if held > own {
        let by = if is_pooled { "the pool" } else { "PyTorch" };
        summary.kept.push(Kept { device: device.device, by, live, cached: held - own - live });
    }
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
        asked: frees.asked.map(|asked| (asked, places.of(asked.stack))),
    }
}
