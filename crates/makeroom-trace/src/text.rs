//! Converts text to UTF-8: PowerShell writes UTF-16, with and without a byte order mark.

use std::io::Read;

use crate::error::Error;
use crate::input::{HEAD_LENGTH, read_failed};

/// Minimum number of characters to detect UTF-16 without a byte order mark: in less, alternating zeros may be chance.
const LEAST_BARE_UTF16: usize = 8;
/// Chunk size.
const PIECE: usize = 256 << 10;

/// Reads text to its end and passes it on in chunks. UTF-16 becomes UTF-8; other encodings are unchanged.
pub(crate) fn stream(stream: &mut dyn Read, on_text: &mut dyn FnMut(&[u8])) -> Result<(), Error> {
    let mut offset = 0;
    let mut piece = vec![0; PIECE];
    // The head decides the encoding, so it must be complete before anything is passed on.
    let mut filled = 0;
    while filled < HEAD_LENGTH as usize {
        match read(stream, &mut piece[filled..], offset)? {
            0 => break,
            length => (filled, offset) = (filled + length, offset + length as u64),
        }
    }
    let mut decoder = Utf16::detect(&piece[..filled]);
    loop {
        match &mut decoder {
            Some(decoder) => on_text(decoder.decode(&piece[..filled]).as_bytes()),
            None => on_text(&piece[..filled]),
        }
        filled = read(stream, &mut piece, offset)?;
        offset += filled as u64;
        if filled == 0 {
            break;
        }
    }
    if let Some(decoder) = decoder {
        on_text(decoder.finish().as_bytes());
    }
    Ok(())
}

fn read(stream: &mut dyn Read, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result.map_err(|cause| read_failed(offset, cause)),
        }
    }
}

/// Converts UTF-16 to UTF-8; `None` if the text is not UTF-16.
pub(crate) fn from_utf16(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoder = Utf16::detect(text)?;
    let mut plain = decoder.decode(text);
    plain.push_str(&decoder.finish());
    Some(plain.into_bytes())
}

/// Decodes UTF-16 that arrives in chunks.
struct Utf16 {
    to_unit: fn([u8; 2]) -> u16,
    /// Whether the byte order mark is still to come.
    has_mark: bool,
    /// The start of a character that is incomplete so far.
    rest: Vec<u8>,
}

impl Utf16 {
    /// The decoder for a text that starts like this, if it is UTF-16.
    fn detect(text: &[u8]) -> Option<Self> {
        let (to_unit, has_mark): (fn([u8; 2]) -> u16, bool) = match text {
            [0xff, 0xfe, ..] => (u16::from_le_bytes, true),
            [0xfe, 0xff, ..] => (u16::from_be_bytes, true),
            _ if is_bare_utf16(&text[..text.len().min(HEAD_LENGTH as usize)]) => (u16::from_le_bytes, false),
            _ => return None,
        };
        Some(Self { to_unit, has_mark, rest: Vec::new() })
    }

    fn decode(&mut self, piece: &[u8]) -> String {
        let piece = if std::mem::take(&mut self.has_mark) { &piece[2..] } else { piece };
        self.rest.extend_from_slice(piece);
        let (pairs, _) = self.rest.as_chunks::<2>();
        let mut units: Vec<u16> = pairs.iter().map(|&pair| (self.to_unit)(pair)).collect();
        // The other half of a surrogate pair is in the next chunk.
        units.pop_if(|last| (0xd800..0xdc00).contains(last));
        self.rest.drain(..units.len() * 2);
        String::from_utf16_lossy(&units)
    }

    /// The replacement for an incomplete character at the end.
    fn finish(self) -> String {
        if self.rest.len() >= 2 { char::REPLACEMENT_CHARACTER.to_string() } else { String::new() }
    }
}

/// Whether this is little-endian UTF-16 without a byte order mark: nearly all odd bytes are zero, and nearly all even
/// ones are readable.
pub(crate) fn is_bare_utf16(head: &[u8]) -> bool {
    let (pairs, rest) = head.as_chunks::<2>();
    let is_readable = |byte: u8| (0x20..0x7f).contains(&byte) || b"\t\n\r\x1b".contains(&byte);
    let readable = pairs.iter().filter(|pair| pair[1] == 0 && is_readable(pair[0])).count();
    pairs.len() >= LEAST_BARE_UTF16 && rest.is_empty() && readable * 20 >= pairs.len() * 19
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a few bytes per read, as a pipe may do.
    struct Slow<'text>(&'text [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = buffer.len().min(7).min(self.0.len());
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn streamed(text: &[u8]) -> Vec<u8> {
        let mut streamed = Vec::new();
        stream(&mut Slow(text), &mut |piece| streamed.extend_from_slice(piece)).ok().unwrap_or_default();
        streamed
    }

    #[test]
    fn a_stream_is_passed_on_as_utf8() {
        let text = "CUDA error: 2 – out of memory 🙂\r\n".repeat(2000);
        let little: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(streamed(text.as_bytes()), text.as_bytes());
        assert_eq!(streamed(&[b"\xff\xfe", &little[..]].concat()), text.as_bytes());
        assert_eq!(streamed(&[b"\xfe\xff", &big[..]].concat()), text.as_bytes());
        let cut = &little[..little.len() - 6];
        assert_eq!(
            streamed(&[b"\xff\xfe", cut].concat()),
            [&text.as_bytes()[..text.len() - 6], "\u{fffd}".as_bytes()].concat()
        );
        assert_eq!(streamed(b"caf\xe9\n"), b"caf\xe9\n");
    }
}
