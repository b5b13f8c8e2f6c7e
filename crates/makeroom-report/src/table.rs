//! Plain tables that fit the terminal: columns as wide as their widest cell, numbers right-aligned.
//!
//! A column without any contents is not shown. A table that is too wide drops columns in the order of their `drop_order`,
//! then shortens the first column. A row's remark is at the end of its line, or below it if any remark does not fit.
//! `--json` always has everything.

use std::fmt::Write as _;

use anstyle::Style;

use crate::text::{DIM, MARGIN};
use crate::wrap::{clip, wrap};

/// Spaces before each cell.
const GAP: usize = 2;
/// The first column is not shortened below this.
const LEAST_FIRST: usize = 16;

/// A column's heading, alignment and importance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    heading: &'static str,
    is_number: bool,
    /// 0: always shown; else columns are dropped in this order, 1 first.
    drop_order: u8,
}

impl Column {
    /// Left-aligned text.
    pub(crate) const fn text(heading: &'static str) -> Self {
        Self { heading, is_number: false, drop_order: 0 }
    }

    /// A right-aligned number.
    pub(crate) const fn number(heading: &'static str) -> Self {
        Self { heading, is_number: true, drop_order: 0 }
    }

    /// Dropped if the table is too wide: columns with 1 first, then 2, and so on.
    pub(crate) const fn dropped(self, drop_order: u8) -> Self {
        Self { drop_order, ..self }
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(crate) struct TableRow {
    /// One cell per column.
    pub(crate) cells: Vec<String>,
    /// A remark about the row, or empty.
    pub(crate) remark: String,
}

/// Draws a table in at most `width` columns.
pub(crate) fn table(out: &mut String, columns: &[Column], rows: &[TableRow], width: usize) {
    let room = width.saturating_sub(MARGIN.len());
    let full_width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(index)).map(|cell| cell.chars().count());
        cells.chain([columns[index].heading.chars().count()]).max().unwrap_or(0)
    };
    let has_contents =
        |index: &usize| rows.iter().any(|row| row.cells.get(*index).is_some_and(|cell| !cell.is_empty()));
    let mut shown: Vec<(usize, usize)> =
        (0..columns.len()).filter(has_contents).map(|index| (index, full_width(index))).collect();
    let total = |shown: &[(usize, usize)]| shown.iter().map(|(_, width)| width + GAP).sum::<usize>();
    while total(&shown) > room {
        let droppable = shown.iter().enumerate().filter(|(_, (index, _))| columns[*index].drop_order > 0);
        let Some((position, _)) = droppable.min_by_key(|(_, (index, _))| columns[*index].drop_order) else {
            break;
        };
        shown.remove(position);
    }
    let too_much = total(&shown).saturating_sub(room);
    if let Some((_, first)) = shown.first_mut() {
        *first = first.saturating_sub(too_much).max(LEAST_FIRST.min(*first));
    }
    let line = |cell: &dyn Fn(usize) -> String| {
        shown.iter().fold(String::new(), |mut text, &(index, width)| {
            let cell = clip(&cell(index), width);
            let _ = if columns[index].is_number {
                write!(text, "{:GAP$}{cell:>width$}", "")
            } else {
                write!(text, "{:GAP$}{cell:<width$}", "")
            };
            text
        })
    };
    write_line(out, &line(&|index| columns[index].heading.to_owned()), DIM);
    let longest_remark = rows.iter().map(|row| row.remark.chars().count()).max().unwrap_or(0);
    let fits = total(&shown) + GAP + longest_remark <= room;
    for row in rows {
        let cells = line(&|index| row.cells.get(index).cloned().unwrap_or_default());
        if fits {
            write_line(out, &format!("{cells}{:GAP$}{}", "", row.remark), Style::new());
            continue;
        }
        write_line(out, &cells, Style::new());
        if !row.remark.is_empty() {
            for part in wrap(&row.remark, room.saturating_sub(3 * GAP)) {
                write_line(out, &format!("{:1$}{part}", "", 3 * GAP), Style::new());
            }
        }
    }
}

fn write_line(out: &mut String, text: &str, style: Style) {
    let _ = writeln!(out, "{MARGIN}{style}{}{style:#}", text.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::plain;

    fn drawn(width: usize) -> Vec<String> {
        let columns = [
            Column::text("name"),
            Column::number("size"),
            Column::number("calls").dropped(1),
            Column::number("time").dropped(2),
        ];
        let row = |name: &str, remark: &str| TableRow {
            cells: [name, "10 MiB", "7", "3 ms"].map(str::to_owned).to_vec(),
            remark: remark.to_owned(),
        };
        let rows = [row("a name of some length", "failed at its start"), row("b", "")];
        let mut out = String::new();
        table(&mut out, &columns, &rows, width);
        plain(&out).lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_wide_table_is_shown_whole() {
        assert_eq!(
            drawn(80),
            [
                "    name                     size  calls  time",
                "    a name of some length  10 MiB      7  3 ms  failed at its start",
                "    b                      10 MiB      7  3 ms",
            ]
        );
    }

    #[test]
    fn remarks_move_below_then_columns_go_then_the_first_is_shortened() {
        assert_eq!(
            drawn(50)[1..3],
            ["    a name of some length  10 MiB      7  3 ms", "        failed at its start"]
        );
        assert_eq!(
            drawn(45)[..2],
            ["    name                     size  time", "    a name of some length  10 MiB  3 ms"]
        );
        assert_eq!(
            drawn(36)[..2],
            ["    name                     size", "    a name of some length  10 MiB"]
        );
        assert_eq!(drawn(30)[1], "    a name of some le…  10 MiB");
        for width in [28, 30, 36, 45, 50, 80] {
            assert!(drawn(width).iter().all(|line| line.chars().count() <= width), "{width}");
        }
    }

    #[test]
    fn a_column_without_contents_is_not_shown() {
        let columns = [Column::text("name"), Column::number("size"), Column::number("time")];
        let row = |size: &str| TableRow {
            cells: ["a", size, "3 ms"].map(str::to_owned).to_vec(),
            remark: String::new(),
        };
        let drawn = |rows: &[TableRow]| {
            let mut out = String::new();
            table(&mut out, &columns, rows, 80);
            plain(&out)
        };
        assert_eq!(drawn(&[row(""), row("")]), "    name  time\n    a     3 ms\n    a     3 ms\n");
        assert!(drawn(&[row(""), row("1 B")]).contains("size"));
    }
}
