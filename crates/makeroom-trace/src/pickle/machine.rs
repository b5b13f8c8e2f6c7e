//! The machine itself: a stack, marks into it, a memo, and one loop over the opcodes.
//!
//! The stack is one row of values; a mark is a position in it. `floor` is the newest mark: nothing below it can
//! be taken until the mark is, which is what keeps a malformed file from reaching under its own containers.

use super::complaints::quoted;
use super::memo::Memo;
use super::opcode as op;
use super::source::{LONGEST_PIECE, Source};
use super::text_forms;
use super::value::{Heap, Value};
use crate::error::Error;

/// C++ writers put a whole list on the stack before they store it, so this is also the longest such list.
const DEEPEST_STACK: usize = 1 << 26;
const MOST_MARKS: usize = 1 << 20;

/// Runs a pickle; gives what it leaves behind.
pub(crate) fn run(source: &mut Source<'_>, heap: &mut impl Heap) -> Result<Value, Error> {
    Machine { source, heap, stack: Vec::new(), floor: 0, marks: Vec::new(), memo: Memo::default(), start: 0 }
        .run()
}

pub(super) struct Machine<'a, 'b, H> {
    pub(super) source: &'a mut Source<'b>,
    pub(super) heap: &'a mut H,
    pub(super) stack: Vec<Value>,
    /// Where the newest mark is.
    pub(super) floor: usize,
    /// Where the marks before it are.
    marks: Vec<usize>,
    memo: Memo,
    /// The offset of the opcode that is being carried out.
    pub(super) start: u64,
}

impl<H: Heap> Machine<'_, '_, H> {
    fn run(mut self) -> Result<Value, Error> {
        loop {
            self.start = self.source.offset();
            let (opcode, operand) = self.source.peek()?;
            // The frequent ones first; together they are 99 % of a snapshot.
            match opcode {
                op::BINGET => {
                    self.source.advance(2, "a memo number")?;
                    self.recall(operand & 0xff)?;
                }
                op::LONG_BINGET => {
                    self.source.advance(5, "a memo number")?;
                    self.recall(operand & 0xffff_ffff)?;
                }
                op::MEMOIZE => {
                    self.source.advance(1, "an opcode")?;
                    let top = self.top()?;
                    self.memo.push(top);
                }
                op::BININT1 => self.push_after(2, Value::Int(operand & 0xff))?,
                op::BININT2 => self.push_after(3, Value::Int(operand & 0xffff))?,
                op::BININT => {
                    let number = i64::from((operand as u32).cast_signed());
                    self.push_after(5, Value::Int(number.cast_unsigned()))?;
                }
                op::LONG1 => {
                    let length = (operand & 0xff) as usize;
                    // Up to seven bytes were peeked at: shift them up and down again to extend the sign.
                    if (1..=7).contains(&length) {
                        let shift = 64 - 8 * length as u32;
                        let number = ((operand >> 8) << shift).cast_signed() >> shift;
                        self.push_after(2 + length, Value::Int(number.cast_unsigned()))?;
                    } else {
                        self.source.advance(2, "an integer")?;
                        let value = text_forms::long(self.source.piece(length, "an integer")?);
                        self.push(value)?;
                    }
                }
                op::SHORT_BINUNICODE => {
                    self.source.advance(2, "a text")?;
                    self.text(operand & 0xff)?;
                }
                op::MARK => {
                    self.source.advance(1, "an opcode")?;
                    if self.marks.len() >= MOST_MARKS {
                        return Err(self.too_many("open containers", MOST_MARKS));
                    }
                    self.marks.push(self.floor);
                    self.floor = self.stack.len();
                }
                op::EMPTY_DICT => {
                    self.source.advance(1, "an opcode")?;
                    self.push_dict()?;
                }
                op::EMPTY_LIST => {
                    self.source.advance(1, "an opcode")?;
                    let list = self.heap.list().map_err(|fault| self.fault(fault))?;
                    self.push(list)?;
                }
                op::SETITEMS => {
                    self.source.advance(1, "an opcode")?;
                    let (start, dict) = self.marked_container()?;
                    self.insert(dict, start)?;
                }
                op::APPENDS => {
                    self.source.advance(1, "an opcode")?;
                    let (start, list) = self.marked_container()?;
                    self.append(list, start)?;
                }
                op::STOP => {
                    self.source.advance(1, "an opcode")?;
                    return self.pop();
                }
                // Zeros follow the end of the stream, and zero is no opcode.
                0 => {
                    self.source.advance(1, "the opcode STOP")?;
                    return Err(self.unknown(0));
                }
                _ => {
                    self.source.advance(1, "an opcode")?;
                    self.step(opcode, operand)?;
                }
            }
        }
    }

    /// Carries out the opcodes that are rare in snapshots; the opcode's own byte is consumed.
    fn step(&mut self, opcode: u8, operand: u64) -> Result<(), Error> {
        match opcode {
            op::PROTO => {
                let protocol = operand & 0xff;
                if protocol > 5 {
                    return Err(
                        self.malformed("a pickle protocol from 0 to 5", format!("protocol {protocol}"))
                    );
                }
                self.source.advance(1, "a protocol number")
            }
            // Frames only tell a reader how much to buffer.
            op::FRAME => self.source.advance(8, "the length of a frame"),
            op::POP => {
                if self.stack.len() == self.floor {
                    self.floor = self.marks.pop().ok_or_else(|| self.nothing_there())?;
                    return Ok(());
                }
                self.pop().map(drop)
            }
            op::POP_MARK => self.take_mark().map(|start| self.stack.truncate(start)),
            op::DUP => {
                let top = self.top()?;
                self.push(top)
            }
            op::NONE => self.push(Value::None),
            op::NEWTRUE => self.push(Value::Bool(true)),
            op::NEWFALSE => self.push(Value::Bool(false)),
            op::INT | op::LONG => self.number_line("an integer", text_forms::integer),
            op::FLOAT => self.number_line("a number", text_forms::float),
            op::LONG4 => {
                self.source.advance(4, "the length of an integer")?;
                let length = operand & 0xffff_ffff;
                if length <= 16 {
                    let value = text_forms::long(self.source.piece(length as usize, "an integer")?);
                    return self.push(value);
                }
                self.opaque(length, "an integer")
            }
            op::BINFLOAT => {
                self.source.advance(8, "a number")?;
                self.push(Value::Float(f64::from_bits(operand.swap_bytes())))
            }
            op::SHORT_BINSTRING => {
                self.source.advance(1, "the length of a text")?;
                self.text(operand & 0xff)
            }
            op::BINUNICODE | op::BINSTRING => {
                self.source.advance(4, "the length of a text")?;
                self.text(operand & 0xffff_ffff)
            }
            op::BINUNICODE8 => {
                self.source.advance(8, "the length of a text")?;
                self.text(operand)
            }
            op::UNICODE => {
                let text = text_forms::unicode(self.source.line("a text")?);
                let value = self.heap.text(&text);
                self.push(value)
            }
            op::STRING => {
                let line = self.source.line("a text")?;
                let text = text_forms::string(line).ok_or_else(|| quoted(line));
                let text = text.map_err(|found| self.malformed("a quoted text", found))?;
                let value = self.heap.text(&text);
                self.push(value)
            }
            op::SHORT_BINBYTES => {
                self.source.advance(1, "the length of bytes")?;
                self.opaque(operand & 0xff, "bytes")
            }
            op::BINBYTES => {
                self.source.advance(4, "the length of bytes")?;
                self.opaque(operand & 0xffff_ffff, "bytes")
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                self.source.advance(8, "the length of bytes")?;
                self.opaque(operand, "bytes")
            }
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::GET => self.remember(opcode, operand),
            op::GLOBAL | op::INST | op::STACK_GLOBAL => Err(self.asks_to_call(opcode)),
            _ => self.contain(opcode),
        }
    }

    /// Carries out what makes and fills containers.
    fn contain(&mut self, opcode: u8) -> Result<(), Error> {
        match opcode {
            op::APPEND => {
                let item = self.pop()?;
                let list = self.top()?;
                self.heap.append(list, &[item]).map_err(|fault| self.fault(fault))
            }
            op::SETITEM => {
                let value = self.pop()?;
                let key = self.pop()?;
                let dict = self.top()?;
                self.heap.insert(dict, &[key, value]).map_err(|fault| self.fault(fault))
            }
            op::EMPTY_TUPLE => self.tuple(self.stack.len()),
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let count = usize::from(opcode - op::TUPLE1) + 1;
                if self.stack.len() - self.floor < count {
                    return Err(self.nothing_there());
                }
                self.tuple(self.stack.len() - count)
            }
            op::TUPLE => {
                let start = self.take_mark()?;
                self.tuple(start)
            }
            op::LIST => {
                let start = self.take_mark()?;
                let list = self.heap.list().map_err(|fault| self.fault(fault))?;
                self.append(list, start)?;
                self.push(list)
            }
            op::DICT => {
                let start = self.take_mark()?;
                let dict = self.heap.dict().map_err(|fault| self.fault(fault))?;
                self.insert(dict, start)?;
                self.push(dict)
            }
            op::EMPTY_SET => self.push(Value::Opaque),
            op::ADDITEMS => self.take_mark().map(|start| self.stack.truncate(start)),
            op::FROZENSET => {
                let start = self.take_mark()?;
                self.stack.truncate(start);
                self.push(Value::Opaque)
            }
            _ => match op::refused(opcode) {
                Some(callable) => {
                    Err(Error::AsksToCall { callable: callable.to_owned(), offset: self.start })
                }
                None => Err(self.unknown(opcode)),
            },
        }
    }

    fn remember(&mut self, opcode: u8, operand: u64) -> Result<(), Error> {
        let number = match opcode {
            op::BINPUT => {
                self.source.advance(1, "a memo number")?;
                operand & 0xff
            }
            op::LONG_BINPUT => {
                self.source.advance(4, "a memo number")?;
                operand & 0xffff_ffff
            }
            _ => {
                let line = self.source.line("a memo number")?;
                let number = text_forms::memo_number(line).ok_or_else(|| quoted(line));
                number.map_err(|found| self.malformed("a memo number", found))?
            }
        };
        if opcode == op::GET {
            return self.recall(number);
        }
        let top = self.top()?;
        self.memo.put(number, top);
        Ok(())
    }

    #[inline]
    fn recall(&mut self, number: u64) -> Result<(), Error> {
        match self.memo.get(number) {
            Some(value) => self.push(value),
            None => Err(self.malformed("a memo number that is in use", format!("number {number}"))),
        }
    }

    #[inline]
    fn push(&mut self, value: Value) -> Result<(), Error> {
        if self.stack.len() >= DEEPEST_STACK {
            return Err(self.too_many("values in one container", DEEPEST_STACK));
        }
        self.stack.push(value);
        Ok(())
    }

    #[inline]
    fn push_after(&mut self, length: usize, value: Value) -> Result<(), Error> {
        self.source.advance(length, "an integer")?;
        self.push(value)
    }

    fn push_dict(&mut self) -> Result<(), Error> {
        // In a list of dicts the one before is now complete. Telling the heap at once keeps it from holding
        // millions of half-done dicts when a writer does not store its lists in batches.
        if let Some(&before) = self.stack[self.floor..].last() {
            self.heap.settle(before).map_err(|fault| self.fault(fault))?;
        }
        let dict = self.heap.dict().map_err(|fault| self.fault(fault))?;
        self.push(dict)
    }

    #[inline]
    fn top(&self) -> Result<Value, Error> {
        self.stack[self.floor..].last().copied().ok_or_else(|| self.nothing_there())
    }

    #[inline]
    fn pop(&mut self) -> Result<Value, Error> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Removes the newest mark; gives where the values above it begin.
    #[inline]
    fn take_mark(&mut self) -> Result<usize, Error> {
        let start = self.floor;
        match self.marks.pop() {
            Some(before) => {
                self.floor = before;
                Ok(start)
            }
            None => Err(self.malformed("a mark on the stack", "none".to_owned())),
        }
    }

    /// Removes the newest mark; gives where the values above it begin and the container right below it.
    #[inline]
    fn marked_container(&mut self) -> Result<(usize, Value), Error> {
        let start = self.take_mark()?;
        match self.stack[self.floor..start].last() {
            Some(&container) => Ok((start, container)),
            None => Err(self.nothing_there()),
        }
    }

    /// Moves the values from `start` on into a list.
    #[inline]
    fn append(&mut self, list: Value, start: usize) -> Result<(), Error> {
        self.heap.append(list, &self.stack[start..]).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        Ok(())
    }

    /// Moves the keys and values from `start` on into a dict.
    #[inline]
    fn insert(&mut self, dict: Value, start: usize) -> Result<(), Error> {
        let pairs = &self.stack[start..];
        if !pairs.len().is_multiple_of(2) {
            return Err(self.malformed("a value for each key", "a key without a value".to_owned()));
        }
        self.heap.insert(dict, pairs).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        Ok(())
    }

    fn tuple(&mut self, start: usize) -> Result<(), Error> {
        let tuple = self.heap.tuple(&self.stack[start..]).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        self.push(tuple)
    }

    fn text(&mut self, length: u64) -> Result<(), Error> {
        if length > LONGEST_PIECE as u64 {
            return self.opaque(length, "a text");
        }
        let value = self.heap.text(self.source.piece(length as usize, "a text")?);
        self.push(value)
    }

    fn opaque(&mut self, length: u64, expected: &'static str) -> Result<(), Error> {
        self.source.skip(length, expected)?;
        self.push(Value::Opaque)
    }

    fn number_line(
        &mut self,
        expected: &'static str,
        parse: impl Fn(&[u8]) -> Option<Value>,
    ) -> Result<(), Error> {
        let line = self.source.line(expected)?;
        let parsed = parse(line).ok_or_else(|| quoted(line));
        match parsed {
            Ok(value) => self.push(value),
            Err(found) => Err(self.malformed(expected, found)),
        }
    }
}
