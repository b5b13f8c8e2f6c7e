//! How much memory expandable segments and makeroom's own pool saved compared to PyTorch's default allocator, or how
//! much expandable segments would have saved.
//!
//! The requests that the allocator served (tensors in PyTorch's own segments, or in the pool's) are replayed exactly
//! under the other allocator. There is no comparison if events are missing, if more memory is live than reserved, or
//! if a replay under the actual allocator does not reproduce the recorded peak.

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, PoolUse, ProcessRecord, Ranges, Stacks, Trace};
use makeroom_sim::{AllocatorSpec, Program, Settings};

use super::{ExpandableSummary, PoolSummary};
use crate::trace::History;

/// Bandwidth of one kernel that reads mapped host memory, and device memory, on an H200.
const BUS_BYTES_A_MICROSECOND: u64 = 51_000;
const DEVICE_BYTES_A_MICROSECOND: u64 = 3_844_000;
/// A replay counts as exact if its peak differs by at most this part of the recorded peak, or by this many bytes.
const TOLERATED_PART: u64 = 20;
const TOLERATED_BYTES: u64 = 64 << 20;

/// The devices on which PyTorch's own allocator was used, and those on which makeroom's pool served memory.
pub(super) fn summarise(
    trace: &Trace,
    process: &ProcessRecord,
) -> (Vec<ExpandableSummary>, Vec<PoolSummary>) {
    let is_whole = process.dropped == 0 && process.unread.is_zero();
    let (mut expandable, mut pools) = (Vec::new(), Vec::new());
    for device in &trace.devices {
        let pool = process.pools.iter().find(|pool| pool.device == device.device);
        if pool.is_none() && !has_segments(device) {
            continue;
        }
        let parts = Parts::new(device, pool);
        if process.sees_tensors && has_segments(&parts.torch) {
            expandable.push(of_torch(&parts.torch, trace, is_whole));
        }
        if let Some(pool) = pool {
            pools.push(of_pool(&parts, pool, &trace.stacks, is_whole && process.sees_tensors));
        }
    }
    (expandable, pools)
}

/// Whether pages were mapped: only expandable segments and makeroom's pool do that.
fn has_pages(device: &DeviceTrace) -> bool {
    device.events.actions().contains(&Action::SegmentMap)
}

/// Whether an allocator reserved memory to cut blocks out of.
fn has_segments(device: &DeviceTrace) -> bool {
    has_pages(device) || device.events.actions().contains(&Action::SegmentAlloc)
}

fn of_torch(tensors: &DeviceTrace, trace: &Trace, is_whole: bool) -> ExpandableSummary {
    let history = History::new(tensors, &[]);
    let (peak_live, peak_reserved) = (history.peak_live, history.peak_reserved.unwrap_or(Bytes::ZERO));
    let program = Program::new(tensors, &trace.stacks, &history.start);
    let is_on = has_pages(tensors);
    // The user's other settings apply with and without expandable segments.
    let recorded = Settings::recorded(&trace.settings);
    let under = |settings| AllocatorSpec::pytorch("pytorch", settings).run(&program, None).peak_reserved;
    let with = |expandable_segments| under(Settings { expandable_segments, ..recorded.clone() });
    let is_balanced = is_whole && program.lost == 0 && peak_live <= peak_reserved && !peak_live.is_zero();
    let is_reproduced = is_balanced && {
        let tolerated = TOLERATED_BYTES.max(peak_reserved.get() / TOLERATED_PART);
        with(is_on).abs_diff(peak_reserved.get()) <= tolerated
    };
    let switched = is_reproduced.then(|| Bytes::new(with(!is_on)));
    let plain = Settings { expandable_segments: true, ..Settings::default() };
    let has_others =
        recorded != Settings { expandable_segments: recorded.expandable_segments, ..plain.clone() };
    ExpandableSummary {
        device: tensors.device,
        is_on,
        peak_live,
        peak_reserved,
        native_reserved: if is_on { switched } else { Some(peak_reserved) },
        expandable_reserved: if is_on { Some(peak_reserved) } else { switched },
        plain_reserved: (is_on && is_reproduced && has_others).then(|| Bytes::new(under(plain))),
        other_settings: Settings::other_entries(trace.settings.text.as_deref().unwrap_or_default()),
    }
}

fn of_pool(parts: &Parts, pool: &PoolUse, stacks: &Stacks, may_compare: bool) -> PoolSummary {
    let history = History::new(&parts.pooled, &[]);
    let (peak_live, peak_reserved) = (history.peak_live, history.peak_reserved.unwrap_or(Bytes::ZERO));
    let tensors = History::new(&parts.pooled_tensors, &[]);
    let program = Program::new(&parts.pooled_tensors, stacks, &tensors.start);
    let is_balanced =
        may_compare && !tensors.peak_live.is_zero() && program.lost == 0 && peak_live <= peak_reserved;
    let native_tensors = is_balanced.then(|| {
        let native = AllocatorSpec::pytorch("pytorch", Settings::default()).run(&program, None);
        Bytes::new(native.peak_reserved)
    });
    // The default allocator does not serve other libraries: their memory at the tensors' peak comes on top.
    let other = tensors.peak.and_then(|peak| parts.other_live.get(peak)).copied().unwrap_or(0);
    let native_reserved = native_tensors.map(|native| native + Bytes::new(other));
    PoolSummary {
        device: pool.device,
        peak_live,
        peak_reserved,
        native_reserved,
        native_tensors,
        peak_other: parts.peak_other,
        is_shared_with_torch: has_segments(&parts.torch),
        spilled_peak: pool.spilled_peak,
        spilled_blocks: pool.spilled_blocks,
        spilled_read_us: pool.spilled_peak.get() / BUS_BYTES_A_MICROSECOND,
        device_read_us: pool.spilled_peak.get() / DEVICE_BYTES_A_MICROSECOND,
    }
}

/// A device's events, by the allocator that served them. Events served by the driver are in none of them.
///
/// `pooled ⊇ pooled_tensors`
#[derive(Debug, Default)]
struct Parts {
    /// PyTorch's own segments, and the tensors in them.
    torch: DeviceTrace,
    /// The pool's pages, and everything in them.
    pooled: DeviceTrace,
    /// The tensors in the pool's pages.
    pooled_tensors: DeviceTrace,
    /// Other live memory in the pool's pages after each event of `pooled_tensors`.
    other_live: Vec<u64>,
    /// The peak of that memory.
    peak_other: Bytes,
}

/// The owner of an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Torch,
    PooledTensor,
    Pooled,
    Driver,
}

impl Parts {
    fn new(device: &DeviceTrace, pool: Option<&PoolUse>) -> Self {
        let empty = || DeviceTrace { device: device.device, ..DeviceTrace::default() };
        let mut parts = Self { torch: empty(), pooled: empty(), pooled_tensors: empty(), ..Self::default() };
        let is_pools = |address: u64| pool.is_some_and(|pool| pool.ranges.contains(address));
        let mut others = pool.map_or(&[][..], |pool| &pool.other_allocations).iter().copied().peekable();
        let mut segments = Ranges::default();
        let mut owners: FastMap<u64, (Owner, u64)> = FastMap::default();
        let mut other_live = 0_u64;
        for (index, event) in device.events.iter().enumerate() {
            let (address, size) = (event.address.0, event.size.get());
            let owner = match event.action {
                Action::SegmentAlloc | Action::SegmentMap | Action::SegmentFree | Action::SegmentUnmap => {
                    if is_pools(address) {
                        Owner::Pooled
                    } else {
                        if matches!(event.action, Action::SegmentAlloc | Action::SegmentMap) {
                            segments.insert(address, size);
                        } else {
                            segments.remove(address, size);
                        }
                        Owner::Torch
                    }
                }
                Action::Alloc => {
                    let owner = match (is_pools(address), others.next_if_eq(&index)) {
                        (true, None) => Owner::PooledTensor,
                        (true, Some(_)) => Owner::Pooled,
                        (false, _) if segments.contains(address) => Owner::Torch,
                        (false, _) => Owner::Driver,
                    };
                    if owner == Owner::Pooled {
                        other_live = other_live.saturating_add(size);
                        parts.peak_other = parts.peak_other.max(Bytes::new(other_live));
                    }
                    owners.insert(address, (owner, size));
                    owner
                }
                Action::FreeRequested => owners.get(&address).map_or(Owner::Driver, |&(owner, _)| owner),
                Action::FreeCompleted => {
                    let (owner, size) = owners.remove(&address).unwrap_or((Owner::Driver, 0));
                    if owner == Owner::Pooled {
                        other_live = other_live.saturating_sub(size);
                    }
                    owner
                }
                Action::Snapshot | Action::OutOfMemory => continue,
            };
            match owner {
                Owner::Torch => parts.torch.events.push(event),
                Owner::PooledTensor => {
                    parts.pooled.events.push(event);
                    parts.pooled_tensors.events.push(event);
                    parts.other_live.push(other_live);
                }
                Owner::Pooled => parts.pooled.events.push(event),
                Owner::Driver => {}
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Address, Event, StackId, StreamId, TraceKind};

    use super::*;

    const MIB: u64 = 1 << 20;
    /// Addresses of PyTorch's segment and of the pool's pages.
    const TORCH: u64 = 1 << 40;
    const POOL: u64 = 2 << 40;

    fn trace(events: &[(Action, u64, u64)], others: &[usize], sees_tensors: bool) -> Trace {
        let mut device = DeviceTrace::default();
        let mut pool = PoolUse { other_allocations: others.to_vec(), ..PoolUse::default() };
        for &(action, address, bytes) in events {
            if action == Action::SegmentMap && address >= POOL {
                pool.ranges.insert(address, bytes);
            }
            device.events.push(Event {
                action,
                address: Address(address),
                size: Bytes::new(bytes),
                stream: StreamId(0),
                time_us: 0,
                stack: StackId::NONE,
            });
        }
        let pools = if pool == PoolUse::default() { Vec::new() } else { vec![pool] };
        let process = ProcessRecord { sees_tensors, pools, ..ProcessRecord::default() };
        Trace { process: Some(process), devices: vec![device], ..Trace::new(TraceKind::Room) }
    }

    fn summaries(trace: &Trace) -> (Vec<ExpandableSummary>, Vec<PoolSummary>) {
        summarise(trace, trace.process.as_ref().unwrap())
    }

    /// A program that requests a little more in every step: the default allocator keeps all earlier blocks.
    fn growing(steps: u64, grows_by: u64) -> Vec<(Action, u64, u64)> {
        let (mut events, mut mapped) = (Vec::new(), 0);
        for step in 0..steps {
            let bytes = 40 * MIB + step * grows_by;
            while mapped < bytes {
                events.push((Action::SegmentMap, TORCH + mapped, 20 * MIB));
                mapped += 20 * MIB;
            }
            events.push((Action::Alloc, TORCH, bytes));
            events.push((Action::FreeRequested, TORCH, bytes));
            events.push((Action::FreeCompleted, TORCH, bytes));
        }
        events
    }

    #[test]
    fn expandable_segments_are_compared_with_the_default_allocator() {
        let (torch, pools) = summaries(&trace(&growing(10, 8 * MIB), &[], true));
        let [torch] = &*torch else { panic!("{torch:?}") };
        assert!(pools.is_empty());
        assert_eq!((torch.peak_live, torch.peak_reserved), (Bytes::mib(112), Bytes::mib(120)));
        let native = torch.native_reserved.unwrap();
        assert!(native > Bytes::mib(400), "every block is a segment of its own: {native}");
    }

    #[test]
    fn a_program_that_repeats_itself_gains_nothing() {
        let (torch, _) = summaries(&trace(&growing(10, 0), &[], true));
        assert_eq!(torch[0].native_reserved, Some(Bytes::mib(40)));
        assert_eq!(torch[0].peak_reserved, Bytes::mib(40));
    }

    /// With two divisions of a power of two, 530 MiB are rounded up to 768 MiB.
    #[test]
    fn the_users_other_settings_apply_to_both_sides() {
        let events = [(Action::SegmentMap, TORCH, 780 * MIB), (Action::Alloc, TORCH, 530 * MIB)];
        let mut trace = trace(&events, &[], true);
        assert_eq!(summaries(&trace).0[0].native_reserved, None, "the default settings take less");
        trace.settings.text = Some("roundup_power2_divisions:2,expandable_segments:True".to_owned());
        let torch = summaries(&trace).0.remove(0);
        assert_eq!(torch.native_reserved, Some(Bytes::mib(768)));
        assert_eq!(torch.plain_reserved, Some(Bytes::mib(540)), "the setting costs memory");
        trace.settings.text = Some("expandable_segments:True".to_owned());
        assert_eq!(summaries(&trace).0[0].plain_reserved, None);
    }

    /// Every block has its own segment, which a larger block cannot use.
    #[test]
    fn what_expandable_segments_would_have_saved_is_known_too() {
        let mut events = Vec::new();
        for step in 0..10 {
            let (address, bytes) = (TORCH + (step << 30), 40 * MIB + step * 8 * MIB);
            events.push((Action::SegmentAlloc, address, bytes));
            events.push((Action::Alloc, address, bytes));
            events.push((Action::FreeRequested, address, bytes));
            events.push((Action::FreeCompleted, address, bytes));
        }
        let torch = summaries(&trace(&events, &[], true)).0.remove(0);
        assert!(!torch.is_on);
        assert_eq!(torch.native_reserved, Some(torch.peak_reserved));
        assert_eq!((torch.peak_live, torch.expandable_reserved), (Bytes::mib(112), Some(Bytes::mib(120))));
    }

    /// PyTorch has 14 GiB, and the pool served a library from 34 MiB of pages: the pool saved none of the 14 GiB.
    #[test]
    fn memory_that_the_pool_did_not_serve_is_not_its_to_save() {
        let mut events = vec![(Action::SegmentMap, POOL, 34 * MIB), (Action::Alloc, POOL, 33 * MIB)];
        events.extend(growing(10, 8 * MIB));
        let (torch, pools) = summaries(&trace(&events, &[1], true));
        assert_eq!(torch[0].peak_live, Bytes::mib(112), "the library's block is no tensor");
        let [pool] = &*pools else { panic!("{pools:?}") };
        assert_eq!((pool.peak_live, pool.peak_reserved), (Bytes::mib(33), Bytes::mib(34)));
        assert_eq!(pool.native_reserved, None);
        assert!(pool.is_shared_with_torch);
    }

    #[test]
    fn tensors_in_the_pool_are_compared_with_what_else_lies_there() {
        let mut events =
            vec![(Action::SegmentMap, POOL, 160 * MIB), (Action::Alloc, POOL + 130 * MIB, 30 * MIB)];
        for (action, address, bytes) in growing(10, 8 * MIB) {
            if action != Action::SegmentMap {
                events.push((action, address - TORCH + POOL, bytes));
            }
        }
        let (torch, pools) = summaries(&trace(&events, &[1], true));
        assert!(torch.is_empty());
        let alone = summaries(&trace(&growing(10, 8 * MIB), &[], true)).0[0].native_reserved.unwrap();
        assert_eq!(pools[0].native_reserved, Some(alone + Bytes::mib(30)));
        let (_, pools) = summaries(&trace(&events, &[1], false));
        assert_eq!(pools[0].native_reserved, None, "a program without PyTorch has no allocator of PyTorch's");
    }

    #[test]
    fn an_account_that_does_not_close_is_not_compared() {
        let events = growing(10, 8 * MIB);
        let mut dropped = trace(&events, &[], true);
        dropped.process.as_mut().unwrap().dropped = 3;
        assert_eq!(summaries(&dropped).0[0].native_reserved, None, "events are missing");
        let more = [(Action::SegmentMap, TORCH, 2 * MIB), (Action::Alloc, TORCH, 300 * MIB)];
        assert_eq!(summaries(&trace(&more, &[], true)).0[0].native_reserved, None, "more live than reserved");
        let idle = [(Action::SegmentMap, TORCH, 900 * MIB), (Action::Alloc, TORCH, 300 * MIB)];
        assert_eq!(
            summaries(&trace(&idle, &[], true)).0[0].native_reserved,
            None,
            "the replay takes 300 MiB"
        );
        let driver = [(Action::Alloc, TORCH, 40 * MIB)];
        assert_eq!(summaries(&trace(&driver, &[], true)), (Vec::new(), Vec::new()), "no allocator was used");
    }
}
