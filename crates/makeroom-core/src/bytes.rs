//! Memory sizes: one type, with one way to format and one way to parse them.
//!
//! Every amount of memory in makeroom is a [`Bytes`]. It is formatted in binary units with two decimals (`1.17 GiB`),
//! as in PyTorch and `nvidia-smi`, and parsed from what people type (`24GiB`, `800MB`, `512`). `1GB` is 10⁹ bytes and
//! `1GiB` is 2³⁰; a single letter (`1G`) is binary, as in `du` and `ls`.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

impl Bytes {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The largest size that can be represented; PyTorch prints wrapped sizes close to it.
    pub const MAX: Self = Self(u64::MAX);

    /// A size in bytes.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size in kibibytes (2¹⁰ bytes).
    pub const fn kib(count: u64) -> Self {
        Self(count.saturating_mul(KIB))
    }

    /// A size in mebibytes (2²⁰ bytes).
    pub const fn mib(count: u64) -> Self {
        Self(count.saturating_mul(MIB))
    }

    /// A size in gibibytes (2³⁰ bytes).
    pub const fn gib(count: u64) -> Self {
        Self(count.saturating_mul(GIB))
    }

    /// A size given as a decimal fraction of a unit, as error texts print it (`1.17` of `GiB`). Saturates;
    /// anything that is not a finite positive number is zero.
    pub fn from_units(amount: f64, unit_bytes: u64) -> Self {
        // A float-to-integer `as` cast saturates and maps NaN to zero, as intended.
        Self((amount * unit_bytes as f64).round() as u64)
    }

    /// The number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// `self − other`, or zero if that would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `self − other` as a signed number, for balances that may be negative.
    pub const fn difference(self, other: Self) -> i64 {
        let difference = self.0 as i128 - other.0 as i128;
        if difference > i64::MAX as i128 {
            i64::MAX
        } else if difference < i64::MIN as i128 {
            i64::MIN
        } else {
            difference as i64
        }
    }

    /// The share of `whole`; 0 if `whole` is zero.
    pub fn share_of(self, whole: Self) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.0 as f64 / whole.0 as f64 }
    }

    /// The size times a factor, rounded to a byte.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self::from_units(self.0 as f64 * factor, 1)
    }

    /// Whether this is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Saturating, like all operations here: inputs are not trusted, and a wrong total must not panic.
impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            bytes if bytes >= 1024 * TIB => format!("{:.2} PiB", bytes as f64 / (1024 * TIB) as f64),
            bytes if bytes >= TIB => format!("{:.2} TiB", bytes as f64 / TIB as f64),
            bytes if bytes >= GIB => format!("{:.2} GiB", bytes as f64 / GIB as f64),
            bytes if bytes >= MIB => format!("{:.2} MiB", bytes as f64 / MIB as f64),
            bytes if bytes >= KIB => format!("{:.2} KiB", bytes as f64 / KIB as f64),
            bytes => format!("{bytes} B"),
        };
        formatter.pad(&text)
    }
}

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseBytesError {
    text: String,
}

impl fmt::Display for ParseBytesError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}` is not a size; sizes are written like `24GiB`, `800MB` or `512`", self.text)
    }
}

impl std::error::Error for ParseBytesError {}

/// The number of bytes in a unit (`GiB`, `MB`, `g`, …), if it is one.
pub fn unit_bytes(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => TIB,
        "p" | "pib" => 1024 * TIB,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "pb" => 1_000_000_000_000_000,
        _ => return None,
    })
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseBytesError { text: text.to_owned() };
        let trimmed = text.trim();
        let split = trimmed.find(|character: char| !character.is_ascii_digit() && character != '.');
        let (number, unit) = trimmed.split_at(split.unwrap_or(trimmed.len()));
        let unit = unit_bytes(unit.trim()).ok_or_else(error)?;
        // Whole numbers are exact up to 2⁶⁴; only fractions are parsed as floats.
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(unit).map(Self).ok_or_else(error);
        }
        let fraction: f64 = number.parse().map_err(|_| error())?;
        if fraction * unit as f64 >= u64::MAX as f64 {
            return Err(error());
        }
        Ok(Self::from_units(fraction, unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_in_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (511, "511 B"),
            (1536, "1.50 KiB"),
            (543_162_368, "518.00 MiB"),
            (1_256_277_934, "1.17 GiB"),
            (u64::MAX, "16384.00 PiB"),
        ] {
            assert_eq!(Bytes::new(bytes).to_string(), text);
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("24GiB", 24 << 30),
            ("800MB", 800_000_000),
            ("1.5 gib", 3 << 29),
            ("6G", 6 << 30),
            ("0", 0),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(text.parse::<Bytes>().map(Bytes::get), Ok(bytes), "{text}");
        }
        for text in ["", "GiB", "-1", "1 parsec", "1.2.3MB", "1e3", "99999999999GiB", "20000PiB", "NaN"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Bytes::new(3) - Bytes::new(5), Bytes::ZERO);
        assert_eq!(Bytes::MAX + Bytes::new(1), Bytes::MAX);
        assert_eq!(Bytes::new(3).difference(Bytes::new(5)), -2);
        assert_eq!(Bytes::MAX.difference(Bytes::ZERO), i64::MAX);
    }
}
