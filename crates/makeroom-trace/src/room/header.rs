//! Whose recording a file is: the payload of its first frame.

use super::varint::{put, put_text};

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
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&self.run);
        bytes.extend_from_slice(&self.wall_ns.to_le_bytes());
        bytes.extend_from_slice(&self.monotonic_ns.to_le_bytes());
        bytes.extend_from_slice(&self.pid.to_le_bytes());
        bytes.extend_from_slice(&self.parent_pid.to_le_bytes());
        bytes.push(self.word_size);
        for text in [&self.recorder, &self.host, &self.executable, &self.working_directory] {
            put_text(&mut bytes, cut(text, LONGEST_TEXT));
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
        put(&mut bytes, words.len() as u64);
        for word in words {
            put_text(&mut bytes, word);
        }
        bytes.extend_from_slice(&self.rest);
        bytes
    }
}

/// Paths and names are shorter.
const LONGEST_TEXT: usize = 64 << 10;
/// Linux allows 2 MiB for the command line and the environment together.
const LONGEST_COMMAND_LINE: usize = 4 << 20;

fn cut(text: &[u8], length: usize) -> &[u8] {
    text.get(..length).unwrap_or(text)
}
