//! The opcodes that push a number or a string.

use super::complaints::quoted;
use super::machine::{Machine, Outcome};
use super::memo::Entry;
use super::source::LONGEST_PIECE;
use super::value::{Heap, Value};
use super::{opcode as op, text_forms};

/// The value that the first opcode pushes, and the code after it, if it is one of the simplest opcodes and its
/// operand is in the buffer.
#[inline]
pub(super) fn pushed<'a>(code: &'a [u8], remembered: &[Entry]) -> Option<(Value, &'a [u8])> {
    Some(match *code {
        [op::LONG_BINGET, a, b, c, d, ref rest @ ..] => {
            (remembered.get(u32::from_le_bytes([a, b, c, d]) as usize)?.value()?, rest)
        }
        [op::BINGET, number, ref rest @ ..] => (remembered.get(usize::from(number))?.value()?, rest),
        // Read eight bytes and shift up and down again, which sign-extends the shorter number.
        [op::LONG1, length @ 1..=8, ref rest @ ..] => {
            let shift = 64 - 8 * u32::from(length);
            let number = i64::from_le_bytes(*rest.first_chunk()?) << shift >> shift;
            (Value::Int(number.cast_unsigned()), &rest[usize::from(length)..])
        }
        [op::BININT, a, b, c, d, ref rest @ ..] => (signed(u32::from_le_bytes([a, b, c, d])), rest),
        [op::BININT1, number, ref rest @ ..] => (Value::Int(u64::from(number)), rest),
        [op::BININT2, a, b, ref rest @ ..] => (Value::Int(u64::from(u16::from_le_bytes([a, b]))), rest),
        _ => return None,
    })
}

/// A `BININT` operand: a signed 32-bit number.
fn signed(number: u32) -> Value {
    Value::Int(i64::from(number.cast_signed()).cast_unsigned())
}

impl<H: Heap> Machine<'_, '_, H> {
    /// The value that an opcode pushes, if it is one for numbers and strings. Its own byte is already consumed.
    pub(super) fn literal(&mut self, opcode: u8, operand: u64) -> Outcome<Option<Value>> {
        // How many operand bytes hold the number or the length, and its value.
        let (width, number) = match opcode {
            op::BININT1 | op::LONG1 | op::SHORT_BINSTRING | op::SHORT_BINBYTES => (1, operand & 0xff),
            op::BININT2 => (2, operand & 0xffff),
            op::BININT | op::LONG4 | op::BINUNICODE | op::BINSTRING | op::BINBYTES => {
                (4, operand & 0xffff_ffff)
            }
            op::BINFLOAT | op::BINUNICODE8 | op::BINBYTES8 | op::BYTEARRAY8 => (8, operand),
            _ => (0, 0),
        };
        self.source.advance(width);
        Ok(Some(match opcode {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BININT1 | op::BININT2 => Value::Int(number),
            op::BININT => signed(number as u32),
            op::LONG1 | op::LONG4 => self.long(number)?,
            op::BINFLOAT => Value::Float(f64::from_bits(number.swap_bytes())),
            op::SHORT_BINSTRING | op::BINSTRING | op::BINUNICODE | op::BINUNICODE8 => self.text(number)?,
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                self.opaque(number, "bytes")?
            }
            op::INT | op::LONG => self.number_line("an integer", text_forms::integer)?,
            op::FLOAT => self.number_line("a number", text_forms::float)?,
            op::UNICODE => {
                let text = text_forms::unicode(self.source.line("a string")?);
                self.heap.text(&text)
            }
            op::STRING => {
                let line = self.source.line("a string")?;
                let text = text_forms::string(line).ok_or_else(|| quoted(line));
                let text = text.map_err(|found| self.malformed("a quoted string", found))?;
                self.heap.text(&text)
            }
            _ => return Ok(None),
        }))
    }

    /// A string of this many bytes. One that is too long to be a name is skipped.
    pub(super) fn text(&mut self, length: u64) -> Outcome<Value> {
        if length > LONGEST_PIECE as u64 {
            return self.opaque(length, "a string");
        }
        Ok(self.heap.text(self.source.piece(length as usize, "a string")?))
    }

    fn long(&mut self, length: u64) -> Outcome<Value> {
        if length > 16 {
            return self.opaque(length, "an integer");
        }
        Ok(text_forms::long(self.source.piece(length as usize, "an integer")?))
    }

    fn opaque(&mut self, length: u64, expected: &'static str) -> Outcome<Value> {
        self.source.skip(length, expected)?;
        Ok(Value::Opaque)
    }

    fn number_line(
        &mut self,
        expected: &'static str,
        parse: impl Fn(&[u8]) -> Option<Value>,
    ) -> Outcome<Value> {
        let line = self.source.line(expected)?;
        let parsed = parse(line).ok_or_else(|| quoted(line));
        parsed.map_err(|found| self.malformed(expected, found))
    }
}
