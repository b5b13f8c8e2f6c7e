//! Reads numbers and byte strings from a payload, and tracks their offsets in the file.
//!
//! Lengths are not trusted: missing bytes are an error with an offset.

use crate::error::Error;

/// A position in a payload.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'payload> {
    rest: &'payload [u8],
    /// Offset of `rest` in the file.
    offset: u64,
}

impl<'payload> Cursor<'payload> {
    /// Starts at the beginning of `bytes`, whose offset in the file is `offset`.
    pub(crate) fn new(bytes: &'payload [u8], offset: u64) -> Self {
        Self { rest: bytes, offset }
    }

    /// Offset of the next byte in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte, which stays.
    #[inline]
    pub(crate) fn first(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The error for an unexpected byte at this position.
    pub(crate) fn error(&self, expected: &'static str) -> Error {
        let found = match self.rest.first() {
            Some(byte) => format!("the byte {byte:#04x}"),
            None => "the end of the record".to_owned(),
        };
        Error::Malformed { offset: self.offset, expected, found }
    }

    /// Takes this many bytes.
    pub(crate) fn take(&mut self, length: u64, expected: &'static str) -> Result<&'payload [u8], Error> {
        let split = usize::try_from(length).ok().and_then(|length| self.rest.split_at_checked(length));
        let (taken, rest) = split.ok_or_else(|| self.error(expected))?;
        self.rest = rest;
        self.offset += length;
        Ok(taken)
    }

    /// Takes the rest.
    pub(crate) fn take_rest(&mut self) -> &'payload [u8] {
        self.offset += self.rest.len() as u64;
        std::mem::take(&mut self.rest)
    }

    /// Takes a fixed number of bytes.
    pub(crate) fn array<const LENGTH: usize>(
        &mut self,
        expected: &'static str,
    ) -> Result<[u8; LENGTH], Error> {
        let (&taken, rest) = self.rest.split_first_chunk().ok_or_else(|| self.error(expected))?;
        self.rest = rest;
        self.offset += LENGTH as u64;
        Ok(taken)
    }

    /// Takes one byte.
    #[inline]
    pub(crate) fn byte(&mut self, expected: &'static str) -> Result<u8, Error> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(|| self.error(expected))?;
        self.rest = rest;
        self.offset += 1;
        Ok(byte)
    }

    /// Takes a variable-length integer in its canonical encoding.
    #[inline]
    pub(crate) fn number(&mut self, expected: &'static str) -> Result<u64, Error> {
        let Some((value, length)) = self.rest.first_chunk().and_then(|bytes| super::varint::gather(*bytes))
        else {
            return self.long_number(expected);
        };
        self.rest = &self.rest[length..];
        self.offset += length as u64;
        Ok(value)
    }

    /// A number at the end of the payload, of more than eight bytes, or an invalid one.
    #[cold]
    #[inline(never)]
    fn long_number(&mut self, expected: &'static str) -> Result<u64, Error> {
        let mut value = 0;
        for (position, &byte) in self.rest.iter().take(super::varint::LONGEST).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * position);
            if byte & 0x80 == 0 {
                let is_padded = byte == 0 && position > 0;
                let is_too_large = position == 9 && byte > 1;
                if is_padded || is_too_large {
                    break;
                }
                self.rest = self.rest.get(position + 1..).unwrap_or_default();
                self.offset += position as u64 + 1;
                return Ok(value);
            }
        }
        Err(self.error(expected))
    }

    /// Takes an integer of at most 32 bits.
    #[inline]
    pub(crate) fn number32(&mut self, expected: &'static str) -> Result<u32, Error> {
        let before = self.clone();
        u32::try_from(self.number(expected)?).map_err(|_| before.error(expected))
    }

    /// Takes a byte string, prefixed with its length.
    pub(crate) fn text(&mut self, expected: &'static str) -> Result<Vec<u8>, Error> {
        let length = self.number(expected)?;
        self.take(length, expected).map(<[u8]>::to_vec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8]) -> Option<u64> {
        let mut cursor = Cursor::new(bytes, 0);
        let number = cursor.number("a number").ok()?;
        assert!(cursor.is_at_end());
        Some(number)
    }

    #[test]
    fn numbers_have_one_encoding() {
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        let too_large = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2];
        assert_eq!(number(&[0xac, 2]), Some(300));
        assert_eq!(number(&largest), Some(u64::MAX));
        for bad in [&[][..], &[0x80], &[0x80, 0], &too_large, &[0xff; 11]] {
            assert_eq!(number(bad), None, "{bad:x?}");
        }
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error_that_names_the_byte() {
        let mut cursor = Cursor::new(&[9, b'a'], 100);
        let error = cursor.text("a name").unwrap_err();
        assert_eq!(error.to_string(), "byte 101: expected a name, found the byte 0x61");
    }
}
