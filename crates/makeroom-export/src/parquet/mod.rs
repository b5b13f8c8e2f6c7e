//! Parquet output: one row group per chunk of rows, compressed with Snappy. It only writes, and only flat tables.
//!
//! ```text
//! thrift.rs        the encoding of Parquet's structures
//! metadata.rs      these structures: page headers, page indexes, the footer
//! column.rs        a column of a row group as pages
//! encode.rs        values as bytes
//! statistics.rs    bounds of the values of a page or column
//! ```
//!
//! A file consists of these parts; the footer contains all positions:
//!
//! ```text
//! PAR1
//! row group …      the pages of each column
//! page indexes     bounds and positions of all pages
//! footer           schema; positions and statistics of all columns
//! length of the footer, PAR1
//! ```

mod column;
mod encode;
mod metadata;
mod statistics;
#[cfg(test)]
mod tests;
mod thrift;

use std::io::{self, Write};

use makeroom_core::Trace;

use crate::ExportError;
use crate::table::{Column, Piece, TableKind};
use column::{Chunk, LIMITS, Limits};
use metadata::{Encoded, Group, footer};

/// The first and last bytes of a file.
const MAGIC: &[u8; 4] = b"PAR1";

pub(crate) fn write(trace: &Trace, kind: TableKind, to: &mut dyn Write) -> Result<(), ExportError> {
    let mut file = File::new(to, kind.columns(), LIMITS)?;
    kind.rows(trace, |piece| Ok(file.add(piece)?))?;
    Ok(file.close()?)
}

struct File<'to> {
    to: &'to mut dyn Write,
    /// Bytes written so far.
    position: u64,
    columns: &'to [Column],
    limits: Limits,
    groups: Vec<Group>,
}

impl<'to> File<'to> {
    fn new(to: &'to mut dyn Write, columns: &'to [Column], limits: Limits) -> io::Result<Self> {
        to.write_all(MAGIC)?;
        Ok(Self { to, position: MAGIC.len() as u64, columns, limits, groups: Vec::new() })
    }

    /// Writes a row group.
    fn add(&mut self, piece: &Piece) -> io::Result<()> {
        let rows = piece.first().map_or(0, Vec::len);
        let mut group = Group { start: self.position, rows, chunks: Vec::new() };
        for (column, cells) in self.columns.iter().zip(piece) {
            let chunk = Chunk::new(column, cells, self.limits)?;
            self.to.write_all(&chunk.bytes)?;
            group.chunks.push(Encoded::new(column, &chunk, rows, self.position));
            self.position += chunk.bytes.len() as u64;
        }
        self.groups.push(group);
        Ok(())
    }

    /// Writes the end of the file.
    fn close(self) -> io::Result<()> {
        let mut end = Vec::new();
        let footer = footer(self.columns, &self.groups, self.position, &mut end);
        end.extend(i32::try_from(footer).map_err(io::Error::other)?.to_le_bytes());
        end.extend_from_slice(MAGIC);
        self.to.write_all(&end)?;
        self.to.flush()
    }
}
