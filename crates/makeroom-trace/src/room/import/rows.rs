//! Packed rows of device memory: an event takes as little as three bytes in a file, and each becomes a row.
//!
//! Repeated values (streams, contexts, devices) are stored once and referenced by index. Rows are stored in chunks, so
//! that rows that have been converted to events can be freed while the rest are still needed.
//!
//! A row takes 56 bytes; a set of rows takes one bit per row.

use std::hash::Hash;
use std::ops::Range;

use makeroom_core::{DeviceIndex, FastMap, StackId};

use super::collect::{MemoryEventRow, Role};
use super::definitions::Asker;
use super::segments::{is_of_pool, is_of_tensor};
use crate::room::EventKind;

/// Rows per chunk, 36 MB. The C library returns blocks of more than 32 MiB to the system immediately; smaller ones may
/// stay. Under miri, chunks are small, because a million rows take hours.
const CHUNK: usize = if cfg!(miri) { 640 } else { 640_000 };

/// Rows between which a part may end; chunks consist of whole blocks.
const BLOCK: usize = if cfg!(miri) { 64 } else { 1024 };
const _: () = assert!(CHUNK.is_multiple_of(BLOCK));

/// Rows in the order in which they were added, or in order of time once they are sorted.
#[derive(Debug, Default)]
pub(super) struct Rows {
    chunks: Vec<Vec<Packed>>,
    len: usize,
    streams: Table<u64>,
    contexts: Table<u64>,
    devices: Table<DeviceIndex>,
    seen: u8,
}

/// Rows that most recordings do not have: passes that are about these only are left out. Each is a bit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Seen {
    /// A framework's blocks.
    Tensors = 1,
    /// Failed requests.
    Refused = 2,
    /// Completions of stream-ordered frees.
    Completions = 4,
    /// Mappings of makeroom's own pool.
    OfPool = 8,
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
    /// The value that was looked up last: the next row often has the same.
    last: Option<(T, u32)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { values: Vec::new(), positions: FastMap::default(), last: None }
    }
}

impl<T: Copy + Eq + Hash> Table<T> {
    #[inline]
    fn position(&mut self, value: T) -> u32 {
        match self.last {
            Some((last, position)) if last == value => position,
            _ => self.look_up(value),
        }
    }

    fn look_up(&mut self, value: T) -> u32 {
        let values = &mut self.values;
        let position = *self.positions.entry(value).or_insert_with(|| {
            values.push(value);
            values.len() as u32 - 1
        });
        self.last = Some((value, position));
        position
    }
}

impl Rows {
    /// The number of rows.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether there are such rows.
    pub(super) fn has(&self, seen: Seen) -> bool {
        self.seen & seen as u8 != 0
    }

    /// Appends a row.
    pub(super) fn push(&mut self, row: &MemoryEventRow) {
        for (is_seen, seen) in [
            (is_of_tensor(row.kind), Seen::Tensors),
            (row.is_refused, Seen::Refused),
            (row.role == Role::Complete, Seen::Completions),
            (row.role == Role::Map && is_of_pool(row.extra), Seen::OfPool),
        ] {
            self.seen |= if is_seen { seen as u8 } else { 0 };
        }
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
    #[inline]
    pub(super) fn get(&self, position: usize) -> MemoryEventRow {
        self.unpack(self.packed(position))
    }

    #[inline]
    fn unpack(&self, packed: &Packed) -> MemoryEventRow {
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
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, MemoryEventRow)> + '_ {
        let rows = self.chunks.iter().flatten().enumerate();
        rows.map(|(position, packed)| (position, self.unpack(packed)))
    }

    /// All rows that are not about a framework's blocks, of which there are most.
    pub(super) fn of_driver(&self) -> impl Iterator<Item = MemoryEventRow> + '_ {
        let rows = self.chunks.iter().flatten().filter(|packed| !is_of_tensor(packed.kind));
        rows.map(|packed| self.unpack(packed))
    }

    /// The devices that have rows of a framework's blocks.
    pub(super) fn devices_of_tensors(&self) -> Vec<DeviceIndex> {
        let mut has_tensors = vec![false; self.devices.values.len()];
        for packed in self.chunks.iter().flatten().filter(|packed| is_of_tensor(packed.kind)) {
            has_tensors[usize::from(packed.device)] = true;
        }
        let devices = self.devices.values.iter().zip(has_tensors);
        devices.filter(|(_, has_tensors)| *has_tensors).map(|(&device, _)| device).collect()
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
    ///
    /// Batches of several threads alternate in a file, so rows are only a few batches away from their place. The parts
    /// between which nothing moves are sorted one by one, which stays within the processor's caches.
    pub(super) fn sort(&mut self) {
        let mut start = 0;
        for end in self.cuts() {
            self.sort_part(start..end);
            start = end;
        }
    }

    /// The ends of parts: no row before is later than a row after.
    fn cuts(&self) -> Vec<usize> {
        let blocks = self.chunks.iter().flat_map(|chunk| chunk.chunks(BLOCK));
        let bounds: Vec<(i64, i64)> = blocks
            .map(|rows| {
                let times = rows.iter().map(|row| row.since_ns);
                times.fold((i64::MAX, i64::MIN), |(first, last), time| (first.min(time), last.max(time)))
            })
            .collect();
        // The first time from each block on.
        let mut firsts: Vec<i64> = bounds.iter().map(|&(first, _)| first).collect();
        for block in (1..firsts.len()).rev() {
            firsts[block - 1] = firsts[block - 1].min(firsts[block]);
        }
        let mut latest = i64::MIN;
        let mut cuts = Vec::new();
        for (block, &(_, last)) in bounds.iter().enumerate() {
            latest = latest.max(last);
            if firsts.get(block + 1).is_none_or(|&first| latest <= first) {
                cuts.push(((block + 1) * BLOCK).min(self.len));
            }
        }
        cuts
    }

    fn sort_part(&mut self, part: Range<usize>) {
        let time = |position: usize| self.packed(position).since_ns;
        if part.clone().map(time).is_sorted() {
            return;
        }
        // The rows of each thread are in order, so this merges them: the stable sort makes use of order that is there.
        let mut order = self.by_thread(&part);
        order.sort_by_key(|&position| (time(position as usize), position));
        // Rows are moved along the cycles of the permutation; an entry that refers to itself is done.
        for start in part.clone() {
            let mut place = start;
            while order[place - part.start] as usize != start {
                let from = order[place - part.start] as usize;
                let (row, other) = (*self.packed(from), *self.packed(place));
                *self.packed_mut(place) = row;
                *self.packed_mut(from) = other;
                order[place - part.start] = place as u32;
                place = from;
            }
            order[place - part.start] = place as u32;
        }
    }

    /// The indices of the rows of a part, those of each thread together if there are few threads.
    fn by_thread(&self, part: &Range<usize>) -> Vec<u32> {
        let mut order: Vec<u32> = (part.start as u32..part.end as u32).collect();
        let threads = || part.clone().map(|position| self.packed(position).thread as usize);
        let count = threads().max().map_or(0, |most| most + 1);
        if count > part.len() {
            return order;
        }
        let mut next = vec![0_u32; count];
        threads().for_each(|thread| next[thread] += 1);
        let mut sum = 0;
        for next in &mut next {
            sum += std::mem::replace(next, sum);
        }
        for (position, thread) in part.clone().zip(threads()) {
            order[next[thread] as usize] = position as u32;
            next[thread] += 1;
        }
        order
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
            thread: address as u32 % 7,
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
    fn rows_that_are_near_their_place_are_sorted_in_parts() {
        let mut rows = Rows::default();
        // Batches of three threads that overlap, with equal times.
        for number in 0..40 * BLOCK {
            let (batch, inside) = (number / BLOCK, number % BLOCK);
            let step = batch / 3 * BLOCK + inside;
            let since_ns = (step - step % 2 + batch % 3 / 2).cast_signed() as i64;
            let thread = (batch % 3) as u32;
            rows.push(&MemoryEventRow { thread, ..row(since_ns, number as u64) });
        }
        let mut expected: Vec<(i64, u64)> = rows.iter().map(|(_, row)| (row.since_ns, row.address)).collect();
        expected.sort_unstable();
        assert!(rows.cuts().len() > 5, "{:?}", rows.cuts());
        rows.sort();
        let found: Vec<(i64, u64)> = rows.iter().map(|(_, row)| (row.since_ns, row.address)).collect();
        assert!(found == expected);
    }

    #[test]
    fn a_set_has_what_was_inserted() {
        let mut set = RowSet::default();
        set.insert(70);
        assert!(set.contains(70) && !set.contains(71) && !set.contains(7000));
        assert!(set.remove(70) && !set.remove(70) && !set.contains(70));
    }
}
