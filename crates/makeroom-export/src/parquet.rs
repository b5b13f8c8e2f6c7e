//! Parquet output: snappy compression, dictionaries for strings, one row group per chunk of rows.

use std::io::Write;
use std::sync::Arc;

use makeroom_core::Trace;
use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use crate::ExportError;
use crate::table::{Cell, Column, Kind, Piece, TableKind};

/// Stacks are long strings that many rows share, so a larger dictionary than the default pays off.
const DICTIONARY_BYTES: usize = 32 << 20;

pub(crate) fn write(trace: &Trace, kind: TableKind, to: impl Write + Send) -> Result<(), ExportError> {
    let fields: ParquetResult<Vec<Arc<Type>>> =
        kind.columns().iter().map(|column| field(column).map(Arc::new)).collect();
    let schema = Type::group_type_builder("schema").with_fields(fields?).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_created_by(concat!("makeroom ", env!("CARGO_PKG_VERSION")).to_owned())
        .build();
    let mut writer = SerializedFileWriter::new(to, Arc::new(schema), Arc::new(properties))?;
    kind.rows(trace, |piece| Ok(write_group(&mut writer, kind.columns(), piece)?))?;
    writer.close()?;
    Ok(())
}

fn field(column: &Column) -> ParquetResult<Type> {
    let (physical, logical) = match column.kind {
        Kind::Number => (PhysicalType::INT64, Some(LogicalType::Integer { bit_width: 64, is_signed: false })),
        Kind::Text => (PhysicalType::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Truth => (PhysicalType::BOOLEAN, None),
    };
    let repetition = if column.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(repetition)
        .with_logical_type(logical)
        .build()
}

fn write_group(
    writer: &mut SerializedFileWriter<impl Write + Send>,
    columns: &[Column],
    piece: &Piece,
) -> ParquetResult<()> {
    let mut group = writer.next_row_group()?;
    let mut rows = columns.iter().zip(piece);
    while let Some(mut open) = group.next_column()? {
        let Some((column, cells)) = rows.next() else { break };
        let levels: Option<Vec<i16>> =
            column.is_optional.then(|| cells.iter().map(|cell| i16::from(*cell != Cell::Empty)).collect());
        let levels = levels.as_deref();
        match open.untyped() {
            ColumnWriter::Int64ColumnWriter(writer) => {
                // Reinterpreted bits: the column's type is unsigned.
                let values: Vec<i64> = cells
                    .iter()
                    .filter_map(|cell| match cell {
                        Cell::Number(number) => Some(number.cast_signed()),
                        _ => None,
                    })
                    .collect();
                writer.write_batch(&values, levels, None)?;
            }
            ColumnWriter::ByteArrayColumnWriter(writer) => {
                let values: Vec<ByteArray> = cells
                    .iter()
                    .filter_map(|cell| match cell {
                        Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                        _ => None,
                    })
                    .collect();
                writer.write_batch(&values, levels, None)?;
            }
            ColumnWriter::BoolColumnWriter(writer) => {
                let values: Vec<bool> = cells.iter().map(|cell| matches!(cell, Cell::Truth(true))).collect();
                writer.write_batch(&values, levels, None)?;
            }
            _ => return Err(ParquetError::General(format!("the column {} has no writer", column.name))),
        }
        open.close()?;
    }
    group.close()?;
    Ok(())
}
