//! An ordered map for few entries: a sorted list, which becomes a tree when it grows.
//!
//! Most bins of a [`SizeMap`](crate::SizeMap) have a handful of entries that come and go. A tree would allocate a node
//! for the first and free it with the last; the list keeps its memory, and moving a few entries costs less than
//! following pointers. The tree keeps the worst case logarithmic.

use std::collections::BTreeMap;

/// The longest list.
const LONGEST: usize = 32;

/// Values by key.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, T> {
    /// All entries in order, unless there is a tree.
    list: Vec<(K, T)>,
    /// All entries, if there were ever more than [`LONGEST`] since the map was last empty.
    #[expect(clippy::box_collection, reason = "few bins have a tree, and a map has 128 of them")]
    tree: Option<Box<BTreeMap<K, T>>>,
}

impl<K, T> Default for Sorted<K, T> {
    fn default() -> Self {
        Self { list: Vec::new(), tree: None }
    }
}

impl<K: Copy + Ord, T: Copy> Sorted<K, T> {
    /// Adds a value; whether its key is new.
    pub(crate) fn insert(&mut self, key: K, value: T) -> bool {
        if let Some(tree) = &mut self.tree {
            return tree.insert(key, value).is_none();
        }
        let place = self.place(key);
        if let Some(entry) = self.list.get_mut(place).filter(|entry| entry.0 == key) {
            entry.1 = value;
            return false;
        }
        if self.list.len() < LONGEST {
            self.list.insert(place, (key, value));
        } else {
            let mut tree: BTreeMap<K, T> = std::mem::take(&mut self.list).into_iter().collect();
            tree.insert(key, value);
            self.tree = Some(Box::new(tree));
        }
        true
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<T> {
        if let Some(tree) = &mut self.tree {
            let removed = tree.remove(&key);
            if tree.is_empty() {
                self.tree = None;
            }
            return removed;
        }
        let place = self.place(key);
        self.list.get(place).filter(|entry| entry.0 == key)?;
        Some(self.list.remove(place).1)
    }

    /// The first entry at or behind a key.
    pub(crate) fn first_from(&self, key: K) -> Option<(K, T)> {
        if let Some(tree) = &self.tree {
            return tree.range(key..).next().map(|(&key, &value)| (key, value));
        }
        self.list.get(self.place(key)).copied()
    }

    pub(crate) fn first(&self) -> Option<(K, T)> {
        match &self.tree {
            Some(tree) => tree.first_key_value().map(|(&key, &value)| (key, value)),
            None => self.list.first().copied(),
        }
    }

    pub(crate) fn last(&self) -> Option<(K, T)> {
        match &self.tree {
            Some(tree) => tree.last_key_value().map(|(&key, &value)| (key, value)),
            None => self.list.last().copied(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.tree.is_none()
    }

    /// All entries, descending.
    pub(crate) fn iter_descending(&self) -> impl Iterator<Item = (K, T)> + '_ {
        let tree = self.tree.iter().flat_map(|tree| tree.iter().rev());
        self.list.iter().rev().copied().chain(tree.map(|(&key, &value)| (key, value)))
    }

    /// Where a key is or would be in the list.
    fn place(&self, key: K) -> usize {
        self.list.partition_point(|entry| entry.0 < key)
    }
}
