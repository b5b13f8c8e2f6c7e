//! Finds failed requests that were retried.
//!
//! A caching allocator whose driver call fails frees cached memory and retries. Only the last result counts, and if
//! the framework itself reports a failure, that replaces the driver's. A program without such an allocator that makes
//! the same request at the same place, without freeing anything in between, has failed twice.

use makeroom_core::{FastMap, StackId};

use super::collect::{MemoryEventRow, Role};
use super::definitions::Asker;
use super::rows::{RowSet, Rows, Seen};
use super::segments::is_tensor;
use crate::room::EventKind;

/// The failures that do not count.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Indices of rows.
    silenced: RowSet,
    /// A framework's own failures that follow a failure of the driver.
    asked: RowSet,
    /// The number of them that succeeded when retried.
    pub(super) served: u64,
    /// The failures that the recorder reported while the program ran, by its own rule.
    pub(super) reported: u64,
}

impl Attempts {
    /// Processes the rows in order of time.
    pub(super) fn find(rows: &Rows) -> Self {
        let mut attempts = Self::default();
        if !rows.has(Seen::Refused) {
            return attempts;
        }
        let has_framework = rows.has(Seen::Tensors);
        // The last failure of each thread, as long as it may still be retried.
        let mut open: FastMap<u32, usize> = FastMap::default();
        let mut last_gift: FastMap<u32, usize> = FastMap::default();
        let mut has_seen_tensor = false;
        for (index, row) in rows.iter() {
            if row.role == Role::Give {
                last_gift.insert(row.thread, index);
            }
            if !row.role.takes() {
                continue;
            }
            if let Some(before) = open.remove(&row.thread)
                && let refused = rows.get(before)
                && is_again(&refused, &row)
                && (has_framework
                    || last_gift.get(&row.thread).is_some_and(|&gift| gift > before)
                    || !is_repeated(&refused, &row))
            {
                attempts.silenced.insert(before);
                if !is_tensor(&refused) || attempts.asked.contains(before) {
                    attempts.asked.insert(index);
                }
                attempts.served += u64::from(!row.is_refused);
            }
            has_seen_tensor |= is_tensor(&row);
            if row.is_refused {
                attempts.reported += u64::from(is_tensor(&row) || !has_seen_tensor);
                open.insert(row.thread, index);
            }
        }
        attempts
    }

    /// Whether a framework failed this request itself, without calling the driver.
    pub(super) fn is_unasked(&self, index: usize, row: &MemoryEventRow) -> bool {
        is_tensor(row) && !self.asked.contains(index)
    }

    /// Whether the failure at this index counts.
    pub(super) fn counts(&self, index: usize) -> bool {
        !self.silenced.contains(index)
    }
}

/// Whether a program fails repeatedly at the same place.
fn is_repeated(refused: &MemoryEventRow, row: &MemoryEventRow) -> bool {
    let is_same_place = refused.stack == row.stack && refused.stack != StackId::NONE;
    row.is_refused && row.asker == Asker::Other && is_same_place
}

/// How much more than the tensor an allocator may request: its large segments have at least this size.
const ROUNDING: u64 = 20 << 20;

/// Whether `row` retries a failed request: the same request to the driver, or the tensor for which a framework's
/// allocator made it.
fn is_again(refused: &MemoryEventRow, row: &MemoryEventRow) -> bool {
    if refused.device != row.device {
        return false;
    }
    if refused.kind == row.kind {
        return refused.size == row.size;
    }
    let is_tensor = row.kind == EventKind::TensorAlloc;
    match refused.asker {
        Asker::Torch | Asker::Unknown => is_tensor,
        // Through another library, if the framework failed for about the same size.
        Asker::Other => is_tensor && row.is_refused && refused.size.wrapping_sub(row.size) <= ROUNDING,
    }
}
