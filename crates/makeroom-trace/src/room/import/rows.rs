//! Packed rows of device memory: an event takes as little as three bytes in a file, and each becomes a row.
//!
//! Repeated values (streams, contexts, devices) are stored once and referenced by index. Rows are stored in chunks, so
//! that rows that have been converted to events can be freed while the rest are still needed.
//!
//! A row takes 56 bytes; a set of rows takes one bit per row.

use std::hash::Hash;

use makeroom_core::{DeviceIndex, FastMap, StackId};

use super::collect::{MemoryEventRow, Role};
use super::definitions::Asker;
use crate::room::EventKind;

/// Rows per chunk, 36 MB. The C library returns blocks of more than 32 MiB to the system immediately; smaller ones may
/// stay. Under miri, chunks are small, because a million rows take hours.
const CHUNK: usize = if cfg!(miri) { 640 } else { 640_000 };

/// Rows in the order in which they were added, or in order of time once they are sorted.
#[derive(Debug, Default)]
pub(super) struct Rows {
    chunks: Vec<Vec<Packed>>,
    len: usize,
    streams: Table<u64>,
    contexts: Table<u64>,
    devices: Table<DeviceIndex>,
}

/// A row with indices into tables.
#[derive(Clone, Copy, Debug)]
struct Packed {
    since_ns: i64,
    address: u64,
    size: u64,
    extra: u64,
    stream: u32,
    context: u32,
    thread: u32,
    stack: StackId,
    /// There are at most 1024 devices.
    device: u16,
    kind: EventKind,
    role: Role,
    asker: Asker,
    is_refused: bool,
}

const _: () = assert!(size_of::<Packed>() == 56);

/// Values that are referenced by index.
#[derive(Debug)]
struct Table<T> {
    values: Vec<T>,
    positions: FastMap<T, u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { values: Vec::new(), positions: FastMap::default() }
    }
}

impl<T: Copy + Eq + Hash> Table<T> {
    fn position(&mut self, value: T) -> u32 {
        let values = &mut self.values;
        *self.positions.entry(value).or_insert_with(|| {
            values.push(value);
            values.len() as u32 - 1
        })
    }
}

impl Rows {
    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a row.
    pub(super) fn push(&mut self, row: &MemoryEventRow) {
        let packed = Packed {
            since_ns: row.since_ns,
            address: row.address,
            size: row.size,
            extra: row.extra,
            stream: self.streams.position(row.stream),
            context: self.contexts.position(row.context),
            thread: row.thread,
            stack: row.stack,
            // The device of a synchronization is irrelevant and can be any number.
            device: if row.role.is_about_memory() { self.devices.position(row.device) as u16 } else { 0 },
            kind: row.kind,
            role: row.role,
            asker: row.asker,
            is_refused: row.is_refused,
        };
        if let Some(chunk) = self.chunks.last_mut().filter(|chunk| chunk.len() < CHUNK) {
            chunk.push(packed);
        } else {
            // A small file does not need a whole chunk.
            let mut chunk = Vec::with_capacity(if self.chunks.is_empty() { 0 } else { CHUNK });
            chunk.push(packed);
            self.chunks.push(chunk);
        }
        self.len += 1;
    }

    fn packed(&self, position: usize) -> &Packed {
        &self.chunks[position / CHUNK][position % CHUNK]
    }

    fn packed_mut(&mut self, position: usize) -> &mut Packed {
        &mut self.chunks[position / CHUNK][position % CHUNK]
    }

    /// The row at an index.
    pub(super) fn get(&self, position: usize) -> MemoryEventRow {
        let packed = self.packed(position);
        MemoryEventRow {
            since_ns: packed.since_ns,
            address: packed.address,
            size: packed.size,
            stream: self.streams.values[packed.stream as usize],
            extra: packed.extra,
            device: self.devices.values.get(usize::from(packed.device)).copied().unwrap_or_default(),
            context: self.contexts.values[packed.context as usize],
            thread: packed.thread,
            stack: packed.stack,
            kind: packed.kind,
            role: packed.role,
            asker: packed.asker,
            is_refused: packed.is_refused,
        }
    }

    /// All rows with their indices.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, MemoryEventRow)> + '_ {
        (0..self.len).map(|position| (position, self.get(position)))
    }

    /// The last row.
    pub(super) fn last(&self) -> Option<MemoryEventRow> {
        self.len.checked_sub(1).map(|last| self.get(last))
    }

    /// Sets the device of a row.
    pub(super) fn set_device(&mut self, position: usize, device: DeviceIndex) {
        let device = self.devices.position(device) as u16;
        self.packed_mut(position).device = device;
    }

    /// Drops all whole chunks before an index; their rows must not be used again.
    pub(super) fn forget_before(&mut self, position: usize) {
        if position.is_multiple_of(CHUNK)
            && let Some(chunk) =
                (position / CHUNK).checked_sub(1).and_then(|chunk| self.chunks.get_mut(chunk))
        {
            *chunk = Vec::new();
        }
    }

    /// Sorts rows by time. The sort is stable.
    pub(super) fn sort(&mut self) {
        if self.chunks.iter().flatten().is_sorted_by_key(|row| row.since_ns) {
            return;
        }
        let time = |position: &u32| self.packed(*position as usize).since_ns;
        let mut order: Vec<u32> = (0..self.len as u32).collect();
        order.sort_unstable_by_key(|position| (time(position), *position));
        // Rows are moved along the cycles of the permutation; an entry that refers to itself is done.
        for start in 0..order.len() {
            let mut place = start;
            while order[place] as usize != start {
                let from = order[place] as usize;
                let (row, other) = (*self.packed(from), *self.packed(place));
                *self.packed_mut(place) = row;
                *self.packed_mut(from) = other;
                order[place] = place as u32;
                place = from;
            }
            order[place] = place as u32;
        }
    }
}

/// A set of rows.
#[derive(Debug, Default)]
pub(super) struct RowSet {
    bits: Vec<u64>,
}

impl RowSet {
    pub(super) fn insert(&mut self, position: usize) {
        if self.bits.len() <= position / 64 {
            self.bits.resize(position / 64 + 1, 0);
        }
        self.bits[position / 64] |= 1 << (position % 64);
    }

    /// Removes a row; returns whether it was in the set.
    pub(super) fn remove(&mut self, position: usize) -> bool {
        let was_in = self.contains(position);
        if was_in {
            self.bits[position / 64] &= !(1 << (position % 64));
        }
        was_in
    }

    pub(super) fn contains(&self, position: usize) -> bool {
        self.bits.get(position / 64).is_some_and(|bits| bits >> (position % 64) & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(since_ns: i64, address: u64) -> MemoryEventRow {
        MemoryEventRow {
            since_ns,
            address,
            size: 1,
            stream: address,
            extra: 3,
            device: DeviceIndex(7 + address as u32 % 3),
            context: address % 5,
            thread: 1,
            stack: StackId::NONE,
            kind: EventKind::DeviceAlloc,
            role: Role::Take,
            asker: Asker::Torch,
            is_refused: false,
        }
    }

    #[test]
    fn rows_come_back_in_the_order_of_time() {
        let mut rows = Rows::default();
        let mut expected = Vec::new();
        for number in 0..CHUNK as u64 * 5 / 2 {
            let since_ns = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50).cast_signed();
            rows.push(&row(since_ns, number));
            expected.push((since_ns, number));
        }
        rows.sort();
        expected.sort_unstable();
        assert_eq!(rows.len(), expected.len());
        for (position, found) in rows.iter() {
            let (since_ns, address) = expected[position];
            let wanted = row(since_ns, address);
            assert_eq!((found.since_ns, found.address, found.stream), (since_ns, address, address));
            assert_eq!((found.device, found.context), (wanted.device, wanted.context));
        }
    }

    #[test]
    fn a_set_has_what_was_inserted() {
        let mut set = RowSet::default();
        set.insert(70);
        assert!(set.contains(70) && !set.contains(71) && !set.contains(7000));
        assert!(set.remove(70) && !set.remove(70) && !set.contains(70));
    }
}
