//! One pass over the records of a file: events about device memory become rows, everything else is kept separately.
//!
//! Batches of several threads alternate in the file, so the order in time is known only at the end. Rows are small,
//! and are sorted then.

use std::collections::{BTreeMap, HashSet};

use makeroom_core::{Bytes, DeviceIndex, FastHasher, FastMap, NameId, StackId, Stacks};

use super::Clock;
use super::definitions::{Asker, Definitions};
use super::segments::is_tensor;
use crate::error::Error;
use crate::room::{
    DeviceDefinition, End, Event, EventKind, NameNumber, Note, Record, Sample, StackNumber, ThreadNumber,
};

/// Maximum number of devices; files with more are crafted to exhaust memory.
const MOST_DEVICES: usize = 1024;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) const OUT_OF_MEMORY: u32 = 2;
/// Value of `extra` for physical memory on the host.
pub(super) const ON_HOST: u64 = 1;

/// An event about device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
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

/// An event that is not about device memory, with its references resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct OtherEvent {
    pub(super) since_ns: i64,
    pub(super) event: Event,
    pub(super) stack: StackId,
    /// The kernel of a failed launch.
    pub(super) name: NameId,
}

/// The content of a file.
#[derive(Debug)]
pub(super) struct Collected {
    clock: Clock,
    definitions: Definitions,
    threads: FastMap<ThreadNumber, u32>,
    /// The devices in rows, in the order of their first row.
    pub(super) devices: Vec<DeviceIndex>,
    pub(super) rows: Vec<Row>,
    pub(super) others: Vec<OtherEvent>,
    pub(super) device_definitions: Vec<DeviceDefinition>,
    pub(super) samples: Vec<Sample>,
    pub(super) remarks: Vec<Note>,
    pub(super) end: Option<End>,
    pub(super) limit: Option<Bytes>,
    /// Successful and failed calls, by kind.
    pub(super) calls: BTreeMap<u8, (u64, u64)>,
    pub(super) dropped: u64,
    /// Time of the last record.
    pub(super) last_ns: i64,
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
            rows: Vec::new(),
            others: Vec::new(),
            device_definitions: Vec::new(),
            samples: Vec::new(),
            remarks: Vec::new(),
            end: None,
            limit: None,
            calls: BTreeMap::new(),
            dropped: 0,
            last_ns: 0,
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
            Record::Event(event) => Some(event.time_ns),
            Record::Sample(sample) => Some(sample.time_ns),
            Record::Note(note) => Some(note.time_ns),
            Record::Dropped(dropped) => Some(dropped.time_ns),
            Record::End(end) => Some(end.time_ns),
            _ => None,
        };
        self.last_ns = time_ns.map_or(self.last_ns, |time_ns| self.last_ns.max(self.clock.since(time_ns)));
        match record {
            Record::Event(event) => self.add_event(thread, &event, offset)?,
            Record::Name { number, text } => self.definitions.define_name(stacks, number, &text),
            Record::Frame { number, frame } => self.definitions.define_frame(stacks, number, &frame),
            Record::Stack { number, frames } => self.definitions.define_stack(stacks, number, &frames),
            Record::Device(device) => self.device_definitions.push(device),
            Record::Sample(sample) => self.samples.push(sample),
            Record::Dropped(dropped) => self.dropped = self.dropped.saturating_add(dropped.events),
            Record::Note(note) => self.remarks.push(note),
            Record::End(end) => self.end = Some(end),
            Record::Limit(limit) => self.limit = Some(limit),
            Record::Unknown { .. } => self.unknown += 1,
        }
        Ok(())
    }

    fn add_event(&mut self, thread: ThreadNumber, event: &Event, offset: u64) -> Result<(), Error> {
        let (done, failed) = self.calls.entry(event.kind.number()).or_default();
        *(if event.result == 0 { done } else { failed }) += 1;
        let since_ns = self.clock.since(event.time_ns);
        let (stack, asker) = self.stack(event.stack);
        let Some(role) = role(event) else {
            if matches!(event.kind, EventKind::Other(_)) {
                self.unknown += 1;
            } else {
                let name = self.definitions.name(NameNumber(event.extra as u32));
                self.others.push(OtherEvent { since_ns, event: *event, stack, name });
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
        let is_as_before =
            self.rows.last().is_some_and(|row| row.device == event.device && row.role.is_about_memory());
        if role.is_about_memory() && !is_as_before && !self.devices.contains(&event.device) {
            if self.devices.len() == MOST_DEVICES {
                return Err(Error::TooMany { offset, what: "devices", limit: MOST_DEVICES as u64 });
            }
            self.devices.push(event.device);
        }
        // Freeing a null pointer is allowed, and a common way to create a context.
        if role == Role::Give && event.address.0 == 0 {
            return Ok(());
        }
        let next = self.threads.len() as u32;
        self.rows.push(Row {
            since_ns,
            address: event.address.0,
            size: event.size.get(),
            stream: event.stream.0,
            extra: event.extra,
            device: event.device,
            context: event.context.0,
            thread: *self.threads.entry(thread).or_insert(next),
            stack,
            kind: event.kind,
            role,
            asker,
            is_refused,
        });
        Ok(())
    }

    fn stack(&mut self, number: StackNumber) -> (StackId, Asker) {
        self.definitions.stack(number).unwrap_or_else(|| {
            self.undefined += 1;
            (StackId::NONE, Asker::Unknown)
        })
    }

    /// Sorts everything by time. The sort is stable.
    pub(super) fn sort(&mut self) {
        let clock = self.clock;
        self.rows.sort_by_key(|row| row.since_ns);
        if self.devices.len() > 1 {
            find_devices_of_frees(&mut self.rows);
            let named: HashSet<DeviceIndex, FastHasher> =
                self.rows.iter().filter(|row| row.role.is_about_memory()).map(|row| row.device).collect();
            self.devices.retain(|device| named.contains(device));
        }
        self.others.sort_by_key(|other| other.since_ns);
        self.samples.sort_by_key(|sample| clock.since(sample.time_ns));
        self.remarks.sort_by_key(|remark| clock.since(remark.time_ns));
        self.devices.sort_unstable();
    }
}

/// Frees are recorded with the current device, or none. What counts is the device of the allocation. Addresses are
/// unique across the devices of a process.
fn find_devices_of_frees(rows: &mut [Row]) {
    let mut taken: FastMap<u64, DeviceIndex> = FastMap::default();
    for row in rows.iter_mut().filter(|row| !row.is_refused && !is_tensor(row)) {
        match row.role {
            Role::Take | Role::Map => {
                taken.insert(row.address, row.device);
            }
            Role::Give | Role::Complete | Role::Unmap => {
                row.device = taken.get(&row.address).copied().unwrap_or(row.device);
            }
            Role::Create | Role::Foreign | Role::Wait | Role::EndStream => {}
        }
    }
}

impl Role {
    /// Whether it concerns the memory of a device itself.
    fn is_about_memory(self) -> bool {
        !matches!(self, Self::Wait | Self::EndStream)
    }

    /// Whether it requests memory, which can fail.
    pub(super) fn takes(self) -> bool {
        matches!(self, Self::Take | Self::Map | Self::Create)
    }
}

/// The effect of an event on device memory; `None` if it has none.
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
