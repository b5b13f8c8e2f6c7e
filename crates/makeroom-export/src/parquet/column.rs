//! Encodes one column of a row group as pages:
//!
//! ```text
//! [dictionary page]   the distinct values, PLAIN
//! data page …         if the column is optional, which rows have a value; then the values
//! ```
//!
//! Values are stored as indices into the dictionary, or PLAIN if that is smaller. A dictionary has a maximum size, because
//! readers keep all of it in memory; if a value does not fit, it and all later values are PLAIN.

use std::collections::hash_map::Entry;
use std::io;

use makeroom_core::FastMap;
use snap::raw::{Encoder, max_compress_len};

use super::encode::{Value, hybrid, width};
use super::metadata::{Content, Encoding, page_header};
use super::statistics::Statistics;
use crate::table::{Cell, Column, Kind};

/// Maximum sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Rows in a data page. A reader that looks for one row decodes the whole page.
    pub(super) rows: usize,
    /// Bytes of the values in a data page; the last value may exceed the limit.
    pub(super) bytes: usize,
    /// Bytes of the values in a dictionary.
    pub(super) dictionary: usize,
}

/// Stacks are long strings that many rows share, so a large dictionary pays off.
pub(super) const LIMITS: Limits = Limits { rows: 20_000, bytes: 1 << 20, dictionary: 32 << 20 };

/// A column of a row group.
pub(super) struct Chunk {
    /// The pages.
    pub(super) bytes: Vec<u8>,
    /// Size of the pages before compression.
    pub(super) uncompressed: usize,
    /// Size of the dictionary page; 0 if there is none.
    pub(super) dictionary: usize,
    /// The data pages.
    pub(super) pages: Vec<Page>,
    pub(super) statistics: Statistics,
}

/// A data page.
pub(super) struct Page {
    pub(super) size: usize,
    pub(super) first_row: usize,
    pub(super) encoding: Encoding,
    pub(super) statistics: Statistics,
}

impl Chunk {
    /// Encodes the cells of a column.
    pub(super) fn new(column: &Column, cells: &[Cell], limits: Limits) -> io::Result<Self> {
        match column.kind {
            Kind::Number => encode::<u64>(column, cells, limits),
            Kind::Text => encode::<&str>(column, cells, limits),
            Kind::Truth => encode::<bool>(column, cells, limits),
        }
    }
}

fn encode<'cell, V: Value<'cell>>(
    column: &Column,
    cells: &'cell [Cell],
    limits: Limits,
) -> io::Result<Chunk> {
    let values: Vec<V> = cells.iter().filter_map(V::of).collect();
    debug_assert!(column.is_optional || values.len() == cells.len(), "{} has an empty cell", column.name);
    let dictionary = Dictionary::new(&values, limits.dictionary);
    let mut writer = Writer::new();
    let mut content = Vec::new();
    if !dictionary.values.is_empty() {
        V::plain(&dictionary.values, &mut content);
        writer.add(&content, Content::Dictionary { values: dictionary.values.len() })?;
    }
    let dictionary_size = writer.bytes.len();
    let mut pages = Vec::new();
    let (mut row, mut value) = (0, 0);
    while row < cells.len() {
        let indices = &dictionary.indices[value.min(dictionary.indices.len())..];
        let (rows, count) = next_page(&cells[row..], &values[value..], indices.len(), limits);
        let of_page = &values[value..value + count];
        content.clear();
        if column.is_optional {
            levels::<V>(&cells[row..row + rows], &mut content);
        }
        let encoding = match indices.get(..count) {
            Some(indices) if !dictionary.values.is_empty() => {
                let width = width(indices.iter().copied().max().unwrap_or(0));
                content.push(width as u8);
                hybrid(indices, width, &mut content);
                Encoding::RleDictionary
            }
            _ => {
                V::plain(of_page, &mut content);
                Encoding::Plain
            }
        };
        let size = writer.add(&content, Content::Data { rows, encoding })?;
        let statistics = Statistics::new(rows, of_page);
        pages.push(Page { size, first_row: row, encoding, statistics });
        row += rows;
        value += count;
    }
    Ok(Chunk {
        bytes: writer.bytes,
        uncompressed: writer.uncompressed,
        dictionary: dictionary_size,
        pages,
        statistics: Statistics::new(cells.len(), &values),
    })
}

/// Numbers of rows and values in the next page. A page has a single encoding, so it ends at the last value with an index.
fn next_page<'cell, V: Value<'cell>>(
    cells: &'cell [Cell],
    values: &[V],
    in_dictionary: usize,
    limits: Limits,
) -> (usize, usize) {
    let (mut count, mut bytes) = (0, 0);
    for (row, cell) in cells.iter().take(limits.rows).enumerate() {
        if V::of(cell).is_none() {
            continue;
        }
        if bytes >= limits.bytes || (in_dictionary > 0 && count == in_dictionary) {
            return (row, count);
        }
        // An index takes at most as many bits as a row number, so the limit of rows also bounds the size.
        bytes += if in_dictionary > 0 { 0 } else { values[count].size() };
        count += 1;
    }
    (cells.len().min(limits.rows), count)
}

/// Appends the definition levels: their size in bytes, then 1 for each row with a value and 0 for the others.
fn levels<'cell, V: Value<'cell>>(cells: &'cell [Cell], to: &mut Vec<u8>) {
    let levels: Vec<u32> = cells.iter().map(|cell| V::of(cell).is_some().into()).collect();
    let start = to.len();
    to.extend([0; size_of::<u32>()]);
    let first = to.len();
    hybrid(&levels, 1, to);
    let length = (to.len() - first) as u32;
    to[start..first].copy_from_slice(&length.to_le_bytes());
}

/// The distinct values of a column.
struct Dictionary<V> {
    values: Vec<V>,
    /// The column's values as positions in `values`, up to the first one that does not fit into the dictionary.
    indices: Vec<u32>,
}

impl<'cell, V: Value<'cell>> Dictionary<V> {
    /// Empty if PLAIN is smaller.
    fn new(values: &[V], limit: usize) -> Self {
        let mut dictionary = Self { values: Vec::new(), indices: Vec::new() };
        if !V::HAS_DICTIONARY {
            return dictionary;
        }
        let mut positions: FastMap<V, u32> = FastMap::default();
        let mut size = 0;
        for &value in values {
            let next = dictionary.values.len() as u32;
            let position = match positions.entry(value) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(_) if size + value.size() > limit => break,
                Entry::Vacant(entry) => {
                    size += value.size();
                    dictionary.values.push(value);
                    *entry.insert(next)
                }
            };
            dictionary.indices.push(position);
        }
        let bits = width(dictionary.values.len().saturating_sub(1) as u32) as usize;
        let plain: usize = values[..dictionary.indices.len()].iter().map(|value| value.size()).sum();
        if size + dictionary.indices.len() * bits / 8 >= plain {
            dictionary = Self { values: Vec::new(), indices: Vec::new() };
        }
        dictionary
    }
}

/// Compresses pages.
struct Writer {
    encoder: Encoder,
    compressed: Vec<u8>,
    bytes: Vec<u8>,
    uncompressed: usize,
}

impl Writer {
    fn new() -> Self {
        Self { encoder: Encoder::new(), compressed: Vec::new(), bytes: Vec::new(), uncompressed: 0 }
    }

    /// Appends a page. Returns its size.
    fn add(&mut self, page: &[u8], content: Content) -> io::Result<usize> {
        self.compressed.resize(max_compress_len(page.len()), 0);
        let length = self.encoder.compress(page, &mut self.compressed)?;
        let start = self.bytes.len();
        page_header(content, page.len(), length, &mut self.bytes)?;
        self.uncompressed += self.bytes.len() - start + page.len();
        self.bytes.extend_from_slice(&self.compressed[..length]);
        Ok(self.bytes.len() - start)
    }
}
