//! A hash table of things that have an address, for recordings with many live allocations.
//!
//! A map from addresses stores each address a second time. This table stores only the entries, such as the indices of
//! events, and asks for the address of an entry when it needs it: 5 instead of 17 bytes per slot for a 32-bit index.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::FastHasher;

/// Entries by address. Every call gets the same function from an entry to its address.
#[derive(Clone, Debug)]
pub struct AddressTable<T> {
    entries: HashTable<T>,
    hasher: FastHasher,
}

impl<T> Default for AddressTable<T> {
    fn default() -> Self {
        Self { entries: HashTable::new(), hasher: FastHasher::default() }
    }
}

impl<T: Copy> AddressTable<T> {
    /// The entry at an address.
    pub fn get(&self, address: u64, address_of: impl Fn(T) -> u64) -> Option<T> {
        self.entries.find(self.hasher.hash_one(address), |&entry| address_of(entry) == address).copied()
    }

    /// The entry at an address, to change it. Its address must stay the same.
    pub fn get_mut(&mut self, address: u64, address_of: impl Fn(T) -> u64) -> Option<&mut T> {
        self.entries.find_mut(self.hasher.hash_one(address), |&entry| address_of(entry) == address)
    }

    /// Inserts an entry. Returns the one that was at its address.
    pub fn insert(&mut self, entry: T, address_of: impl Fn(T) -> u64) -> Option<T> {
        let address = address_of(entry);
        let hash = |address| self.hasher.hash_one(address);
        let slot = self.entries.entry(
            hash(address),
            |&other| address_of(other) == address,
            |&other| hash(address_of(other)),
        );
        match slot {
            Entry::Occupied(mut slot) => Some(std::mem::replace(slot.get_mut(), entry)),
            Entry::Vacant(slot) => {
                slot.insert(entry);
                None
            }
        }
    }

    /// Removes the entry at an address.
    pub fn remove(&mut self, address: u64, address_of: impl Fn(T) -> u64) -> Option<T> {
        let hash = self.hasher.hash_one(address);
        let slot = self.entries.find_entry(hash, |&entry| address_of(entry) == address).ok()?;
        Some(slot.remove().0)
    }

    /// All entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.entries.iter().copied()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FastMap;

    #[test]
    fn it_agrees_with_a_map_of_addresses() {
        let addresses: Vec<u64> = (0..4000_u64).map(|number| number.pow(2) % 257 * 512).collect();
        let address_of = |entry: u32| addresses[entry as usize];
        let mut table = AddressTable::default();
        let mut map: FastMap<u64, u32> = FastMap::default();
        for (entry, &address) in (0..).zip(&addresses) {
            assert_eq!(table.get(address, address_of), map.get(&address).copied());
            if entry % 3 == 2 {
                assert_eq!(table.remove(address, address_of), map.remove(&address));
            } else {
                assert_eq!(table.insert(entry, address_of), map.insert(address, entry));
            }
            assert_eq!((table.len(), table.is_empty()), (map.len(), map.is_empty()));
        }
        let mut left: Vec<u32> = table.iter().collect();
        let mut expected: Vec<u32> = map.into_values().collect();
        left.sort_unstable();
        expected.sort_unstable();
        assert!(!left.is_empty());
        assert_eq!(left, expected);
    }
}
