//! Reads the functions of an ELF file, to name addresses.
//!
//! Files are read, not mapped: replacing one while the program runs must not crash it. Every offset comes from the
//! file and is checked by the read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use crate::files;
use crate::notices::{Notice, raise};

/// Larger tables are not read.
const LARGEST_TABLE: u64 = 256 << 20;
const LONGEST_NAME: usize = 4096;

const SYMBOL_TABLE: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const LOAD: u32 = 1;

/// A function's address range, and the file offset of its name.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    size: u64,
    name: u64,
}

/// The parts of an ELF file that are needed.
#[derive(Debug)]
pub(crate) struct Elf {
    /// Loadable segments: file offset, length, address.
    segments: Vec<(u64, u64, u64)>,
    /// Functions by ascending address.
    functions: Vec<Entry>,
}

impl Elf {
    /// Reads the tables of a 64-bit little-endian file.
    pub(crate) fn open(path: &[u8]) -> Option<Self> {
        let file = open(path)?;
        let head = read(&file, 0, 64)?;
        if head.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let segments = table(&file, number(&head, 32, 8)?, number(&head, 54, 2)?, number(&head, 56, 2)?)?
            .iter()
            .filter(|segment| number(segment, 0, 4) == Some(u64::from(LOAD)))
            .filter_map(|segment| {
                Some((number(segment, 8, 8)?, number(segment, 32, 8)?, number(segment, 16, 8)?))
            })
            .collect();
        let sections = table(&file, number(&head, 40, 8)?, number(&head, 58, 2)?, number(&head, 60, 2)?)?;
        let mut functions = Vec::new();
        for section in &sections {
            let kind = number(section, 4, 4)? as u32;
            if matches!(kind, SYMBOL_TABLE | DYNAMIC_SYMBOLS) {
                let names = sections.get(number(section, 40, 4)? as usize)?;
                add_functions(&file, section, number(names, 24, 8)?, &mut functions);
            }
        }
        functions.sort_by_key(|entry| entry.address);
        functions.dedup_by_key(|entry| entry.address);
        Some(Self { segments, functions })
    }

    /// The address, in the file's own numbering, of a file offset.
    pub(crate) fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .find(|(start, length, _)| (*start..start.saturating_add(*length)).contains(&file_offset))
            .map(|(start, _, address)| file_offset - start + address)
    }

    /// The name of the function that contains an address.
    pub(crate) fn function_at(&self, path: &[u8], address: u64) -> Option<Vec<u8>> {
        let after = self.functions.partition_point(|entry| entry.address <= address);
        let entry = self.functions.get(after.checked_sub(1)?)?;
        if address - entry.address >= entry.size.max(1) {
            return None;
        }
        let file = open(path)?;
        let mut name = vec![0; LONGEST_NAME];
        let length = file.read_at(&mut name, entry.name).ok()?;
        name.truncate(length);
        name.truncate(name.iter().position(|&byte| byte == 0)?);
        Some(name)
    }
}

/// Opens a library. Raises a notice at the descriptor limit: the names are then missing for that reason, not from the
/// library.
fn open(path: &[u8]) -> Option<files::Guarded> {
    let is_limit = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    let opened = files::open(path);
    if opened.as_ref().is_err_and(is_limit) {
        raise(Notice::NoDescriptors);
    }
    opened.ok()
}

fn add_functions(file: &File, section: &[u8], names: u64, functions: &mut Vec<Entry>) -> Option<()> {
    let (start, length) = (number(section, 24, 8)?, number(section, 32, 8)?);
    let symbols = read(file, start, length)?;
    functions.extend(symbols.chunks_exact(24).filter_map(|symbol| {
        let is_function = matches!(symbol.get(4)? & 15, 2 | 10);
        let address = number(symbol, 8, 8)?;
        (is_function && address != 0).then_some(Entry {
            address,
            size: number(symbol, 16, 8)?,
            name: names.checked_add(number(symbol, 0, 4)?)?,
        })
    }));
    Some(())
}

/// The entries of a header table.
fn table(file: &File, start: u64, entry_size: u64, count: u64) -> Option<Vec<Vec<u8>>> {
    if entry_size == 0 {
        return Some(Vec::new());
    }
    let bytes = read(file, start, entry_size * count)?;
    Some(bytes.chunks_exact(entry_size as usize).map(<[u8]>::to_vec).collect())
}

fn read(file: &File, start: u64, length: u64) -> Option<Vec<u8>> {
    if length > LARGEST_TABLE {
        return None;
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start).ok()?;
    Some(bytes)
}

/// A little-endian number of up to eight bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + size)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}
