//! The memo: values that a pickle stores by number.
//!
//! Picklers count up from zero and memoize most values, so the memo of a large snapshot is an array with tens of
//! millions of entries. A number far beyond the array, which only crafted files have, goes into a map, so that it
//! costs one entry instead of the gap. Almost all values are strings and containers, which fit into half the size of a
//! value; others go into the map as well.

use makeroom_core::FastMap;

use super::value::{ObjectId, TextId, Value};

/// How far a number may be beyond the array before it goes into the map.
const LARGEST_GAP: u64 = 16;
/// The array has at most this many slots per entry.
const LARGEST_STRIDE: u64 = 4;

/// A string, a container, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(u64);

impl Entry {
    const NOTHING: Self = Self(0);
    const TEXT: u64 = 1;
    const OBJECT: u64 = 2;

    /// `None` if the value does not fit.
    #[inline]
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Text(TextId(id)) => Some(Self(Self::TEXT << 32 | u64::from(id))),
            Value::Object(ObjectId(id)) => Some(Self(Self::OBJECT << 32 | u64::from(id))),
            _ => None,
        }
    }

    /// The value, if there is one here.
    #[inline]
    pub(super) fn value(self) -> Option<Value> {
        let id = self.0 as u32;
        match self.0 >> 32 {
            Self::OBJECT => Some(Value::Object(ObjectId(id))),
            Self::TEXT => Some(Value::Text(TextId(id))),
            _ => None,
        }
    }
}

#[derive(Default)]
pub(super) struct Memo {
    row: Vec<Entry>,
    scattered: FastMap<u64, Value>,
    count: u64,
}

impl Memo {
    /// Stores a value under the next number.
    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        match Entry::of(value) {
            Some(entry) if self.count == self.row.len() as u64 => {
                self.row.push(entry);
                self.count += 1;
            }
            _ => self.put(self.count, value),
        }
    }

    /// Stores a value under a number.
    pub(super) fn put(&mut self, number: u64, value: Value) {
        self.count += u64::from(self.get(number).is_none());
        let farthest = (self.row.len() as u64).min(self.count * LARGEST_STRIDE) + LARGEST_GAP;
        if number >= self.row.len() as u64 && number > farthest {
            self.scattered.insert(number, value);
            return;
        }
        let index = number as usize;
        if index >= self.row.len() {
            self.row.resize(index + 1, Entry::NOTHING);
        }
        self.row[index] = Entry::of(value).unwrap_or_else(|| {
            self.scattered.insert(number, value);
            Entry::NOTHING
        });
    }

    /// Number of entries.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The entries from zero, up to the first large gap.
    #[inline]
    pub(super) fn row(&self) -> &[Entry] {
        &self.row
    }

    /// The value under a number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Value> {
        // The array may have grown past a number that was put into the map.
        self.row.get(number as usize).and_then(|entry| entry.value()).or_else(|| self.get_scattered(number))
    }

    #[cold]
    fn get_scattered(&self, number: u64) -> Option<Value> {
        self.scattered.get(&number).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::TextId;

    #[test]
    fn an_entry_takes_half_the_size_of_a_value() {
        assert_eq!((size_of::<Entry>(), size_of::<Value>()), (8, 16));
    }

    #[test]
    fn numbers_may_be_in_order_ahead_or_far_ahead() {
        let mut memo = Memo::default();
        memo.push(Value::Int(1));
        memo.put(4_000_000_000, Value::Bool(true));
        memo.put(9, Value::Text(TextId(3)));
        memo.put(3, Value::None);
        memo.put(3, Value::Opaque);
        assert_eq!(memo.get(0), Some(Value::Int(1)));
        assert_eq!(memo.get(3), Some(Value::Opaque));
        assert_eq!(memo.get(4), None);
        assert_eq!(memo.get(9), Some(Value::Text(TextId(3))));
        assert_eq!(memo.get(4_000_000_000), Some(Value::Bool(true)));
        assert!(memo.row.len() < 30);
    }

    #[test]
    fn an_entry_that_was_far_ahead_survives_the_row_passing_it() {
        let mut memo = Memo::default();
        memo.put(40, Value::Bool(true));
        for number in 0..40 {
            memo.put(number, Value::None);
        }
        memo.put(41, Value::None);
        assert_eq!(memo.get(40), Some(Value::Bool(true)));
        memo.put(40, Value::Bool(false));
        assert_eq!(memo.get(40), Some(Value::Bool(false)));
    }

    #[test]
    fn gaps_that_follow_each_other_do_not_multiply_the_row() {
        let mut memo = Memo::default();
        for number in 0..10_000 {
            memo.put(number * 17, Value::Int(number));
        }
        assert!(memo.row.len() <= 50_000);
        assert!((0..10_000).all(|number| memo.get(number * 17) == Some(Value::Int(number))));
        assert_eq!((memo.get(18), memo.count()), (None, 10_000));
    }

    #[test]
    fn the_next_number_is_the_count_of_entries_as_in_python() {
        let mut memo = Memo::default();
        memo.put(1, Value::None);
        memo.push(Value::Bool(true));
        assert_eq!(memo.get(1), Some(Value::Bool(true)));
    }
}
