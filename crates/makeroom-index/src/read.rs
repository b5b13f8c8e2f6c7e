//! Reads index files: whole, or only some columns.
//!
//! Columns are found by name, so that files of older and newer versions can be read; a column that is missing is empty.
//! Files are untrusted: levels and types are checked, the number of values is bounded, and a panic of the Parquet reader,
//! which is not written for hostile files, is an error.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use parquet::basic::Type as PhysicalType;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::column::reader::{ColumnReader, get_column_reader};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::cell::{Field, Kind, Value};
use crate::entry::{Entry, entries, fields};
use crate::schema::{Leaf, leaves};
use crate::shred::{Cursor, LeafData, assemble};
use crate::{IndexError, SCHEMA_VERSION, VERSION_KEY};

/// Values of one column in one row group that are read.
const MOST_VALUES: u64 = 1 << 26;
/// Rows that are decoded at once.
const BATCH: usize = 8192;

/// The rows of all objects in a file.
pub fn decode(bytes: Vec<u8>) -> Result<Vec<Entry>, IndexError> {
    let file = IndexFile::from_bytes(bytes)?;
    let mut found = Vec::new();
    for group in 0..file.groups() {
        found.extend(file.entries(group)?);
    }
    Ok(found)
}

/// An index file.
pub struct IndexFile {
    reader: Box<dyn FileReader>,
    fields: Vec<Field>,
    leaves: Vec<Leaf>,
}

/// A column that is not a list, with one value per row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// Numbers and times.
    Numbers(Vec<Option<u64>>),
    /// Text.
    Texts(Vec<Option<String>>),
    /// True or false.
    Truths(Vec<Option<bool>>),
}

impl IndexFile {
    /// Opens a file in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, IndexError> {
        guarded(|| Self::new(Box::new(SerializedFileReader::new(Bytes::from(bytes))?)))
    }

    /// Opens a file.
    pub fn from_file(file: File) -> Result<Self, IndexError> {
        guarded(|| Self::new(Box::new(SerializedFileReader::new(file)?)))
    }

    fn new(reader: Box<dyn FileReader>) -> Result<Self, IndexError> {
        let metadata = reader.metadata().file_metadata();
        let pairs = metadata.key_value_metadata();
        let version = pairs.into_iter().flatten().find(|pair| pair.key == VERSION_KEY);
        let version = version.and_then(|pair| pair.value.as_deref()).ok_or(IndexError::Foreign)?;
        if version != SCHEMA_VERSION {
            return Err(IndexError::Version { found: version.to_owned() });
        }
        let fields = fields();
        Ok(Self { reader, leaves: leaves(&fields), fields })
    }

    /// Number of row groups.
    pub fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        let groups = self.reader.metadata().row_groups().iter();
        groups.map(|group| u64::try_from(group.num_rows()).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    /// The rows of the objects in a row group.
    pub fn entries(&self, group: usize) -> Result<Vec<Entry>, IndexError> {
        guarded(|| {
            let reader = self.reader.get_row_group(group)?;
            let rows = row_count(&*reader)?;
            let mut cursors = Vec::with_capacity(self.leaves.len());
            for leaf in &self.leaves {
                let data = read_leaf(&*reader, leaf).map_err(|error| error.in_column(&leaf.path))?;
                cursors.push(data.map(|data| Cursor::new(data, leaf.max_definition)));
            }
            entries((0..rows).map(|_| assemble(&self.fields, &mut cursors)))
        })
    }

    /// Columns of all rows, in the order of `names`. A column that the file does not have is empty; one that no version has,
    /// or a list, is an error.
    pub fn columns(&self, names: &[&str]) -> Result<Vec<Column>, IndexError> {
        self.columns_of(names, 0..self.groups())
    }

    /// Columns of the rows in some row groups.
    pub fn columns_of(
        &self,
        names: &[&str],
        groups: std::ops::Range<usize>,
    ) -> Result<Vec<Column>, IndexError> {
        guarded(|| names.iter().map(|name| self.column(name, groups.clone())).collect())
    }

    fn column(&self, name: &str, groups: std::ops::Range<usize>) -> Result<Column, IndexError> {
        let leaf = self.leaves.iter().find(|leaf| leaf.path == name && leaf.max_repetition == 0);
        let leaf = leaf.ok_or_else(|| {
            IndexError::Value { wanted: "a column of the schema".to_owned() }.in_column(name)
        })?;
        let mut column = match leaf.kind {
            Kind::Number | Kind::Time => Column::Numbers(Vec::new()),
            Kind::Text => Column::Texts(Vec::new()),
            Kind::Truth => Column::Truths(Vec::new()),
        };
        for group in groups {
            let reader = self.reader.get_row_group(group)?;
            let rows = row_count(&*reader)?;
            let data = read_leaf(&*reader, leaf).map_err(|error| error.in_column(name))?;
            let data =
                data.unwrap_or_else(|| LeafData { definitions: vec![-1; rows], ..LeafData::default() });
            if data.definitions.len() != rows {
                return Err(IndexError::Levels.in_column(name));
            }
            let mut values = data.values.into_iter();
            for definition in data.definitions {
                let value = if definition == leaf.max_definition { values.next() } else { None };
                match (&mut column, value) {
                    (Column::Numbers(numbers), Some(Value::Number(number))) => numbers.push(Some(number)),
                    (Column::Texts(texts), Some(Value::Text(text))) => texts.push(Some(text)),
                    (Column::Truths(truths), Some(Value::Truth(truth))) => truths.push(Some(truth)),
                    (Column::Numbers(numbers), _) => numbers.push(None),
                    (Column::Texts(texts), _) => texts.push(None),
                    (Column::Truths(truths), _) => truths.push(None),
                }
            }
        }
        Ok(column)
    }
}

fn row_count(group: &dyn RowGroupReader) -> Result<usize, IndexError> {
    let rows = u64::try_from(group.metadata().num_rows()).unwrap_or(u64::MAX);
    if rows > MOST_VALUES {
        return Err(IndexError::TooLarge { most: MOST_VALUES });
    }
    Ok(rows as usize)
}

/// A panic of the Parquet reader as an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, IndexError>) -> Result<T, IndexError> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(IndexError::Crashed))
}

/// The entries of a leaf in a row group; `None` if the file does not have the column.
fn read_leaf(group: &dyn RowGroupReader, leaf: &Leaf) -> Result<Option<LeafData>, IndexError> {
    let schema = group.metadata().schema_descr();
    let is_it = |index: &usize| schema.column(*index).path().string() == leaf.path;
    let Some(index) = (0..schema.num_columns()).find(is_it) else { return Ok(None) };
    let column = schema.column(index);
    let physical = match leaf.kind {
        Kind::Number | Kind::Time => PhysicalType::INT64,
        Kind::Text => PhysicalType::BYTE_ARRAY,
        Kind::Truth => PhysicalType::BOOLEAN,
    };
    let levels = (column.max_def_level(), column.max_rep_level());
    if column.physical_type() != physical || levels != (leaf.max_definition, leaf.max_repetition) {
        return Err(IndexError::Value { wanted: "another type".to_owned() });
    }
    let pages = Bounded { pages: group.get_column_page_reader(index)?, left: MOST_VALUES };
    let mut data = LeafData::default();
    let most = row_count(group)?;
    match get_column_reader(column, Box::new(pages)) {
        ColumnReader::Int64ColumnReader(mut reader) => drain(
            most,
            &mut data,
            |records, definitions, repetitions, values| {
                reader.read_records(records, definitions, repetitions, values)
            },
            |number: i64| Ok(Value::Number(u64::try_from(number).unwrap_or(0))),
        )?,
        ColumnReader::ByteArrayColumnReader(mut reader) => drain(
            most,
            &mut data,
            |records, definitions, repetitions, values| {
                reader.read_records(records, definitions, repetitions, values)
            },
            |text: parquet::data_type::ByteArray| match text.as_utf8() {
                Ok(text) => Ok(Value::Text(text.to_owned())),
                Err(_) => Err(IndexError::Value { wanted: "UTF-8".to_owned() }),
            },
        )?,
        ColumnReader::BoolColumnReader(mut reader) => drain(
            most,
            &mut data,
            |records, definitions, repetitions, values| {
                reader.read_records(records, definitions, repetitions, values)
            },
            |truth: bool| Ok(Value::Truth(truth)),
        )?,
        _ => return Err(IndexError::Value { wanted: "another type".to_owned() }),
    }
    // Columns without levels have none in the file.
    if leaf.max_definition == 0 {
        data.definitions = vec![0; data.values.len()];
    }
    if leaf.max_repetition == 0 {
        data.repetitions = vec![0; data.definitions.len()];
    }
    Ok(Some(data))
}

/// Reads up to `most` rows of a column.
fn drain<T>(
    most: usize,
    data: &mut LeafData,
    mut read: impl FnMut(
        usize,
        Option<&mut Vec<i16>>,
        Option<&mut Vec<i16>>,
        &mut Vec<T>,
    ) -> ParquetResult<(usize, usize, usize)>,
    value: impl Fn(T) -> Result<Value, IndexError>,
) -> Result<(), IndexError> {
    let mut rows = 0;
    while rows < most {
        let mut values = Vec::new();
        let wanted = BATCH.min(most - rows);
        let (records, ..) =
            read(wanted, Some(&mut data.definitions), Some(&mut data.repetitions), &mut values)?;
        for found in values {
            data.values.push(value(found)?);
        }
        if records == 0 {
            return Ok(());
        }
        rows += records;
    }
    Ok(())
}

/// Pages that end with an error if they claim more values than the bound: levels are run-length encoded, so a page of a few
/// bytes can claim billions.
struct Bounded {
    pages: Box<dyn PageReader>,
    left: u64,
}

impl Iterator for Bounded {
    type Item = ParquetResult<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Bounded {
    fn get_next_page(&mut self) -> ParquetResult<Option<Page>> {
        let page = self.pages.get_next_page()?;
        let values = page.as_ref().map_or(0, |page| u64::from(page.num_values()));
        self.left = self
            .left
            .checked_sub(values)
            .ok_or_else(|| ParquetError::General(format!("a column has more than {MOST_VALUES} values")))?;
        Ok(page)
    }

    fn peek_next_page(&mut self) -> ParquetResult<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> ParquetResult<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> ParquetResult<bool> {
        self.pages.at_record_boundary()
    }
}
