//! Whose recording a file is: the payload of its first frame.

use super::buffer::Buffer;
use super::cursor::Cursor;
use crate::error::Error;

/// Whose recording a file is.
///
/// One moment is given by two clocks: `wall_ns − monotonic_ns` turns the monotonic times of records into dates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The run that the process belongs to: the same in the files of all processes of one `makeroom run`.
    pub run: [u8; 16],
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// The monotonic clock at the same moment.
    pub monotonic_ns: u64,
    /// The process.
    pub pid: u32,
    /// Who started it.
    pub parent_pid: u32,
    /// Bytes of an address in the recorded process.
    pub word_size: u8,
    /// What wrote the file, with its version: `makeroom 0.1.0`.
    pub recorder: Vec<u8>,
    /// The machine.
    pub host: Vec<u8>,
    /// The program file.
    pub executable: Vec<u8>,
    /// Where it was started; empty when not recorded.
    pub working_directory: Vec<u8>,
    /// The command line, word by word.
    pub command_line: Vec<Vec<u8>>,
    /// Fields of a later version, kept as they were.
    pub rest: Vec<u8>,
}

impl Header {
    /// The payload of the header's frame. A command line that would not fit is cut.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Buffer::default();
        bytes.extend(&self.run);
        bytes.extend(&self.wall_ns.to_le_bytes());
        bytes.extend(&self.monotonic_ns.to_le_bytes());
        bytes.extend(&self.pid.to_le_bytes());
        bytes.extend(&self.parent_pid.to_le_bytes());
        bytes.extend(&[self.word_size]);
        for text in [&self.recorder, &self.host, &self.executable, &self.working_directory] {
            bytes.put_text(cut(text, LONGEST_TEXT));
        }
        let mut words: Vec<&[u8]> = Vec::new();
        let mut length = 0;
        for word in &self.command_line {
            length += word.len() + 1;
            if length > LONGEST_COMMAND_LINE {
                break;
            }
            words.push(word);
        }
        bytes.put(words.len() as u64);
        for word in words {
            bytes.put_text(word);
        }
        bytes.extend(&self.rest);
        bytes.into_bytes()
    }

    /// Reads the payload of the header's frame, which lies in the file from `offset` on.
    pub(crate) fn decode(payload: &[u8], offset: u64) -> Result<Self, Error> {
        let mut cursor = Cursor::new(payload, offset);
        let mut header = Self {
            run: cursor.array("a run")?,
            wall_ns: u64::from_le_bytes(cursor.array("a time")?),
            monotonic_ns: u64::from_le_bytes(cursor.array("a time")?),
            pid: u32::from_le_bytes(cursor.array("a process")?),
            parent_pid: u32::from_le_bytes(cursor.array("a process")?),
            word_size: cursor.byte("a word size")?,
            recorder: cursor.text("a recorder")?,
            host: cursor.text("a host")?,
            executable: cursor.text("a program")?,
            working_directory: cursor.text("a directory")?,
            ..Self::default()
        };
        // Every word takes a byte at least, so a count that is too large ends in an error, not in memory.
        for _ in 0..cursor.number("a number of words")? {
            header.command_line.push(cursor.text("a word of the command line")?);
        }
        header.rest = cursor.take_rest().to_vec();
        Ok(header)
    }
}

/// Paths and names are shorter.
const LONGEST_TEXT: usize = 64 << 10;
/// Linux allows 2 MiB for the command line and the environment together.
const LONGEST_COMMAND_LINE: usize = 4 << 20;

fn cut(text: &[u8], length: usize) -> &[u8] {
    text.get(..length).unwrap_or(text)
}
