//! Reads problems. Memory is bounded: a line has at most [`MAX_LINE`] bytes, a file at most
//! [`crate::MAX_BUFFERS`] buffers.

use std::io::{BufRead, Read as _};

use super::{Column, CsvError, Table};
use crate::{Buffer, MAX_BUFFERS};

/// Maximum length of a line, in bytes.
pub const MAX_LINE: usize = 4096;

/// Maximum length of an `id`, in bytes: shorter than a line, so that lines with offsets can be read again.
pub const MAX_ID: usize = 1024;

/// Longest value in an error message, in characters.
const MAX_SHOWN: usize = 40;

/// Parses the text of a file.
pub fn parse(text: &str) -> Result<Table, CsvError> {
    read(text.as_bytes())
}

/// Reads a file to its end.
pub fn read(reader: impl BufRead) -> Result<Table, CsvError> {
    read_at_most(reader, MAX_BUFFERS)
}

pub(super) fn read_at_most(mut reader: impl BufRead, max_buffers: usize) -> Result<Table, CsvError> {
    let mut line = Vec::new();
    read_line(&mut reader, 1, &mut line)?;
    let header = text(&line, 1)?;
    let header = header.strip_prefix('\u{feff}').unwrap_or(header).trim();
    if header.is_empty() {
        return Err(CsvError::Empty);
    }
    let columns = parse_header(header)?;
    let mut table = Table { offsets: columns.contains(&Column::Offset).then(Vec::new), ..Table::default() };
    let mut is_over = false;
    for number in 2.. {
        if !read_line(&mut reader, number, &mut line)? {
            break;
        }
        let fields = text(&line, number)?;
        if fields.trim().is_empty() {
            is_over = true;
        } else if is_over {
            return Err(CsvError::AfterEmptyLine { line: number });
        } else if table.buffers.len() == max_buffers {
            return Err(CsvError::TooManyBuffers { line: number });
        } else {
            parse_line(number, fields, &columns, &mut table)?;
        }
    }
    Ok(table)
}

/// Reads a line of bounded length; `false` at the end.
fn read_line(reader: &mut impl BufRead, number: usize, line: &mut Vec<u8>) -> Result<bool, CsvError> {
    line.clear();
    let mut bounded = reader.by_ref().take(MAX_LINE as u64 + 1);
    let length = bounded
        .read_until(b'\n', line)
        .map_err(|error| CsvError::Read { line: number, problem: error.to_string() })?;
    if length > MAX_LINE {
        return Err(CsvError::LongLine { line: number });
    }
    Ok(length > 0)
}

fn text(line: &[u8], number: usize) -> Result<&str, CsvError> {
    str::from_utf8(line).map_err(|_| CsvError::NotText { line: number })
}

fn parse_header(header: &str) -> Result<Vec<Column>, CsvError> {
    let mut columns = Vec::new();
    for name in header.split(',').map(str::trim) {
        let column = Column::parse(name).ok_or_else(|| CsvError::UnknownColumn { column: shorten(name) })?;
        let same = |other: &Column| {
            *other == column
                || matches!((*other, column), (Column::Upper, Column::End) | (Column::End, Column::Upper))
        };
        if columns.iter().any(same) {
            return Err(CsvError::DuplicateColumn { column: column.name() });
        }
        columns.push(column);
    }
    for needed in [Column::Id, Column::Lower, Column::Upper, Column::Size] {
        let found = columns.contains(&needed) || (needed == Column::Upper && columns.contains(&Column::End));
        if !found {
            return Err(CsvError::MissingColumn { column: needed.name() });
        }
    }
    Ok(columns)
}

fn parse_line(line: usize, text: &str, columns: &[Column], table: &mut Table) -> Result<(), CsvError> {
    let found = text.split(',').count();
    if found != columns.len() {
        return Err(CsvError::Fields { line, found, expected: columns.len() });
    }
    let mut buffer = Buffer::new(0, 0, 0);
    let mut name = "";
    let mut offset = None;
    for (&column, field) in columns.iter().zip(text.split(',').map(str::trim)) {
        let invalid = || CsvError::Number { line, column: column.name(), value: shorten(field) };
        let number = || field.parse::<u64>().map_err(|_| invalid());
        match column {
            Column::Id if field.len() > MAX_ID => return Err(CsvError::LongId { line }),
            Column::Id => name = field,
            Column::Lower => buffer.lower = number()?,
            Column::Upper => buffer.upper = number()?,
            Column::End => buffer.upper = number()?.checked_add(1).ok_or_else(invalid)?,
            Column::Size => buffer.size = number()?,
            Column::Alignment | Column::Gaps if field.is_empty() => {}
            Column::Alignment => buffer.alignment = number()?,
            Column::Offset => offset = Some(number()?),
            Column::Hint => {}
            Column::Gaps => return Err(CsvError::Gaps { line }),
        }
    }
    if buffer.upper < buffer.lower {
        return Err(CsvError::Lifetime { line, lower: buffer.lower, upper: buffer.upper });
    }
    if !buffer.alignment.is_power_of_two() {
        return Err(CsvError::Alignment { line, alignment: buffer.alignment });
    }
    table.names.push(name.to_owned());
    table.buffers.push(buffer);
    if let (Some(offsets), Some(offset)) = (&mut table.offsets, offset) {
        offsets.push(offset);
    }
    Ok(())
}

/// Keeps error messages readable for any input.
fn shorten(value: &str) -> String {
    let mut shortened: String =
        value.chars().take(MAX_SHOWN).map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    if value.chars().nth(MAX_SHOWN).is_some() {
        shortened.push('…');
    }
    shortened
}
