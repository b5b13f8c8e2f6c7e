//! Integers of variable length: seven bits a byte, the lowest first, the top bit set on all but the last byte.
//!
//! ```text
//! 300 = 0b10_0101100    →    1_0101100  0_0000010    →    ac 02
//! ```
//!
//! Signed numbers are folded first so that small ones stay short: 0, −1, 1, −2, 2 … become 0, 1, 2, 3, 4 ….
//! A number has one encoding: a reader refuses one that is longer than it need be.

/// The longest encoding of a 64-bit number.
pub(crate) const LONGEST: usize = 10;

/// Appends a number.
#[inline]
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a text with its length before it.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &[u8]) {
    put(bytes, text.len() as u64);
    bytes.extend_from_slice(text);
}

/// Folds a signed number.
#[inline]
pub(crate) const fn fold(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Unfolds it again.
#[inline]
pub(crate) const fn unfold(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
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
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            assert_eq!(bytes, expected);
            assert!(bytes.len() <= LONGEST);
        }
    }

    #[test]
    fn folding_keeps_small_numbers_small() {
        for (value, folded) in
            [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MAX, u64::MAX - 1), (i64::MIN, u64::MAX)]
        {
            assert_eq!(fold(value), folded);
            assert_eq!(unfold(folded), value);
        }
    }
}
