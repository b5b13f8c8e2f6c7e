//! CSV output: a line with the column names, then one line per row. Unknown values are empty cells.

use std::io::Write;

use makeroom_core::Trace;

use crate::ExportError;
use crate::table::{Cell, TableKind};

pub(crate) fn write(trace: &Trace, kind: TableKind, to: impl Write) -> Result<(), ExportError> {
    let mut writer = csv::Writer::from_writer(to);
    writer.write_record(kind.columns().iter().map(|column| column.name))?;
    kind.rows(trace, |piece| {
        for row in 0..piece.first().map_or(0, Vec::len) {
            for column in piece {
                match &column[row] {
                    Cell::Number(number) => writer.write_field(number.to_string())?,
                    Cell::Text(text) => writer.write_field(text)?,
                    Cell::Truth(truth) => writer.write_field(if *truth { "true" } else { "false" })?,
                    Cell::Empty => writer.write_field("")?,
                }
            }
            writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    })?;
    Ok(writer.flush()?)
}
