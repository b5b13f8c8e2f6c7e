//! Statistics of pages and column chunks. Readers use them to skip pages and chunks that cannot contain a value.
//!
//! Bounds of long strings are truncated: a lower bound to a prefix, an upper bound to a prefix whose last character is replaced
//! by the next one, so that it is still above every value.

use super::encode::Value;
use super::thrift::Fields;

/// Longer strings are truncated to at most this many bytes.
const LONGEST_BOUND: usize = 64;

/// Statistics of the cells of a page or of a column chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statistics {
    /// Number of empty cells.
    pub(super) empty: usize,
    /// `None` if all cells are empty.
    pub(super) bounds: Option<(Bound, Bound)>,
}

/// A lower or upper bound of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) bytes: Vec<u8>,
    /// Whether it is one of the values, not a truncated string.
    pub(super) is_exact: bool,
}

impl Bound {
    pub(super) fn exact(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), is_exact: true }
    }

    /// The lower bound of strings, of which `least` is the smallest.
    pub(super) fn lower(least: &str) -> Self {
        let bound = prefix(least);
        Self { bytes: bound.as_bytes().to_vec(), is_exact: bound.len() == least.len() }
    }

    /// The upper bound of strings, of which `greatest` is the largest.
    pub(super) fn upper(greatest: &str) -> Self {
        let mut bound = prefix(greatest).to_owned();
        while bound.len() < greatest.len()
            && let Some(last) = bound.pop()
        {
            if let Some(next) = (last..=char::MAX).nth(1) {
                bound.push(next);
                return Self { bytes: bound.into_bytes(), is_exact: false };
            }
        }
        Self::exact(greatest.as_bytes())
    }
}

/// The longest prefix of a string that a bound may contain.
fn prefix(text: &str) -> &str {
    let end = (0..=LONGEST_BOUND.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

impl Statistics {
    pub(super) fn new<'cell, V: Value<'cell>>(cells: usize, values: &[V]) -> Self {
        let bounds = values.split_first().map(|(&first, rest)| {
            let (least, greatest) = rest
                .iter()
                .fold((first, first), |(least, greatest), &value| (least.min(value), greatest.max(value)));
            V::bounds(least, greatest)
        });
        Self { empty: cells - values.len(), bounds }
    }

    /// Writes Parquet's `Statistics`. Fields 1 and 2 are deprecated, because their numbers are ordered as signed.
    pub(super) fn write(&self, fields: &mut Fields<'_>) {
        fields.i64(3, self.empty as u64);
        if let Some((least, greatest)) = &self.bounds {
            fields.binary(5, &greatest.bytes);
            fields.binary(6, &least.bytes);
            fields.bool(7, greatest.is_exact);
            fields.bool(8, least.is_exact);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(least: &str, greatest: &str) -> [(String, bool); 2] {
        [Bound::lower(least), Bound::upper(greatest)]
            .map(|bound| (String::from_utf8(bound.bytes).unwrap(), bound.is_exact))
    }

    #[test]
    fn a_short_bound_is_a_value() {
        for text in ["", "ä", "\u{10ffff}", &"a".repeat(64)] {
            assert_eq!(bounds(text, text), [(text.to_owned(), true), (text.to_owned(), true)]);
        }
    }

    #[test]
    fn a_long_bound_is_a_prefix_and_its_successor() {
        let text = "a".repeat(65);
        assert_eq!(bounds(&text, &text), [("a".repeat(64), false), ("a".repeat(63) + "b", false)]);
        // A character that crosses the limit is omitted entirely.
        let text = "a".repeat(63) + "ä";
        assert_eq!(bounds(&text, &text), [("a".repeat(63), false), ("a".repeat(62) + "b", false)]);
    }

    #[test]
    fn the_largest_character_has_no_successor() {
        let text = "a".to_owned() + &char::MAX.to_string().repeat(16);
        assert_eq!(bounds("", &text)[1], ("b".to_owned(), false));
        let text = char::MAX.to_string().repeat(17);
        assert_eq!(bounds("", &text)[1], (text, true));
        let text = "\u{d7ff}".repeat(22);
        assert_eq!(bounds("", &text)[1], ("\u{d7ff}".repeat(20) + "\u{e000}", false));
    }

    #[test]
    fn numbers_are_unsigned_and_empty_cells_are_counted() {
        let statistics = Statistics::new(5, &[u64::MAX, 0, 7]);
        assert_eq!(statistics.empty, 2);
        assert_eq!(statistics.bounds, Some((Bound::exact(&[0; 8]), Bound::exact(&[255; 8]))));
        assert_eq!(Statistics::new::<bool>(3, &[]), Statistics { empty: 3, bounds: None });
        let truths = Statistics::new(2, &[true, true]).bounds;
        assert_eq!(truths, Some((Bound::exact(&[1]), Bound::exact(&[1]))));
    }
}
