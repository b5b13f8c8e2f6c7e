//! Reads a file frame by frame, up to the last complete one.
//!
//! Only one frame is in memory, and no more of it than the file contains. A killed process or a full disk leaves a
//! partial frame, and a preallocated file ends in zeros: reading stops there, and [`Reader::unread`] returns the
//! rest. In a frame with a valid checksum, invalid content is an error, because it was written that way.

use std::io::{BufReader, Read};

use makeroom_core::Bytes;

use super::checksum::checksum;
use super::decoder::Records;
use super::header::Header;
use super::layout::{FRAME_HEAD, HEADER_FRAME, LONGEST_PAYLOAD, MAGIC, RECORDS_FRAME};
use crate::error::Error;
use crate::input::{fill, read_failed};

/// Reads one file.
#[derive(Debug)]
pub struct Reader<R> {
    stream: BufReader<R>,
    /// Number of bytes read.
    offset: u64,
    version: u32,
    header: Header,
    payload: Vec<u8>,
    unread: Option<Unread>,
    is_at_end: bool,
    /// The offset after the last complete frame.
    complete: u64,
}

/// One frame of a file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Frame<'reader> {
    /// Records of one thread.
    Records(Records<'reader>),
    /// A frame of a later version, to be preserved with [`seal_as`](super::seal_as).
    Unknown {
        /// Its kind.
        kind: u8,
        /// Its content.
        payload: &'reader [u8],
    },
}

/// The rest of a file that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its offset.
    pub offset: u64,
    /// Its length.
    pub bytes: Bytes,
}

/// The result of reading a frame.
enum Next {
    Whole { kind: u8 },
    Nothing,
    Torn,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a file.
    pub fn new(stream: R) -> Result<Self, Error> {
        let mut reader = Self {
            stream: BufReader::with_capacity(64 << 10, stream),
            offset: 0,
            version: 0,
            header: Header::default(),
            payload: Vec::new(),
            unread: None,
            is_at_end: false,
            complete: 0,
        };
        let mut start = [0; MAGIC.len() + 4];
        let length = reader.fill(&mut start)?;
        let (magic, version) = start.split_at(MAGIC.len());
        if length >= MAGIC.len() && magic != MAGIC {
            let found = format!("{magic:02x?}");
            return Err(Error::Malformed {
                offset: 0,
                expected: "the beginning of a .room recording",
                found,
            });
        }
        if length < start.len() {
            return Err(Error::NothingRecorded { offset: reader.offset });
        }
        reader.version = version.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        let header_at = reader.offset + FRAME_HEAD as u64;
        match reader.next()? {
            Next::Whole { kind: HEADER_FRAME } => {
                reader.header = Header::decode(&reader.payload, header_at)?;
                Ok(reader)
            }
            Next::Whole { kind } => Err(Error::Malformed {
                offset: header_at - 1,
                expected: "the header of a recording",
                found: format!("a frame of kind {kind}"),
            }),
            Next::Nothing | Next::Torn => Err(Error::NothingRecorded { offset: reader.offset }),
        }
    }

    /// Continues with the frames from `offset` on, which is [`Self::complete`] or the start of a later frame. `stream`
    /// is the same file, starting there.
    pub fn resume<S: Read>(self, stream: S, offset: u64) -> Reader<S> {
        Reader {
            stream: BufReader::with_capacity(64 << 10, stream),
            offset,
            version: self.version,
            header: self.header,
            payload: self.payload,
            unread: None,
            is_at_end: false,
            complete: offset,
        }
    }

    /// The offset after the last complete frame. A file that is still written may continue there.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// The version that wrote the file. Versions only add things, so readers rarely need it.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next complete frame; `None` if there are no more.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Error> {
        if self.is_at_end {
            return Ok(None);
        }
        let offset = self.offset;
        match self.next()? {
            Next::Whole { kind: RECORDS_FRAME } => Records::new(&self.payload, offset + FRAME_HEAD as u64)
                .map(|records| Some(Frame::Records(records))),
            Next::Whole { kind } => Ok(Some(Frame::Unknown { kind, payload: &self.payload })),
            Next::Nothing => {
                self.is_at_end = true;
                Ok(None)
            }
            Next::Torn => {
                self.is_at_end = true;
                self.skip_to_end()?;
                self.unread = Some(Unread { offset, bytes: Bytes::new(self.offset - offset) });
                Ok(None)
            }
        }
    }

    /// The rest after the last complete frame. Known once [`Self::next_frame`] has returned `None`.
    pub fn unread(&self) -> Option<Unread> {
        self.unread
    }

    /// Reads a frame into `payload`.
    fn next(&mut self) -> Result<Next, Error> {
        let mut head = [0; FRAME_HEAD];
        match self.fill(&mut head)? {
            0 => return Ok(Next::Nothing),
            FRAME_HEAD => {}
            _ => return Ok(Next::Torn),
        }
        let [length @ .., _, _, _, _, kind] = head;
        let [_, _, _, _, expected @ .., _] = head;
        let length = u32::from_le_bytes(length) as usize;
        if length > LONGEST_PAYLOAD {
            return Ok(Next::Torn);
        }
        self.payload.clear();
        let read = self.stream.by_ref().take(length as u64).read_to_end(&mut self.payload);
        let before = self.offset;
        self.offset += self.payload.len() as u64;
        read.map_err(|cause| read_failed(before, cause))?;
        let is_intact =
            self.payload.len() == length && checksum(kind, &self.payload) == u32::from_le_bytes(expected);
        if !is_intact {
            return Ok(Next::Torn);
        }
        self.complete = self.offset;
        Ok(Next::Whole { kind })
    }

    /// Reads until the buffer is full or the stream ends.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let filled = fill(&mut self.stream, buffer, self.offset)?;
        self.offset += filled as u64;
        Ok(filled)
    }

    fn skip_to_end(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 4096];
        while self.fill(&mut buffer)? > 0 {}
        Ok(())
    }
}
