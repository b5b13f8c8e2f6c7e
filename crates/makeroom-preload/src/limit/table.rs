//! Sharded hash table of the memory counted under a limit: 64 shards, each under a spin lock that is held for a few
//! instructions, never across a call, and is reset in a forked child.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::record::memory::Lazy;

const PARTS: usize = 64;
const ENTRIES: usize = 4096;
/// Addresses and handles are shorter than this.
const KIND_SHIFT: u32 = 58;

/// An address or handle, tagged with its kind. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// Memory at an address, or an array.
    pub(super) fn memory(address: u64) -> Self {
        Self(address | 1 << KIND_SHIFT)
    }

    /// Physical memory, by its handle.
    pub(super) fn physical(handle: u64) -> Self {
        Self(handle | 2 << KIND_SHIFT)
    }

    /// An address at which physical memory is mapped.
    pub(super) fn mapping(address: u64) -> Self {
        Self(address | 3 << KIND_SHIFT)
    }

    /// The overhead of a context.
    pub(super) fn context(handle: u64) -> Self {
        Self(handle | 4 << KIND_SHIFT)
    }
}

/// An entry of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CountedMemory {
    /// Size in bytes; for a mapping, the handle of its physical memory.
    pub(super) bytes: u64,
    /// The context with which it ends, 0 for none.
    pub(super) context: u64,
    /// Reference count: physical memory lives as long as its handle or a mapping.
    pub(super) holds: u32,
    /// Its device.
    pub(super) device: u8,
    /// Whether it ends with the last context of its device.
    pub(super) is_pooled: bool,
}

type Entries = [(Key, CountedMemory); ENTRIES];

/// The whole table.
pub(super) struct Table {
    parts: [Part; PARTS],
}

/// One shard: linear probing with wraparound and backward-shift deletion, so that a search ends at the first empty
/// entry.
struct Part {
    is_locked: AtomicBool,
    entries: UnsafeCell<Entries>,
}

// SAFETY: only the thread that holds the lock accesses the entries.
unsafe impl Sync for Part {}

// SAFETY: all zeros are an unlocked lock and empty entries.
static TABLE: Lazy<Table> = unsafe { Lazy::new() };

/// The table; `None` if out of memory.
pub(super) fn table() -> Option<&'static Table> {
    TABLE.get()
}

/// Clears the table in a forked child.
pub(super) fn clear() {
    if let Some(table) = TABLE.if_made() {
        for part in &table.parts {
            // A thread that the fork did not copy may have held the lock.
            part.is_locked.store(false, Ordering::Relaxed);
            part.with(|entries| entries.fill((Key::default(), CountedMemory::default())));
        }
    }
}

impl Table {
    fn part(&self, key: Key) -> Option<&Part> {
        self.parts.get(spread(key) as usize % PARTS)
    }

    /// Inserts an entry. If its shard is full it is dropped, and the limit counts its memory forever.
    pub(super) fn insert(&self, key: Key, held: CountedMemory) {
        if let Some(part) = self.part(key) {
            part.with(|entries| {
                let free = probe(key).find(|&index| entries.get(index).is_some_and(|entry| entry.0.0 == 0));
                if let Some(entry) = free.and_then(|index| entries.get_mut(index)) {
                    *entry = (key, held);
                }
            });
        }
    }

    /// Adds a reference, if the key is known.
    pub(super) fn hold(&self, key: Key) {
        if let Some(part) = self.part(key) {
            part.with(|entries| {
                if let Some((_, held)) = find(entries, key).and_then(|index| entries.get_mut(index)) {
                    held.holds += 1;
                }
            });
        }
    }

    /// Drops a reference. Returns the entry if that was the last.
    pub(super) fn release(&self, key: Key) -> Option<CountedMemory> {
        self.part(key)?.with(|entries| {
            let index = find(entries, key)?;
            let (_, held) = entries.get_mut(index)?;
            held.holds = held.holds.saturating_sub(1);
            let gone = *held;
            (gone.holds == 0).then(|| {
                remove(entries, index);
                gone
            })
        })
    }

    /// Removes every entry that satisfies the predicate and passes it to `take`.
    pub(super) fn take_all(
        &self,
        is_gone: impl Fn(Key, &CountedMemory) -> bool,
        mut take: impl FnMut(CountedMemory),
    ) {
        for part in &self.parts {
            part.with(|entries| {
                let mut index = 0;
                while let Some(&(key, held)) = entries.get(index) {
                    if key.0 != 0 && is_gone(key, &held) {
                        take(held);
                        // An entry that moves into this slot is checked next.
                        remove(entries, index);
                    } else {
                        index += 1;
                    }
                }
            });
        }
    }
}

impl Part {
    fn with<T>(&self, work: impl FnOnce(&mut Entries) -> T) -> T {
        while self.is_locked.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held, so no other thread accesses the entries.
        let result = work(unsafe { &mut *self.entries.get() });
        self.is_locked.store(false, Ordering::Release);
        result
    }
}

fn spread(key: Key) -> u64 {
    key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

fn probe(key: Key) -> impl Iterator<Item = usize> {
    let home = (spread(key) as usize / PARTS) % ENTRIES;
    (0..ENTRIES).map(move |step| (home + step) % ENTRIES)
}

fn at(entries: &Entries, index: usize) -> (Key, CountedMemory) {
    entries.get(index).copied().unwrap_or_default()
}

/// The oldest entry of a key: an address reused before its free was booked has two.
fn find(entries: &Entries, key: Key) -> Option<usize> {
    probe(key).take_while(|&index| at(entries, index).0.0 != 0).find(|&index| at(entries, index).0 == key)
}

/// Backward-shift deletion: later entries of the same run move into the hole if they may.
fn remove(entries: &mut Entries, found: usize) {
    let mut hole = found;
    for step in 1..ENTRIES {
        let index = (found + step) % ENTRIES;
        let moved = at(entries, index);
        if moved.0.0 == 0 {
            break;
        }
        let wanted = probe(moved.0).next().unwrap_or(index);
        let distance = |from: usize, to: usize| (to + ENTRIES - from) % ENTRIES;
        if distance(wanted, index) >= distance(hole, index) {
            if let Some(place) = entries.get_mut(hole) {
                *place = moved;
            }
            hole = index;
        }
    }
    if let Some(place) = entries.get_mut(hole) {
        *place = (Key::default(), CountedMemory::default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn held(bytes: u64, context: u64) -> CountedMemory {
        CountedMemory { bytes, context, holds: 1, ..CountedMemory::default() }
    }

    #[test]
    fn sizes_are_found_again_after_many_removals() {
        let table = table().unwrap();
        let mut expected = HashMap::new();
        let mut state = 1_u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let address = ((state >> 40) % 3000 + 1) << 9;
            if let Some(size) = expected.remove(&address) {
                assert_eq!(
                    table.release(Key::memory(address)),
                    Some(CountedMemory { holds: 0, ..held(size, 7) })
                );
            } else {
                table.insert(Key::memory(address), held(state, 7));
                expected.insert(address, state);
            }
        }
        table.insert(Key::physical(512), held(1, 8));
        table.hold(Key::physical(512));
        assert_eq!(table.release(Key::physical(512)), None);
        let mut taken = 0;
        table.take_all(|_, held| held.context == 7, |_| taken += 1);
        assert_eq!(taken, expected.len());
        assert_eq!(table.release(Key::memory(512)), None);
        assert_eq!(table.release(Key::physical(512)).map(|held| held.bytes), Some(1));
    }
}
