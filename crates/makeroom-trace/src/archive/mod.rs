//! Reads the files in an archive one after the other, without unpacking it: tar, plain or compressed with gzip or zstd,
//! and zip.
//!
//! Archives are not trusted. Nothing is written, so a name such as `../x` is only a name; sizes are taken from the data
//! and not from headers; and a member that expands too much is an error like any other compressed stream.

mod tar;
mod zip;

use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;

use crate::compressed;
use crate::error::Error;
use crate::input::{fill, read_failed};

/// Longest name of a member; longer ones are cut.
const LONGEST_NAME: usize = 1024;

/// What to do with a member: its name, and its contents.
pub type Visit<'visit> = dyn FnMut(&str, &mut dyn Read) -> ControlFlow<()> + 'visit;

/// Whether a file's name is that of an archive.
pub fn is_archive_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip"].iter().any(|end| name.ends_with(end))
}

/// Calls `visit` with every regular file in an archive, in order, until it breaks off.
pub fn visit_archive(mut file: impl Read + Seek, visit: &mut Visit<'_>) -> Result<(), Error> {
    visit_file(&mut file, visit)
}

/// A file that can be read at any offset.
trait ReadSeek: Read + Seek {}

impl<F: Read + Seek> ReadSeek for F {}

/// Not generic: otherwise every crate that reads an archive would compile the decompressors again.
fn visit_file(file: &mut dyn ReadSeek, visit: &mut Visit<'_>) -> Result<(), Error> {
    let mut head = [0; 4];
    let length = fill(file, &mut head, 0)?;
    file.seek(SeekFrom::Start(0)).map_err(|cause| read_failed(0, cause))?;
    match &head[..length] {
        [] => Err(Error::Empty),
        [b'P', b'K', ..] => zip::visit(file, visit),
        [0x1f, 0x8b, ..] => tar::visit(&mut *compressed::gzip(file), visit),
        [0x28, 0xb5, 0x2f, 0xfd] => tar::visit(&mut *compressed::zstd(file), visit),
        _ => tar::visit(file, visit),
    }
}

/// A member's name as text, without what a terminal would obey.
fn name_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()).min(LONGEST_NAME);
    String::from_utf8_lossy(&bytes[..end]).chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_told_by_their_names() {
        for name in ["a.tar", "dumps.TAR.GZ", "x.tgz", "x.tar.zst", "x.zip"] {
            assert!(is_archive_name(name), "{name}");
        }
        for name in ["a.room", "a.gz", "tar", "a.pickle.gz"] {
            assert!(!is_archive_name(name), "{name}");
        }
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(name_text(b"a/\x1b[31mb\0rest"), "a/[31mb");
        assert_eq!(name_text(&[b'x'; 5000]).len(), LONGEST_NAME);
    }
}
