//! One pass over the records of a file: events about device memory become rows, everything else is kept separately.
//!
//! Batches of several threads alternate in the file, so the order in time is known only at the end. Rows are small,
//! and are sorted then.

use std::collections::{BTreeMap, HashSet};

use makeroom_core::identity::JobIdentity;
use makeroom_core::{
    Address, Bytes, DeviceIndex, FastHasher, FastMap, HostSample, PageFigure, PagesUse, Remark,
    SortCompact as _, StackId, Stacks,
};
use makeroom_ordered::OrderedMap;

use super::Clock;
use super::definitions::{Asker, Definitions};
use super::rows::Rows;
use super::segments::is_tensor;
use super::silences::Silences;
use crate::MOST_DEVICES;
use crate::error::Error;
use crate::room::place::place_in_job;
use crate::room::{
    Compacted, ContextHandle, DeviceDefinition, DeviceSample, End, Event, EventKind, Note, Record, Sample,
    Severity, StackNumber, ThreadNumber,
};

/// Maximum number of environment variables; a recorder writes a handful.
const MOST_VARIABLES: usize = 1024;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: u32 = 2;
/// Value of `extra` for physical memory on the host.
pub(super) const ON_HOST: u64 = 1;

/// An event about device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryEventRow {
    pub(super) since_ns: i64,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) stream: u64,
    /// The handle of mapped memory, or the location of physical memory.
    pub(super) extra: u64,
    pub(super) device: DeviceIndex,
    /// The context it belongs to and ends with; 0 if none.
    pub(super) context: u64,
    /// Index of the thread.
    pub(super) thread: u32,
    pub(super) stack: StackId,
    pub(super) kind: EventKind,
    pub(super) role: Role,
    pub(super) asker: Asker,
    pub(super) is_refused: bool,
}

/// The effect of an event on device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Allocates memory at an address.
    Take,
    /// Frees it.
    Give,
    /// Completes a stream-ordered free: the memory may be reused.
    Complete,
    /// Maps physical memory at an address.
    Map,
    /// Unmaps a range of addresses.
    Unmap,
    /// Creates physical memory without an address. It counts once it is mapped.
    Create,
    /// Refers, by handle or address, to memory that another owner allocated. It does not count.
    Foreign,
    /// Marks the point up to which a stream, or all streams of a context, were synchronized.
    Wait,
    /// Destroys a stream.
    EndStream,
}

/// An event about something else. It takes 56 bytes, see `rows.rs`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherEvent {
    pub(super) since_ns: i64,
    pub(super) address: Address,
    pub(super) size: Bytes,
    pub(super) extra: u64,
    pub(super) context: ContextHandle,
    pub(super) device: DeviceIndex,
    pub(super) result: u32,
    pub(super) stack: StackId,
    pub(super) kind: EventKind,
}

const _: () = assert!(size_of::<OtherEvent>() == 56);

/// A device sample with its time and the sampling thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimedSample {
    pub(super) since_ns: i64,
    pub(super) thread: ThreadNumber,
    pub(super) measured: DeviceSample,
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Collected {
    clock: Clock,
    pub(super) definitions: Definitions,
    pub(super) threads: FastMap<ThreadNumber, u32>,
    /// The devices in rows, in the order of their first row.
    pub(super) devices: Vec<DeviceIndex>,
    /// The device and the thread of the last row: the next one often has the same.
    last_device: Option<DeviceIndex>,
    last_thread: Option<(ThreadNumber, u32)>,
    pub(super) rows: Rows,
    pub(super) others: Vec<OtherEvent>,
    /// The first definition of each device.
    pub(super) device_definitions: Vec<DeviceDefinition>,
    defined: HashSet<DeviceIndex, FastHasher>,
    pub(super) device_samples: Vec<TimedSample>,
    pub(super) host_samples: Vec<(i64, HostSample)>,
    pub(super) remarks: Vec<(i64, Remark)>,
    pub(super) end: Option<End>,
    pub(super) limit: Option<Bytes>,
    /// Environment variables, the first value of each.
    pub(super) environment: BTreeMap<String, String>,
    /// The process's place in a job.
    pub(super) job: JobIdentity,
    /// What was left out before the first event that is complete.
    pub(super) compacted: Option<Compacted>,
    /// Figures of paged memory, by device.
    pub(super) pages: OrderedMap<u32, PagesUse>,
    /// Successful and failed calls, by the number of their kind.
    pub(super) calls: Vec<(u64, u64)>,
    pub(super) dropped: u64,
    /// Time of the last record.
    pub(super) last_ns: i64,
    pub(super) silences: Silences,
    /// Records and frames of later versions.
    pub(super) unknown: u64,
    /// Events with an undefined stack.
    pub(super) undefined: u64,
    /// Calls that failed for reasons other than memory, and the first of them.
    pub(super) failed: u64,
    pub(super) first_failed: Option<(EventKind, u32)>,
}

impl Collected {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            definitions: Definitions::new(clock.wall_ns),
            threads: FastMap::default(),
            devices: Vec::new(),
            last_device: None,
            last_thread: None,
            rows: Rows::default(),
            others: Vec::new(),
            device_definitions: Vec::new(),
            defined: HashSet::default(),
            device_samples: Vec::new(),
            host_samples: Vec::new(),
            remarks: Vec::new(),
            end: None,
            limit: None,
            environment: BTreeMap::new(),
            job: JobIdentity::default(),
            compacted: None,
            pages: OrderedMap::new(),
            calls: vec![(0, 0); usize::from(u8::MAX) + 1],
            dropped: 0,
            last_ns: 0,
            silences: Silences::default(),
            unknown: 0,
            undefined: 0,
            failed: 0,
            first_failed: None,
        }
    }

    /// Adds a record, whose offset in the file is `offset`.
    pub(super) fn add(
        &mut self,
        stacks: &mut Stacks,
        thread: ThreadNumber,
        record: Record,
        offset: u64,
    ) -> Result<(), Error> {
        // A record after an end revokes it: `exec` failed, or a handler returned from `abort`.
        self.end = None;
        let time_ns = match &record {
            Record::Sample(sample) => Some(sample.time_ns),
            Record::Note(note) => Some(note.time_ns),
            Record::Dropped(dropped) => Some(dropped.time_ns),
            Record::End(end) => Some(end.time_ns),
            _ => None,
        };
        if let Some(since_ns) = time_ns.map(|time_ns| self.clock.since(time_ns)) {
            self.pass_to(since_ns);
        }
        match record {
            Record::Event(event) => self.add_event(thread, &event, offset)?,
            Record::Name { number, text } => self.definitions.define_name(stacks, number, &text),
            Record::Frame { number, frame } => self.definitions.define_frame(stacks, number, &frame),
            Record::Stack { number, frames } => self.definitions.define_stack(stacks, number, &frames),
            Record::Device(device) => {
                if self.defined.insert(device.device) {
                    self.device_definitions.push(device);
                }
            }
            Record::Sample(sample) => self.add_sample(thread, &sample),
            Record::Dropped(dropped) => self.dropped = self.dropped.saturating_add(dropped.events),
            Record::Note(note) => self.add_note(&note),
            Record::End(end) => self.end = Some(end),
            Record::Limit(limit) => self.limit = Some(limit),
            Record::Variable { name, value } => self.add_variable(&name, &value),
            Record::Job(fields) => self.add_job(&fields),
            Record::Compacted(compacted) => self.compacted = Some(compacted),
            Record::Pages { device, figures } => self.add_pages(device, &figures),
            Record::Unknown { .. } => self.unknown += 1,
        }
        Ok(())
    }

    /// A record is from this time.
    #[inline]
    fn pass_to(&mut self, since_ns: i64) {
        self.silences.add(since_ns.saturating_sub(self.last_ns));
        self.last_ns = self.last_ns.max(since_ns);
    }

    fn add_sample(&mut self, thread: ThreadNumber, sample: &Sample) {
        let since_ns = self.clock.since(sample.time_ns);
        self.device_samples.extend(sample.device.map(|measured| TimedSample { since_ns, thread, measured }));
        let Sample { resident, cgroup_usage, cgroup_limit, pinned, .. } = *sample;
        if resident.or(cgroup_usage).or(cgroup_limit).or(pinned).is_some() {
            let time_us = self.clock.date_us(since_ns);
            let measured = HostSample { time_us, resident, cgroup_usage, cgroup_limit, pinned };
            self.host_samples.push((since_ns, measured));
        }
    }

    fn add_variable(&mut self, name: &[u8], value: &[u8]) {
        if self.environment.len() < MOST_VARIABLES {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            self.environment.entry(text(name)).or_insert_with(|| text(value));
        }
    }

    /// The first such record counts. Fields of a later version and values that cannot be true are left out.
    fn add_job(&mut self, fields: &[(u64, Vec<u8>)]) {
        if self.job == JobIdentity::default() {
            self.job = place_in_job(fields);
        }
    }

    /// The last such record of a device counts. Figures of a later version are left out.
    fn add_pages(&mut self, device: u64, figures: &[(u64, u64)]) {
        let Ok(device) = u32::try_from(device) else { return };
        if self.pages.len() < MOST_DEVICES || self.pages.contains_key(&device) {
            let mut used = PagesUse { device: DeviceIndex(device), ..PagesUse::default() };
            for &(number, value) in figures {
                if let Some(figure) = PageFigure::from_number(number) {
                    *used.figure_mut(figure) = value;
                }
            }
            self.pages.insert(device, used);
        }
    }

    fn add_note(&mut self, note: &Note) {
        let since_ns = self.clock.since(note.time_ns);
        let remark = Remark {
            time_us: self.clock.date_us(since_ns),
            is_warning: note.severity != Severity::Information,
            text: String::from_utf8_lossy(&note.text).into_owned(),
        };
        self.remarks.push((since_ns, remark));
    }

    /// Adds an event, whose offset in the file is `offset`.
    pub(super) fn add_event(
        &mut self,
        thread: ThreadNumber,
        event: &Event,
        offset: u64,
    ) -> Result<(), Error> {
        let since_ns = self.clock.since(event.time_ns);
        self.end = None;
        self.pass_to(since_ns);
        let (done, failed) = &mut self.calls[usize::from(event.kind.number())];
        *(if event.result == 0 { done } else { failed }) += 1;
        let (stack, asker) = self.stack(event.stack);
        let Some(role) = role(event) else {
            if matches!(event.kind, EventKind::Other(_)) {
                self.unknown += 1;
            } else {
                self.others.extend(is_of_use(event.kind).then_some(OtherEvent {
                    since_ns,
                    address: event.address,
                    size: event.size,
                    extra: event.extra,
                    context: event.context,
                    device: event.device,
                    result: event.result,
                    stack,
                    kind: event.kind,
                }));
            }
            return Ok(());
        };
        let is_refused =
            event.result == OUT_OF_MEMORY || event.result != 0 && event.kind == EventKind::TensorAlloc;
        if event.result != 0 && !(is_refused && role.takes()) {
            self.failed += 1;
            self.first_failed.get_or_insert((event.kind, event.result));
            return Ok(());
        }
        if role.is_about_memory() && self.last_device != Some(event.device) {
            self.last_device = Some(event.device);
            if !self.devices.contains(&event.device) {
                if self.devices.len() == MOST_DEVICES {
                    return Err(Error::TooMany { offset, what: "devices", limit: MOST_DEVICES as u64 });
                }
                self.devices.push(event.device);
            }
        }
        // Freeing a null pointer is allowed, and a common way to create a context.
        if role == Role::Give && event.address.0 == 0 {
            return Ok(());
        }
        let thread = self.thread_index(thread);
        self.rows.push(&MemoryEventRow {
            since_ns,
            address: event.address.0,
            size: event.size.get(),
            stream: event.stream.0,
            extra: event.extra,
            device: event.device,
            context: event.context.0,
            thread,
            stack,
            kind: event.kind,
            role,
            asker,
            is_refused,
        });
        Ok(())
    }

    fn thread_index(&mut self, thread: ThreadNumber) -> u32 {
        match self.last_thread {
            Some((last, index)) if last == thread => index,
            _ => {
                let next = self.threads.len() as u32;
                let index = *self.threads.entry(thread).or_insert(next);
                self.last_thread = Some((thread, index));
                index
            }
        }
    }

    fn stack(&mut self, number: StackNumber) -> (StackId, Asker) {
        self.definitions.stack(number).unwrap_or_else(|| {
            self.undefined += 1;
            (StackId::NONE, Asker::Unknown)
        })
    }

    /// Sorts everything by time. The sort is stable.
    pub(super) fn sort(&mut self) {
        self.rows.sort();
        if self.devices.len() > 1 {
            find_devices_of_frees(&mut self.rows);
            let named: HashSet<DeviceIndex, FastHasher> = self
                .rows
                .iter()
                .filter(|(_, row)| row.role.is_about_memory())
                .map(|(_, row)| row.device)
                .collect();
            self.devices.retain(|device| named.contains(device));
        }
        self.others.sort_compact_by_key(|other| other.since_ns);
        self.device_samples.sort_compact_by_key(|sample| sample.since_ns);
        self.host_samples.sort_compact_by_key(|&(since_ns, _)| since_ns);
        self.remarks.sort_compact_by_key(|&(since_ns, _)| since_ns);
        self.devices.sort_unstable();
    }
}

/// Sets the device of frees. They are recorded with the current device or none, but the device that counts is the one
/// where the memory was allocated. Addresses are unique across all devices of a process.
fn find_devices_of_frees(rows: &mut Rows) {
    let mut taken: FastMap<u64, DeviceIndex> = FastMap::default();
    for position in 0..rows.len() {
        let row = rows.get(position);
        if row.is_refused || is_tensor(&row) {
            continue;
        }
        match row.role {
            Role::Take | Role::Map => {
                taken.insert(row.address, row.device);
            }
            Role::Give | Role::Complete | Role::Unmap => {
                if let Some(&device) = taken.get(&row.address) {
                    rows.set_device(position, device);
                }
            }
            Role::Create | Role::Foreign | Role::Wait | Role::EndStream => {}
        }
    }
}

impl Role {
    /// Whether the event concerns a device's memory itself.
    pub(super) fn is_about_memory(self) -> bool {
        !matches!(self, Self::Wait | Self::EndStream)
    }

    /// Whether it requests memory, which can fail.
    pub(super) fn takes(self) -> bool {
        matches!(self, Self::Take | Self::Map | Self::Create)
    }
}

/// Whether an event that is not about device memory is processed; most calls are only counted.
fn is_of_use(kind: EventKind) -> bool {
    matches!(
        kind,
        EventKind::LaunchFailed
            | EventKind::PinnedAlloc
            | EventKind::PinnedFree
            | EventKind::HostRegister
            | EventKind::HostUnregister
            | EventKind::PhysicalCreate
            | EventKind::PhysicalRetain
            | EventKind::PhysicalRelease
            | EventKind::ContextCreate
            | EventKind::ContextDestroy
            | EventKind::PrimaryRetain
            | EventKind::PrimaryRelease
            | EventKind::PrimaryReset
            | EventKind::ModuleLoad
            | EventKind::ModuleUnload
            | EventKind::LibraryLoad
            | EventKind::LibraryUnload
            | EventKind::LimitSet
            | EventKind::PoolMemory
            | EventKind::GraphMemory
    )
}

/// The effect of an event on device memory; `None` if it is about something else.
fn role(event: &Event) -> Option<Role> {
    Some(match event.kind {
        EventKind::DeviceAlloc
        | EventKind::PitchedAlloc
        | EventKind::ArrayAlloc
        | EventKind::MipmappedAlloc
        | EventKind::ManagedAlloc
        | EventKind::StreamAlloc
        | EventKind::GraphAlloc
        | EventKind::TensorAlloc => Role::Take,
        EventKind::DeviceFree
        | EventKind::ArrayFree
        | EventKind::MipmappedFree
        | EventKind::StreamFree
        | EventKind::GraphFree
        | EventKind::TensorFree => Role::Give,
        EventKind::StreamFreeCompleted => Role::Complete,
        EventKind::StreamWait | EventKind::ContextWait => Role::Wait,
        EventKind::StreamDestroy => Role::EndStream,
        EventKind::Map => Role::Map,
        EventKind::Unmap => Role::Unmap,
        // A failure on the host does not concern the device.
        EventKind::ExternalImport
        | EventKind::ExternalMap
        | EventKind::IpcOpen
        | EventKind::MulticastCreate
            if event.result == 0 =>
        {
            Role::Foreign
        }
        EventKind::PhysicalCreate if event.result == 0 || event.extra != ON_HOST => Role::Create,
        _ => return None,
    })
}
