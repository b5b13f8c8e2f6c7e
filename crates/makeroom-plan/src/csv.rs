//! Reads problems in `MiniMalloc`'s CSV format: the columns `id,lower,upper,size`, in any order.
//!
//! Optional columns are `alignment` and `offset` (stored with the problem, not a constraint). `hint` is ignored; any
//! other name is an error. So is a value in `gaps`: this planner does not support buffers that are unused for part of
//! their lifetime. Aliases: `begin` and `start` for `lower`, `buffer` and `buffer_id` for `id`, and `end`, the last
//! *inclusive* time, for `upper - 1`. As in `MiniMalloc`, reading stops at the first empty line, and fields are not
//! quoted.
//!
//! ```text
//! id,lower,upper,size          id,start,end,size
//! 0,0,10,4096            is    0,0,9,4096
//! ```

use crate::Buffer;

/// The contents of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// The name of each buffer, from the column `id`.
    pub names: Vec<String>,
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// The column `offset`, if there is one.
    pub offsets: Option<Vec<u64>>,
}

/// Why a file could not be read. Lines count from 1, the header included.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// The file has no header.
    #[error("file is empty\n\nhint: the first line names the columns: `id,lower,upper,size`")]
    Empty,
    /// A required column is missing.
    #[error("column `{column}` is missing\n\nhint: the first line names the columns: `id,lower,upper,size`")]
    MissingColumn {
        /// Its name.
        column: &'static str,
    },
    /// A column occurs twice, perhaps under an alias.
    #[error("duplicate column `{column}`")]
    RepeatedColumn {
        /// Its name.
        column: &'static str,
    },
    /// A column is unknown.
    #[error("unknown column `{column}`")]
    UnknownColumn {
        /// Its name, shortened.
        column: String,
    },
    /// A line has too few or too many fields.
    #[error("line {line}: found {found} fields, but the header has {expected}")]
    Fields {
        /// Number of the line.
        line: usize,
        /// Fields in the line.
        found: usize,
        /// Fields in the header.
        expected: usize,
    },
    /// A field is not a 64-bit integer.
    #[error("line {line}: `{column}` is not a whole number below 2^64: `{value}`")]
    Number {
        /// Number of the line.
        line: usize,
        /// Name of the column.
        column: &'static str,
        /// The field, shortened.
        value: String,
    },
    /// A lifetime ends before it begins.
    #[error("line {line}: lifetime ends at {upper}, before it begins at {lower}")]
    Lifetime {
        /// Number of the line.
        line: usize,
        /// Start of the lifetime.
        lower: u64,
        /// End of the lifetime.
        upper: u64,
    },
    /// An alignment is not a power of two.
    #[error("line {line}: alignment is not a power of two: {alignment}")]
    Alignment {
        /// Number of the line.
        line: usize,
        /// The alignment.
        alignment: u64,
    },
    /// Buffers with gaps in their lifetimes.
    #[error("line {line}: `gaps` are not supported\n\nhint: put each part of the lifetime on its own line")]
    Gaps {
        /// Number of the line.
        line: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Id,
    Lower,
    Upper,
    /// Inclusive.
    End,
    Size,
    Alignment,
    Offset,
    Hint,
    Gaps,
}

impl Column {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "id" | "buffer" | "buffer_id" => Self::Id,
            "lower" | "begin" | "start" => Self::Lower,
            "upper" => Self::Upper,
            "end" => Self::End,
            "size" => Self::Size,
            "alignment" => Self::Alignment,
            "offset" => Self::Offset,
            "hint" => Self::Hint,
            "gaps" => Self::Gaps,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::End => "end",
            Self::Size => "size",
            Self::Alignment => "alignment",
            Self::Offset => "offset",
            Self::Hint => "hint",
            Self::Gaps => "gaps",
        }
    }
}

/// Parses a file's text.
pub fn parse(text: &str) -> Result<Table, CsvError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines();
    let header = lines.next().map(str::trim).filter(|line| !line.is_empty()).ok_or(CsvError::Empty)?;
    let columns = parse_header(header)?;
    let mut table = Table { offsets: columns.contains(&Column::Offset).then(Vec::new), ..Table::default() };
    for (index, text) in lines.enumerate() {
        if text.trim().is_empty() {
            break;
        }
        parse_line(index + 2, text, &columns, &mut table)?;
    }
    Ok(table)
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
            return Err(CsvError::RepeatedColumn { column: column.name() });
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
    for (&column, field) in columns.iter().zip(text.split(',').map(str::trim)) {
        let number = || {
            let error = CsvError::Number { line, column: column.name(), value: shorten(field) };
            field.parse::<u64>().map_err(|_| error)
        };
        match column {
            Column::Id => table.names.push(field.to_owned()),
            Column::Lower => buffer.lower = number()?,
            Column::Upper => buffer.upper = number()?,
            Column::End => {
                let error = CsvError::Number { line, column: column.name(), value: shorten(field) };
                buffer.upper = number()?.checked_add(1).ok_or(error)?;
            }
            Column::Size => buffer.size = number()?,
            Column::Alignment | Column::Gaps if field.is_empty() => {}
            Column::Alignment => buffer.alignment = number()?,
            Column::Offset => table.offsets.get_or_insert_default().push(number()?),
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
    table.buffers.push(buffer);
    Ok(())
}

/// Keeps error messages readable for any input.
fn shorten(value: &str) -> String {
    const LONGEST: usize = 40;
    let mut shortened: String =
        value.chars().take(LONGEST).map(|letter| if letter.is_control() { '?' } else { letter }).collect();
    if value.chars().nth(LONGEST).is_some() {
        shortened.push('…');
    }
    shortened
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_in_any_order_with_aliases() {
        let table =
            parse("size,buffer_id,begin,end,hint,alignment\r\n7,x, 1 ,4,-1,8\r\n\r\nrubbish\r\n").unwrap();
        assert_eq!(table.names, ["x"]);
        assert_eq!(table.buffers, [Buffer::new(1, 5, 7).aligned(8)]);
        assert_eq!(table.offsets, None);
    }

    #[test]
    fn solutions_carry_offsets() {
        let table = parse("id,lower,upper,size,offset\na,0,1,2,3").unwrap();
        assert_eq!(table.offsets, Some(vec![3]));
    }

    #[test]
    fn errors_say_where() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        let first_line = |text: &str| error(text).lines().next().unwrap().to_owned();
        assert_eq!(first_line(""), "file is empty");
        assert_eq!(first_line("id,lower,size\n"), "column `upper` is missing");
        assert_eq!(first_line("id,lower,upper,end,size\n"), "duplicate column `end`");
        assert_eq!(first_line("id,start,lower,upper,size\n"), "duplicate column `lower`");
        assert_eq!(first_line("id,lower,upper,size,color\n"), "unknown column `color`");
        let header = "id,lower,upper,size\n";
        assert_eq!(error(&format!("{header}0,0,1\n")), "line 2: found 3 fields, but the header has 4");
        assert_eq!(
            error(&format!("{header}0,0,1,5\n1,0,1,-5\n")),
            "line 3: `size` is not a whole number below 2^64: `-5`"
        );
        assert_eq!(error(&format!("{header}0,3,1,5\n")), "line 2: lifetime ends at 1, before it begins at 3");
        let gaps = "id,lower,upper,size,gaps\n0,0,9,5,\n1,0,9,5,2-3\n";
        assert_eq!(first_line(gaps), "line 3: `gaps` are not supported");
        let alignment = "id,lower,upper,size,alignment\n0,0,9,5,\n1,0,9,5,12\n";
        assert_eq!(error(alignment), "line 3: alignment is not a power of two: 12");
    }

    #[test]
    fn an_inclusive_end_cannot_overflow() {
        let text = format!("id,lower,end,size\n0,0,{},1\n", u64::MAX);
        assert!(matches!(parse(&text), Err(CsvError::Number { line: 2, column: "end", .. })));
    }
}
