//! The memo: what a pickle remembers under a number.
//!
//! Picklers count up from zero and remember most of what they write, so the memo of a large snapshot has tens of
//! millions of entries. They are kept in a row of 8-byte slots. A number far ahead of the row, which only a
//! made-up file has, goes into a map instead, so that it costs an entry and not the gap before it.

use makeroom_core::FastMap;

use super::value::{ObjectId, TextId, Value};

/// How far a number may be ahead of the row before it goes into the map.
const LARGEST_GAP: u64 = 16;

#[derive(Default)]
pub(super) struct Memo {
    row: Vec<Slot>,
    scattered: FastMap<u64, Value>,
    /// Numbers, which no pickler remembers but a file may.
    scalars: Vec<Value>,
    count: u64,
}

/// A [`Value`] in half the space.
#[derive(Clone, Copy, Debug)]
enum Slot {
    Vacant,
    None,
    Bool(bool),
    Opaque,
    Text(TextId),
    Object(ObjectId),
    Scalar(u32),
}

impl Memo {
    /// Remembers under the next number.
    #[inline]
    pub(super) fn push(&mut self, value: Value) {
        if self.count == self.row.len() as u64 {
            let slot = self.slot(value);
            self.row.push(slot);
            self.count += 1;
        } else {
            self.put(self.count, value);
        }
    }

    /// Remembers under a number.
    pub(super) fn put(&mut self, number: u64, value: Value) {
        self.count += u64::from(self.get(number).is_none());
        if number > self.row.len() as u64 + LARGEST_GAP {
            self.scattered.insert(number, value);
            return;
        }
        let slot = self.slot(value);
        let index = number as usize;
        if index >= self.row.len() {
            self.row.resize(index + 1, Slot::Vacant);
        }
        self.row[index] = slot;
    }

    /// What was remembered under a number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<Value> {
        match self.row.get(number as usize) {
            Some(&Slot::Object(id)) => Some(Value::Object(id)),
            Some(&Slot::Text(id)) => Some(Value::Text(id)),
            Some(Slot::None) => Some(Value::None),
            Some(&Slot::Bool(value)) => Some(Value::Bool(value)),
            Some(Slot::Opaque) => Some(Value::Opaque),
            Some(&Slot::Scalar(index)) => self.scalars.get(index as usize).copied(),
            // The row may have grown past a number that was far ahead of it once.
            Some(Slot::Vacant) | None => self.scattered.get(&number).copied(),
        }
    }

    #[inline]
    fn slot(&mut self, value: Value) -> Slot {
        match value {
            Value::None => Slot::None,
            Value::Bool(value) => Slot::Bool(value),
            Value::Opaque => Slot::Opaque,
            Value::Text(id) => Slot::Text(id),
            Value::Object(id) => Slot::Object(id),
            Value::Int(_) | Value::Float(_) => match u32::try_from(self.scalars.len()) {
                Ok(index) => {
                    self.scalars.push(value);
                    Slot::Scalar(index)
                }
                Err(_) => Slot::Opaque,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_half_a_value() {
        assert_eq!((size_of::<Slot>(), size_of::<Value>()), (8, 16));
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
    fn the_next_number_is_the_count_of_entries_as_in_python() {
        let mut memo = Memo::default();
        memo.put(1, Value::None);
        memo.push(Value::Bool(true));
        assert_eq!(memo.get(1), Some(Value::Bool(true)));
    }
}
