//! Decompresses gzip and zstd streams, with all their members and frames.
//!
//! Damage is detected by checksums, which every gzip member and most zstd frames have. They are compared at the end,
//! so a caller that stops reading earlier must call [`verify`].
//!
//! Both decoders are pure Rust. A [`Ratio`] guard limits each: real snapshots compress by a factor of 10 to 50, so a
//! stream that expands by hundreds is a decompression bomb.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::{DeflateDecoder, MultiGzDecoder};
use makeroom_core::Bytes;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Streams that expand to less than this are never bombs: a short text of one repeated line is harmless.
const UNSUSPICIOUS: u64 = 16 << 20;
const LARGEST_RATIO: u64 = 400;
/// The magic number and the length of a skippable frame.
const SKIPPABLE_HEADER: u64 = 8;

/// The decompressed content of a gzip stream.
pub(crate) fn gzip<'a>(packed: impl Read + 'a) -> Box<dyn Read + 'a> {
    let packed = Counted::new(packed);
    let count = Rc::clone(&packed.count);
    Box::new(Ratio { unpacked: MultiGzDecoder::new(BufReader::new(packed)), packed: count, length: 0 })
}

/// The decompressed content of a member of a zip archive.
pub(crate) fn deflate<'a>(packed: impl Read + 'a) -> Box<dyn Read + 'a> {
    let packed = Counted::new(packed);
    let count = Rc::clone(&packed.count);
    Box::new(Ratio { unpacked: DeflateDecoder::new(BufReader::new(packed)), packed: count, length: 0 })
}

/// The decompressed content of a zstd stream.
pub(crate) fn zstd<'a>(packed: impl Read + 'a) -> Box<dyn Read + 'a> {
    let packed = Counted::new(packed);
    let count = Rc::clone(&packed.count);
    let packed = BufReader::new(packed);
    let frames = ZstdFrames { packed, decoder: FrameDecoder::new(), is_open: false, offset: 0 };
    Box::new(Ratio { unpacked: frames, packed: count, length: 0 })
}

/// Why a stream was rejected; wrapped in an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{packed} of compressed data expands to more than {unpacked}")]
pub(crate) struct Bomb {
    pub(crate) packed: Bytes,
    pub(crate) unpacked: Bytes,
}

/// The content does not match the frame's checksum; wrapped in an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error(
    "the zstd frame that ends at byte {end} of the compressed data has the checksum {given:08x}, but the \
     checksum of its contents is {found:08x}"
)]
struct WrongChecksum {
    end: u64,
    given: u32,
    found: u32,
}

/// Reads the rest of a stream so that its checksums are compared. Returns its length.
pub(crate) fn verify(rest: &mut dyn Read) -> io::Result<u64> {
    io::copy(rest, &mut io::sink())
}

/// Counts the bytes that are read from a stream. Not generic, so that the decompressors are compiled once and not for each type
/// of stream.
struct Counted<'a> {
    stream: Box<dyn Read + 'a>,
    count: Rc<Cell<u64>>,
}

impl<'a> Counted<'a> {
    fn new(stream: impl Read + 'a) -> Self {
        Self { stream: Box::new(stream), count: Rc::default() }
    }
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}

struct Ratio<R> {
    unpacked: R,
    packed: Rc<Cell<u64>>,
    length: u64,
}

impl<R: Read> Read for Ratio<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.unpacked.read(buffer)?;
        self.length += length as u64;
        let packed = self.packed.get();
        if self.length > UNSUSPICIOUS && self.length / LARGEST_RATIO > packed {
            let (packed, unpacked) = (Bytes::new(packed), Bytes::new(self.length));
            return Err(io::Error::other(Bomb { packed, unpacked }));
        }
        Ok(length)
    }
}

struct ZstdFrames<R> {
    packed: R,
    decoder: FrameDecoder,
    is_open: bool,
    /// Start of the current or the next frame in the compressed data.
    offset: u64,
}

impl<R: BufRead> ZstdFrames<R> {
    /// Advances to the next frame; false at the end of the stream.
    fn open_frame(&mut self) -> io::Result<bool> {
        while !self.packed.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.packed) {
                Ok(()) => {
                    self.is_open = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    io::copy(&mut self.packed.by_ref().take(u64::from(length)), &mut io::sink())?;
                    self.offset += SKIPPABLE_HEADER + u64::from(length);
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }

    /// Finishes a frame whose content was read completely.
    fn close_frame(&mut self) -> io::Result<()> {
        self.is_open = false;
        self.offset += self.decoder.bytes_read_from_source();
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(given), Some(found)) if given != found => {
                let error = WrongChecksum { end: self.offset, given, found };
                Err(io::Error::new(io::ErrorKind::InvalidData, error))
            }
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_open && !self.open_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.packed, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            let length = self.decoder.read(buffer)?;
            if length > 0 {
                return Ok(length);
            }
            self.close_frame()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::input::read_failed;

    #[test]
    fn a_little_that_unpacks_to_a_lot_is_given_up() {
        let packed = Rc::new(Cell::new(1000));
        let mut bomb = Ratio { unpacked: io::repeat(b'x'), packed: Rc::clone(&packed), length: 0 };
        let mut buffer = vec![0; 1 << 20];
        let mut read_on = || (0..300).try_for_each(|_| bomb.read(&mut buffer).map(drop));
        let cause = read_on().expect_err("a bomb");
        assert_eq!(
            read_failed(0, cause).to_string(),
            "1000 B of compressed data expands to more than 17.00 MiB"
        );
        packed.set(1 << 30);
        assert!(read_on().is_ok());
        assert!(matches!(read_failed(0, io::Error::other("x")), Error::Read { .. }));
    }
}
