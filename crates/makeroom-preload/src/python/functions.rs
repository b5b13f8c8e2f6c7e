//! Python functions, copied when first seen; a lock-free direct-mapped cache of their numbers.
//!
//! A function is identified by a hash of its code object's address and contents: file, name, first line, line table.
//! So another function at a reused address is noticed. The copy is interned, and its number is cached in a table of
//! single words, 44 bits of hash above 20 bits of number, which needs no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::{BYTES_DATA, BYTES_SIZE, Layout, LineTable, TEXT_LENGTH, TEXT_STATE};
use super::memory::{Access, Reader, copy};
use crate::record::intern::{bytes_of, intern, words_of};
use crate::record::memory::Lazy;

/// Slots in the cache; functions that share one only cost another lookup.
const KNOWN: usize = 1 << 14;
const NUMBER_BITS: u32 = 20;

/// Longer names and line tables are truncated.
const LONGEST_TEXT: usize = 1 << 10;
const LONGEST_TABLE: usize = 64 << 10;

// SAFETY: atomics are valid as zeros.
static TABLE: Lazy<[AtomicU64; KNOWN]> = unsafe { Lazy::new() };

/// The number of a code object's function. `None` if the memory contradicts the layout.
pub(crate) fn number(layout: &Layout, reader: Reader, code: usize) -> Option<u32> {
    let line = reader.half(code + layout.code_first_line)?;
    let file = reader.word(code + layout.code_file)?;
    let name = reader.word(code + layout.code_name)?;
    let lines = reader.word(code + layout.code_lines)?;
    let hash = [code, file, name, lines, line as usize].iter().fold(1_u64, |hash, &word| {
        let product = u128::from(hash ^ word as u64) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        product as u64 ^ (product >> 64) as u64
    });
    let place = TABLE.get()?.get(hash as usize % KNOWN)?;
    let known = place.load(Ordering::Relaxed);
    if known >> NUMBER_BITS == hash >> NUMBER_BITS {
        return Some((known & ((1 << NUMBER_BITS) - 1)) as u32);
    }
    let mut words = vec![u64::from(line), layout.line_table as u64];
    words_of(&text(layout, file)?, &mut words);
    words_of(&text(layout, name)?, &mut words);
    words_of(&table(lines)?, &mut words);
    let number = intern(&words);
    place.store(hash >> NUMBER_BITS << NUMBER_BITS | u64::from(number), Ordering::Relaxed);
    Some(number)
}

/// A `str` object as UTF-8.
fn text(layout: &Layout, address: usize) -> Option<Vec<u8>> {
    let reader = Reader(Access::ThroughKernel);
    let length = reader.word(address + TEXT_LENGTH)?.min(LONGEST_TEXT);
    let state = reader.half(address + TEXT_STATE)?;
    let (kind, is_compact, is_ascii) = ((state >> 2 & 7) as usize, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    if !is_compact || !matches!(kind, 1 | 2 | 4) {
        return None;
    }
    let mut bytes = vec![0; length * kind];
    if !copy(address + if is_ascii { layout.ascii_data } else { layout.text_data }, &mut bytes) {
        return None;
    }
    if is_ascii {
        return Some(bytes);
    }
    let characters = bytes.chunks_exact(kind).map(|chunk| {
        let value = chunk.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte));
        char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER)
    });
    Some(characters.collect::<String>().into_bytes())
}

/// The content of a `bytes` object.
fn table(address: usize) -> Option<Vec<u8>> {
    let length = Reader(Access::ThroughKernel).word(address + BYTES_SIZE)?.min(LONGEST_TABLE);
    let mut bytes = vec![0; length];
    copy(address + BYTES_DATA, &mut bytes).then_some(bytes)
}

/// A copied function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// First line.
    pub(crate) first_line: u32,
    /// Format of its line table.
    pub(crate) line_table: LineTable,
    /// Its file.
    pub(crate) file: Vec<u8>,
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// Its line table.
    pub(crate) lines: Vec<u8>,
}

impl Function {
    /// Decodes a function from its interned words.
    pub(crate) fn from_words(words: &[u64]) -> Option<Self> {
        let (&first_line, rest) = words.split_first()?;
        let (&line_table, rest) = rest.split_first()?;
        let (file, rest) = bytes_of(rest)?;
        let (name, rest) = bytes_of(rest)?;
        let (lines, _) = bytes_of(rest)?;
        let line_table = LineTable::from_number(line_table);
        Some(Self { first_line: first_line as u32, line_table, file, name, lines })
    }
}
