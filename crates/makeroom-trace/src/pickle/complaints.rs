//! The machine's errors, each with the offset of the opcode at fault.
#![expect(clippy::unnecessary_box_returns, reason = "the machine's results contain boxed errors")]

use super::machine::Machine;
use super::opcode as op;
use super::value::{Fault, Heap, Value};
use crate::error::Error;

/// How much of the file's text to quote in a message.
const LONGEST_QUOTE: usize = 60;

/// Text from the file, in quotes, for a message.
pub(super) fn quoted(text: &[u8]) -> String {
    let shown = &text[..text.len().min(LONGEST_QUOTE)];
    let dots = if shown.len() < text.len() { "…" } else { "" };
    format!("`{}{dots}`", String::from_utf8_lossy(shown).escape_debug())
}

impl<H: Heap> Machine<'_, '_, H> {
    #[cold]
    pub(super) fn malformed(&self, expected: &'static str, found: String) -> Box<Error> {
        // Past the end of the stream, the buffer reads as zeros. The actual error is then the truncation.
        let error = self.source.overrun().unwrap_or(Error::Malformed { offset: self.start, expected, found });
        Box::new(error)
    }

    #[cold]
    pub(super) fn nothing_there(&self) -> Box<Error> {
        self.malformed("a value on the stack", "none".to_owned())
    }

    #[cold]
    pub(super) fn not_remembered(&self, number: u64) -> Box<Error> {
        self.malformed("a known memo number", format!("number {number}"))
    }

    #[cold]
    pub(super) fn unknown(&self, opcode: u8) -> Box<Error> {
        self.malformed("a pickle opcode", format!("the byte 0x{opcode:02x}"))
    }

    #[cold]
    pub(super) fn too_many(&self, what: &'static str, limit: usize) -> Box<Error> {
        Box::new(Error::TooMany { offset: self.start, what, limit: limit as u64 })
    }

    #[cold]
    pub(super) fn fault(&self, fault: Fault) -> Box<Error> {
        let (expected, found) = match fault {
            Fault::NotAList => ("a list to append to", "something else"),
            Fault::NotADict => ("a dict to put keys into", "something else"),
            Fault::Changed => {
                ("data without cycles", "a change to a container that is already part of another")
            }
            Fault::TooMany(limit) => return self.too_many(limit.what, limit.count),
        };
        self.malformed(expected, found.to_owned())
    }

    /// The error for an opcode that looks up a callable by name.
    pub(super) fn asks_to_call(&mut self, opcode: u8) -> Box<Error> {
        let name = match opcode {
            op::STACK_GLOBAL => match self.stack[self.floor..] {
                [.., Value::Text(module), Value::Text(name)] => {
                    Some(format!("{}.{}", self.heap.text_of(module), self.heap.text_of(name)))
                }
                _ => None,
            },
            _ => self.name_in_lines(),
        };
        let callable = name.map_or_else(|| "an unnamed callable".to_owned(), |name| quoted(name.as_bytes()));
        self.refused(callable)
    }

    /// The error for an opcode that would call something.
    #[cold]
    pub(super) fn refused(&self, callable: impl Into<String>) -> Box<Error> {
        Box::new(Error::AsksToCall { callable: callable.into(), offset: self.start })
    }

    fn name_in_lines(&mut self) -> Option<String> {
        let module = String::from_utf8_lossy(self.source.line("a module").ok()?).into_owned();
        let name = String::from_utf8_lossy(self.source.line("a name").ok()?);
        Some(format!("{module}.{name}"))
    }
}
