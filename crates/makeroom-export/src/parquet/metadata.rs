//! Parquet's structures: page headers, metadata of column chunks, page indexes, the footer. Field ids and enum values are
//! those of the specification's `parquet.thrift`.

use std::io;

use super::column::{Chunk, Page};
use super::thrift::{Fields, structure};
use crate::table::{Column, Kind};

/// Format version; 1 means that readers need no later encodings.
const VERSION: u32 = 1;
const CREATED_BY: &str = concat!("makeroom ", env!("CARGO_PKG_VERSION"));
const SNAPPY: u32 = 1;
/// There are too few pages for readers to benefit from their order.
const UNORDERED: u32 = 0;

const UTF8: u32 = 0;
const UINT_64: u32 = 14;

const DATA_PAGE: u32 = 0;
const DICTIONARY_PAGE: u32 = 2;

/// How values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain = 0,
    /// Used only for levels.
    Rle = 3,
    RleDictionary = 8,
}

/// What a page contains.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Dictionary { values: usize },
    Data { rows: usize, encoding: Encoding },
}

/// The metadata and the page indexes of a column chunk. They are written at the end of the file.
pub(super) struct Encoded {
    meta: Vec<u8>,
    column_index: Vec<u8>,
    offset_index: Vec<u8>,
    compressed: u64,
    uncompressed: u64,
}

/// A written row group.
pub(super) struct Group {
    pub(super) start: u64,
    pub(super) rows: usize,
    pub(super) chunks: Vec<Encoded>,
}

/// Appends the header of a page with these sizes before and after compression.
pub(super) fn page_header(
    content: Content,
    size: usize,
    compressed: usize,
    to: &mut Vec<u8>,
) -> io::Result<()> {
    if i32::try_from(size.max(compressed)).is_err() {
        return Err(io::Error::other(format!("a value is too large for Parquet: its page has {size} bytes")));
    }
    structure(to, |header| {
        header.i32(1, if matches!(content, Content::Data { .. }) { DATA_PAGE } else { DICTIONARY_PAGE });
        header.i32(2, size as u32);
        header.i32(3, compressed as u32);
        match content {
            Content::Data { rows, encoding } => header.structure(5, |data| {
                data.i32(1, rows as u32);
                data.i32(2, encoding as u32);
                data.i32(3, Encoding::Rle as u32);
                data.i32(4, Encoding::Rle as u32);
            }),
            Content::Dictionary { values } => header.structure(7, |dictionary| {
                dictionary.i32(1, values as u32);
                dictionary.i32(2, Encoding::Plain as u32);
            }),
        }
    });
    Ok(())
}

impl Encoded {
    /// `start` is the position of the chunk in the file.
    pub(super) fn new(column: &Column, chunk: &Chunk, rows: usize, start: u64) -> Self {
        let mut meta = Vec::new();
        structure(&mut meta, |fields| column_meta(fields, column, chunk, rows, start));
        let mut column_index = Vec::new();
        structure(&mut column_index, |fields| self::column_index(fields, &chunk.pages));
        let mut offset_index = Vec::new();
        let first = start + chunk.dictionary as u64;
        structure(&mut offset_index, |fields| self::offset_index(fields, &chunk.pages, first));
        let compressed = chunk.bytes.len() as u64;
        Self { meta, column_index, offset_index, compressed, uncompressed: chunk.uncompressed as u64 }
    }
}

/// Parquet's `ColumnMetaData`.
fn column_meta(fields: &mut Fields<'_>, column: &Column, chunk: &Chunk, rows: usize, start: u64) {
    let has_dictionary = chunk.dictionary > 0;
    let pages_of = |encoding| chunk.pages.iter().filter(|page| page.encoding == encoding).count();
    // The number of pages of each kind shows readers whether all values are in the dictionary.
    let counts = [
        (DICTIONARY_PAGE, Encoding::Plain, usize::from(has_dictionary)),
        (DATA_PAGE, Encoding::RleDictionary, pages_of(Encoding::RleDictionary)),
        (DATA_PAGE, Encoding::Plain, pages_of(Encoding::Plain)),
    ];
    let counts: Vec<_> = counts.into_iter().filter(|&(_, _, count)| count > 0).collect();
    let mut encodings: Vec<u32> = counts.iter().map(|&(_, encoding, _)| encoding as u32).collect();
    encodings.extend(column.is_optional.then_some(Encoding::Rle as u32));
    encodings.sort_unstable();
    encodings.dedup();

    fields.i32(1, physical_type(column.kind));
    fields.i32s(2, &encodings);
    fields.binaries(3, [column.name.as_bytes()].into_iter());
    fields.i32(4, SNAPPY);
    fields.i64(5, rows as u64);
    fields.i64(6, chunk.uncompressed as u64);
    fields.i64(7, chunk.bytes.len() as u64);
    fields.i64(9, start + chunk.dictionary as u64);
    if has_dictionary {
        fields.i64(11, start);
    }
    fields.structure(12, |statistics| chunk.statistics.write(statistics));
    fields.structures(13, &counts, |fields, &(page, encoding, count)| {
        fields.i32(1, page);
        fields.i32(2, encoding as u32);
        fields.i32(3, count as u32);
    });
}

/// Parquet's `ColumnIndex`: the statistics of the data pages.
fn column_index(fields: &mut Fields<'_>, pages: &[Page]) {
    let bounds = || pages.iter().map(|page| page.statistics.bounds.as_ref());
    fields.bools(1, bounds().map(|bounds| bounds.is_none()));
    fields.binaries(2, bounds().map(|bounds| bounds.map_or(&[][..], |(least, _)| &least.bytes)));
    fields.binaries(3, bounds().map(|bounds| bounds.map_or(&[][..], |(_, greatest)| &greatest.bytes)));
    fields.i32(4, UNORDERED);
    fields.i64s(5, pages.iter().map(|page| page.statistics.empty as u64));
}

/// Parquet's `OffsetIndex`: the locations of the data pages; the first page begins at `offset`.
fn offset_index(fields: &mut Fields<'_>, pages: &[Page], mut offset: u64) {
    fields.structures(1, pages, |location, page| {
        location.i64(1, offset);
        location.i32(2, page.size as u32);
        location.i64(3, page.first_row as u64);
        offset += page.size as u64;
    });
}

/// Appends the page indexes of all chunks, which begin at `position` in the file, and the footer. Returns the footer's size.
pub(super) fn footer(columns: &[Column], groups: &[Group], mut position: u64, to: &mut Vec<u8>) -> usize {
    let chunks = || groups.iter().flat_map(|group| &group.chunks);
    // All indexes of a kind are adjacent, so that readers can load them with one read.
    let mut place = |index: &[u8]| {
        to.extend_from_slice(index);
        position += index.len() as u64;
        (position - index.len() as u64, index.len() as u32)
    };
    let column_indexes: Vec<(u64, u32)> = chunks().map(|chunk| place(&chunk.column_index)).collect();
    let offset_indexes: Vec<(u64, u32)> = chunks().map(|chunk| place(&chunk.offset_index)).collect();
    let mut places = offset_indexes.into_iter().zip(column_indexes);

    let start = to.len();
    structure(to, |file| {
        file.i32(1, VERSION);
        let schema: Vec<Option<&Column>> = [None].into_iter().chain(columns.iter().map(Some)).collect();
        file.structures(2, &schema, |element, column| match column {
            None => schema_root(element, columns.len()),
            Some(column) => schema_column(element, column),
        });
        file.i64(3, groups.iter().map(|group| group.rows as u64).sum());
        file.structures(4, groups, |fields, group| {
            fields.structures(1, &group.chunks, |fields, chunk| {
                fields.i64(2, 0);
                fields.encoded(3, &chunk.meta);
                if let Some((offset_index, column_index)) = places.next() {
                    fields.i64(4, offset_index.0);
                    fields.i32(5, offset_index.1);
                    fields.i64(6, column_index.0);
                    fields.i32(7, column_index.1);
                }
            });
            fields.i64(2, group.chunks.iter().map(|chunk| chunk.uncompressed).sum());
            fields.i64(3, group.rows as u64);
            fields.i64(5, group.start);
            fields.i64(6, group.chunks.iter().map(|chunk| chunk.compressed).sum());
        });
        file.binary(6, CREATED_BY.as_bytes());
        // Statistics have the order that is defined by each type.
        file.structures(7, columns, |order, _| order.structure(1, |_| ()));
    });
    to.len() - start
}

fn schema_root(element: &mut Fields<'_>, columns: usize) {
    element.binary(4, b"schema");
    element.i32(5, columns as u32);
}

fn schema_column(element: &mut Fields<'_>, column: &Column) {
    element.i32(1, physical_type(column.kind));
    element.i32(3, column.is_optional.into());
    element.binary(4, column.name.as_bytes());
    // Older readers support only the converted types, which newer ones ignore.
    match column.kind {
        Kind::Number => {
            element.i32(6, UINT_64);
            element.structure(10, |logical| {
                logical.structure(10, |integer| {
                    integer.i8(1, 64);
                    integer.bool(2, false);
                });
            });
        }
        Kind::Text => {
            element.i32(6, UTF8);
            element.structure(10, |logical| logical.structure(1, |_| ()));
        }
        Kind::Truth => {}
    }
}

fn physical_type(kind: Kind) -> u32 {
    match kind {
        Kind::Truth => 0,
        Kind::Number => 2,
        Kind::Text => 6,
    }
}
