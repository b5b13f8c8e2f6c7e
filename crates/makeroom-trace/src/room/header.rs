//! The header: the payload of a file's first frame.

use super::buffer::Buffer;
use super::cursor::Cursor;
use crate::error::Error;

/// Identifies the process that a file records.
///
/// The same instant is given on two clocks: `wall_ns − monotonic_ns` converts the monotonic times of records to
/// dates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// ID of the run: the same in the files of all processes of one `makeroom run`.
    pub run: [u8; 16],
    /// Nanoseconds since 1970.
    pub wall_ns: u64,
    /// The monotonic clock at the same instant.
    pub monotonic_ns: u64,
    /// PID.
    pub pid: u32,
    /// PID of the parent.
    pub parent_pid: u32,
    /// Size of an address in bytes.
    pub word_size: u8,
    /// Name and version of the recorder: `makeroom 0.1.0`.
    pub recorder: Vec<u8>,
    /// Host name.
    pub host: Vec<u8>,
    /// Path of the executable.
    pub executable: Vec<u8>,
    /// Working directory at the start; empty if not recorded.
    pub working_directory: Vec<u8>,
    /// The command line, one entry per argument.
    pub command_line: Vec<Vec<u8>>,
    /// Fields of a later version, unchanged.
    pub rest: Vec<u8>,
}

impl Header {
    /// The payload of the header's frame. A command line that does not fit is truncated.
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

    /// Decodes the payload of the header's frame, whose offset in the file is `offset`.
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
        // Each argument takes at least one byte, so an excessive count ends in an error before it exhausts memory.
        for _ in 0..cursor.number("the number of command-line arguments")? {
            header.command_line.push(cursor.text("a command-line argument")?);
        }
        header.rest = cursor.take_rest().to_vec();
        Ok(header)
    }
}

/// Maximum length of a path or name.
const LONGEST_TEXT: usize = 64 << 10;
/// Linux allows 2 MiB for the command line and the environment together.
const LONGEST_COMMAND_LINE: usize = 4 << 20;

fn cut(text: &[u8], length: usize) -> &[u8] {
    text.get(..length).unwrap_or(text)
}
