//! zip: a directory at the end of the file lists the members, each with a header of its own before its contents.
//! Members are stored or deflated; archives and members over 4 GiB have 64-bit fields.

use std::io::{Read as _, SeekFrom};
use std::ops::ControlFlow;

use super::{ReadSeek, Visit, name_text};
use crate::compressed;
use crate::error::Error;
use crate::input::{fill, read_failed};

/// Longest directory: some 200,000 members.
const LONGEST_DIRECTORY: u64 = 32 << 20;
/// The end record has a comment of up to 64 KiB.
const LONGEST_END: u64 = (64 << 10) + 22;
const LARGE: u64 = 0xffff_ffff;

/// A member, as the directory lists it.
struct Listed {
    name: String,
    method: u16,
    is_encrypted: bool,
    packed: u64,
    offset: u64,
}

/// Visits the members of a zip file.
pub(super) fn visit(file: &mut dyn ReadSeek, visit: &mut Visit<'_>) -> Result<(), Error> {
    for member in directory(file)? {
        if member.name.ends_with('/') || member.is_encrypted {
            continue;
        }
        let mut header = [0; 30];
        let at = |cause| read_failed(member.offset, cause);
        file.seek(SeekFrom::Start(member.offset)).map_err(at)?;
        let length = fill(file, &mut header, member.offset)?;
        if length < header.len() || !header.starts_with(b"PK\x03\x04") {
            return Err(Error::Archive {
                offset: member.offset,
                problem: "this is not the header of a zip member",
            });
        }
        // Its name and extra field may differ in length from those in the directory.
        let skipped = u64::from(two(&header, 26)) + u64::from(two(&header, 28));
        file.seek(SeekFrom::Current(skipped.cast_signed())).map_err(at)?;
        let mut packed = file.take(member.packed);
        let flow = match member.method {
            0 => visit(&member.name, &mut packed),
            8 => visit(&member.name, &mut compressed::deflate(packed)),
            _ => ControlFlow::Continue(()),
        };
        if flow.is_break() {
            break;
        }
    }
    Ok(())
}

fn directory(file: &mut dyn ReadSeek) -> Result<Vec<Listed>, Error> {
    let length = file.seek(SeekFrom::End(0)).map_err(|cause| read_failed(0, cause))?;
    let tail_at = length.saturating_sub(LONGEST_END);
    let tail = read_at(file, tail_at, LONGEST_END)?;
    let damaged = |offset| Error::Archive {
        offset,
        problem: "the zip archive has no directory: it is damaged or truncated",
    };
    let end = tail.windows(4).rposition(|window| window == b"PK\x05\x06").ok_or_else(|| damaged(length))?;
    let record = tail.get(end..end + 22).ok_or_else(|| damaged(length))?;
    let (mut size, mut offset) = (u64::from(four(record, 12)), u64::from(four(record, 16)));
    if let Some(locator) = end
        .checked_sub(20)
        .and_then(|at| tail.get(at..at + 20))
        .filter(|locator| locator.starts_with(b"PK\x06\x07"))
    {
        let large = read_at(file, eight(locator, 8), 56)?;
        if large.len() < 56 || !large.starts_with(b"PK\x06\x06") {
            return Err(damaged(length));
        }
        (size, offset) = (eight(&large, 40), eight(&large, 48));
    }
    if size > LONGEST_DIRECTORY {
        return Err(Error::Archive { offset, problem: "the zip archive lists too many members" });
    }
    let bytes = read_at(file, offset, size)?;
    let mut members = Vec::new();
    let mut rest = &bytes[..];
    while rest.starts_with(b"PK\x01\x02") && rest.len() >= 46 {
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(two(rest, at)));
        let Some(fields) = rest.get(46..46 + name + extra) else { break };
        let mut member = Listed {
            name: name_text(&fields[..name]),
            method: two(rest, 10),
            is_encrypted: two(rest, 8) & 1 != 0,
            packed: u64::from(four(rest, 20)),
            offset: u64::from(four(rest, 42)),
        };
        let is_large =
            [four(rest, 24), four(rest, 20), four(rest, 42)].map(|field| u64::from(field) == LARGE);
        enlarge(&mut member, &fields[name..], is_large);
        members.push(member);
        rest = rest.get(46 + name + extra + comment..).unwrap_or(&[]);
    }
    Ok(members)
}

/// Takes 64-bit sizes from the extra field, which has them in this order, each only if its 32-bit field is full.
fn enlarge(member: &mut Listed, extra: &[u8], is_large: [bool; 3]) {
    let mut rest = extra;
    while rest.len() >= 4 {
        let (kind, length) = (two(rest, 0), usize::from(two(rest, 2)));
        let Some(field) = rest.get(4..4 + length) else { return };
        if kind == 1 {
            let mut numbers = field.chunks_exact(8).map(|number| eight(number, 0));
            let [_unpacked, packed, offset] =
                is_large.map(|is_large| if is_large { numbers.next() } else { None });
            member.packed = packed.unwrap_or(member.packed);
            member.offset = offset.unwrap_or(member.offset);
            return;
        }
        rest = &rest[4 + length..];
    }
}

fn read_at(file: &mut dyn ReadSeek, offset: u64, most: u64) -> Result<Vec<u8>, Error> {
    let failed = |cause| read_failed(offset, cause);
    file.seek(SeekFrom::Start(offset)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn number<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    bytes.get(at..at + LENGTH).and_then(|field| field.try_into().ok()).unwrap_or([0; LENGTH])
}

fn two(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}

fn four(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::visit_archive;
    use super::*;

    /// A zip file of one member.
    fn archive(name: &str, contents: &[u8], is_packed: bool) -> Vec<u8> {
        let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(contents).unwrap_or_default();
        let packed = if is_packed { packed.finish().unwrap_or_default() } else { contents.to_vec() };
        let method = if is_packed { 8_u16 } else { 0 };
        let sizes = [packed.len() as u32, contents.len() as u32].map(u32::to_le_bytes).concat();
        let lengths = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
        let mut bytes =
            [&b"PK\x03\x04"[..], &[20, 0, 0, 0], &method.to_le_bytes(), &[0; 8], &sizes, &lengths].concat();
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(&packed);
        let start = bytes.len() as u32;
        bytes.extend(
            [
                &b"PK\x01\x02"[..],
                &[20, 0, 20, 0, 0, 0],
                &method.to_le_bytes(),
                &[0; 8],
                &sizes,
                &lengths,
                &[0; 14],
            ]
            .concat(),
        );
        bytes.extend_from_slice(name.as_bytes());
        let size = bytes.len() as u32 - start;
        let end =
            [&b"PK\x05\x06"[..], &[0; 4], &[1, 0, 1, 0], &size.to_le_bytes(), &start.to_le_bytes(), &[0; 2]];
        bytes.extend(end.concat());
        bytes
    }

    fn read(archive: &[u8]) -> Result<Vec<(String, usize)>, Error> {
        let mut found = Vec::new();
        visit_archive(std::io::Cursor::new(archive), &mut |name, contents| {
            let mut bytes = Vec::new();
            let _ = contents.read_to_end(&mut bytes);
            found.push((name.to_owned(), bytes.len()));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    #[test]
    fn stored_and_deflated_members_are_read() {
        for is_packed in [false, true] {
            let found = read(&archive("dumps/rank3.pickle", &[5; 5000], is_packed)).unwrap_or_default();
            assert_eq!(found, [("dumps/rank3.pickle".to_owned(), 5000)], "{is_packed}");
        }
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_an_error_or_fewer_members() {
        let whole = archive("a.room", &[5; 300], true);
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).map_or(true, |found| found.is_empty()), "{cut}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0xff;
            let _ = read(&changed);
        }
    }
}
