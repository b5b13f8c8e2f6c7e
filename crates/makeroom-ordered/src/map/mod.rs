//! [`OrderedMap`]: the layer that is generic over the types of keys and values. Every function here is compiled once per
//! type, so each one only compares, moves or returns entries; `order.rs` does the rest.

mod entry;
mod iter;
mod traits;

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{IntoKeys, IntoValues, Iter, IterMut, Keys, Range, Values, ValuesMut};

use crate::order::{self, Order, Place};

/// An ordered map with the interface of [`BTreeMap`](std::collections::BTreeMap), and with less code per type of key and
/// value: see the [crate documentation](crate).
///
/// The order of keys must not change while they are in the map. If it does, or if `Ord` is inconsistent, results are
/// unspecified but safe. A panic in `Ord` leaves the map unchanged.
///
/// Time, for n entries:
///
/// | method | time |
/// |---|---|
/// | `get`, `contains_key`, `range`, `entry` | log n comparisons |
/// | `insert` | log n comparisons; moves up to 1 KiB of positions |
/// | `remove`, `pop_first`, `pop_last` | 2 log n comparisons |
/// | `iter_mut`, `values_mut`, `into_*`, `retain` | linear in n, even if only the first entry is used |
///
/// After `collect`, `clone`, `retain` and methods that return mutable values, entries lie in key order, and positions are not
/// stored. The first removal, or the first insertion before the last key, then takes time linear in n.
pub struct OrderedMap<K, V> {
    /// In any order. Removing an entry moves the last one to its position.
    entries: Vec<(K, V)>,
    /// The positions in `entries`, in key order.
    order: Order,
}

/// Compares the key at a position with another one. All searches for a type of key share this closure.
fn compare<'map, Q: Ord + ?Sized, K: Borrow<Q>, V>(
    entries: &'map [(K, V)],
    key: &'map Q,
) -> impl FnMut(u32) -> Ordering + 'map {
    move |position| entries[position as usize].0.borrow().cmp(key)
}

impl<K, V> OrderedMap<K, V> {
    /// An empty map, which does not allocate.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), order: Order::new() }
    }

    /// The number of entries.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.order.clear();
        self.entries.clear();
    }

    /// The entries in key order.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter { entries: &self.entries, positions: self.order.positions(self.entries.len()) }
    }

    /// The entries in key order, with mutable values.
    pub fn iter_mut(&mut self) -> IterMut<'_, K, V> {
        self.arrange();
        IterMut { entries: self.entries.iter_mut() }
    }

    /// The keys in order.
    pub fn keys(&self) -> Keys<'_, K, V> {
        Keys { entries: self.iter() }
    }

    /// The values in key order.
    pub fn values(&self) -> Values<'_, K, V> {
        Values { entries: self.iter() }
    }

    /// Mutable references to the values, in key order.
    pub fn values_mut(&mut self) -> ValuesMut<'_, K, V> {
        ValuesMut { entries: self.iter_mut() }
    }

    /// The owned keys, in order.
    pub fn into_keys(self) -> IntoKeys<K, V> {
        IntoKeys { entries: self.into_iter() }
    }

    /// The owned values, in key order.
    pub fn into_values(self) -> IntoValues<K, V> {
        IntoValues { entries: self.into_iter() }
    }

    /// The first entry.
    pub fn first_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }

    /// The last entry.
    pub fn last_key_value(&self) -> Option<(&K, &V)> {
        self.iter().next_back()
    }

    /// Keeps only the entries for which `is_kept` returns true; it is called in key order.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&K, &mut V) -> bool) {
        self.arrange();
        self.entries.retain_mut(|(key, value)| is_kept(key, value));
    }

    /// Moves the entries into the order of keys.
    fn arrange(&mut self) {
        let entries = self.entries.as_mut_slice();
        self.order.arrange(&mut |one, other| entries.swap(one, other));
    }
}

impl<K: Ord, V> OrderedMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    /// A mutable reference to the value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let position = self.order.find(self.entries.len(), &mut compare(&self.entries, key))?;
        Some(&mut self.entries[position].1)
    }

    /// The entry of a key.
    pub fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let position = self.order.find(self.entries.len(), &mut compare(&self.entries, key))?;
        let (key, value) = &self.entries[position];
        Some((key, value))
    }

    /// Whether the map has a key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.search(key).is_ok()
    }

    /// Sets the value of a key and returns the previous one. An existing key is not replaced, as in a `BTreeMap`.
    ///
    /// # Panics
    ///
    /// If the map has 2³² - 1 entries.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.search(&key) {
            Ok(place) => {
                let position = self.order.position(place);
                Some(std::mem::replace(&mut self.entries[position].1, value))
            }
            Err(place) => {
                self.insert_at(place, key, value);
                None
            }
        }
    }

    /// The entry of a key, for reading, changing, removing or adding it.
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        match self.search(&key) {
            Ok(place) => Entry::Occupied(OccupiedEntry { map: self, place }),
            Err(place) => Entry::Vacant(VacantEntry { map: self, place, key }),
        }
    }

    /// Removes a key and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.remove_entry(key).map(|(_, value)| value)
    }

    /// Removes a key and returns it with its value.
    pub fn remove_entry<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        let place = self.search(key).ok()?;
        Some(self.remove_at(place))
    }

    /// Removes the first entry.
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        let place = Order::first(self.entries.len())?;
        Some(self.remove_at(place))
    }

    /// Removes the last entry.
    pub fn pop_last(&mut self) -> Option<(K, V)> {
        let place = self.order.last(self.entries.len())?;
        Some(self.remove_at(place))
    }

    /// The entries whose keys are in a range, in key order.
    ///
    /// # Panics
    ///
    /// If the range starts after its end, or if start and end exclude the same key; even if the map is empty.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> Range<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let bounds = (range.start_bound(), range.end_bound());
        if let (
            Bound::Included(start) | Bound::Excluded(start),
            Bound::Included(end) | Bound::Excluded(end),
        ) = bounds
        {
            let are_excluded = matches!(bounds, (Bound::Excluded(_), Bound::Excluded(_)));
            order::check_range(start.cmp(end), are_excluded);
        }
        let lower = self.bound(bounds.0, false);
        let upper = self.bound(bounds.1, true);
        Iter { entries: &self.entries, positions: self.order.between(self.entries.len(), lower, upper) }
    }

    /// The place of a bound: before the key for an included start or an excluded end, otherwise after it.
    fn bound<Q: Ord + ?Sized>(&self, bound: Bound<&Q>, is_end: bool) -> Option<Place>
    where
        K: Borrow<Q>,
    {
        let (key, is_after_equal) = match bound {
            Bound::Included(key) => (key, is_end),
            Bound::Excluded(key) => (key, !is_end),
            Bound::Unbounded => return None,
        };
        Some(self.order.bound(self.entries.len(), is_after_equal, &mut compare(&self.entries, key)))
    }

    fn search<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        self.order.search(self.entries.len(), &mut compare(&self.entries, key))
    }

    /// Adds an entry at the place that a search returned.
    fn insert_at(&mut self, place: Place, key: K, value: V) -> &mut V {
        let position = self.entries.len();
        // This comes first, because it can panic.
        self.entries.reserve(1);
        self.order.insert(position, place);
        self.entries.push((key, value));
        &mut self.entries[position].1
    }

    fn remove_at(&mut self, place: Place) -> (K, V) {
        let entries = self.entries.as_slice();
        let last = &entries[entries.len() - 1].0;
        let position = self.order.swap_remove(entries.len(), place, &mut compare(entries, last));
        self.entries.swap_remove(position)
    }

    /// A map of entries in any order. If keys are equal, the last entry is kept.
    fn of(mut entries: Vec<(K, V)>) -> Self {
        let sorted = order::sort(entries.len(), &mut |one, other| {
            entries[one as usize].0.cmp(&entries[other as usize].0)
        });
        if let Some(sorted) = sorted {
            let kept = sorted.kept;
            sorted.arrange(&mut |one, other| entries.swap(one, other));
            entries.truncate(kept);
        }
        Self { entries, order: Order::new() }
    }
}
