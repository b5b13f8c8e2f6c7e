//! Double-ended iterators over maps. They visit entries in key order.

use std::{slice, vec};

use crate::positions::Positions;

/// Entries: [`OrderedMap::iter`](super::OrderedMap::iter).
pub struct Iter<'map, K, V> {
    pub(super) entries: &'map [(K, V)],
    pub(super) positions: Positions<'map>,
}

/// Entries with keys in a range: [`OrderedMap::range`](super::OrderedMap::range).
pub type Range<'map, K, V> = Iter<'map, K, V>;

impl<K, V> Clone for Iter<'_, K, V> {
    fn clone(&self) -> Self {
        Self { entries: self.entries, positions: self.positions.clone() }
    }
}

impl<'map, K, V> Iterator for Iter<'map, K, V> {
    type Item = (&'map K, &'map V);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = &self.entries[self.positions.next()?];
        Some((key, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.positions.left();
        (left, Some(left))
    }
}

impl<K, V> DoubleEndedIterator for Iter<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let (key, value) = &self.entries[self.positions.next_back()?];
        Some((key, value))
    }
}

impl<K, V> ExactSizeIterator for Iter<'_, K, V> {}

/// An iterator that applies `$of` to each entry.
macro_rules! parts {
    ($(#[$doc:meta])* $name:ident<$($lifetime:lifetime,)? K, V>($entries:ty) -> $item:ty, $of:expr) => {
        $(#[$doc])*
        pub struct $name<$($lifetime,)? K, V> {
            pub(crate) entries: $entries,
        }

        impl<$($lifetime,)? K, V> Iterator for $name<$($lifetime,)? K, V> {
            type Item = $item;

            fn next(&mut self) -> Option<$item> {
                self.entries.next().map($of)
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.entries.size_hint()
            }
        }

        impl<$($lifetime,)? K, V> DoubleEndedIterator for $name<$($lifetime,)? K, V> {
            fn next_back(&mut self) -> Option<$item> {
                self.entries.next_back().map($of)
            }
        }

        impl<$($lifetime,)? K, V> ExactSizeIterator for $name<$($lifetime,)? K, V> {}
    };
}

parts! {
    /// Keys: [`OrderedMap::keys`](super::OrderedMap::keys).
    Keys<'map, K, V>(Iter<'map, K, V>) -> &'map K, |(key, _)| key
}
parts! {
    /// Values: [`OrderedMap::values`](super::OrderedMap::values).
    Values<'map, K, V>(Iter<'map, K, V>) -> &'map V, |(_, value)| value
}
parts! {
    /// Entries with mutable values: [`OrderedMap::iter_mut`](super::OrderedMap::iter_mut).
    IterMut<'map, K, V>(slice::IterMut<'map, (K, V)>) -> (&'map K, &'map mut V), |(key, value)| (&*key, value)
}
parts! {
    /// Mutable values: [`OrderedMap::values_mut`](super::OrderedMap::values_mut).
    ValuesMut<'map, K, V>(IterMut<'map, K, V>) -> &'map mut V, |(_, value)| value
}
parts! {
    /// Owned keys: [`OrderedMap::into_keys`](super::OrderedMap::into_keys).
    IntoKeys<K, V>(vec::IntoIter<(K, V)>) -> K, |(key, _)| key
}
parts! {
    /// Owned values: [`OrderedMap::into_values`](super::OrderedMap::into_values).
    IntoValues<K, V>(vec::IntoIter<(K, V)>) -> V, |(_, value)| value
}

impl<K, V> Clone for Keys<'_, K, V> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone() }
    }
}

impl<K, V> Clone for Values<'_, K, V> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone() }
    }
}
