//! The process itself: pinned memory, contexts, code, measurements.

use std::collections::BTreeMap;

use makeroom_core::identity::{JobField, JobIdentity};
use makeroom_core::{
    Action, Address, Bytes, CallCount, CodeRecord, CompactedHistory, ContextRecord, DeviceIdentity,
    DeviceIndex, DeviceSample, DeviceTrace, Event, FailedLaunch, FastMap, HeapLimit, NameId, PinnedBlock,
    ProcessEnd, ProcessIdentity, ProcessRecord, RefusedContext, SortCompact as _, StackId,
};
use makeroom_ordered::OrderedMap;

use super::Clock;
use super::collect::{Collected, ON_HOST, OUT_OF_MEMORY, OtherEvent, TimedSample};
use super::keeps;
use crate::room::{self, DeviceDefinition, EndReason, EventKind, Header, NameNumber};

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

/// Assembles the record of a process, its pinned memory over time, and its destroyed contexts in order of time. Moves the data it needs out of
/// `collected`.
pub(super) fn assemble(
    header: &Header,
    clock: Clock,
    collected: &mut Collected,
    name_text: impl Fn(NameId) -> String,
) -> (ProcessRecord, DeviceTrace, Vec<EndedContext>) {
    let driver_keeps = keeps::find(clock, collected);
    let mut assembly = Assembly::new(clock, header);
    // Events are dropped as they become records: there can be millions of both.
    let mut others = std::mem::take(&mut collected.others);
    others.reverse();
    while let Some(other) = others.pop() {
        let name = || name_text(collected.definitions.name(NameNumber(other.extra as u32)));
        assembly.add(&other, name);
        if others.len().is_multiple_of(1 << 16) {
            others.shrink_to_fit();
        }
    }
    let (mut record, pinned, ended) = assembly.finish();
    let measured = collected.device_samples.iter();
    record.device_samples = measured.map(|sample| device_sample(clock, collected, sample)).collect();
    // They are in order of time, which is preserved within each device.
    record.device_samples.sort_compact_by_key(|sample| sample.device);
    let measured = std::mem::take(&mut collected.host_samples).into_iter();
    record.host_samples = measured.map(|(_, sample)| sample).collect();
    record.devices = collected.device_definitions.iter().map(device).collect();
    let remarks = std::mem::take(&mut collected.remarks).into_iter();
    record.remarks = remarks.map(|(_, remark)| remark).collect();
    record.driver_keeps = driver_keeps;
    record.dropped = collected.dropped;
    record.recorded_us = u64::try_from(collected.last_ns).unwrap_or(0) / 1000;
    record.silence_us = collected.silences.longest_ns() / 1000;
    record.limit = collected.limit;
    record.pages = std::mem::take(&mut collected.pages).into_values().collect();
    record.compacted = collected.compacted.map(|compacted| CompactedHistory {
        until_us: clock.date_us(clock.since(compacted.time_ns)),
        events: compacted.events,
        failures: compacted.failures,
    });
    record.identity.environment = std::mem::take(&mut collected.environment);
    record.identity.job = job(std::mem::take(&mut collected.job), &record);
    record.calls = collected
        .calls
        .iter()
        .zip(0..=u8::MAX)
        .filter(|&(&counts, _)| counts != (0, 0))
        .map(|(&(done, failed), kind)| CallCount { what: EventKind::from_number(kind).name(), done, failed })
        .collect();
    record.end = collected.end.map(|end| match end.reason {
        EndReason::Exit => ProcessEnd::Exited(end.status),
        EndReason::Exec => ProcessEnd::Replaced,
        EndReason::Signal => ProcessEnd::Signalled(end.status),
        EndReason::Detached => ProcessEnd::Detached,
        EndReason::Other(_) => ProcessEnd::Other,
    });
    (record, pinned, ended)
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
        environment: BTreeMap::new(),
        job: JobIdentity::default(),
        began_us: clock.date_us(0),
    }
}

/// The process's place in a job, with the parts that other records have.
fn job(mut job: JobIdentity, record: &ProcessRecord) -> JobIdentity {
    job.set(JobField::Host, &record.identity.host);
    job.began_us = Some(record.identity.began_us);
    job.device_uuids = record.devices.iter().map(|device| device.uuid.clone()).collect();
    job
}

fn device(device: &DeviceDefinition) -> DeviceIdentity {
    DeviceIdentity {
        device: device.device,
        uuid: text(&device.uuid),
        name: text(&device.name),
        total: device.total,
    }
}

fn device_sample(clock: Clock, collected: &Collected, sample: &TimedSample) -> DeviceSample {
    let room::DeviceSample { device, free, total } = sample.measured;
    let thread = collected.threads.get(&sample.thread).map(|&index| index as usize);
    let time_us = clock.date_us(sample.since_ns);
    DeviceSample { time_us, device, free, total, events_before: None, thread }
}

/// The record under construction.
struct Assembly {
    record: ProcessRecord,
    clock: Clock,
    pinned: OrderedMap<u64, PinnedBlock>,
    pinned_bytes: Bytes,
    pinned_history: DeviceTrace,
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
            pinned: OrderedMap::new(),
            pinned_bytes: Bytes::ZERO,
            pinned_history: DeviceTrace { overflowed: Some(false), ..DeviceTrace::default() },
            contexts: FastMap::default(),
            code: FastMap::default(),
            launches: FastMap::default(),
            primaries: FastMap::default(),
            ended: Vec::new(),
        }
    }

    fn add(&mut self, other: &OtherEvent, name: impl Fn() -> String) {
        let event = other;
        let time_us = self.clock.date_us(other.since_ns);
        let has_happened = event.result == 0;
        match event.kind {
            EventKind::LaunchFailed => self.failed_launch(other, time_us, name),
            EventKind::PinnedAlloc | EventKind::HostRegister => self.pin(other),
            EventKind::PhysicalCreate if event.extra == ON_HOST => self.refuse_pinned(other),
            EventKind::ContextCreate | EventKind::PrimaryRetain if event.result == OUT_OF_MEMORY => {
                let refused =
                    RefusedContext { device: event.device, size: event.size, time_us, stack: other.stack };
                self.record.refused_contexts.push(refused);
            }
            _ if !has_happened => {}
            EventKind::PinnedFree | EventKind::HostUnregister => {
                let Some(block) = self.pinned.remove(&event.address.0) else { return };
                self.pinned_bytes = self.pinned_bytes - block.size;
                self.pinned_event(Action::FreeRequested, other, event.address.0, block.size);
                self.pinned_event(Action::FreeCompleted, other, event.address.0, block.size);
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
        let event = other;
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
        self.pinned_event(Action::Alloc, other, event.address.0, event.size);
    }

    fn refuse_pinned(&mut self, other: &OtherEvent) {
        if other.result == OUT_OF_MEMORY {
            let pinned = &mut self.record.pinned;
            pinned.refusals += 1;
            pinned.largest_refused = pinned.largest_refused.max(other.size);
            // How much the system would have let it pin is not known.
            self.pinned_event(Action::OutOfMemory, other, u64::MAX, other.size);
        }
    }

    fn create_context(&mut self, other: &OtherEvent, time_us: u64, is_primary: bool) {
        let handle = other.context.0;
        self.contexts.insert(handle, self.record.contexts.len());
        self.record.contexts.push(ContextRecord {
            device: other.device,
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
        let (_, holds) = self.primaries.entry(other.device).or_insert((other.context.0, 0));
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

    fn failed_launch(&mut self, other: &OtherEvent, time_us: u64, name: impl Fn() -> String) {
        let event = other;
        let key = (event.device.0, event.result, event.extra, other.stack);
        let launches = &mut self.record.failed_launches;
        let position = *self.launches.entry(key).or_insert_with(|| {
            let kernel = name();
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

    /// Adds an event to the history of pinned memory.
    fn pinned_event(&mut self, action: Action, other: &OtherEvent, address: u64, size: Bytes) {
        self.pinned_history.events.push(Event {
            time_us: self.clock.date_us(other.since_ns),
            stack: other.stack,
            ..Event::new(action, address, size.get())
        });
    }

    fn finish(mut self) -> (ProcessRecord, DeviceTrace, Vec<EndedContext>) {
        self.record.pinned.live = self.pinned.into_values().collect();
        (self.record, self.pinned_history, self.ended)
    }
}
