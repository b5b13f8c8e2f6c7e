//! The memo: values that a pickle stores by number.
//!
//! Picklers count up from zero and memoize most values, so the memo of a large snapshot is an array with tens of
//! millions of entries. A number far beyond the array, which only crafted files have, goes into a map, so that it
//! costs one entry instead of the gap.

use makeroom_core::FastMap;

use super::value::Value;

/// How far a number may be beyond the array before it goes into the map.
const LARGEST_GAP: u64 = 16;
/// The array has at most this many slots per entry.
const LARGEST_STRIDE: u64 = 4;

#[derive(Default)]
pub(super) struct Memo {
    row: Vec<Option<Value>>,
    scattered: FastMap<u64, Value>,
    count: u64,
}

impl Memo {
    /// Stores a value under the next number.
    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        if self.count == self.row.len() as u64 {
            self.row.push(Some(value));
            self.count += 1;
        } else {
            self.put(self.count, value);
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
            self.row.resize(index + 1, None);
        }
        self.row[index] = Some(value);
    }

    /// Number of entries.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The entries from zero, up to the first large gap.
    #[inline]
    pub(super) fn row(&self) -> &[Option<Value>] {
        &self.row
    }

    /// The value under a number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Value> {
        match self.row.get(number as usize) {
            Some(&Some(value)) => Some(value),
            // The array may have grown past a number that was put into the map.
            _ => self.get_scattered(number),
        }
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
    fn an_entry_takes_no_more_than_its_value() {
        assert_eq!((size_of::<Option<Value>>(), size_of::<Value>()), (16, 16));
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
