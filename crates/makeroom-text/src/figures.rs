//! Reading sizes out of error texts.

use std::sync::LazyLock;

use makeroom_core::{Bytes, unit_bytes};
use makeroom_search::{Captures, Regex};

/// A size as texts print it: a number, perhaps with thousands separators, and a unit.
pub(crate) fn size(number: &str, unit: &str) -> Option<Bytes> {
    sized(number, unit_bytes(unit.trim())?)
}

/// A size from a program that writes `MB` and means 2²⁰ bytes, as most do.
pub(crate) fn binary_size(number: &str, unit: &str) -> Option<Bytes> {
    let letter = unit.trim().chars().next().map_or(String::new(), |first| first.to_string());
    let letter = if letter.eq_ignore_ascii_case("b") { String::new() } else { letter };
    sized(number, unit_bytes(&letter)?)
}

fn sized(number: &str, unit: u64) -> Option<Bytes> {
    let digits: String = number.chars().filter(|&character| character != ',').collect();
    if let Ok(whole) = digits.parse::<u64>() {
        return Some(Bytes::new(whole.saturating_mul(unit)));
    }
    let amount: f64 = digits.trim_end_matches('.').parse().ok()?;
    (amount >= 0.0).then(|| Bytes::from_units(amount, unit))
}

/// The size in two capture groups of a match, number first.
pub(crate) fn captured_size(captures: &Captures<'_>, number: usize) -> Option<Bytes> {
    size(captures.get(number)?.as_str(), captures.get(number + 1).map_or("", |unit| unit.as_str()))
}

/// The first size that `pattern` finds in `text`; its first two groups are number and unit.
pub(crate) fn find_size(pattern: &LazyLock<Regex>, text: &str) -> Option<Bytes> {
    captured_size(&pattern.captures(text)?, 1)
}

/// The number in a capture group.
pub(crate) fn captured_number<T: std::str::FromStr>(captures: &Captures<'_>, group: usize) -> Option<T> {
    captures.get(group)?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_all_writers() {
        assert_eq!(size("1.17", "GiB"), Some(Bytes::new(1_256_277_934)));
        assert_eq!(size("214,748,364,800", "bytes"), Some(Bytes::gib(200)));
        assert!(size("17179869183.95", "GiB").is_some_and(|wrapped| wrapped > Bytes::gib(1 << 33)));
        assert_eq!(binary_size("89.180222", "MB"), Some(Bytes::new(93_512_240)));
        assert_eq!(binary_size("5", "B"), Some(Bytes::new(5)));
        assert_eq!(size("2", "gib"), Some(Bytes::gib(2)));
        assert_eq!(binary_size("3", "mb"), Some(Bytes::mib(3)));
        assert_eq!(size("x", "GiB"), None);
        assert_eq!(size("1", "parsec"), None);
    }
}
