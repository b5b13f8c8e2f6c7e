//! Explains a log that arrives in pieces, in bounded memory.
//!
//! Up to [`Limits::whole`] the text is kept and explained like any other. A longer one is condensed while it is read:
//!
//! ```text
//! block.rs     cuts the input into blocks of whole lines
//! probe.rs     reads the failures in a block; `makeroom_search::AnchorScanner` finds the blocks that may contain any
//! condense.rs  decides which blocks to keep
//! ```
//!
//! Kept are the start of the log, the lines around failures, the lines before the first failure, where growing
//! memory shows, and the end. Line numbers stay those of the input.

mod block;
mod condense;
mod probe;

use makeroom_explain::Explanation;

use condense::Condenser;

use crate::answer::explain_text;
use crate::searched;

/// How much of a log is kept.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Bytes up to which a log is kept whole.
    whole: usize,
    /// Bytes kept from the start of a condensed log: programs print their configuration first.
    head: usize,
    /// Bytes kept from its end.
    tail: usize,
    /// Bytes kept before and behind the first failure: the text that is searched for settings.
    before: usize,
    behind: usize,
    /// Bytes kept around failures after the first one.
    windows: usize,
}

const LIMITS: Limits = Limits {
    whole: 16 << 20,
    head: searched::HEAD,
    tail: 1 << 20,
    before: searched::BEFORE,
    behind: searched::BEHIND,
    windows: 16 << 20,
};

/// Explains an error text that arrives in pieces. The pieces can be cut anywhere, and the text can have any length.
///
/// ```
/// let mut reader = makeroom_text::TextReader::new();
/// reader.push(b"RuntimeError: CUDA out of mem");
/// reader.push(b"ory. Tried to allocate 2.00 GiB");
/// assert!(reader.finish().request.is_some());
/// ```
#[derive(Debug)]
pub struct TextReader {
    limits: Limits,
    state: State,
}

#[derive(Debug)]
enum State {
    Whole(Vec<u8>),
    Condensed(Box<Condenser>),
}

impl TextReader {
    /// A reader of an empty text.
    pub fn new() -> Self {
        Self::with_limits(LIMITS)
    }

    fn with_limits(limits: Limits) -> Self {
        Self { limits, state: State::Whole(Vec::new()) }
    }

    /// Appends to the text. Bytes that are not UTF-8 are replaced.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.state {
            State::Whole(text) if text.len() + bytes.len() <= self.limits.whole => {
                text.extend_from_slice(bytes);
            }
            State::Whole(text) => {
                let sample = if text.is_empty() { bytes } else { &text[..] };
                let mut condenser = Box::new(Condenser::new(self.limits, sample));
                condenser.push(text);
                condenser.push(bytes);
                self.state = State::Condensed(condenser);
            }
            State::Condensed(condenser) => condenser.push(bytes),
        }
    }

    /// Explains the text.
    pub fn finish(self) -> Explanation {
        match self.state {
            State::Whole(text) => explain_text(&String::from_utf8_lossy(&text)),
            State::Condensed(condenser) => condenser.finish(),
        }
    }
}

impl Default for TextReader {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
