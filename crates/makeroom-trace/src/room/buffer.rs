//! Bytes that are appended to, with room made ready before it is used.
//!
//! A `Vec` checks its capacity at every byte. Here the bytes behind the end exist already, so that a number is one
//! store of eight bytes, of which the next one overwrites what did not count.
//!
//! Invariant: `length` ≤ `bytes.len()`.

use super::varint::{LONGEST, loop_over, spread};

/// A buffer with an end that moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// An empty buffer in the memory of another, whose content is discarded.
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

    /// How many bytes can be appended without more memory.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.length
    }

    /// Sees to it that a number of bytes can be appended.
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

    /// Appends a number of variable length.
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

    /// Appends a text with its length before it.
    pub(crate) fn put_text(&mut self, text: &[u8]) {
        self.put(text.len() as u64);
        self.extend(text);
    }

    /// Appends the length of what was appended since `start`, and moves it before that.
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
