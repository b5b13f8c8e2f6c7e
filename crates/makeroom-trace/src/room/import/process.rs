//! The process itself: pinned memory, contexts, code, measurements.

use std::collections::BTreeMap;

use makeroom_core::{
    Address, Bytes, CallCount, CodeRecord, ContextRecord, DeviceIdentity, DeviceIndex, DeviceSample,
    FailedLaunch, FastMap, HeapLimit, HostSample, NameId, PinnedBlock, ProcessEnd, ProcessIdentity,
    ProcessRecord, RefusedContext, Remark, StackId,
};

use super::Clock;
use super::collect::{Collected, ON_HOST, OUT_OF_MEMORY, OtherEvent};
use super::keeps;
use crate::room::{DeviceDefinition, EndReason, EventKind, Header, Note, Sample, Severity};

/// `CU_LIMIT_MALLOC_HEAP_SIZE`.
const HEAP_LIMIT: u64 = 2;
/// Value of `extra` for loaded code.
const IMPORTS_MALLOC: u64 = 1;

/// A destroyed context, which frees everything that was allocated in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedContext {
    pub(super) since_ns: i64,
    pub(super) handle: u64,
}

/// Assembles the record of a process and its destroyed contexts in order of time. Moves the data it needs out of
/// `collected`.
pub(super) fn assemble(
    header: &Header,
    clock: Clock,
    collected: &mut Collected,
    name_text: impl Fn(NameId) -> String,
) -> (ProcessRecord, Vec<EndedContext>) {
    let driver_keeps = keeps::find(clock, collected);
    let mut assembly = Assembly::new(clock, header);
    for other in std::mem::take(&mut collected.others) {
        assembly.add(&other, &name_text);
    }
    let (mut record, ended) = assembly.finish();
    for sample in std::mem::take(&mut collected.samples) {
        add_sample(&mut record, clock, &sample);
    }
    // Stable sort: samples of a device stay in order of time.
    record.device_samples.sort_by_key(|sample| sample.device);
    record.devices = collected.device_definitions.iter().map(device).collect();
    record.remarks = collected.remarks.iter().map(|remark| self::remark(clock, remark)).collect();
    record.driver_keeps = driver_keeps;
    record.dropped = collected.dropped;
    record.recorded_us = u64::try_from(collected.last_ns).unwrap_or(0) / 1000;
    record.limit = collected.limit;
    record.calls = collected
        .calls
        .iter()
        .map(|(&kind, &(done, failed))| CallCount { what: EventKind::from_number(kind).name(), done, failed })
        .collect();
    record.end = collected.end.map(|end| match end.reason {
        EndReason::Exit => ProcessEnd::Exited(end.status),
        EndReason::Exec => ProcessEnd::Replaced,
        EndReason::Signal => ProcessEnd::Signalled(end.status),
        EndReason::Detached => ProcessEnd::Detached,
        EndReason::Other(_) => ProcessEnd::Other,
    });
    (record, ended)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn identity(header: &Header, clock: Clock) -> ProcessIdentity {
    ProcessIdentity {
        run: header.run,
        pid: header.pid,
        parent_pid: header.parent_pid,
        host: text(&header.host),
        executable: text(&header.executable),
        working_directory: (!header.working_directory.is_empty()).then(|| text(&header.working_directory)),
        command_line: header.command_line.iter().map(|word| text(word)).collect(),
        began_us: clock.date_us(0),
    }
}

fn device(device: &DeviceDefinition) -> DeviceIdentity {
    DeviceIdentity {
        device: device.device,
        uuid: text(&device.uuid),
        name: text(&device.name),
        total: device.total,
    }
}

fn remark(clock: Clock, note: &Note) -> Remark {
    Remark {
        time_us: clock.date_us(clock.since(note.time_ns)),
        is_warning: note.severity != Severity::Information,
        text: text(&note.text),
    }
}

fn add_sample(record: &mut ProcessRecord, clock: Clock, sample: &Sample) {
    let time_us = clock.date_us(clock.since(sample.time_ns));
    record.device_samples.extend(sample.device.map(|measured| DeviceSample {
        time_us,
        device: measured.device,
        free: measured.free,
        total: measured.total,
    }));
    let Sample { resident, cgroup_usage, cgroup_limit, pinned, .. } = *sample;
    if resident.or(cgroup_usage).or(cgroup_limit).or(pinned).is_some() {
        record.host_samples.push(HostSample { time_us, resident, cgroup_usage, cgroup_limit, pinned });
    }
}

/// The record under construction.
struct Assembly {
    record: ProcessRecord,
    clock: Clock,
    pinned: BTreeMap<u64, PinnedBlock>,
    pinned_bytes: Bytes,
    /// Indices in the record, by handle.
    contexts: FastMap<u64, usize>,
    code: FastMap<u64, usize>,
    launches: FastMap<(u32, u32, u64, StackId), usize>,
    /// The primary context of each device and its reference count.
    primaries: FastMap<DeviceIndex, (u64, u64)>,
    ended: Vec<EndedContext>,
}

impl Assembly {
    fn new(clock: Clock, header: &Header) -> Self {
        Self {
            record: ProcessRecord { identity: identity(header, clock), ..ProcessRecord::default() },
            clock,
            pinned: BTreeMap::new(),
            pinned_bytes: Bytes::ZERO,
            contexts: FastMap::default(),
            code: FastMap::default(),
            launches: FastMap::default(),
            primaries: FastMap::default(),
            ended: Vec::new(),
        }
    }

    fn add(&mut self, other: &OtherEvent, name_text: impl Fn(NameId) -> String) {
        let event = &other.event;
        let time_us = self.clock.date_us(other.since_ns);
        let has_happened = event.result == 0;
        match event.kind {
            EventKind::LaunchFailed => self.failed_launch(other, time_us, name_text(other.name)),
            EventKind::PinnedAlloc | EventKind::HostRegister => self.pin(other),
            EventKind::PhysicalCreate if event.extra == ON_HOST => self.refuse_pinned(other),
            EventKind::ContextCreate | EventKind::PrimaryRetain if event.result == OUT_OF_MEMORY => {
                let refused =
                    RefusedContext { device: event.device, size: event.size, time_us, stack: other.stack };
                self.record.refused_contexts.push(refused);
            }
            _ if !has_happened => {}
            EventKind::PinnedFree | EventKind::HostUnregister => {
                let block = self.pinned.remove(&event.address.0);
                self.pinned_bytes = self.pinned_bytes - block.map_or(Bytes::ZERO, |block| block.size);
            }
            EventKind::ContextCreate => self.create_context(other, time_us, false),
            EventKind::ContextDestroy => self.destroy_context(event.context.0, other.since_ns),
            EventKind::PrimaryRetain => self.retain_primary(other, time_us),
            EventKind::PrimaryRelease => self.release_primary(event.device, other.since_ns, 1),
            EventKind::PrimaryReset => self.release_primary(event.device, other.since_ns, u64::MAX),
            EventKind::ModuleLoad | EventKind::LibraryLoad => {
                self.code.insert(event.address.0, self.record.code.len());
                self.record.code.push(CodeRecord {
                    device: event.device,
                    handle: event.address.0,
                    size: event.size,
                    imports_malloc: event.extra & IMPORTS_MALLOC != 0,
                    loaded_us: time_us,
                    unloaded_us: None,
                    stack: other.stack,
                });
            }
            EventKind::ModuleUnload | EventKind::LibraryUnload => {
                let position = self.code.remove(&event.address.0);
                if let Some(code) = position.and_then(|position| self.record.code.get_mut(position)) {
                    code.unloaded_us = Some(time_us);
                }
            }
            EventKind::LimitSet if event.extra == HEAP_LIMIT => self.record.heap_limits.push(HeapLimit {
                device: event.device,
                limit: event.size,
                time_us,
                stack: other.stack,
            }),
            _ => {}
        }
    }

    fn pin(&mut self, other: &OtherEvent) {
        let event = &other.event;
        if event.result != 0 {
            self.refuse_pinned(other);
            return;
        }
        let block = PinnedBlock {
            address: Address(event.address.0),
            size: event.size,
            is_registered: event.kind == EventKind::HostRegister,
            stack: other.stack,
        };
        let lost = self.pinned.insert(event.address.0, block).map_or(Bytes::ZERO, |lost| lost.size);
        self.pinned_bytes = self.pinned_bytes - lost + event.size;
        self.record.pinned.peak = self.record.pinned.peak.max(self.pinned_bytes);
    }

    fn refuse_pinned(&mut self, other: &OtherEvent) {
        if other.event.result == OUT_OF_MEMORY {
            let pinned = &mut self.record.pinned;
            pinned.refusals += 1;
            pinned.largest_refused = pinned.largest_refused.max(other.event.size);
        }
    }

    fn create_context(&mut self, other: &OtherEvent, time_us: u64, is_primary: bool) {
        let handle = other.event.context.0;
        self.contexts.insert(handle, self.record.contexts.len());
        self.record.contexts.push(ContextRecord {
            device: other.event.device,
            handle,
            is_primary,
            created_us: time_us,
            destroyed_us: None,
            stack: other.stack,
        });
    }

    fn destroy_context(&mut self, handle: u64, since_ns: i64) {
        self.ended.push(EndedContext { since_ns, handle });
        let position = self.contexts.remove(&handle);
        if let Some(context) = position.and_then(|position| self.record.contexts.get_mut(position)) {
            context.destroyed_us = Some(self.clock.date_us(since_ns));
        }
    }

    fn retain_primary(&mut self, other: &OtherEvent, time_us: u64) {
        let (_, holds) = self.primaries.entry(other.event.device).or_insert((other.event.context.0, 0));
        *holds += 1;
        if *holds == 1 {
            self.create_context(other, time_us, true);
        }
    }

    fn release_primary(&mut self, device: DeviceIndex, since_ns: i64, by: u64) {
        let Some((handle, holds)) = self.primaries.get_mut(&device) else { return };
        *holds = holds.saturating_sub(by);
        if *holds == 0 {
            let handle = *handle;
            self.primaries.remove(&device);
            self.destroy_context(handle, since_ns);
        }
    }

    fn failed_launch(&mut self, other: &OtherEvent, time_us: u64, kernel: String) {
        let event = &other.event;
        let key = (event.device.0, event.result, event.extra, other.stack);
        let launches = &mut self.record.failed_launches;
        let position = *self.launches.entry(key).or_insert_with(|| {
            launches.push(FailedLaunch {
                device: event.device,
                kernel: (!kernel.is_empty()).then_some(kernel),
                error: event.result,
                shared_memory: event.size,
                count: 0,
                first_us: time_us,
                stack: other.stack,
            });
            launches.len() - 1
        });
        if let Some(launch) = launches.get_mut(position) {
            launch.count += 1;
            launch.shared_memory = launch.shared_memory.max(event.size);
        }
    }

    fn finish(mut self) -> (ProcessRecord, Vec<EndedContext>) {
        self.record.pinned.live = self.pinned.into_values().collect();
        (self.record, self.ended)
    }
}
