//! A byte buffer for appending, with spare space past its end that is already initialized.
//!
//! A `Vec` checks its capacity for every byte. Here, a number is one store of eight bytes, and the next one
//! overwrites the unused part.
//!
//! Invariant: `length` ≤ `bytes.len()`.

use super::varint::{LONGEST, loop_over, spread};

/// A buffer with a movable end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// An empty buffer that reuses the memory of another.
    pub(crate) fn new(mut memory: Vec<u8>) -> Self {
        memory.resize(memory.capacity(), 0);
        Self { bytes: memory, length: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.length = 0;
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.length);
        self.bytes
    }

    /// How many bytes can be appended without growing.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.length
    }

    /// Makes space for this many bytes.
    #[inline]
    pub(crate) fn reserve(&mut self, length: usize) {
        if self.room() < length {
            self.grow(length);
        }
    }

    #[cold]
    fn grow(&mut self, length: usize) {
        self.bytes.reserve(length);
        self.bytes.resize(self.bytes.capacity(), 0);
    }

    /// Appends bytes.
    #[inline]
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        if let Some(place) = self.bytes.get_mut(self.length..self.length + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len();
        }
    }

    /// Appends a variable-length integer.
    #[inline]
    pub(crate) fn put(&mut self, value: u64) {
        self.reserve(LONGEST);
        if value >> 56 != 0 {
            let (bytes, length) = loop_over(value);
            self.extend(bytes.get(..length).unwrap_or_default());
            return;
        }
        let (bytes, length) = spread(value);
        if let Some(place) = self.bytes.get_mut(self.length..).and_then(<[u8]>::first_chunk_mut) {
            *place = bytes;
            self.length += length;
        }
    }

    /// Appends a byte string, prefixed with its length.
    pub(crate) fn put_text(&mut self, text: &[u8]) {
        self.put(text.len() as u64);
        self.extend(text);
    }

    /// Inserts the length of everything since `start` in front of it.
    pub(crate) fn insert_length(&mut self, start: usize) {
        let end = self.length;
        self.put(end.saturating_sub(start) as u64);
        let inserted = self.length - end;
        if let Some(written) = self.bytes.get_mut(start..self.length) {
            written.rotate_right(inserted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_keeps_what_was_appended() {
        let mut buffer = Buffer::new(Vec::new());
        let mut expected = Vec::new();
        for value in (0..64).map(|bits| u64::MAX >> bits) {
            buffer.put(value);
            let (bytes, length) = loop_over(value);
            expected.extend_from_slice(&bytes[..length]);
        }
        buffer.extend(b"end");
        expected.extend_from_slice(b"end");
        assert_eq!(buffer.bytes(), expected);
        assert_eq!(buffer.into_bytes(), expected);
    }

    #[test]
    fn the_memory_of_another_is_used_and_its_content_is_not() {
        let mut memory = Vec::with_capacity(100);
        memory.push(9);
        let mut buffer = Buffer::new(memory);
        assert_eq!((buffer.len(), buffer.room()), (0, 100));
        buffer.put(1);
        assert_eq!(buffer.bytes(), [1]);
    }

    #[test]
    fn a_length_lands_before_what_it_counts() {
        let mut buffer = Buffer::default();
        buffer.extend(b"ab");
        buffer.extend(&[7; 200]);
        buffer.insert_length(2);
        assert_eq!(buffer.bytes()[..5], [b'a', b'b', 0xc8, 1, 7]);
        assert_eq!(buffer.len(), 204);
    }
}
