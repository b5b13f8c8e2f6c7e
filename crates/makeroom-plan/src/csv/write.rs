//! Writes solutions: the columns of the problem in MiniMalloc's order, and `offset` as the last one.

use std::io::{self, Write};

use super::Table;

impl Table {
    /// Writes the buffers with these offsets, which are as many as the buffers. The column `alignment` is written only
    /// if a buffer has one. Reading the result gives the same table, with the offsets.
    pub fn write(&self, offsets: &[u64], out: &mut impl Write) -> io::Result<()> {
        let is_aligned = self.buffers.iter().any(|buffer| buffer.alignment != 1);
        let alignment = if is_aligned { ",alignment" } else { "" };
        writeln!(out, "id,lower,upper,size{alignment},offset")?;
        for ((name, buffer), offset) in self.names.iter().zip(&self.buffers).zip(offsets) {
            write!(out, "{name},{},{},{}", buffer.lower, buffer.upper, buffer.size)?;
            if is_aligned {
                write!(out, ",{}", buffer.alignment)?;
            }
            writeln!(out, ",{offset}")?;
        }
        Ok(())
    }
}
