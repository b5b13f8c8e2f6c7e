//! [`OrderedSet`]: an [`OrderedMap`] without values.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::RangeBounds;

use crate::map::{IntoKeys, Keys, OrderedMap};

/// An ordered set with the interface of [`BTreeSet`](std::collections::BTreeSet), and with less code per type of element:
/// see the [crate documentation](crate). [`OrderedMap`] lists the time that each method takes.
pub struct OrderedSet<T> {
    map: OrderedMap<T, ()>,
}

/// Elements in order: [`OrderedSet::iter`].
pub type Iter<'set, T> = Keys<'set, T, ()>;

/// Owned elements in order.
pub type IntoIter<T> = IntoKeys<T, ()>;

impl<T> OrderedSet<T> {
    /// An empty set, which does not allocate.
    pub const fn new() -> Self {
        Self { map: OrderedMap::new() }
    }

    /// The number of elements.
    pub const fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are no elements.
    pub const fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.map.clear();
    }

    /// The elements in order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.map.keys()
    }

    /// The first element.
    pub fn first(&self) -> Option<&T> {
        self.iter().next()
    }

    /// The last element.
    pub fn last(&self) -> Option<&T> {
        self.iter().next_back()
    }

    /// Keeps only the elements for which `is_kept` returns true; it is called in order.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.map.retain(|element, ()| is_kept(element));
    }
}

impl<T: Ord> OrderedSet<T> {
    /// Whether the set has an element.
    pub fn contains<Q: Ord + ?Sized>(&self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.map.contains_key(element)
    }

    /// The set's element that is equal to this one.
    pub fn get<Q: Ord + ?Sized>(&self, element: &Q) -> Option<&T>
    where
        T: Borrow<Q>,
    {
        self.map.get_key_value(element).map(|(element, ())| element)
    }

    /// Adds an element; returns whether the set did not have it.
    ///
    /// # Panics
    ///
    /// If the set has 2³² - 1 elements.
    pub fn insert(&mut self, element: T) -> bool {
        self.map.insert(element, ()).is_none()
    }

    /// Removes an element; returns whether the set had it.
    pub fn remove<Q: Ord + ?Sized>(&mut self, element: &Q) -> bool
    where
        T: Borrow<Q>,
    {
        self.map.remove_entry(element).is_some()
    }

    /// Removes an element and returns it.
    pub fn take<Q: Ord + ?Sized>(&mut self, element: &Q) -> Option<T>
    where
        T: Borrow<Q>,
    {
        self.map.remove_entry(element).map(|(element, ())| element)
    }

    /// Removes the first element.
    pub fn pop_first(&mut self) -> Option<T> {
        self.map.pop_first().map(|(element, ())| element)
    }

    /// Removes the last element.
    pub fn pop_last(&mut self) -> Option<T> {
        self.map.pop_last().map(|(element, ())| element)
    }

    /// The elements in a range, in order.
    ///
    /// # Panics
    ///
    /// If the range starts after its end, or if start and end exclude the same element; even if the set is empty.
    pub fn range<Q: Ord + ?Sized>(&self, range: impl RangeBounds<Q>) -> Iter<'_, T>
    where
        T: Borrow<Q>,
    {
        Keys { entries: self.map.range(range) }
    }

    /// The elements that only this set has, in order.
    pub fn difference(&self, other: &Self) -> impl DoubleEndedIterator<Item = &T> {
        self.iter().filter(|element| !other.contains(*element))
    }

    /// The elements that both sets have, in order.
    pub fn intersection(&self, other: &Self) -> impl DoubleEndedIterator<Item = &T> {
        self.iter().filter(|element| other.contains(*element))
    }

    /// Whether no element is in both sets.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).next().is_none()
    }

    /// Whether the other set has every element of this one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).next().is_none()
    }
}

impl<T> Default for OrderedSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Clone> Clone for OrderedSet<T> {
    fn clone(&self) -> Self {
        Self { map: self.map.clone() }
    }
}

impl<T: fmt::Debug> fmt::Debug for OrderedSet<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self).finish()
    }
}

impl<T: PartialEq> PartialEq for OrderedSet<T> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<T: Eq> Eq for OrderedSet<T> {}

impl<T: PartialOrd> PartialOrd for OrderedSet<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.map.partial_cmp(&other.map)
    }
}

impl<T: Ord> Ord for OrderedSet<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.map.cmp(&other.map)
    }
}

impl<T: Hash> Hash for OrderedSet<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.map.hash(state);
    }
}

/// If elements are equal, the last one is kept.
impl<T: Ord> FromIterator<T> for OrderedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        Self { map: elements.into_iter().map(|element| (element, ())).collect() }
    }
}

impl<T: Ord, const N: usize> From<[T; N]> for OrderedSet<T> {
    fn from(elements: [T; N]) -> Self {
        elements.into_iter().collect()
    }
}

impl<T: Ord> Extend<T> for OrderedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, elements: I) {
        for element in elements {
            self.insert(element);
        }
    }
}

/// Copies elements, as `BTreeSet` does.
impl<'set, T: Ord + Copy + 'set> Extend<&'set T> for OrderedSet<T> {
    fn extend<I: IntoIterator<Item = &'set T>>(&mut self, elements: I) {
        for &element in elements {
            self.insert(element);
        }
    }
}

impl<T> IntoIterator for OrderedSet<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        self.map.into_keys()
    }
}

impl<'set, T> IntoIterator for &'set OrderedSet<T> {
    type Item = &'set T;
    type IntoIter = Iter<'set, T>;

    fn into_iter(self) -> Iter<'set, T> {
        self.iter()
    }
}
