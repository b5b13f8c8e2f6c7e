//! Which driver memory a framework cuts its tensors out of.
//!
//! What PyTorch's allocator asked for is its own. Of everybody else's memory it is that in which tensors lay while it was
//! there: a framework may take its segments through another library (RMM, an allocator plugged in), and without native
//! frames there is no other way to tell. Addresses are used again, so what lay there at other times does not count.

use std::collections::{BTreeMap, HashSet};

use makeroom_core::{DeviceIndex, FastHasher, FastMap};

use super::collect::{Role, Row};
use super::definitions::Asker;
use crate::room::EventKind;

/// Driver memory that is there: its end, and the row that took it.
#[derive(Clone, Copy)]
struct Held {
    end: u64,
    row: usize,
}

/// The rows that take segments.
pub(super) fn find(rows: &[Row]) -> HashSet<usize, FastHasher> {
    let with_tensors: HashSet<DeviceIndex> =
        rows.iter().filter(|row| is_tensor(row)).map(|row| row.device).collect();
    let mut segments = HashSet::default();
    let mut held: FastMap<DeviceIndex, BTreeMap<u64, Held>> = FastMap::default();
    let rows = rows.iter().enumerate();
    for (index, row) in rows.filter(|(_, row)| !row.is_refused && with_tensors.contains(&row.device)) {
        let end = row.address.saturating_add(row.size);
        let held = held.entry(row.device).or_default();
        match row.role {
            Role::Take if is_tensor(row) => {
                let below = held.range(..end).rev();
                let around = below.take_while(|(_, memory)| memory.end > row.address);
                segments.extend(around.map(|(_, memory)| memory.row));
            }
            Role::Take | Role::Map if row.asker == Asker::Torch => {
                segments.insert(index);
            }
            Role::Take | Role::Map => {
                held.insert(row.address, Held { end, row: index });
            }
            Role::Give if !is_tensor(row) => {
                held.remove(&row.address);
            }
            Role::Unmap => {
                while let Some((&address, _)) = held.range(row.address..end).next() {
                    held.remove(&address);
                }
            }
            Role::Give | Role::Complete | Role::Create | Role::Foreign => {}
        }
    }
    segments
}

/// Whether a row is about a framework's block.
pub(super) fn is_tensor(row: &Row) -> bool {
    matches!(row.kind, EventKind::TensorAlloc | EventKind::TensorFree)
}
