//! Reads files back with the `parquet` crate, an independent reader: values, statistics, page indexes.

use std::io;

use ::parquet::basic::{ConvertedType, LogicalType, Repetition, Type};
use ::parquet::column::reader::ColumnReader;
use ::parquet::data_type::ByteArray;
use ::parquet::file::metadata::ColumnChunkMetaData;
use ::parquet::file::page_index::column_index::ColumnIndexMetaData;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::serialized_reader::ReadOptionsBuilder;
use bytes::Bytes;
use makeroom_core::TraceKind;
use proptest::prelude::*;

use super::*;
use crate::Form;
use crate::table::{Cell, Kind};

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

fn column(kind: Kind, is_optional: bool) -> Column {
    Column { name: "one", kind, is_optional }
}

fn written(columns: &[Column], pieces: &[Piece], limits: Limits) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = File::new(&mut bytes, columns, limits).unwrap();
    for piece in pieces {
        file.add(piece).unwrap();
    }
    file.close().unwrap();
    bytes
}

/// A file with one column and one row group.
fn of_cells(kind: Kind, is_optional: bool, cells: &[Cell]) -> SerializedFileReader<Bytes> {
    let columns = [column(kind, is_optional)];
    let pieces = [vec![cells.to_vec()]];
    let bytes = written(&columns, &pieces, LIMITS);
    verify(&columns, &pieces, LIMITS, &bytes);
    open(&bytes)
}

fn open(bytes: &[u8]) -> SerializedFileReader<Bytes> {
    let options = ReadOptionsBuilder::new().with_page_index().with_encoding_stats_as_mask(false).build();
    SerializedFileReader::new_with_options(Bytes::copy_from_slice(bytes), options).unwrap()
}

/// Asserts that a file has exactly these columns and cells, and correct metadata.
fn verify(columns: &[Column], pieces: &[Piece], limits: Limits, bytes: &[u8]) {
    let reader = open(bytes);
    let file = reader.metadata().file_metadata();
    assert_eq!(file.created_by().unwrap(), concat!("makeroom ", env!("CARGO_PKG_VERSION")));
    assert_eq!(file.num_rows() as usize, pieces.iter().map(|piece| piece[0].len()).sum::<usize>());
    verify_schema(columns, file.schema_descr());
    assert_eq!(reader.num_row_groups(), pieces.len());
    let mut position = 4;
    for (number, piece) in pieces.iter().enumerate() {
        let group = reader.get_row_group(number).unwrap();
        assert_eq!(group.metadata().file_offset(), Some(position));
        let mut sizes = (0, 0);
        for (index, (column, cells)) in columns.iter().zip(piece).enumerate() {
            let meta = group.metadata().column(index);
            assert_eq!(meta.byte_range().0, position.cast_unsigned());
            position += meta.compressed_size();
            sizes = (sizes.0 + meta.compressed_size(), sizes.1 + meta.uncompressed_size());
            assert_eq!(&read(group.get_column_reader(index).unwrap(), column), cells);
            verify_statistics(meta, cells);
            let column_index = &reader.metadata().column_index().unwrap()[number][index];
            let pages = reader.metadata().offset_index().unwrap()[number][index].page_locations();
            verify_pages(pages, column_index, cells, meta, limits);
        }
        assert_eq!(group.metadata().compressed_size(), sizes.0);
        assert_eq!(group.metadata().total_byte_size(), sizes.1);
    }
}

fn verify_schema(columns: &[Column], schema: &::parquet::schema::types::SchemaDescriptor) {
    assert_eq!(schema.num_columns(), columns.len());
    for (column, found) in columns.iter().zip(schema.columns()) {
        let number = LogicalType::Integer { bit_width: 64, is_signed: false };
        let types = match column.kind {
            Kind::Number => (Type::INT64, ConvertedType::UINT_64, Some(number)),
            Kind::Text => (Type::BYTE_ARRAY, ConvertedType::UTF8, Some(LogicalType::String)),
            Kind::Truth => (Type::BOOLEAN, ConvertedType::NONE, None),
        };
        let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        assert_eq!((found.physical_type(), found.converted_type(), found.logical_type_ref().cloned()), types);
        assert_eq!(
            (found.name(), found.self_type().get_basic_info().repetition()),
            (column.name, repetition)
        );
    }
}

fn read(reader: ColumnReader, column: &Column) -> Vec<Cell> {
    let mut levels = Vec::new();
    let levels_to = column.is_optional.then_some(&mut levels);
    let mut values: Vec<Cell> = match reader {
        ColumnReader::Int64ColumnReader(mut reader) => {
            let mut values = Vec::new();
            reader.read_records(usize::MAX, levels_to, None, &mut values).unwrap();
            values.into_iter().map(|value| Cell::Number(value.cast_unsigned())).collect()
        }
        ColumnReader::ByteArrayColumnReader(mut reader) => {
            let mut values: Vec<ByteArray> = Vec::new();
            reader.read_records(usize::MAX, levels_to, None, &mut values).unwrap();
            values.iter().map(|value| Cell::Text(value.as_utf8().unwrap().to_owned())).collect()
        }
        ColumnReader::BoolColumnReader(mut reader) => {
            let mut values = Vec::new();
            reader.read_records(usize::MAX, levels_to, None, &mut values).unwrap();
            values.into_iter().map(Cell::Truth).collect()
        }
        _ => panic!("{column:?}"),
    };
    if column.is_optional {
        let mut set = values.into_iter();
        values =
            levels.iter().map(|&level| if level == 1 { set.next().unwrap() } else { Cell::Empty }).collect();
        assert_eq!(set.next(), None);
    }
    values
}

/// A value as bytes that compare in the order of the statistics.
fn key(cell: &Cell) -> Option<Vec<u8>> {
    match cell {
        Cell::Number(number) => Some(number.to_be_bytes().to_vec()),
        Cell::Text(text) => Some(text.as_bytes().to_vec()),
        Cell::Truth(truth) => Some(vec![(*truth).into()]),
        Cell::Empty => None,
    }
}

/// The smallest and the largest value.
fn bounds(cells: &[Cell]) -> Option<(Vec<u8>, Vec<u8>)> {
    Some((cells.iter().filter_map(key).min()?, cells.iter().filter_map(key).max()?))
}

fn verify_statistics(meta: &ColumnChunkMetaData, cells: &[Cell]) {
    let statistics = meta.statistics().unwrap();
    let empty = cells.iter().filter(|cell| **cell == Cell::Empty).count();
    assert_eq!(statistics.null_count_opt(), Some(empty as u64));
    let sort = |bytes: &[u8]| {
        let is_number = meta.column_type() == Type::INT64;
        if is_number { bytes.iter().rev().copied().collect() } else { bytes.to_vec() }
    };
    let found = statistics.min_bytes_opt().map(sort).zip(statistics.max_bytes_opt().map(sort));
    assert_eq!(found.is_some(), empty < cells.len());
    assert!(found.is_none() || !statistics.is_min_max_deprecated());
    if let (Some((least, greatest)), Some(of_cells)) = (found, bounds(cells)) {
        assert_eq!((least == of_cells.0, least <= of_cells.0), (statistics.min_is_exact(), true));
        assert_eq!((greatest == of_cells.1, greatest >= of_cells.1), (statistics.max_is_exact(), true));
        // A truncated bound of a string is still valid UTF-8.
        let is_text = meta.column_type() == Type::BYTE_ARRAY;
        assert!(!is_text || [least, greatest].into_iter().all(|bound| String::from_utf8(bound).is_ok()));
    }
}

fn verify_pages(
    pages: &[::parquet::file::page_index::offset_index::PageLocation],
    index: &ColumnIndexMetaData,
    cells: &[Cell],
    meta: &ColumnChunkMetaData,
    limits: Limits,
) {
    assert_eq!((pages.len(), pages[0].first_row_index), (index.num_pages() as usize, 0));
    assert_eq!(pages[0].offset, meta.data_page_offset());
    for (number, page) in pages.iter().enumerate() {
        let next = pages.get(number + 1);
        let end = meta.byte_range().0 + meta.byte_range().1;
        let after = page.offset + i64::from(page.compressed_page_size);
        assert_eq!(after, next.map_or(end.cast_signed(), |next| next.offset));
        let next_row = next.map_or(cells.len(), |next| next.first_row_index as usize);
        let of_page = &cells[page.first_row_index as usize..next_row];
        assert!((1..=limits.rows).contains(&of_page.len()));
        let empty = of_page.iter().filter(|cell| **cell == Cell::Empty).count();
        assert_eq!(index.null_count(number), i64::try_from(empty).ok());
        assert_eq!(index.is_null_page(number), empty == of_page.len());
        let number_key = |value: Option<&i64>| value.unwrap().to_be_bytes().to_vec();
        let Some((least, greatest)) = bounds(of_page) else { continue };
        match index {
            ColumnIndexMetaData::INT64(index) => {
                assert_eq!(
                    (number_key(index.min_value(number)), number_key(index.max_value(number))),
                    (least, greatest)
                );
            }
            ColumnIndexMetaData::BYTE_ARRAY(index) => {
                assert!(index.min_value(number).unwrap() <= &least[..]);
                assert!(index.max_value(number).unwrap() >= &greatest[..]);
            }
            ColumnIndexMetaData::BOOLEAN(index) => {
                let truth = |value: Option<&bool>| vec![u8::from(*value.unwrap())];
                assert_eq!(
                    (truth(index.min_value(number)), truth(index.max_value(number))),
                    (least, greatest)
                );
            }
            _ => panic!("{index:?}"),
        }
    }
}

/// Page counts of the first column of the first row group: dictionary pages, PLAIN data pages, data pages with indices.
fn pages(reader: &SerializedFileReader<Bytes>) -> [i32; 3] {
    use ::parquet::basic::{Encoding, PageType};
    let meta = reader.metadata().row_group(0).column(0);
    let stats = meta.page_encoding_stats().unwrap();
    let count = |page: PageType, encoding: Encoding| {
        stats
            .iter()
            .filter(|one| one.page_type == page && one.encoding == encoding)
            .map(|one| one.count)
            .sum()
    };
    let found = [
        count(PageType::DICTIONARY_PAGE, Encoding::PLAIN),
        count(PageType::DATA_PAGE, Encoding::PLAIN),
        count(PageType::DATA_PAGE, Encoding::RLE_DICTIONARY),
    ];
    assert_eq!(meta.dictionary_page_offset().is_some(), found[0] == 1);
    found
}

#[test]
fn values_at_the_limits() {
    let numbers = [0, u64::MAX, 1, i64::MAX.cast_unsigned(), 1 << 63].map(Cell::Number);
    of_cells(Kind::Number, false, &numbers);
    let texts = [String::new(), "a".into(), char::MAX.to_string(), "ä".repeat(200), String::new()];
    of_cells(Kind::Text, false, &texts.map(Cell::Text));
    of_cells(Kind::Truth, false, &[Cell::Truth(true)]);
    for (kind, cell) in [
        (Kind::Number, Cell::Number(u64::MAX)),
        (Kind::Text, Cell::Text(String::new())),
        (Kind::Truth, Cell::Truth(false)),
    ] {
        of_cells(kind, false, std::slice::from_ref(&cell));
        of_cells(kind, true, std::slice::from_ref(&cell));
        of_cells(kind, true, &[Cell::Empty]);
        let all_empty = of_cells(kind, true, &vec![Cell::Empty; 50_000]);
        assert_eq!(pages(&all_empty), [0, 3, 0]);
        of_cells(kind, true, &[vec![Cell::Empty; 20_000], vec![cell]].concat());
    }
}

#[test]
fn a_page_ends_after_so_many_rows() {
    for (rows, count) in [(19_999, 1), (20_000, 1), (20_001, 2), (65_536, 4)] {
        let distinct: Vec<Cell> = (0..rows).map(Cell::Number).collect();
        assert_eq!(pages(&of_cells(Kind::Number, false, &distinct)), [0, count, 0]);
        assert_eq!(pages(&of_cells(Kind::Number, true, &distinct)), [0, count, 0]);
        let repeated: Vec<Cell> = (0..rows).map(|row| Cell::Number(row % 100)).collect();
        assert_eq!(pages(&of_cells(Kind::Number, false, &repeated)), [1, 0, count]);
        let truths: Vec<Cell> = (0..rows).map(|row| Cell::Truth(row % 3 == 0)).collect();
        assert_eq!(pages(&of_cells(Kind::Truth, false, &truths)), [0, count, 0]);
    }
}

#[test]
fn a_page_ends_after_so_many_bytes() {
    let text = |row: usize| Cell::Text(format!("{row:0>65532}"));
    let cells: Vec<Cell> = (0..33).map(text).collect();
    // Sixteen strings with their lengths are 1 MiB.
    assert_eq!(pages(&of_cells(Kind::Text, false, &cells)), [0, 3, 0]);
    assert_eq!(pages(&of_cells(Kind::Text, true, &cells[..32])), [0, 2, 0]);
}

#[test]
fn values_behind_a_full_dictionary_are_plain() {
    let text = |row: usize| Cell::Text(format!("{row:0>996}"));
    let limits = Limits { dictionary: 100_000, ..LIMITS };
    let columns = [column(Kind::Text, true)];
    let encodings = |cells: &[Cell]| {
        let pieces = [vec![cells.to_vec()]];
        let bytes = written(&columns, &pieces, limits);
        verify(&columns, &pieces, limits, &bytes);
        pages(&open(&bytes))
    };
    // Each string occurs twice; the dictionary has space for 100.
    let cells: Vec<Cell> = (0..200).map(|row| text(row / 2)).collect();
    assert_eq!(encodings(&cells), [1, 0, 1]);
    assert_eq!(encodings(&[&cells[..], &[Cell::Empty, text(100), text(0), Cell::Empty]].concat()), [1, 1, 1]);
    // Only empty cells follow.
    assert_eq!(encodings(&[cells, vec![Cell::Empty; 40_000]].concat()), [1, 0, 3]);
}

#[test]
fn a_file_without_rows() {
    let columns = [column(Kind::Number, false)];
    let bytes = written(&columns, &[], LIMITS);
    verify(&columns, &[], LIMITS, &bytes);
}

/// A writer that fails after this many bytes.
struct Full(usize);

impl io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn errors_of_the_output_are_recognized() {
    let trace = Trace::new(TraceKind::Room);
    let export = |space| crate::export(&trace, Form::Parquet(TableKind::Events), Full(space));
    for space in [0, 4, 100] {
        let error = export(space).unwrap_err();
        assert!(error.is_broken_pipe() && error.of_writing().is_some(), "{error}");
    }
    export(1000).unwrap();
}

fn cell(kind: Kind) -> BoxedStrategy<Cell> {
    let edge = prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), any::<u64>()];
    let number = prop_oneof![3 => 0..10_u64, 1 => edge];
    let text = prop_oneof!["[ab]{0,2}", "a{60,70}[b\u{10ffff}]{0,3}", "\u{10ffff}{15,18}", any::<String>()];
    match kind {
        Kind::Number => number.prop_map(Cell::Number).boxed(),
        Kind::Text => text.prop_map(Cell::Text).boxed(),
        Kind::Truth => any::<bool>().prop_map(Cell::Truth).boxed(),
    }
}

/// Cells with runs, so that all encodings of indices and levels occur.
fn cells(column: &Column) -> BoxedStrategy<Vec<Cell>> {
    let value = cell(column.kind);
    let value = if column.is_optional { prop_oneof![value, Just(Cell::Empty)].boxed() } else { value };
    let run = (value, prop_oneof![3 => Just(1), 1 => 1..30_usize]);
    let runs = prop::collection::vec(run, 1..60);
    runs.prop_map(|runs| runs.into_iter().flat_map(|(cell, length)| vec![cell; length]).collect()).boxed()
}

/// Columns and up to three row groups.
fn table() -> impl Strategy<Value = (Vec<Column>, Vec<Piece>)> {
    let kind = prop_oneof![Just(Kind::Number), Just(Kind::Text), Just(Kind::Truth)];
    let columns = prop::collection::vec((kind, any::<bool>()), 1..=NAMES.len());
    columns.prop_flat_map(|columns| {
        let columns: Vec<Column> = columns
            .into_iter()
            .zip(NAMES)
            .map(|((kind, is_optional), name)| Column { name, kind, is_optional })
            .collect();
        let piece: Vec<_> = columns.iter().map(cells).collect();
        let piece = piece.prop_map(|mut piece: Piece| {
            let rows = piece.iter().map(Vec::len).min().unwrap_or(0);
            for cells in &mut piece {
                cells.truncate(rows);
            }
            piece
        });
        (Just(columns), prop::collection::vec(piece, 1..=3))
    })
}

proptest! {
    #[test]
    fn any_table_reads_back(
        (columns, pieces) in table(),
        rows in 1..60_usize,
        bytes in 1..300_usize,
        dictionary in prop_oneof![0..300_usize, Just(usize::MAX / 2)],
    ) {
        let limits = Limits { rows, bytes, dictionary };
        verify(&columns, &pieces, limits, &written(&columns, &pieces, limits));
    }
}
