//! Inputs that people pass: compressed, text, empty, other formats.

use std::io::Write;
use std::path::Path;

use crate::support::pickler::{dict, list, pickle, unpacked};
use flate2::Compression;
use flate2::write::GzEncoder;
use makeroom_trace::{Error, Input, open, read};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("it goes into memory");
    encoder.finish().expect("it goes into memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

fn events(bytes: &[u8]) -> usize {
    match read(bytes) {
        Ok(Input::Trace(trace)) => trace.event_count(),
        other => panic!("{:?}", other.map(drop)),
    }
}

fn text(bytes: &[u8]) -> Vec<u8> {
    match read(bytes) {
        Ok(Input::Text(text)) => text,
        other => panic!("{:?}", other.map(drop)),
    }
}

#[test]
fn recordings_are_unpacked_whatever_their_members() {
    let plain = unpacked("seed004");
    let (first, second) = plain.split_at(plain.len() / 3);
    assert_eq!(events(&plain), 400);
    assert_eq!(events(&[gzip(first), gzip(second)].concat()), 400);
    assert_eq!(events(&zstd(&plain)), 400);
    let skippable = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc".to_vec();
    assert_eq!(events(&[skippable.clone(), zstd(first), skippable, zstd(second)].concat()), 400);
    assert_eq!(events(&zstd(&gzip(&plain))), 400);
}

#[test]
fn text_is_handed_back_as_it_is() {
    let log = b"step 1\nRuntimeError: CUDA out of memory. Tried to allocate 1.17 GiB\n".to_vec();
    assert_eq!(text(&log), log);
    assert_eq!(text(&gzip(&log)), log);
    assert_eq!(text(&zstd(&log)), log);
    assert_eq!(text(b"\xff\xfeO\0K\0"), b"OK");
    let many_lines = b"a line of a log\n".repeat(100_000);
    assert_eq!(text(&many_lines).len(), many_lines.len());
}

#[test]
fn a_text_that_is_too_long_is_refused_with_the_way_out() {
    let endless = std::io::Read::take(std::io::repeat(b'x'), (256 << 20) + 1);
    let error = read(endless).map(drop).expect_err("too long");
    assert_eq!(error.to_string(), "this text is longer than 256.00 MiB");
    assert!(error.hint().is_some_and(|hint| hint.contains("tail -n 1000")));
}

#[test]
fn what_is_neither_is_named() {
    for (bytes, message, hint) in [
        (&b""[..], "the input is empty", "killed while writing"),
        (b"PK\x03\x04\x14\0", "this is a zip archive, not a recording or a log", "checkpoint"),
        (
            b"\x7fELF\x02\x01",
            "this is a program or library (ELF), not a recording or a log",
            "PROGRAM 2>&1 | makeroom why -",
        ),
        (b"\x89PNG\r\n", "this is an image (PNG), not a recording or a log", "snapshot"),
        (b"\xfd7zXZ\0\0", "this is xz-compressed, not a recording or a log", "xz -dc FILE | makeroom why -"),
        (
            b"ROOM\x01\x00\x00\x00\xff",
            "this is not a recording or a log: it starts with the bytes 52 4f 4f 4d 01 00 00 00",
            "gzip or zstd",
        ),
    ] {
        let error = read(bytes).map(drop).expect_err("neither");
        assert_eq!(error.to_string(), message);
        assert!(error.hint().is_some_and(|found| found.contains(hint)), "{error}: {:?}", error.hint());
    }
    assert!(matches!(read(&gzip(b"")[..]), Err(Error::Empty)));
    let thrice = gzip(&gzip(&gzip(&gzip(b"x"))));
    assert!(matches!(read(&thrice[..]), Err(Error::OtherFormat { .. })));
}

#[test]
fn files_that_are_not_there_or_not_files() {
    let missing = open(Path::new("no/such/file")).map(drop).expect_err("missing");
    assert!(missing.to_string().starts_with("cannot open no/such/file: "), "{missing}");
    let directory = open(Path::new(env!("CARGO_MANIFEST_DIR"))).map(drop).expect_err("a directory");
    assert!(matches!(directory, Error::Directory { .. }), "{directory}");
}

#[test]
fn damaged_compression_names_the_byte() {
    let mut packed = gzip(&unpacked("seed004"));
    packed.truncate(packed.len() / 2);
    let error = read(&packed[..]).map(drop).expect_err("cut off");
    assert!(matches!(error, Error::Read { offset: 1.., .. }), "{error}");
    assert!(error.hint().is_some_and(|hint| hint.contains("gzip -t")));
}

/// A zstd frame with a raw block and a checksum, which the available encoder does not write.
fn checked_zstd(bytes: &[u8], checksum: u32) -> Vec<u8> {
    let block = (bytes.len() as u32) << 3 | 1;
    let head = [b"\x28\xb5\x2f\xfd\xa4", &(bytes.len() as u32).to_le_bytes()[..], &block.to_le_bytes()[..3]];
    [&head.concat(), bytes, &checksum.to_le_bytes()].concat()
}

#[test]
fn damage_is_told_by_the_checksum_even_behind_the_end_of_a_snapshot() {
    let log = b"RuntimeError: CUDA out of memory.\n";
    assert_eq!(text(&checked_zstd(log, 0x380e_15a2)), log);
    let frames =
        [checked_zstd(log, 0x380e_15a2), checked_zstd(b"RuntimeError: XUDA out of memory.\n", 0x380e_15a2)];
    let error = read(&frames.concat()[..]).map(drop).expect_err("damaged");
    let message = error.to_string();
    assert!(matches!(error, Error::Read { offset: 34.., .. }), "{message}");
    assert!(
        message.contains("ends at byte 100 of the compressed data has the checksum 380e15a2"),
        "{message}"
    );

    let snapshot = pickle(&dict([("segments", list([]))]), crate::support::pickler::Writer::Protocol4);
    let error = read(&checked_zstd(&snapshot, 1)[..]).map(drop).expect_err("damaged");
    assert!(matches!(error, Error::Read { offset: 1.., .. }), "{error}");
    let mut packed = gzip(&unpacked("seed004"));
    let checksum = packed.len() - 8;
    packed[checksum] ^= 1;
    assert!(matches!(read(&packed[..]), Err(Error::Read { offset: 1.., .. })));
}

#[test]
fn a_stream_that_comes_a_byte_at_a_time_is_read_all_the_same() {
    struct Slow<'a>(&'a [u8]);
    impl std::io::Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let length = buffer.len().min(1);
            std::io::Read::read(&mut self.0, &mut buffer[..length])
        }
    }
    for writer in crate::support::pickler::WRITERS {
        let bytes = pickle(&dict([("segments", list([]))]), writer);
        assert!(matches!(read(Slow(&bytes)), Ok(Input::Trace(_))), "{writer:?}");
    }
    assert!(
        matches!(read(Slow(&unpacked("seed001"))), Ok(Input::Trace(trace)) if trace.event_count() == 505)
    );
}
