//! Protobuf's wire format, without copies: the fields of a message in order.
//!
//! Only what a reader of known messages needs. A message inside another is a slice of it, and is not read until the caller
//! asks, so nesting costs nothing. Every step consumes at least one byte, and offsets in errors count from the start of the
//! file.

use crate::error::Error;

/// Longest varint: 64 bits in groups of seven.
const LONGEST_VARINT: usize = 10;

/// A message that is still to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'file> {
    rest: &'file [u8],
    offset: u64,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'file> {
    /// A varint or a fixed number.
    Number(u64),
    /// A message, a text, or packed numbers.
    Message(Message<'file>),
}

impl<'file> Message<'file> {
    pub(crate) fn new(file: &'file [u8]) -> Self {
        Self { rest: file, offset: 0 }
    }

    /// Where the unread part begins.
    pub(crate) fn offset(self) -> u64 {
        self.offset
    }

    /// The unread part.
    pub(crate) fn bytes(self) -> &'file [u8] {
        self.rest
    }

    /// The next field and its value; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Value<'file>)>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let start = self.offset;
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Number(self.fixed(8)?),
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                let offset = self.offset;
                Value::Message(Self { rest: self.take(length)?, offset })
            }
            5 => Value::Number(self.fixed(4)?),
            _ => return Err(Error::Profile { offset: start, problem: "expected a field of the profile" }),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// All numbers of a repeated field, packed or not.
    pub(crate) fn numbers(mut self, wanted: u64) -> Result<Vec<u64>, Error> {
        let mut numbers = Vec::new();
        while let Some((field, value)) = self.next()? {
            match value {
                _ if field != wanted => {}
                Value::Number(number) => numbers.push(number),
                Value::Message(mut packed) => {
                    while !packed.rest.is_empty() {
                        numbers.push(packed.varint()?);
                    }
                }
            }
        }
        Ok(numbers)
    }

    fn varint(&mut self) -> Result<u64, Error> {
        let start = self.offset;
        let mut number = 0;
        for index in 0..LONGEST_VARINT {
            let &[byte] = self.take(1)? else { break };
            // The tenth byte has one bit that counts; protobuf ignores the others.
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Error::Profile { offset: start, problem: "a number has more than 64 bits" })
    }

    fn fixed(&mut self, length: usize) -> Result<u64, Error> {
        let bytes = self.take(length)?;
        Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn take(&mut self, length: usize) -> Result<&'file [u8], Error> {
        let cut = self.rest.split_at_checked(length);
        let (taken, rest) =
            cut.ok_or(Error::Profile { offset: self.offset, problem: "the profile is truncated here" })?;
        self.rest = rest;
        self.offset += length as u64;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_kinds_are_read() {
        let bytes = b"\x08\x96\x01\x12\x02ab\x1d\x01\x02\x00\x00\x21\x01\0\0\0\0\0\0\0";
        let mut message = Message::new(bytes);
        let mut seen = Vec::new();
        while let Some((field, value)) = message.next().expect("the message is whole") {
            seen.push(match value {
                Value::Number(number) => (field, number),
                Value::Message(inside) => (field, inside.bytes().len() as u64),
            });
        }
        assert_eq!(seen, [(1, 150), (2, 2), (3, 513), (4, 1)]);
    }

    #[test]
    fn numbers_are_read_packed_and_single() {
        let message = Message::new(b"\x0a\x03\x01\xac\x02\x08\x07\x10\x63");
        assert_eq!(message.numbers(1).ok(), Some(vec![1, 300, 7]));
    }

    #[test]
    fn damage_is_an_error_with_its_place() {
        for (bytes, offset) in [
            (&b"\x08"[..], 1),
            (b"\x12\x05ab", 2),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1),
            (b"\x08\x01\x0b", 2),
            (b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10),
        ] {
            let mut message = Message::new(bytes);
            let error = loop {
                match message.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("no error in {bytes:x?}"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, Error::Profile { offset: found, .. } if found == offset), "{error}");
        }
    }
}
