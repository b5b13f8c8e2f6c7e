//! Parquet's value encodings: PLAIN, and the hybrid of run lengths and bit packing for small numbers (indices, levels).

use std::hash::Hash;

use super::statistics::Bound;
use super::thrift::varint;
use crate::table::Cell;

/// Values are packed in groups of this many, so that a group is a whole number of bytes.
const GROUP: usize = 8;

/// A type of value, ordered as in Parquet's statistics: numbers are unsigned, and strings are compared byte by byte.
pub(super) trait Value<'cell>: Copy + Ord + Hash {
    /// Whether a dictionary can save space.
    const HAS_DICTIONARY: bool;

    /// The value in a cell; `None` if the cell is empty.
    fn of(cell: &'cell Cell) -> Option<Self>;

    /// Maximum size in bytes when encoded as PLAIN.
    fn size(self) -> usize;

    /// Appends values, encoded as PLAIN.
    fn plain(values: &[Self], to: &mut Vec<u8>);

    /// The bounds for the statistics, from the smallest and the largest value.
    fn bounds(least: Self, greatest: Self) -> (Bound, Bound);
}

impl<'cell> Value<'cell> for u64 {
    const HAS_DICTIONARY: bool = true;

    fn of(cell: &'cell Cell) -> Option<Self> {
        match cell {
            Cell::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn size(self) -> usize {
        size_of::<Self>()
    }

    fn plain(values: &[Self], to: &mut Vec<u8>) {
        to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    }

    fn bounds(least: Self, greatest: Self) -> (Bound, Bound) {
        (Bound::exact(&least.to_le_bytes()), Bound::exact(&greatest.to_le_bytes()))
    }
}

impl<'cell> Value<'cell> for &'cell str {
    const HAS_DICTIONARY: bool = true;

    fn of(cell: &'cell Cell) -> Option<Self> {
        match cell {
            Cell::Text(text) => Some(text),
            _ => None,
        }
    }

    fn size(self) -> usize {
        size_of::<u32>() + self.len()
    }

    fn plain(values: &[Self], to: &mut Vec<u8>) {
        for value in values {
            // A longer string makes the page too large, which is an error.
            to.extend((value.len() as u32).to_le_bytes());
            to.extend_from_slice(value.as_bytes());
        }
    }

    fn bounds(least: Self, greatest: Self) -> (Bound, Bound) {
        (Bound::lower(least), Bound::upper(greatest))
    }
}

impl<'cell> Value<'cell> for bool {
    const HAS_DICTIONARY: Self = false;

    fn of(cell: &'cell Cell) -> Option<Self> {
        match cell {
            Cell::Truth(truth) => Some(*truth),
            _ => None,
        }
    }

    fn size(self) -> usize {
        size_of::<Self>()
    }

    fn plain(values: &[Self], to: &mut Vec<u8>) {
        let byte = |bits: &[Self]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
        to.extend(values.chunks(8).map(byte));
    }

    fn bounds(least: Self, greatest: Self) -> (Bound, Bound) {
        (Bound::exact(&[least.into()]), Bound::exact(&[greatest.into()]))
    }
}

/// Number of bits needed for numbers up to `most`.
pub(super) fn width(most: u32) -> u32 {
    u32::BITS - most.leading_zeros()
}

/// Appends numbers of `width` bits: each run of equal numbers as its length and the number, the rest packed.
pub(super) fn hybrid(numbers: &[u32], width: u32, to: &mut Vec<u8>) {
    let (mut written, mut next) = (0, 0);
    while let Some(&number) = numbers.get(next) {
        let run = numbers[next..].iter().take_while(|&&other| other == number).count();
        // A run can only begin at the end of a group.
        let in_group = (next - written) % GROUP;
        if in_group == 0 && run >= GROUP {
            packed(&numbers[written..next], width, to);
            varint((run as u64) << 1, to);
            to.extend_from_slice(&number.to_le_bytes()[..width.div_ceil(8) as usize]);
            next += run;
            written = next;
        } else {
            next += run.min(GROUP - in_group);
        }
    }
    packed(&numbers[written..], width, to);
}

/// Appends packed numbers; the last group is padded with zeros.
fn packed(numbers: &[u32], width: u32, to: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    varint((numbers.len().div_ceil(GROUP) as u64) << 1 | 1, to);
    for group in numbers.chunks(GROUP) {
        let (mut bits, mut held) = (0_u64, 0);
        for index in 0..GROUP {
            bits |= u64::from(group.get(index).copied().unwrap_or(0)) << held;
            held += width;
            while held >= 8 {
                to.push(bits as u8);
                bits >>= 8;
                held -= 8;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain<'cell, V: Value<'cell>>(values: &[V]) -> Vec<u8> {
        let mut bytes = Vec::new();
        V::plain(values, &mut bytes);
        bytes
    }

    fn hybrid_of(numbers: &[u32], width: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        hybrid(numbers, width, &mut bytes);
        bytes
    }

    #[test]
    fn plain_values_at_the_limits() {
        assert_eq!(plain(&[0, u64::MAX, 1]), [[0; 8], [255; 8], [1, 0, 0, 0, 0, 0, 0, 0]].concat());
        assert_eq!(plain(&["", "ä"]), [0, 0, 0, 0, 2, 0, 0, 0, 0xc3, 0xa4]);
        assert!(plain::<u64>(&[]).is_empty());
        let mut bits = vec![false; 10];
        (bits[0], bits[7], bits[9]) = (true, true, true);
        assert_eq!(plain(&bits), [0b1000_0001, 0b10]);
        assert_eq!(plain(&[true; 8]), [255]);
    }

    #[test]
    fn widths() {
        assert_eq!([0, 1, 2, 255, 256, u32::MAX].map(width), [0, 1, 2, 8, 9, 32]);
    }

    #[test]
    fn runs_and_groups() {
        assert!(hybrid_of(&[], 3).is_empty());
        // The example from Parquet's specification: the numbers 0 to 7, packed.
        assert_eq!(hybrid_of(&[0, 1, 2, 3, 4, 5, 6, 7], 3), [3, 0b1000_1000, 0b1100_0110, 0b1111_1010]);
        assert_eq!(hybrid_of(&[5], 3), [3, 5, 0, 0]);
        assert_eq!(hybrid_of(&[1; 7], 1), [3, 0x7f]);
        assert_eq!(hybrid_of(&[1; 8], 1), [16, 1]);
        assert_eq!(hybrid_of(&[300; 200], 9), [0x90, 3, 44, 1]);
        // The first group takes seven numbers of the run.
        assert_eq!(hybrid_of(&[[0].as_slice(), &[1; 15]].concat(), 1), [3, 0xfe, 16, 1]);
        assert_eq!(hybrid_of(&[[0].as_slice(), &[1; 14]].concat(), 1), [5, 0xfe, 0x7f]);
        assert_eq!(hybrid_of(&[[1; 8].as_slice(), &[0, 1]].concat(), 1), [16, 1, 3, 2]);
        // With a width of 0 bits, only lengths are written.
        assert_eq!((hybrid_of(&[0; 9], 0), hybrid_of(&[0; 3], 0)), (vec![18], vec![3]));
        assert_eq!(hybrid_of(&[u32::MAX, 0], 32)[..9], [3, 255, 255, 255, 255, 0, 0, 0, 0]);
    }
}
