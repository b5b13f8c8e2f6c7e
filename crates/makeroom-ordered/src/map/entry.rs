//! A present or missing entry of a map: [`OrderedMap::entry`].

use super::OrderedMap;
use crate::order::Place;

/// The entry of a key.
#[derive(Debug)]
pub enum Entry<'map, K, V> {
    /// The map has the key.
    Occupied(OccupiedEntry<'map, K, V>),
    /// The map does not have the key.
    Vacant(VacantEntry<'map, K, V>),
}

/// The entry of a key that the map has.
#[derive(Debug)]
pub struct OccupiedEntry<'map, K, V> {
    pub(super) map: &'map mut OrderedMap<K, V>,
    pub(super) place: Place,
}

/// The entry of a key that the map does not have.
#[derive(Debug)]
pub struct VacantEntry<'map, K, V> {
    pub(super) map: &'map mut OrderedMap<K, V>,
    pub(super) place: Place,
    pub(super) key: K,
}

impl<'map, K: Ord, V> Entry<'map, K, V> {
    /// The value; inserts `value` if there is none.
    pub fn or_insert(self, value: V) -> &'map mut V {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => entry.insert(value),
        }
    }

    /// The value; inserts the result of `value` if there is none.
    pub fn or_insert_with(self, value: impl FnOnce() -> V) -> &'map mut V {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => entry.insert(value()),
        }
    }

    /// The value; inserts the default if there is none.
    pub fn or_default(self) -> &'map mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Changes the value if there is one.
    #[must_use = "or use `get_mut`"]
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }

    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Self::Occupied(entry) => entry.key(),
            Self::Vacant(entry) => &entry.key,
        }
    }
}

impl<'map, K: Ord, V> OccupiedEntry<'map, K, V> {
    fn position(&self) -> usize {
        self.map.order.position(self.place)
    }

    /// The key in the map.
    pub fn key(&self) -> &K {
        &self.map.entries[self.position()].0
    }

    /// The value.
    pub fn get(&self) -> &V {
        &self.map.entries[self.position()].1
    }

    /// A mutable reference to the value.
    pub fn get_mut(&mut self) -> &mut V {
        let position = self.position();
        &mut self.map.entries[position].1
    }

    /// A mutable reference to the value, for as long as the map is borrowed.
    pub fn into_mut(self) -> &'map mut V {
        let position = self.position();
        &mut self.map.entries[position].1
    }

    /// Sets the value and returns the previous one.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }

    /// Removes the entry and returns its value.
    pub fn remove(self) -> V {
        self.remove_entry().1
    }

    /// Removes the entry and returns it.
    pub fn remove_entry(self) -> (K, V) {
        self.map.remove_at(self.place)
    }
}

impl<'map, K: Ord, V> VacantEntry<'map, K, V> {
    /// The key.
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// The key, owned.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Adds the key with a value.
    ///
    /// # Panics
    ///
    /// If the map has 2³² - 1 entries.
    pub fn insert(self, value: V) -> &'map mut V {
        self.map.insert_at(self.place, self.key, value)
    }
}
