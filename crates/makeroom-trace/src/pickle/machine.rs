//! The machine: a stack, marks into it, a memo, and one loop over the opcodes.
//!
//! A mark is a position in the stack. `floor` is the newest mark: values below it cannot be popped before the mark
//! is, so a malformed file cannot reach below its own containers.
//!
//! The loop has three tiers: runs of opcodes that only push a small value are decoded together (`literals::pushed`);
//! the few other common opcodes of snapshots are handled in the loop; all others are in `step`, `literals` and
//! `containers`.

use std::io::Read;

use super::complaints::quoted;
use super::literals::pushed;
use super::memo::Memo;
use super::source::Source;
use super::value::{Heap, Value};
use super::{opcode as op, text_forms};
use crate::error::Error;

/// C++ writers push a whole list onto the stack before they store it, so this is also the maximum length of such a
/// list.
const DEEPEST_STACK: usize = 1 << 26;
const MOST_MARKS: usize = 1 << 20;
/// Base of the memo's limit. Each entry takes at least two bytes of the file, one to create the value and one to
/// memoize it.
const LEAST_REMEMBERED: u64 = 1024;

/// Errors are large and rare, so they are boxed to keep the loop fast.
pub(super) type Outcome<T> = Result<T, Box<Error>>;

/// The result of a pickle.
pub(crate) struct Product {
    /// The value on top of the stack.
    pub(crate) top: Value,
    /// Length of the pickle.
    pub(crate) length: u64,
}

/// Runs a pickle.
pub(crate) fn run(stream: impl Read, heap: &mut impl Heap) -> Result<Product, Error> {
    let machine = Machine {
        source: Source::new(stream),
        heap,
        stack: Vec::new(),
        floor: 0,
        marks: Vec::new(),
        memo: Memo::default(),
        start: 0,
    };
    machine.run().map_err(|error| *error)
}

pub(super) struct Machine<'a, 'b, H> {
    pub(super) source: Source<'b>,
    pub(super) heap: &'a mut H,
    pub(super) stack: Vec<Value>,
    /// Position of the newest mark.
    pub(super) floor: usize,
    /// Positions of the marks before it.
    marks: Vec<usize>,
    memo: Memo,
    /// Offset of the current opcode.
    pub(super) start: u64,
}

impl<H: Heap> Machine<'_, '_, H> {
    fn run(mut self) -> Outcome<Product> {
        loop {
            if self.source.is_short() {
                self.refill()?;
            }
            self.start = self.source.offset();
            let (opcode, operand) = self.source.peek();
            self.source.advance(1);
            match opcode {
                op::MEMOIZE => {
                    let top = self.top()?;
                    self.memo.push(top);
                    self.push_run();
                }
                op::MARK => {
                    if self.marks.len() >= MOST_MARKS {
                        return Err(self.too_many("open containers", MOST_MARKS));
                    }
                    self.marks.push(self.floor);
                    self.floor = self.stack.len();
                    self.push_run();
                }
                op::SHORT_BINUNICODE => {
                    self.source.advance(1);
                    let text = self.text(operand & 0xff)?;
                    self.stack.push(text);
                }
                op::EMPTY_DICT => self.push_dict()?,
                op::EMPTY_LIST => self.push_list()?,
                op::SETITEMS => {
                    let (start, dict) = self.marked_container()?;
                    self.insert(dict, start)?;
                }
                op::APPENDS => {
                    let (start, list) = self.marked_container()?;
                    self.append(list, start)?;
                }
                op::STOP => {
                    let length = self.source.offset();
                    return self.pop().map(|top| Product { top, length });
                }
                _ => {
                    self.step(opcode, operand)?;
                    self.push_run();
                }
            }
        }
    }

    /// Executes a run of opcodes that only push a number or a memoized value; three quarters of a snapshot are such
    /// runs. Stops at any other opcode, and at operands that need more checks. Called where such a run is likely;
    /// elsewhere `step` handles its first opcode.
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

    /// Reads more data. The limits on stack and memo are also checked here: between two refills, they can grow by at
    /// most one entry per byte of a chunk.
    #[cold]
    fn refill(&mut self) -> Outcome<()> {
        if self.stack.len() > DEEPEST_STACK {
            return Err(self.too_many("values in one container", DEEPEST_STACK));
        }
        let most = self.source.offset() / 2 + LEAST_REMEMBERED;
        if self.memo.count() > most {
            return Err(self.too_many("remembered values so far", most as usize));
        }
        Ok(self.source.refill()?)
    }

    /// Executes opcodes that are rare in snapshots. The opcode's own byte is already consumed.
    fn step(&mut self, opcode: u8, operand: u64) -> Outcome<()> {
        match opcode {
            op::PROTO if operand & 0xff > 5 => {
                let found = format!("protocol {}", operand & 0xff);
                return Err(self.malformed("a pickle protocol from 0 to 5", found));
            }
            op::PROTO => self.source.advance(1),
            // Frames are only a buffering hint.
            op::FRAME => self.source.advance(8),
            op::POP if self.stack.len() > self.floor => drop(self.stack.pop()),
            op::POP => self.floor = self.marks.pop().ok_or_else(|| self.nothing_there())?,
            op::POP_MARK => {
                let start = self.take_mark()?;
                self.stack.truncate(start);
            }
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
            }
            op::PUT | op::BINPUT | op::LONG_BINPUT => {
                let number = self.memo_number(opcode, operand)?;
                let top = self.top()?;
                self.memo.put(number, top);
            }
            op::GET | op::BINGET | op::LONG_BINGET => {
                let number = self.memo_number(opcode, operand)?;
                let value = self.memo.get(number).ok_or_else(|| self.not_remembered(number))?;
                self.stack.push(value);
            }
            op::GLOBAL | op::INST | op::STACK_GLOBAL => return Err(self.asks_to_call(opcode)),
            _ => match self.literal(opcode, operand)? {
                Some(value) => self.stack.push(value),
                None => return self.contain(opcode),
            },
        }
        Ok(())
    }

    fn memo_number(&mut self, opcode: u8, operand: u64) -> Outcome<u64> {
        match opcode {
            op::BINPUT | op::BINGET => {
                self.source.advance(1);
                Ok(operand & 0xff)
            }
            op::LONG_BINPUT | op::LONG_BINGET => {
                self.source.advance(4);
                Ok(operand & 0xffff_ffff)
            }
            _ => {
                let line = self.source.line("a memo number")?;
                let number = text_forms::memo_number(line).ok_or_else(|| quoted(line));
                number.map_err(|found| self.malformed("a memo number", found))
            }
        }
    }

    #[inline]
    pub(super) fn top(&self) -> Outcome<Value> {
        self.stack[self.floor..].last().copied().ok_or_else(|| self.nothing_there())
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Outcome<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    /// Removes the newest mark. Returns where the values above it begin.
    #[inline]
    pub(super) fn take_mark(&mut self) -> Outcome<usize> {
        let start = self.floor;
        match self.marks.pop() {
            Some(before) => {
                self.floor = before;
                Ok(start)
            }
            None => Err(self.malformed("a mark on the stack", "none".to_owned())),
        }
    }
}
