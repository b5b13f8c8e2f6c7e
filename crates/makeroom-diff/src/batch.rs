//! Recognizes runs that differ in the size of their batches: most lines that hold activations and inputs hold the same
//! multiple of what they held before, and the parameters are the same.

use makeroom_kind::Kind;

use crate::lines::LineChange;
use crate::profile::Profile;

/// Ratios that differ by less than this are one: some results do not grow with the batch.
const TOLERANCE: f64 = 0.02;
/// At least this share of the bytes must have the ratio.
const LEAST_SHARE: f64 = 0.8;
/// Less is no other batch.
const LEAST_CHANGE: f64 = 0.02;

/// By how much a batch is larger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchRatio {
    /// The batch now ÷ the batch before.
    pub ratio: f64,
    /// The share of activations and inputs that has this ratio, by bytes.
    pub share: f64,
}

/// The ratio of the batches, if the runs differ in nothing else that matters.
pub(crate) fn find(before: &Profile, after: &Profile, lines: &[LineChange]) -> Option<BatchRatio> {
    let parameters = Kind::Parameters.id();
    if before.of_kind(parameters) == 0 || before.of_kind(parameters) != after.of_kind(parameters) {
        return None;
    }
    let scales = |line: &&LineChange| {
        line.before > 0 && [Kind::Activations.id(), Kind::Inputs.id()].contains(&line.kind.as_str())
    };
    let mut ratios: Vec<(f64, u64)> = lines
        .iter()
        .filter(scales)
        .map(|line| (line.after as f64 / line.before as f64, line.before))
        .collect();
    let all: f64 = ratios.iter().map(|&(_, bytes)| bytes as f64).sum();
    ratios.sort_by(|one, two| one.0.total_cmp(&two.0));
    let ratio = weighted_median(&ratios, all)?;
    let same: f64 = ratios
        .iter()
        .filter(|(other, _)| (other / ratio - 1.0).abs() <= TOLERANCE)
        .map(|&(_, bytes)| bytes as f64)
        .sum();
    let share = same / all;
    let is_other = (ratio - 1.0).abs() >= LEAST_CHANGE && ratio > 0.0;
    (is_other && share >= LEAST_SHARE).then_some(BatchRatio { ratio, share })
}

fn weighted_median(ratios: &[(f64, u64)], all: f64) -> Option<f64> {
    let mut sum = 0.0;
    ratios
        .iter()
        .find(|&&(_, bytes)| {
            sum += bytes as f64;
            sum * 2.0 >= all
        })
        .map(|&(ratio, _)| ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::LineStatus;

    fn ratio(parameters: (u64, u64), lines: &[(u64, u64)]) -> Option<f64> {
        let profile =
            |bytes| Profile { kinds: [("parameters".to_owned(), bytes)].into(), ..Profile::default() };
        let lines: Vec<LineChange> = lines
            .iter()
            .map(|&(before, after)| LineChange {
                status: LineStatus::Grown,
                kind: "activations".to_owned(),
                place: None,
                moved_from: None,
                before,
                after,
                blocks: (1, 1),
            })
            .collect();
        find(&profile(parameters.0), &profile(parameters.1), &lines).map(|batch| batch.ratio)
    }

    #[test]
    fn one_ratio_of_most_bytes_is_another_batch() {
        assert_eq!(ratio((9, 9), &[(100, 200), (300, 600), (10, 10)]), Some(2.0));
        assert_eq!(ratio((9, 9), &[(100, 75), (300, 225)]), Some(0.75));
        // Other parameters, the same batch, one line that grew, nothing at all.
        assert_eq!(ratio((9, 8), &[(100, 200)]), None);
        assert_eq!(ratio((9, 9), &[(100, 100), (300, 300)]), None);
        assert_eq!(ratio((9, 9), &[(100, 100), (300, 600)]), None);
        assert_eq!(ratio((9, 9), &[]), None);
    }
}
