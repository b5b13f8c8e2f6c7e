//! tar: a header of 512 bytes, then the contents, padded to 512 bytes. Names over 100 bytes are in the header's prefix,
//! in a member of GNU tar's own (`L`) or in a pax header (`x`).

use std::io::Read;
use std::ops::ControlFlow;

use super::{Visit, name_text};
use crate::error::Error;
use crate::input::{fill, read_failed};

const BLOCK: usize = 512;
/// Longest extended header.
const LONGEST_HEADER: u64 = 64 << 10;

/// Visits the members of a tar stream.
pub(super) fn visit(stream: &mut dyn Read, visit: &mut Visit<'_>) -> Result<(), Error> {
    let mut offset = 0_u64;
    let mut long_name: Option<String> = None;
    loop {
        let mut header = [0; BLOCK];
        let length = fill(stream, &mut header, offset)?;
        if length == 0 || header.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        if length < BLOCK || !is_sound(&header) {
            return Err(Error::Archive { offset, problem: "this is not the header of a tar member" });
        }
        offset += BLOCK as u64;
        let size = number(&header[124..136])
            .ok_or(Error::Archive { offset, problem: "the size of a tar member is not a number" })?;
        let mut contents = stream.take(size);
        let mut flow = ControlFlow::Continue(());
        match header[156] {
            b'L' => long_name = Some(name_text(&extended(&mut contents, offset)?)),
            b'x' => long_name = pax_path(&extended(&mut contents, offset)?).or(long_name),
            b'0' | 0 | b'7' => {
                let name = long_name.take().unwrap_or_else(|| header_name(&header));
                flow = visit(&name, &mut contents);
            }
            // Directories, links and devices have no contents of interest.
            _ => long_name = None,
        }
        if flow.is_break() {
            return Ok(());
        }
        // The rest of the member, which the visitor may not have read, and the padding.
        let left = contents.limit() + size.next_multiple_of(BLOCK as u64).saturating_sub(size);
        let skipped = std::io::copy(&mut stream.take(left), &mut std::io::sink());
        let skipped = skipped.map_err(|cause| read_failed(offset, cause))?;
        offset = offset.saturating_add(size.next_multiple_of(BLOCK as u64));
        if skipped < left {
            return Err(Error::Archive { offset, problem: "the archive ends inside a member" });
        }
    }
}

fn extended(contents: &mut dyn Read, offset: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    contents.take(LONGEST_HEADER).read_to_end(&mut bytes).map_err(|cause| read_failed(offset, cause))?;
    Ok(bytes)
}

/// The sum of the header's bytes, with spaces in place of the sum itself.
fn is_sound(header: &[u8; BLOCK]) -> bool {
    let sum: u64 = header
        .iter()
        .enumerate()
        .map(|(at, &byte)| u64::from(if (148..156).contains(&at) { b' ' } else { byte }))
        .sum();
    number(&header[148..156]) == Some(sum)
}

/// An octal number, or a binary one if the first bit is set. Larger than any file: `None`.
fn number(field: &[u8]) -> Option<u64> {
    if field.first().is_some_and(|byte| byte & 0x80 != 0) {
        let value = field
            .iter()
            .skip(1)
            .try_fold(0_u64, |value, &byte| value.checked_mul(256)?.checked_add(u64::from(byte)));
        return value.filter(|&value| i64::try_from(value).is_ok());
    }
    let digits = field.iter().copied().skip_while(|&byte| byte == b' ').take_while(u8::is_ascii_digit);
    digits
        .into_iter()
        .try_fold(0_u64, |value, digit| (digit < b'8').then(|| value * 8 + u64::from(digit - b'0')))
}

fn header_name(header: &[u8; BLOCK]) -> String {
    let name = name_text(&header[..100]);
    let prefix = if &header[257..262] == b"ustar" { name_text(&header[345..500]) } else { String::new() };
    if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
}

/// The `path` of a pax header, whose records are `LENGTH KEY=VALUE\n`.
fn pax_path(bytes: &[u8]) -> Option<String> {
    let mut rest = bytes;
    while let Some(space) = rest.iter().position(|&byte| byte == b' ') {
        let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let record = rest.get(space + 1..length)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(name_text(path.strip_suffix(b"\n").unwrap_or(path)));
        }
        rest = &rest[length..];
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::super::visit_archive;
    use super::*;

    fn member(name: &str, kind: u8, contents: &[u8]) -> Vec<u8> {
        let mut header = [0_u8; BLOCK];
        header[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
        header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
        header[156] = kind;
        header[257..262].copy_from_slice(b"ustar");
        header[148..156].fill(b' ');
        let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
        header[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
        let mut bytes = header.to_vec();
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    fn read(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut found = Vec::new();
        visit_archive(Cursor::new(archive), &mut |name, contents| {
            let mut bytes = Vec::new();
            assert!(contents.read_to_end(&mut bytes).is_ok());
            found.push((name.to_owned(), bytes));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    #[test]
    fn members_come_with_long_names_and_directories_do_not() {
        let long = format!("{}/rank-3.room", "d".repeat(200));
        let record = |length: usize| format!("{length} path=pax/é.log\n");
        let pax = record(record(10).len());
        let archive = [
            member("dir/", b'5', b""),
            member("a.room", b'0', b"one"),
            member("././@LongLink", b'L', format!("{long}\0").as_bytes()),
            member("cut", b'0', b""),
            member("PaxHeader", b'x', pax.as_bytes()),
            member("e.log", b'0', &[7; 600]),
            vec![0; 1024],
        ]
        .concat();
        let found = read(&archive).unwrap_or_default();
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.room", long.as_str(), "pax/é.log"]);
        assert_eq!((found[0].1.as_slice(), found[2].1.len()), (&b"one"[..], 600));
    }

    #[test]
    fn damaged_archives_are_errors() {
        let mut archive = member("a.room", b'0', b"one");
        archive[3] ^= 1;
        assert!(matches!(read(&archive), Err(Error::Archive { .. })));
        let cut = &member("a.room", b'0', &[1; 2000])[..900];
        assert!(matches!(read(cut), Err(Error::Archive { .. })));
        assert!(matches!(read(b""), Err(Error::Empty)));
    }

    #[test]
    fn a_visitor_may_leave_contents_unread_and_break_off() {
        let archive =
            [member("a", b'0', &[1; 700]), member("b", b'0', b"x"), member("c", b'0', b"x")].concat();
        let mut names = Vec::new();
        let visited = visit_archive(Cursor::new(&archive), &mut |name, _| {
            names.push(name.to_owned());
            if names.len() == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(visited.is_ok());
        assert_eq!(names, ["a", "b"]);
    }
}
