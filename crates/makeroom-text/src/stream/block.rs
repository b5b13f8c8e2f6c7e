//! Cuts a stream of bytes into blocks of whole lines.

use memchr::{memchr2, memchr2_iter, memmem};

/// A block ends after this many lines.
const BLOCK_LINES: usize = 128;
/// A block ends after the line that brings it to this many bytes.
const BLOCK_BYTES: usize = 64 << 10;
/// A line longer than this is cut.
const LONGEST_LINE: usize = 1 << 20;

/// Some whole lines of the input.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The bytes, line ends included.
    pub(super) bytes: Vec<u8>,
    /// The number of the first line in the input, counted from 1. Only `\n` starts a new number.
    pub(super) first_number: usize,
    /// How many lines of the input come before it, counted as [`Block::lines`] is.
    pub(super) first_line: usize,
    /// How many lines it has as a cleaned log counts them: `\r` ends a line too, and empty lines do not count.
    pub(super) lines: usize,
    /// How many bytes of kept lines come before it.
    pub(super) offset: usize,
}

impl Block {
    /// The text, with bytes that are not UTF-8 replaced.
    pub(super) fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }
}

/// How many lines a cleaned log counts in these bytes, the last of which may be open.
pub(super) fn count_lines(bytes: &[u8]) -> usize {
    let (mut lines, mut start) = (0, 0);
    for end in memchr2_iter(b'\n', b'\r', bytes) {
        lines += usize::from(end > start);
        start = end + 1;
    }
    lines + usize::from(start < bytes.len())
}

/// Makes blocks of a stream.
#[derive(Debug)]
pub(super) struct Cutter {
    open: Block,
    /// Where the unfinished line begins in the open block.
    line_start: usize,
    /// How many `\n` the open block has.
    newlines: usize,
    /// The unfinished line is too long: the rest of it is dropped.
    is_dropping: bool,
}

impl Cutter {
    pub(super) fn new() -> Self {
        Self {
            open: Block { first_number: 1, ..Block::default() },
            line_start: 0,
            newlines: 0,
            is_dropping: false,
        }
    }

    /// Appends to the stream and passes on the blocks that are complete.
    pub(super) fn push(&mut self, bytes: &[u8], mut done: impl FnMut(Block)) {
        let mut rest = bytes;
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            self.append(&rest[..at], &mut done);
            self.end_line(rest[at]);
            rest = &rest[at + 1..];
            if self.open.lines >= BLOCK_LINES || self.open.bytes.len() >= BLOCK_BYTES {
                done(self.end_block());
            }
        }
        self.append(rest, &mut done);
    }

    /// The lines that are left at the end of the stream.
    pub(super) fn finish(mut self) -> Option<Block> {
        self.open.lines += usize::from(self.open.bytes.len() > self.line_start);
        (!self.open.bytes.is_empty()).then_some(self.open)
    }

    /// Appends to the unfinished line.
    fn append(&mut self, mut part: &[u8], done: &mut impl FnMut(Block)) {
        while !part.is_empty() && !self.is_dropping {
            let room = LONGEST_LINE - (self.open.bytes.len() - self.line_start);
            let (fits, beyond) = part.split_at(part.len().min(room));
            self.open.bytes.extend_from_slice(fits);
            part = beyond;
            if !part.is_empty() {
                self.cut_line(done);
            }
        }
    }

    /// Cuts a line that is too long: after an escaped line end, which structured logs have, and otherwise for good.
    fn cut_line(&mut self, done: &mut impl FnMut(Block)) {
        let line = &self.open.bytes[self.line_start..];
        let Some(at) = memmem::rfind(line, b"\\n") else {
            self.is_dropping = true;
            return;
        };
        let rest = self.open.bytes.split_off(self.line_start + at + 2);
        self.open.lines += 1;
        done(self.end_block());
        self.open.bytes = rest;
    }

    fn end_line(&mut self, terminator: u8) {
        self.open.lines += usize::from(self.open.bytes.len() > self.line_start);
        self.open.bytes.push(terminator);
        self.newlines += usize::from(terminator == b'\n');
        self.line_start = self.open.bytes.len();
        self.is_dropping = false;
    }

    fn end_block(&mut self) -> Block {
        let next = Block {
            bytes: Vec::with_capacity(self.open.bytes.len().min(BLOCK_BYTES)),
            first_number: self.open.first_number + self.newlines,
            first_line: self.open.first_line + self.open.lines,
            offset: self.open.offset + self.open.bytes.len(),
            lines: 0,
        };
        (self.line_start, self.newlines) = (0, 0);
        std::mem::replace(&mut self.open, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(pieces: &[&[u8]]) -> Vec<Block> {
        let (mut cutter, mut blocks) = (Cutter::new(), Vec::new());
        for piece in pieces {
            cutter.push(piece, |block| blocks.push(block));
        }
        blocks.extend(cutter.finish());
        blocks
    }

    #[test]
    fn blocks_hold_whole_lines_and_know_their_numbers() {
        let lines: Vec<String> = (1..=300).map(|number| format!("line {number}\r\n\n")).collect();
        let text = lines.concat();
        let blocks = blocks(&[text.as_bytes()]);
        assert_eq!(blocks.iter().map(|block| block.lines).collect::<Vec<_>>(), [128, 128, 44]);
        assert_eq!(blocks.iter().map(|block| block.first_line).collect::<Vec<_>>(), [0, 128, 256]);
        // The block ends at the `\r`, so the next one starts with the `\n` of the same line.
        assert_eq!(blocks[1].first_number, 255);
        assert!(blocks[1].text().starts_with("\n\nline 129\r\n"));
        assert_eq!(blocks.iter().flat_map(|block| block.bytes.clone()).collect::<Vec<_>>(), text.as_bytes());
    }

    #[test]
    fn a_long_line_is_clipped_and_the_next_one_has_its_number() {
        let long = vec![b'x'; 5 * LONGEST_LINE];
        let blocks = blocks(&[b"a\n", &long[..1000], &long, b"\nb\n"]);
        assert_eq!(blocks.iter().map(|block| block.bytes.len()).sum::<usize>(), LONGEST_LINE + 5);
        assert_eq!((blocks.last().unwrap().first_number, blocks.last().unwrap().text().as_ref()), (3, "b\n"));
    }

    #[test]
    fn a_long_line_with_escaped_line_ends_is_cut_there() {
        let long = r#"{"log": "step\nloss"}, "#.repeat(200_000);
        let blocks = blocks(&[long.as_bytes(), b"\nb"]);
        assert_eq!(blocks.iter().map(|block| block.bytes.len()).sum::<usize>(), long.len() + 2);
        assert!(blocks[0].bytes.ends_with(b"step\\n"));
        assert!(blocks.iter().all(|block| block.bytes.len() <= LONGEST_LINE + 1));
        let last = blocks.last().unwrap();
        assert_eq!(last.first_number + usize::from(last.bytes.len() > 1), 2);
    }

    #[test]
    fn lines_are_counted_as_a_log_counts_them() {
        for (text, lines) in [("", 0), ("a", 1), ("a\n", 1), ("a\r\n\nb", 2), ("\r\ra\rb\n", 2)] {
            assert_eq!(count_lines(text.as_bytes()), lines, "{text:?}");
            assert_eq!(crate::log::Log::new(text).len(), lines, "{text:?}");
        }
    }
}
