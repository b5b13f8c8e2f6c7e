//! Detects the format of an input and passes it to its reader.
//!
//! Detection uses the first bytes, never the file name: logs are called `.pickle`, and snapshots come through pipes.
//! Compressed streams are decompressed and detected again. Everything human-readable is text. Other binary data is an
//! error that names the format if it is known.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

use makeroom_core::{Bytes, Trace};

use crate::error::Error;
use crate::{compressed, jax_profile, pickle, rmm_log, room, text, torch_snapshot};

/// The content of an input.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a program has one input, so boxing it saves nothing")]
pub enum Input {
    /// A recording.
    Trace(Trace),
    /// Text, most likely with an error message in it. UTF-16, which PowerShell writes, is converted to UTF-8; other
    /// encodings are unchanged.
    Text(Vec<u8>),
}

/// Reads a file of any supported format.
pub fn open(path: &Path) -> Result<Input, Error> {
    read(open_file(path)?)
}

/// Reads a stream of any supported format to its end.
pub fn read(stream: impl Read) -> Result<Input, Error> {
    Ok(match recognize(Box::new(stream))? {
        Recognized::Trace(trace) => Input::Trace(trace),
        Recognized::Text(stream) => Input::Text(read_text(stream)?),
    })
}

/// Like [`open`], but passes text on in chunks, so that its length is not limited. Returns `None` if the input was
/// text.
pub fn open_streaming(path: &Path, on_text: impl FnMut(&[u8])) -> Result<Option<Trace>, Error> {
    read_streaming(open_file(path)?, on_text)
}

/// Like [`read`], but passes text on in chunks, so that its length is not limited. Returns `None` if the input was
/// text.
pub fn read_streaming(stream: impl Read, mut on_text: impl FnMut(&[u8])) -> Result<Option<Trace>, Error> {
    match recognize(Box::new(stream))? {
        Recognized::Trace(trace) => Ok(Some(trace)),
        Recognized::Text(mut stream) => text::stream(&mut *stream, &mut on_text).map(|()| None),
    }
}

fn open_file(path: &Path) -> Result<File, Error> {
    let failed = |cause| Error::Open { path: path.to_owned(), cause };
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_dir() {
        return Err(Error::Directory { path: path.to_owned() });
    }
    Ok(file)
}

/// A stream of known format. Recordings have been read, text has not.
#[expect(clippy::large_enum_variant, reason = "a program has one input, so boxing it saves nothing")]
enum Recognized<'stream> {
    Trace(Trace),
    Text(Box<dyn Read + 'stream>),
}

/// Not generic: otherwise every crate that reads an input would compile all readers again.
fn recognize<'stream>(mut stream: Box<dyn Read + 'stream>) -> Result<Recognized<'stream>, Error> {
    for layer in 0..=COMPRESSION_LAYERS {
        let head = read_head(&mut stream)?;
        let format = Format::detect(&head);
        let mut whole = Cursor::new(head).chain(stream);
        stream = match format {
            Format::Gzip => compressed::gzip(whole),
            Format::Zstd => compressed::zstd(whole),
            Format::Pickle => {
                let (trace, length) = torch_snapshot::read(whole.by_ref())?;
                // A pickle marks its own end. In a compressed stream, read the rest to check the checksum.
                if layer > 0 {
                    compressed::verify(&mut whole).map_err(|cause| read_failed(length, cause))?;
                }
                return Ok(Recognized::Trace(trace));
            }
            Format::Room => return room::import::read(whole).map(Recognized::Trace),
            Format::RmmLog => return rmm_log::read(whole).map(Recognized::Trace),
            Format::JaxProfile => return jax_profile::read(whole).map(Recognized::Trace),
            Format::Text => return Ok(Recognized::Text(Box::new(whole))),
            Format::Empty => return Err(Error::Empty),
            Format::Other { name, hint } => return Err(Error::OtherFormat { format: name, hint }),
            Format::Unknown => {
                let (head, _) = whole.into_inner();
                return Err(Error::Unrecognised { head: hexadecimal(head.get_ref()) });
            }
        };
    }
    Err(Error::OtherFormat {
        format: "a file compressed more than once",
        hint: "decompress it first, for example with gzip -dk",
    })
}

/// Real files are compressed at most twice, and each layer needs a buffer.
const COMPRESSION_LAYERS: usize = 2;
/// How much to inspect to tell text from binary data.
pub(crate) const HEAD_LENGTH: u64 = 16 << 10;
const LONGEST_TEXT: u64 = 256 << 20;

fn read_head(stream: &mut dyn Read) -> Result<Vec<u8>, Error> {
    let mut head = Vec::new();
    match stream.take(HEAD_LENGTH).read_to_end(&mut head) {
        Ok(_) => Ok(head),
        Err(cause) => Err(read_failed(head.len() as u64, cause)),
    }
}

/// The error for a failed stream; decompression bombs have their own variant.
pub(crate) fn read_failed(offset: u64, cause: std::io::Error) -> Error {
    match cause.get_ref().and_then(|inner| inner.downcast_ref::<compressed::Bomb>()) {
        Some(bomb) => Error::CompressionBomb { packed: bomb.packed, unpacked: bomb.unpacked },
        None => Error::Read { offset, cause },
    }
}

/// Reads from `offset` of a stream until the buffer is full or the stream ends. Returns the number of bytes.
pub(crate) fn fill(stream: &mut dyn Read, buffer: &mut [u8], offset: u64) -> Result<usize, Error> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(read_failed(offset + filled as u64, cause)),
        }
    }
    Ok(filled)
}

fn read_text(stream: impl Read) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    stream
        .take(LONGEST_TEXT + 1)
        .read_to_end(&mut text)
        .map_err(|cause| read_failed(text.len() as u64, cause))?;
    if text.len() as u64 > LONGEST_TEXT {
        return Err(Error::TextTooLong { limit: Bytes::new(LONGEST_TEXT) });
    }
    Ok(text::from_utf16(&text).unwrap_or(text))
}

fn hexadecimal(head: &[u8]) -> String {
    head.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Empty,
    Gzip,
    Zstd,
    Pickle,
    Room,
    RmmLog,
    JaxProfile,
    Text,
    Other { name: &'static str, hint: &'static str },
    Unknown,
}

const NOT_A_RECORDING: &str =
    "pass a .room recording, a PyTorch memory snapshot, an RMM log, a JAX memory profile or an error message";

const CHANGED_ROOM: &str = "a .room recording damaged by a text-mode transfer";
const COPY_AGAIN: &str = "copy it again in binary mode, for example with scp, and compare sha256sum";

/// Formats that people pass by mistake, by magic number.
const OTHER_FORMATS: [(&[u8], &str, &str); 13] = [
    (b"\x8dROOM", CHANGED_ROOM, COPY_AGAIN),
    (b"\rROOM", CHANGED_ROOM, COPY_AGAIN),
    (b"\xc2\x8dROOM", CHANGED_ROOM, COPY_AGAIN),
    (
        b"PK\x03\x04",
        "a zip archive",
        "torch.save() writes zip archives, so this is likely a model checkpoint; a memory snapshot is written by \
         torch.cuda.memory._dump_snapshot(\"run.pickle\")",
    ),
    (
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
        "a model checkpoint of an old PyTorch version",
        "a memory snapshot is written by torch.cuda.memory._dump_snapshot(\"run.pickle\")",
    ),
    (
        b"\x7fELF",
        "a program or library (ELF)",
        "pass the output of the program: PROGRAM 2>&1 | makeroom why -",
    ),
    (b"\x89PNG", "an image (PNG)", NOT_A_RECORDING),
    (b"\xfd7zXZ\0", "xz-compressed", "decompress it first: xz -dc FILE | makeroom why -"),
    (b"BZh", "bzip2-compressed", "decompress it first: bzip2 -dc FILE | makeroom why -"),
    (b"\x04\x22\x4d\x18", "lz4-compressed", "decompress it first: lz4 -dc FILE | makeroom why -"),
    (b"SQLite format 3\0", "an SQLite database", NOT_A_RECORDING),
    (b"\x93NUMPY", "a NumPy array", NOT_A_RECORDING),
    (b"\x89HDF", "an HDF5 file", NOT_A_RECORDING),
];

impl Format {
    fn detect(head: &[u8]) -> Self {
        if head.is_empty() {
            return Self::Empty;
        }
        if head.starts_with(b"\x1f\x8b") {
            return Self::Gzip;
        }
        // A stream may begin with a skippable frame, whose magic number has sixteen variants.
        if head.starts_with(b"\x28\xb5\x2f\xfd")
            || (head.len() >= 4 && head[0] >> 4 == 5 && head[1..4] == *b"\x2a\x4d\x18")
        {
            return Self::Zstd;
        }
        // A recorder that was killed early may have written only a part of the magic number.
        if head.starts_with(&room::MAGIC) || head.len() > 4 && room::MAGIC.starts_with(head) {
            return Self::Room;
        }
        if let Some(&(_, name, hint)) = OTHER_FORMATS.iter().find(|(magic, ..)| head.starts_with(magic)) {
            return Self::Other { name, hint };
        }
        if pickle::is_opening(head) {
            return Self::Pickle;
        }
        if rmm_log::is_header(head.split(|&byte| byte == b'\n').next().unwrap_or(head)) {
            return Self::RmmLog;
        }
        if jax_profile::is_opening(head) {
            return Self::JaxProfile;
        }
        if is_text(head) { Self::Text } else { Self::Unknown }
    }
}

/// Whether the data is human-readable: few control characters and few bytes that are not UTF-8. Logs may contain a
/// few NUL bytes or Latin-1 letters.
fn is_text(head: &[u8]) -> bool {
    if head.starts_with(b"\xff\xfe") || head.starts_with(b"\xfe\xff") {
        return head.len().is_multiple_of(2) || head.len() as u64 == HEAD_LENGTH;
    }
    if text::is_bare_utf16(head) {
        return true;
    }
    let is_control = |byte: &&u8| **byte < 0x20 && !b"\t\n\r\x07\x08\x0c\x1b".contains(byte);
    let controls = head.iter().filter(is_control).count();
    let foreign: usize = head.utf8_chunks().map(|chunk| chunk.invalid().len()).sum();
    controls * 100 <= head.len() && foreign * 10 <= head.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_told_by_their_content() {
        for (head, format) in [
            (&b""[..], Format::Empty),
            (b"\x1f\x8b\x08", Format::Gzip),
            (b"\x28\xb5\x2f\xfd", Format::Zstd),
            (b"\x50\x2a\x4d\x18", Format::Zstd),
            (b"\x80\x04\x95", Format::Pickle),
            (b"}q\x00(X", Format::Pickle),
            (b"(dp0\nVsegments\n", Format::Pickle),
            (b"(lp0\n", Format::Pickle),
            (b"cos\nsystem\n(S'true'\n", Format::Pickle),
            (b"Thread,Time,Action,Pointer,Size,Stream\n", Format::RmmLog),
            (b"\xef\xbb\xbfThread,Time,Action,Pointer,Size,Stream\r\n", Format::RmmLog),
            (b"\x0a\x04\x08\x01\x10\x02", Format::JaxProfile),
            (b"\nTraceback", Format::Text),
            (b"Traceback (most recent call last):\n", Format::Text),
            (b"clear\nls\n(base) user@host:~$ python train.py\n", Format::Text),
            (b"E\0r\0r\0o\0r\0:\0 \x000\0\r\0\n\0", Format::Text),
            (b"E\0r\0r\0o\0\x01\x02\x03\x04\x05\x06\x07\0\0\0", Format::Unknown),
            (b"}quit", Format::Text),
            (b"(draft)", Format::Text),
            (b"(deprecated) p0\n", Format::Text),
            ("Speicher voll: größer als möglich".as_bytes(), Format::Text),
            (b"\x1b[31mRuntimeError\x1b[0m\r\n", Format::Text),
            (b"\xff\xfeh\0i\0", Format::Text),
            (b"\x80\x09", Format::Unknown),
            (b"ROOM\x00\x01\x02\x03", Format::Unknown),
            (b"\x8dROOM\r\n\x1a\x01\0\0\0", Format::Room),
            (b"\x8dROOM\r", Format::Room),
            (b"\x8dROO", Format::Unknown),
            (b"\x00\x01\x02\x03\x90\x91\x92", Format::Unknown),
        ] {
            assert_eq!(Format::detect(head), format, "{:?}", String::from_utf8_lossy(head));
        }
        assert!(matches!(Format::detect(b"PK\x03\x04"), Format::Other { name: "a zip archive", .. }));
        for changed in [&b"\x8dROOM\n\x1a\x01"[..], b"\rROOM\r\n\x1a\x01", b"\xc2\x8dROOM\r\n\x1a"] {
            assert!(
                matches!(Format::detect(changed), Format::Other { name: CHANGED_ROOM, .. }),
                "{changed:x?}"
            );
        }
    }

    #[test]
    fn utf16_becomes_utf8() {
        assert_eq!(read_text(&b"\xff\xfeO\0K\0"[..]).ok(), Some(b"OK".to_vec()));
        assert_eq!(read_text(&b"\xfe\xff\0O\0K"[..]).ok(), Some(b"OK".to_vec()));
        let bare = "CUDA error: 2 – out of memory\r\n".encode_utf16().flat_map(u16::to_le_bytes);
        let bare: Vec<u8> = bare.collect();
        assert_eq!(read_text(&bare[..]).ok(), Some("CUDA error: 2 – out of memory\r\n".into()));
    }
}
