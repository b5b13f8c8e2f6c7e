//! Which refused requests were only a first attempt.
//!
//! Caching allocators ask the driver, are refused, give cached memory back and ask again. Only the last answer counts,
//! and where the framework itself says that it gives up, that counts instead of the driver's answers before it.

use std::collections::HashSet;

use makeroom_core::{FastHasher, FastMap};

use super::collect::Row;
use super::definitions::Asker;
use crate::room::EventKind;

/// The refusals that do not count.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Positions of rows.
    silenced: HashSet<usize, FastHasher>,
    /// How many of them were served when they were made again.
    pub(super) served: u64,
}

impl Attempts {
    /// Looks at the rows in the order of time.
    pub(super) fn find(rows: &[Row]) -> Self {
        let mut attempts = Self::default();
        // The last refusal of each thread, while it may still be made again.
        let mut open: FastMap<u32, usize> = FastMap::default();
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.role.takes()) {
            if let Some(before) = open.remove(&row.thread)
                && is_again(&rows[before], row)
            {
                attempts.silenced.insert(before);
                attempts.served += u64::from(!row.is_refused);
            }
            if row.is_refused {
                open.insert(row.thread, index);
            }
        }
        attempts
    }

    /// Whether the refusal at a position counts.
    pub(super) fn counts(&self, index: usize) -> bool {
        !self.silenced.contains(&index)
    }
}

/// Whether `row` is the request of a refused one again: the same of the driver, or the tensor for which PyTorch's
/// allocator asked.
fn is_again(refused: &Row, row: &Row) -> bool {
    let is_same_device = refused.device == row.device;
    let is_same_request = refused.kind == row.kind && refused.size == row.size;
    let is_its_tensor = row.kind == EventKind::TensorAlloc
        && refused.kind != EventKind::TensorAlloc
        && refused.asker != Asker::Other;
    is_same_device && (is_same_request || is_its_tensor)
}
