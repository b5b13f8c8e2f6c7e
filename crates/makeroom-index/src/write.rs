//! Writes index files: snappy compression, one row group per call.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;

use crate::cell::{Field, Kind, Value};
use crate::entry::{Entry, fields, values};
use crate::schema::{Leaf, leaves, message};
use crate::shred::{LeafData, shred};
use crate::{IndexError, SCHEMA_VERSION, VERSION_KEY};

/// The bytes of a file with these objects. The same objects give the same bytes.
pub fn encode(entries: &[Entry]) -> Result<Vec<u8>, IndexError> {
    // One row: a dictionary would be longer than the values.
    let mut writer = IndexWriter::with(Vec::new(), properties().set_dictionary_enabled(false).build())?;
    writer.push(entries)?;
    writer.finish()
}

/// Writes a file of many objects, one row group at a time.
pub struct IndexWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    fields: Vec<Field>,
    leaves: Vec<Leaf>,
}

impl<W: Write + Send> IndexWriter<W> {
    /// Starts a file.
    pub fn new(to: W) -> Result<Self, IndexError> {
        Self::with(to, properties().build())
    }

    fn with(to: W, properties: WriterProperties) -> Result<Self, IndexError> {
        let fields = fields();
        let writer = SerializedFileWriter::new(to, Arc::new(message(&fields)?), Arc::new(properties))?;
        Ok(Self { writer, leaves: leaves(&fields), fields })
    }

    /// Writes objects as one row group.
    pub fn push(&mut self, entries: &[Entry]) -> Result<(), IndexError> {
        let mut columns = vec![LeafData::default(); self.leaves.len()];
        for row in entries.iter().flat_map(values) {
            shred(&self.fields, row, &mut columns);
        }
        let mut group = self.writer.next_row_group()?;
        let mut written = self.leaves.iter().zip(columns);
        while let Some(mut open) = group.next_column()? {
            let Some((leaf, data)) = written.next() else { return Err(IndexError::Levels) };
            write_leaf(open.untyped(), leaf, data).map_err(|error| error.in_column(&leaf.path))?;
            open.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Completes the file.
    pub fn finish(self) -> Result<W, IndexError> {
        Ok(self.writer.into_inner()?)
    }
}

/// Statistics of all columns would be half of a small file, so only columns by which queries choose rows have them.
fn properties() -> WriterPropertiesBuilder {
    let version = KeyValue::new(VERSION_KEY.to_owned(), SCHEMA_VERSION.to_owned());
    let builder = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("makeroom index {SCHEMA_VERSION}"))
        .set_key_value_metadata(Some(vec![version]))
        .set_offset_index_disabled(true)
        .set_statistics_enabled(EnabledStatistics::None);
    ["source", "job_name", "began", "ran_out"].into_iter().fold(builder, |builder, name| {
        builder.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::Chunk)
    })
}

fn write_leaf(writer: &mut ColumnWriter<'_>, leaf: &Leaf, data: LeafData) -> Result<(), IndexError> {
    let definitions = (leaf.max_definition > 0).then_some(data.definitions.as_slice());
    let repetitions = (leaf.max_repetition > 0).then_some(data.repetitions.as_slice());
    let values = data.values.into_iter();
    match (writer, leaf.kind) {
        (ColumnWriter::Int64ColumnWriter(writer), Kind::Number | Kind::Time) => {
            let number = |value| match value {
                Value::Number(number) => Some(i64::try_from(number).unwrap_or(i64::MAX)),
                _ => None,
            };
            writer.write_batch(&values.filter_map(number).collect::<Vec<_>>(), definitions, repetitions)?;
        }
        (ColumnWriter::ByteArrayColumnWriter(writer), Kind::Text) => {
            let text = |value| match value {
                Value::Text(text) => Some(ByteArray::from(text.into_bytes())),
                _ => None,
            };
            writer.write_batch(&values.filter_map(text).collect::<Vec<_>>(), definitions, repetitions)?;
        }
        (ColumnWriter::BoolColumnWriter(writer), Kind::Truth) => {
            let truth = |value| match value {
                Value::Truth(truth) => Some(truth),
                _ => None,
            };
            writer.write_batch(&values.filter_map(truth).collect::<Vec<_>>(), definitions, repetitions)?;
        }
        _ => return Err(IndexError::Value { wanted: "a column of the schema".to_owned() }),
    }
    Ok(())
}
