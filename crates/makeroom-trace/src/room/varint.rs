//! Variable-length integers (LEB128): seven bits per byte, lowest first, with the top bit set on all but the last
//! byte.
//!
//! ```text
//! 300 = 0b10_0101100    →    1_0101100  0_0000010    →    ac 02
//! ```
//!
//! Signed numbers are zigzag-encoded first, so that small ones stay short: 0, −1, 1, −2, 2 … become 0, 1, 2, 3, 4 ….
//! Encodings are canonical: readers reject numbers with redundant bytes.

/// The longest encoding of a 64-bit number.
pub(crate) const LONGEST: usize = 10;

/// Zigzag-encodes a signed number.
#[inline]
pub(crate) const fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// Decodes a zigzag-encoded number.
#[inline]
pub(crate) const fn unfold(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// A number below 2⁵⁶ as eight bytes, and the length of its encoding.
///
/// There is no loop over the bytes: the length is unpredictable, and a mispredicted branch costs more than the rest
/// of an event.
#[inline]
pub(crate) const fn spread(value: u64) -> ([u8; 8], usize) {
    // Spread seven bits into each byte: first the halves, then the quarters, then the eighths.
    let spread = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let spread = (spread & 0x0000_3fff_0000_3fff) | (spread & 0x0fff_c000_0fff_c000) << 2;
    let spread = (spread & 0x007f_007f_007f_007f) | (spread & 0x3f80_3f80_3f80_3f80) << 1;
    let length = (70 - (value | 1).leading_zeros() as usize) / 7;
    let continued = 0x0080_8080_8080_8080 & ((1 << (8 * (length - 1))) - 1);
    ((spread | continued).to_le_bytes(), length)
}

/// The number that eight bytes begin with, and the length of its encoding. `None` if that is longer or not canonical. Like
/// [`spread`], it has no branch that depends on the length.
#[inline]
pub(crate) const fn gather(bytes: [u8; 8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(bytes);
    let last = !word & 0x8080_8080_8080_8080;
    if last == 0 {
        return None;
    }
    // The bits up to the top bit of the last byte.
    let kept = word & (last ^ (last - 1));
    let length = (last.trailing_zeros() as usize + 1) / 8;
    if length > 1 && kept >> (8 * (length - 1)) == 0 {
        return None;
    }
    let halves = (kept & 0x007f_007f_007f_007f) | (kept & 0x7f00_7f00_7f00_7f00) >> 1;
    let quarters = (halves & 0x0000_3fff_0000_3fff) | (halves & 0x3fff_0000_3fff_0000) >> 2;
    let value = (quarters & 0x0fff_ffff) | (quarters & 0x0fff_ffff_0000_0000) >> 4;
    Some((value, length))
}

/// Any number, and the length of its encoding.
pub(crate) fn loop_over(mut value: u64) -> ([u8; LONGEST], usize) {
    let mut bytes = [0; LONGEST];
    let mut length = 0;
    for byte in &mut bytes {
        length += 1;
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            break;
        }
        *byte |= 0x80;
    }
    (bytes, length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_lengths_that_are_drawn() {
        for (value, expected) in [
            (0, &[0][..]),
            (127, &[0x7f]),
            (128, &[0x80, 1]),
            (300, &[0xac, 2]),
            (u64::MAX, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let (bytes, length) = loop_over(value);
            assert_eq!(&bytes[..length], expected);
        }
    }

    #[test]
    fn spreading_gives_what_the_loop_gives() {
        for bits in 0..56 {
            for value in [1_u64 << bits, (1 << bits) - 1, (1 << bits) | 0x55, u64::MAX >> (8 + bits)] {
                let ((spread, length), (bytes, expected)) = (spread(value), loop_over(value));
                assert_eq!(spread[..length], bytes[..expected], "{value:#x}");
            }
        }
    }

    #[test]
    fn gathering_undoes_spreading_and_rejects_redundant_bytes() {
        for bits in 0..56 {
            for value in [1_u64 << bits, (1 << bits) - 1, (1 << bits) | 0x55, u64::MAX >> (8 + bits)] {
                let (mut bytes, length) = spread(value);
                bytes[length..].fill(0xa5);
                assert_eq!(gather(bytes), Some((value, length)), "{value:#x}");
            }
        }
        assert_eq!(gather([0x80, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(gather([0x81, 0x80, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(gather([0x81; 8]), None, "it may be longer");
    }

    #[test]
    fn folding_keeps_small_numbers_small() {
        let pairs = [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)];
        for (value, folded) in pairs {
            assert_eq!(fold(value), folded);
            assert_eq!(unfold(folded), value);
        }
    }
}
