//! Finds the driver memory that a framework divides into tensors: its segments.
//!
//! Memory requested by PyTorch's allocator is a segment. So is other memory that contained tensors while it existed:
//! a framework may allocate segments through another library (RMM, a pluggable allocator), and without native frames
//! there is no other evidence. Addresses are reused, so tensors at other times do not count.
//!
//! If makeroom's own pool served the program (`--pool`), its mappings are the segments, whichever code it serves. A
//! framework's blocks are then in blocks that the pool handed out. Both are the same memory, which counts once.

use makeroom_core::{DeviceIndex, FastMap, Ranges};
use makeroom_ordered::OrderedMap;

use super::collect::{MemoryEventRow, Role};
use super::definitions::Asker;
use super::rows::{RowSet, Rows, Seen};
use crate::room::EventKind;

/// Driver memory that exists: its end, and the row that allocated it.
#[derive(Clone, Copy)]
struct HeldRange {
    end: u64,
    row: usize,
}

/// How to count rows that allocate memory.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// They allocate segments.
    pub(super) segments: RowSet,
    /// They allocate memory that the pool gave to a framework; it counts as the framework's blocks.
    pub(super) handed_on: RowSet,
}

/// Whether a handle belongs to makeroom's own pool, which marks its handles.
pub(super) fn is_of_pool(handle: u64) -> bool {
    handle >> 48 & 0xff == 0x6d
}

/// Finds the rows that allocate segments.
pub(super) fn find(rows: &Rows) -> Found {
    let mut found = of_frameworks(rows);
    if !rows.has(Seen::OfPool) {
        return found;
    }
    let mut pooled: FastMap<DeviceIndex, Ranges> = FastMap::default();
    for (index, row) in rows.iter().filter(|(_, row)| !row.is_refused) {
        match row.role {
            Role::Map if is_of_pool(row.extra) => {
                found.segments.insert(index);
                pooled.entry(row.device).or_default().insert(row.address, row.size);
            }
            Role::Unmap => {
                if let Some(pooled) = pooled.get_mut(&row.device) {
                    pooled.remove(row.address, row.size);
                }
            }
            Role::Take if !is_tensor(&row) => {
                let is_pooled = pooled.get(&row.device).is_some_and(|pooled| pooled.contains(row.address));
                if is_pooled && found.segments.remove(index) {
                    found.handed_on.insert(index);
                }
            }
            _ => {}
        }
    }
    found
}

fn of_frameworks(rows: &Rows) -> Found {
    // Driver memory on the devices that have tensors.
    let mut held: FastMap<DeviceIndex, OrderedMap<u64, HeldRange>> = FastMap::default();
    if rows.has(Seen::Tensors) {
        held.extend(rows.devices_of_tensors().into_iter().map(|device| (device, OrderedMap::new())));
    }
    let mut segments = RowSet::default();
    for (index, row) in rows.iter().filter(|(_, row)| !row.is_refused) {
        let Some(held) = held.get_mut(&row.device) else { continue };
        let end = row.address.saturating_add(row.size);
        match row.role {
            Role::Take if is_tensor(&row) && held.is_empty() => {}
            Role::Take if is_tensor(&row) => {
                // Known segments are not examined again; otherwise, overlapping memory would be examined for each
                // tensor.
                while let Some((&address, memory)) = held.range(..end).next_back()
                    && memory.end > row.address
                {
                    segments.insert(memory.row);
                    held.remove(&address);
                }
            }
            Role::Take | Role::Map if row.asker == Asker::Torch => {
                segments.insert(index);
            }
            Role::Take | Role::Map => {
                held.insert(row.address, HeldRange { end, row: index });
            }
            Role::Give if !is_tensor(&row) => {
                held.remove(&row.address);
            }
            Role::Unmap => {
                while let Some((&address, _)) = held.range(row.address..end).next() {
                    held.remove(&address);
                }
            }
            Role::Give | Role::Complete | Role::Create | Role::Foreign | Role::Wait | Role::EndStream => {}
        }
    }
    Found { segments, ..Found::default() }
}

/// Whether a row concerns a framework's block.
pub(super) fn is_tensor(row: &MemoryEventRow) -> bool {
    is_of_tensor(row.kind)
}

/// Whether events of a kind concern a framework's blocks.
pub(super) fn is_of_tensor(kind: EventKind) -> bool {
    matches!(kind, EventKind::TensorAlloc | EventKind::TensorFree)
}
