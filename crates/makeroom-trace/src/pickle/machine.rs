//! The machine itself: a stack, marks into it, a memo, and one loop over the opcodes.
//!
//! The stack is one row of values; a mark is a position in it. `floor` is the newest mark: nothing below it can
//! be taken until the mark is, which is what keeps a malformed file from reaching under its own containers.

use std::io::Read;

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
pub(crate) fn run(stream: impl Read, heap: &mut impl Heap) -> Result<Product, Error> {
    Machine {
        source: Source::new(stream),
        heap,
        stack: Vec::new(),
        floor: 0,
        marks: Vec::new(),
        memo: Memo::default(),
        start: 0,
    }
    .run()
    .map_err(|error| *error)
}

/// What a pickle leaves behind.
pub(crate) struct Product {
    /// The value on top of the stack.
    pub(crate) top: Value,
    /// How long the pickle is.
    pub(crate) length: u64,
}

/// Errors are large and rare; boxed, they do not slow down the loop.
pub(super) type Outcome<T> = Result<T, Box<Error>>;

pub(super) struct Machine<'a, 'b, H> {
    pub(super) source: Source<'b>,
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
    fn run(mut self) -> Outcome<Product> {
        loop {
            self.push_run();
            if self.source.is_short() {
                self.refill()?;
            }
            self.start = self.source.offset();
            let (opcode, operand) = self.source.peek();
            // The frequent ones first; together they are 99 % of a snapshot.
            match opcode {
                op::MEMOIZE => {
                    self.source.advance(1);
                    let top = self.top()?;
                    self.memo.push(top);
                }
                op::SHORT_BINUNICODE => {
                    self.source.advance(2);
                    self.text(operand & 0xff)?;
                }
                op::MARK => {
                    self.source.advance(1);
                    if self.marks.len() >= MOST_MARKS {
                        return Err(self.too_many("open containers", MOST_MARKS));
                    }
                    self.marks.push(self.floor);
                    self.floor = self.stack.len();
                }
                op::EMPTY_DICT => {
                    self.source.advance(1);
                    self.push_dict()?;
                }
                op::EMPTY_LIST => {
                    self.source.advance(1);
                    let list = self.heap.list().map_err(|fault| self.fault(fault))?;
                    self.stack.push(list);
                }
                op::SETITEMS => {
                    self.source.advance(1);
                    let (start, dict) = self.marked_container()?;
                    self.insert(dict, start)?;
                }
                op::APPENDS => {
                    self.source.advance(1);
                    let (start, list) = self.marked_container()?;
                    self.append(list, start)?;
                }
                op::STOP => {
                    self.source.advance(1);
                    let length = self.source.offset();
                    return self.pop().map(|top| Product { top, length });
                }
                _ => {
                    self.source.advance(1);
                    self.step(opcode, operand)?;
                }
            }
        }
    }

    /// Carries out the opcodes that are rare in snapshots; the opcode's own byte is consumed.
    fn step(&mut self, opcode: u8, operand: u64) -> Outcome<()> {
        match opcode {
            op::PROTO => {
                let protocol = operand & 0xff;
                if protocol > 5 {
                    return Err(
                        self.malformed("a pickle protocol from 0 to 5", format!("protocol {protocol}"))
                    );
                }
                self.source.advance(1);
                Ok(())
            }
            // Frames only tell a reader how much to buffer.
            op::FRAME => {
                self.source.advance(8);
                Ok(())
            }
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
            // A run stops before these where the buffer ends within them.
            op::BININT1 => self.push_after(1, operand & 0xff),
            op::BININT2 => self.push_after(2, operand & 0xffff),
            op::BININT => self.push_after(4, i64::from((operand as u32).cast_signed()).cast_unsigned()),
            op::LONG1 => {
                self.source.advance(1);
                let value = text_forms::long(self.source.piece((operand & 0xff) as usize, "an integer")?);
                self.push(value)
            }
            op::LONG4 => {
                self.source.advance(4);
                let length = operand & 0xffff_ffff;
                if length <= 16 {
                    let value = text_forms::long(self.source.piece(length as usize, "an integer")?);
                    return self.push(value);
                }
                self.opaque(length, "an integer")
            }
            op::BINFLOAT => {
                self.source.advance(8);
                self.push(Value::Float(f64::from_bits(operand.swap_bytes())))
            }
            op::SHORT_BINSTRING => {
                self.source.advance(1);
                self.text(operand & 0xff)
            }
            op::BINUNICODE | op::BINSTRING => {
                self.source.advance(4);
                self.text(operand & 0xffff_ffff)
            }
            op::BINUNICODE8 => {
                self.source.advance(8);
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
                self.source.advance(1);
                self.opaque(operand & 0xff, "bytes")
            }
            op::BINBYTES => {
                self.source.advance(4);
                self.opaque(operand & 0xffff_ffff, "bytes")
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                self.source.advance(8);
                self.opaque(operand, "bytes")
            }
            op::PUT | op::BINPUT | op::LONG_BINPUT | op::GET | op::BINGET | op::LONG_BINGET => {
                self.remember(opcode, operand)
            }
            op::GLOBAL | op::INST | op::STACK_GLOBAL => Err(self.asks_to_call(opcode)),
            _ => self.contain(opcode),
        }
    }

    /// Carries out what makes and fills containers.
    fn contain(&mut self, opcode: u8) -> Outcome<()> {
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
                Some(callable) => Err(self.refused(callable)),
                None => Err(self.unknown(opcode)),
            },
        }
    }

    fn remember(&mut self, opcode: u8, operand: u64) -> Outcome<()> {
        let number = match opcode {
            op::BINPUT | op::BINGET => {
                self.source.advance(1);
                operand & 0xff
            }
            op::LONG_BINPUT | op::LONG_BINGET => {
                self.source.advance(4);
                operand & 0xffff_ffff
            }
            _ => {
                let line = self.source.line("a memo number")?;
                let number = text_forms::memo_number(line).ok_or_else(|| quoted(line));
                number.map_err(|found| self.malformed("a memo number", found))?
            }
        };
        if matches!(opcode, op::GET | op::BINGET | op::LONG_BINGET) {
            return match self.memo.get(number) {
                Some(value) => self.push(value),
                None => Err(self.not_remembered(number)),
            };
        }
        let top = self.top()?;
        self.memo.put(number, top);
        Ok(())
    }

    /// Carries out the opcodes that only push a number or what is remembered, as far as they follow each other: four
    /// fifths of a snapshot are such runs. Stops before anything else, and before what needs a closer look.
    #[inline]
    fn push_run(&mut self) {
        let mut code = self.source.available();
        let length = code.len();
        let remembered = self.memo.row();
        while let Some((value, rest)) = pushed(code, remembered) {
            self.stack.push(value);
            code = rest;
        }
        let count = length - code.len();
        self.source.advance(count);
    }

    /// Reads on. This is also where the stack's depth is looked at: between two refills it can grow by no more than
    /// a chunk has bytes.
    #[cold]
    fn refill(&mut self) -> Outcome<()> {
        if self.stack.len() > DEEPEST_STACK {
            return Err(self.too_many("values in one container", DEEPEST_STACK));
        }
        Ok(self.source.refill()?)
    }

    fn push_after(&mut self, operand_length: usize, number: u64) -> Outcome<()> {
        self.source.advance(operand_length);
        self.push(Value::Int(number))
    }

    #[inline]
    fn push(&mut self, value: Value) -> Outcome<()> {
        self.stack.push(value);
        Ok(())
    }

    fn push_dict(&mut self) -> Outcome<()> {
        // In a list of dicts the one before is now complete. Telling the heap at once keeps it from holding
        // millions of half-done dicts when a writer does not store its lists in batches.
        if let Some(&before) = self.stack[self.floor..].last() {
            self.heap.settle(before).map_err(|fault| self.fault(fault))?;
        }
        let dict = self.heap.dict().map_err(|fault| self.fault(fault))?;
        self.push(dict)
    }

    #[inline]
    fn top(&self) -> Outcome<Value> {
        self.stack[self.floor..].last().copied().ok_or_else(|| self.nothing_there())
    }

    #[inline]
    fn pop(&mut self) -> Outcome<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Removes the newest mark; gives where the values above it begin.
    #[inline]
    fn take_mark(&mut self) -> Outcome<usize> {
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
    fn marked_container(&mut self) -> Outcome<(usize, Value)> {
        let start = self.take_mark()?;
        match self.stack[self.floor..start].last() {
            Some(&container) => Ok((start, container)),
            None => Err(self.nothing_there()),
        }
    }

    /// Moves the values from `start` on into a list.
    #[inline]
    fn append(&mut self, list: Value, start: usize) -> Outcome<()> {
        self.heap.append(list, &self.stack[start..]).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        Ok(())
    }

    /// Moves the keys and values from `start` on into a dict.
    #[inline]
    fn insert(&mut self, dict: Value, start: usize) -> Outcome<()> {
        let pairs = &self.stack[start..];
        if !pairs.len().is_multiple_of(2) {
            return Err(self.malformed("a value for each key", "a key without a value".to_owned()));
        }
        self.heap.insert(dict, pairs).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        Ok(())
    }

    fn tuple(&mut self, start: usize) -> Outcome<()> {
        let tuple = self.heap.tuple(&self.stack[start..]).map_err(|fault| self.fault(fault))?;
        self.stack.truncate(start);
        self.push(tuple)
    }

    fn text(&mut self, length: u64) -> Outcome<()> {
        if length > LONGEST_PIECE as u64 {
            return self.opaque(length, "a text");
        }
        let value = self.heap.text(self.source.piece(length as usize, "a text")?);
        self.push(value)
    }

    fn opaque(&mut self, length: u64, expected: &'static str) -> Outcome<()> {
        self.source.skip(length, expected)?;
        self.push(Value::Opaque)
    }

    fn number_line(&mut self, expected: &'static str, parse: impl Fn(&[u8]) -> Option<Value>) -> Outcome<()> {
        let line = self.source.line(expected)?;
        let parsed = parse(line).ok_or_else(|| quoted(line));
        match parsed {
            Ok(value) => self.push(value),
            Err(found) => Err(self.malformed(expected, found)),
        }
    }
}

/// The value that the first opcode pushes, if it is one of the simplest and its operand is all there, and what
/// follows it.
#[inline(always)]
fn pushed<'a>(code: &'a [u8], remembered: &[Option<Value>]) -> Option<(Value, &'a [u8])> {
    Some(match *code {
        [op::LONG_BINGET, a, b, c, d, ref rest @ ..] => {
            ((*remembered.get(u32::from_le_bytes([a, b, c, d]) as usize)?)?, rest)
        }
        [op::BINGET, number, ref rest @ ..] => ((*remembered.get(usize::from(number))?)?, rest),
        // Eight bytes are read and shifted up and down again, which extends the sign of the shorter number.
        [op::LONG1, length @ 1..=8, ref rest @ ..] => {
            let shift = 64 - 8 * u32::from(length);
            let number = i64::from_le_bytes(*rest.first_chunk()?) << shift >> shift;
            (Value::Int(number.cast_unsigned()), &rest[usize::from(length)..])
        }
        [op::BININT, a, b, c, d, ref rest @ ..] => {
            (Value::Int(i64::from(i32::from_le_bytes([a, b, c, d])).cast_unsigned()), rest)
        }
        [op::BININT1, number, ref rest @ ..] => (Value::Int(u64::from(number)), rest),
        [op::BININT2, a, b, ref rest @ ..] => (Value::Int(u64::from(u16::from_le_bytes([a, b]))), rest),
        _ => return None,
    })
}
