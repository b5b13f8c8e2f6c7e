//! Plain tables: columns as wide as their widest cell, numbers to the right.

use std::fmt::Write as _;

use anstyle::Style;

use crate::text::{DIM, MARGIN};

/// A column's heading and side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) heading: &'static str,
    pub(crate) is_number: bool,
}

/// Draws a table.
pub(crate) fn table(out: &mut String, columns: &[Column], rows: &[Vec<String>]) {
    let width = |index: usize| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.chars().count());
        cells.chain([columns[index].heading.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let headings: Vec<String> = columns.iter().map(|column| column.heading.to_owned()).collect();
    line(out, columns, &widths, &headings, DIM);
    for row in rows {
        line(out, columns, &widths, row, Style::new());
    }
}

fn line(out: &mut String, columns: &[Column], widths: &[usize], cells: &[String], style: Style) {
    let mut text = String::new();
    for ((column, &width), cell) in columns.iter().zip(widths).zip(cells) {
        let _ = if column.is_number {
            write!(text, "  {cell:>width$}")
        } else {
            write!(text, "  {cell:<width$}")
        };
    }
    let _ = writeln!(out, "{MARGIN}{style}{}{style:#}", text.trim_end());
}
