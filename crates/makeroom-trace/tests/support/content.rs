//! Decodes `.room` files into a comparable form, and encodes them again.
#![allow(dead_code, unreachable_pub, reason = "each test compiles its own copy and uses part of it")]

use makeroom_trace::Error;
use makeroom_trace::room::{
    Encoder, Frame, Header, MAGIC, Reader, Record, ThreadNumber, beginning, seal, seal_as,
};

/// A decoded file.
#[derive(Clone, Debug, PartialEq)]
pub struct Content {
    pub version: u32,
    pub header: Header,
    pub frames: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Records { thread: ThreadNumber, records: Vec<Record> },
    Unknown { kind: u8, payload: Vec<u8> },
}

/// Decodes a file. Also returns the number of unread bytes.
pub fn take_apart(bytes: &[u8]) -> Result<(Content, u64), Error> {
    let mut reader = Reader::new(bytes)?;
    let mut content =
        Content { version: reader.version(), header: reader.header().clone(), frames: Vec::new() };
    while let Some(frame) = reader.next_frame()? {
        content.frames.push(match frame {
            Frame::Records(records) => {
                Part::Records { thread: records.thread(), records: records.collect::<Result<_, _>>()? }
            }
            Frame::Unknown { kind, payload } => Part::Unknown { kind, payload: payload.to_vec() },
            other => panic!("{other:?}"),
        });
    }
    let unread = reader.unread().map_or(0, |unread| {
        assert_eq!(unread.offset + unread.bytes.get(), bytes.len() as u64);
        unread.bytes.get()
    });
    Ok((content, unread))
}

/// Encodes a file.
pub fn put_together(content: &Content) -> Vec<u8> {
    let mut bytes = beginning(&content.header);
    bytes[MAGIC.len()..MAGIC.len() + 4].copy_from_slice(&content.version.to_le_bytes());
    for frame in &content.frames {
        match frame {
            Part::Records { thread, records } => {
                let mut encoder = Encoder::new(*thread, Vec::new());
                for record in records {
                    encoder.record(record);
                }
                assert!(seal(encoder.bytes(), &mut bytes));
            }
            Part::Unknown { kind, payload } => assert!(seal_as(*kind, payload, &mut bytes)),
        }
    }
    bytes
}

/// Reads a golden file.
pub fn golden(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a golden file with its expected content, in both directions. To create a new file, set `MAKEROOM_GOLDEN`
/// to the directory of golden files; existing ones are never changed.
pub fn check_golden(name: &str, expected: &Content, unread: u64) {
    let written = put_together(expected);
    if let Some(directory) = std::env::var_os("MAKEROOM_GOLDEN") {
        let path = std::path::Path::new(&directory).join(name);
        if !path.exists() {
            let zeros = vec![0; unread as usize];
            std::fs::write(path, [written.as_slice(), &zeros].concat()).expect("the folder is there");
        }
    }
    let bytes = golden(name);
    let (content, left) = take_apart(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(&content, expected, "{name}");
    assert_eq!(left, unread, "{name}");
    assert_eq!(written, bytes[..bytes.len() - unread as usize], "{name}");
}
