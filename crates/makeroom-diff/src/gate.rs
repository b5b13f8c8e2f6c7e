//! Whether a run needs more memory than a baseline allows.
//!
//! The gate compares peaks of live memory. They are the same in every run of a deterministic program; reserved memory
//! also depends on the GPU and on the allocator's settings.

use std::fmt;
use std::str::FromStr;

use makeroom_core::Bytes;

use crate::compare::{Difference, compare};
use crate::profile::Profile;

/// How much more than its baseline a run may need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// A share of the baseline, in percent.
    Percent(f64),
    /// This much.
    Size(Bytes),
}

/// A text that is not an allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseAllowanceError {
    /// It is neither a percentage nor a size.
    Invalid,
    /// It is a number without a unit: a percentage, a fraction or bytes.
    NoUnit,
}

impl fmt::Display for ParseAllowanceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Invalid => "expected a percentage such as 2% or a size such as 100MiB",
            Self::NoUnit => "a number needs a unit: use a percentage such as 2% or a size such as 100MiB",
        })
    }
}

impl std::error::Error for ParseAllowanceError {}

impl FromStr for Allowance {
    type Err = ParseAllowanceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        if let Some(number) = text.strip_suffix('%') {
            return match number.trim().parse::<f64>() {
                Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(Self::Percent(percent)),
                _ => Err(ParseAllowanceError::Invalid),
            };
        }
        // 0 is the same in every unit.
        if text.parse::<f64>().is_ok_and(|number| number != 0.0) {
            return Err(ParseAllowanceError::NoUnit);
        }
        text.parse().map(Self::Size).map_err(|_| ParseAllowanceError::Invalid)
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(formatter, "{percent} %"),
            Self::Size(size) => write!(formatter, "{size}"),
        }
    }
}

impl Allowance {
    /// The largest peak that is allowed.
    pub fn limit(self, baseline: u64) -> u64 {
        match self {
            Self::Percent(percent) => baseline.saturating_add((baseline as f64 * percent / 100.0) as u64),
            Self::Size(size) => baseline.saturating_add(size.get()),
        }
    }
}

/// A peak below this share of its baseline is more than an improvement: the baseline is stale or of another program.
const LEAST_SHARE: f64 = 0.8;

/// The result of a gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// The largest peak that is allowed.
    pub limit: u64,
    /// How that was determined.
    pub allowance: Allowance,
    /// The run compared with its baseline.
    pub difference: Difference,
}

impl Gate {
    /// Whether the run stays within its allowance.
    pub fn is_within(&self) -> bool {
        self.difference.after <= self.limit
    }

    /// Whether the run needs so much less that the baseline no longer protects it.
    pub fn is_far_below(&self) -> bool {
        (self.difference.after as f64) < LEAST_SHARE * self.difference.before as f64
    }

    /// By how much the limit is exceeded.
    pub fn excess(&self) -> u64 {
        self.difference.after.saturating_sub(self.limit)
    }
}

/// Compares a run with its baseline.
pub fn gate(baseline: &Profile, run: &Profile, allowance: Allowance) -> Gate {
    Gate { limit: allowance.limit(baseline.peak_bytes), allowance, difference: compare(baseline, run) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowances_are_shares_or_sizes() {
        assert_eq!("2%".parse(), Ok(Allowance::Percent(2.0)));
        assert_eq!(" 0.5 % ".parse(), Ok(Allowance::Percent(0.5)));
        assert_eq!("64MiB".parse(), Ok(Allowance::Size(Bytes::mib(64))));
        assert_eq!("0".parse(), Ok(Allowance::Size(Bytes::ZERO)));
        for text in ["", "%", "-1%", "2000%", "nan%", "two", "-5MiB"] {
            assert_eq!(text.parse::<Allowance>(), Err(ParseAllowanceError::Invalid), "{text}");
        }
        for text in ["10", "0.02", " 5 ", "-1", "1e3"] {
            assert_eq!(text.parse::<Allowance>(), Err(ParseAllowanceError::NoUnit), "{text}");
        }
        assert_eq!(Allowance::Percent(2.0).limit(1000), 1020);
        assert_eq!(Allowance::Size(Bytes::new(7)).limit(u64::MAX), u64::MAX);
        assert_eq!(Allowance::Percent(0.0).limit(1000), 1000);
    }

    #[test]
    fn a_run_at_its_limit_is_within_it() {
        let profile = |peak_bytes| Profile { peak_bytes, ..Profile::default() };
        let result = |peak| gate(&profile(1000), &profile(peak), Allowance::Percent(2.0));
        assert!(result(900).is_within() && result(1020).is_within() && !result(1021).is_within());
        assert_eq!(result(1100).excess(), 80);
        assert!(result(799).is_far_below() && !result(800).is_far_below() && !result(1100).is_far_below());
    }
}
