//! Maps an instruction to its line, in `CPython`'s three line table formats.

use super::layout::LineTable;

/// The line of the instruction at `offset` bytes; the first line if the table has none.
pub(crate) fn line_of(kind: LineTable, first_line: u32, table: &[u8], offset: u32) -> u32 {
    let found = match kind {
        LineTable::Lnotab => lnotab(first_line, table, offset),
        LineTable::Ranges => ranges(first_line, table, offset),
        LineTable::Locations => locations(first_line, table, offset),
    };
    found.unwrap_or(first_line)
}

/// Pairs: byte increment, line increment.
fn lnotab(first_line: u32, table: &[u8], offset: u32) -> Option<u32> {
    let (mut at, mut line) = (0, i64::from(first_line));
    for pair in table.chunks_exact(2) {
        let [bytes, lines] = *pair else { break };
        at += u32::from(bytes);
        if at > offset {
            break;
        }
        line += i64::from(lines.cast_signed());
    }
    u32::try_from(line).ok()
}

/// Pairs: bytes that the range covers, line increment; −128 means no line.
fn ranges(first_line: u32, table: &[u8], offset: u32) -> Option<u32> {
    let (mut end, mut line) = (0, i64::from(first_line));
    for pair in table.chunks_exact(2) {
        let [bytes, lines] = *pair else { break };
        let has_line = lines.cast_signed() != i8::MIN;
        if has_line {
            line += i64::from(lines.cast_signed());
        }
        end += u32::from(bytes);
        if offset < end {
            return has_line.then(|| u32::try_from(line).ok()).flatten();
        }
    }
    None
}

/// Entries of a head byte (1, four bits of form, three bits of length in code units minus one) and the form's data.
fn locations(first_line: u32, table: &[u8], offset: u32) -> Option<u32> {
    let (mut end, mut line) = (0, i64::from(first_line));
    let mut bytes = table.iter().copied().peekable();
    while let Some(head) = bytes.next() {
        let form = head >> 3 & 15;
        let has_line = match form {
            // Long form and form without columns: start with a signed line increment.
            14 | 13 => {
                line += signed(&mut bytes)?;
                true
            }
            // Forms 10, 11, 12 advance by 0, 1, 2 lines.
            10..=12 => {
                line += i64::from(form - 10);
                true
            }
            15 => false,
            _ => true,
        };
        // Skip columns and end lines: all their bytes have the high bit clear.
        while bytes.next_if(|byte| byte & 0x80 == 0).is_some() {}
        end += (u32::from(head & 7) + 1) * 2;
        if offset < end {
            return has_line.then(|| u32::try_from(line).ok()).flatten();
        }
    }
    None
}

/// A varint in groups of six bits, with the sign in its lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let (mut value, mut shift) = (0_i64, 0);
    loop {
        let byte = bytes.next()?;
        value |= i64::from(byte & 63).checked_shl(shift)?;
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
        if shift > 36 {
            return None;
        }
    }
    Some(if value & 1 == 1 { -(value >> 1) } else { value >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tables of real functions, as the named version compiles them:
    //   def f(x):          # line 10
    //       y = x + 1      # line 11
    //       return g(      # line 12
    //           y)         # line 13
    #[test]
    fn lines_of_3_9() {
        let table = [0, 1, 8, 1, 4, 1, 2, 255];
        assert_eq!(
            [0, 4, 8, 12, 14].map(|at| line_of(LineTable::Lnotab, 10, &table, at)),
            [11, 11, 12, 13, 12]
        );
    }

    #[test]
    fn lines_of_3_10() {
        let table = [8, 1, 2, 1, 2, 1, 2, 255, 2, 128];
        assert_eq!(
            [0, 7, 8, 10, 12].map(|at| line_of(LineTable::Ranges, 10, &table, at)),
            [11, 11, 12, 13, 12]
        );
        assert_eq!(line_of(LineTable::Ranges, 10, &table, 14), 10);
    }

    #[test]
    fn lines_of_3_11() {
        // One unit without columns on line 10, two units in the short form one line down, one in the long form two
        // lines up.
        let table = [0b1110_1000, 0, 0b1101_1001, 4, 9, 0b1111_0000, 0b101, 0, 1, 2];
        assert_eq!([0, 2, 4, 6].map(|at| line_of(LineTable::Locations, 10, &table, at)), [10, 11, 11, 9]);
        assert_eq!(line_of(LineTable::Locations, 10, &[0xff, 0xff], 99), 10);
    }
}
