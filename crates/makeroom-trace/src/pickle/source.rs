//! A stream as a window of bytes with known offsets.
//!
//! The buffer holds [`CHUNK`] bytes, whatever the file's size, and makes each opcode with its operand contiguous.
//! Most opcodes have at most eight operand bytes. So the loop over opcodes checks [`Source::is_short`] once per
//! opcode, for nine bytes, then peeks and advances without further checks. Past the end of the stream, the buffer has
//! zeros; an opcode whose operand reaches into them is detected by the next refill.

use std::io::Read;

use crate::error::Error;
use crate::input::read_failed;

const CHUNK: usize = 256 << 10;
/// An opcode and the longest operand of fixed length.
const WINDOW: usize = 9;
/// The longest piece that can be read at once.
pub(super) const LONGEST_PIECE: usize = CHUNK / 4;

/// A stream with look-ahead.
pub(crate) struct Source<'a> {
    stream: Box<dyn Read + 'a>,
    buffer: Vec<u8>,
    /// Position of the next byte in the buffer; up to a window past the end after a truncated opcode.
    position: usize,
    /// End of the buffer's content.
    end: usize,
    /// Offset in the stream of the buffer's first byte.
    base: u64,
    is_exhausted: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(stream: impl Read + 'a) -> Self {
        Self {
            stream: Box::new(stream),
            buffer: vec![0; CHUNK + 2 * WINDOW],
            position: 0,
            end: 0,
            base: 0,
            is_exhausted: false,
        }
    }

    /// Number of bytes consumed.
    #[inline]
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.position as u64
    }

    /// Whether an opcode with its operand might not be completely in the buffer.
    #[inline]
    pub(super) fn is_short(&self) -> bool {
        self.end < self.position + WINDOW
    }

    /// Reads more data, if there is any. Detects if the previous opcode reached past the end of the stream.
    #[cold]
    pub(super) fn refill(&mut self) -> Result<(), Error> {
        match self.overrun() {
            Some(error) => Err(error),
            None => self.fill(WINDOW),
        }
    }

    /// The error if more was consumed than there was.
    pub(super) fn overrun(&self) -> Option<Error> {
        (self.position > self.end).then(|| self.truncated("the rest of the pickle"))
    }

    /// The next byte, and the eight after it as a little-endian number. If [`Source::is_short`], call
    /// [`Source::refill`] first.
    #[inline]
    pub(super) fn peek(&self) -> (u8, u64) {
        match self.buffer[self.position..].first_chunk::<WINDOW>() {
            Some(&[first, ref operand @ ..]) => (first, u64::from_le_bytes(*operand)),
            None => (0, 0),
        }
    }

    /// The bytes in the buffer that are not consumed yet.
    #[inline]
    pub(super) fn available(&self) -> &[u8] {
        self.buffer.get(self.position..self.end).unwrap_or_default()
    }

    /// Consumes bytes after a peek.
    #[inline]
    pub(super) fn advance(&mut self, count: usize) {
        self.position += count;
    }

    /// Consumes a piece of at most [`LONGEST_PIECE`] bytes.
    #[inline]
    pub(super) fn piece(&mut self, length: usize, expected: &'static str) -> Result<&[u8], Error> {
        if self.end < self.position + length {
            self.fill(length)?;
            if self.end < self.position + length {
                return Err(self.truncated(expected));
            }
        }
        let start = self.position;
        self.position += length;
        Ok(&self.buffer[start..start + length])
    }

    /// Skips any number of bytes.
    pub(super) fn skip(&mut self, mut count: u64, expected: &'static str) -> Result<(), Error> {
        while count > 0 {
            let step = count.min(LONGEST_PIECE as u64);
            self.piece(step as usize, expected)?;
            count -= step;
        }
        Ok(())
    }

    /// Consumes a line and returns it without its terminator.
    pub(super) fn line(&mut self, expected: &'static str) -> Result<&[u8], Error> {
        let mut searched = 0;
        if self.position > self.end {
            return Err(self.truncated(expected));
        }
        loop {
            let window = &self.buffer[self.position..self.end];
            if let Some(length) = window[searched..].iter().position(|&byte| byte == b'\n') {
                let start = self.position;
                let end = start + searched + length;
                self.position = end + 1;
                return Ok(&self.buffer[start..end]);
            }
            searched = window.len();
            if searched > LONGEST_PIECE {
                let found = format!("a line of more than {LONGEST_PIECE} bytes");
                return Err(Error::Malformed { offset: self.offset(), expected, found });
            }
            self.fill(searched + 1)?;
            if self.end - self.position <= searched {
                return Err(self.truncated(expected));
            }
        }
    }

    #[cold]
    fn truncated(&self, expected: &'static str) -> Error {
        Error::Truncated { offset: self.base + self.end as u64, expected }
    }

    /// Reads until `count` bytes are in the buffer, or to the end of the stream.
    #[cold]
    fn fill(&mut self, count: usize) -> Result<(), Error> {
        if self.position > self.end {
            return Ok(());
        }
        self.buffer.copy_within(self.position..self.end, 0);
        self.base += self.position as u64;
        self.end -= self.position;
        self.position = 0;
        while self.end < count && !self.is_exhausted {
            match self.stream.read(&mut self.buffer[self.end..CHUNK]) {
                Ok(0) => self.is_exhausted = true,
                Ok(length) => self.end += length,
                Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
                Err(cause) => return Err(read_failed(self.base + self.end as u64, cause)),
            }
        }
        // Stale bytes must not be visible past the end.
        self.buffer[self.end..self.end + 2 * WINDOW].fill(0);
        Ok(())
    }
}
