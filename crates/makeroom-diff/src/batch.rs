//! Recognizes runs that differ in the size of their batches: most lines that hold activations and inputs hold the same
//! multiple of what they held before, and the parameters are the same.
//!
//! One line that grew is not evidence of another batch, even if it holds all activations (`model(batch)`): inputs must
//! have the same ratio, or, if no inputs were recorded, several lines must.

use makeroom_core::SortCompact as _;
use makeroom_kind::Kind;

use crate::lines::LineChange;
use crate::profile::Profile;

/// Ratios that differ by less than this are one: some results do not grow with the batch.
const TOLERANCE: f64 = 0.02;
/// At least this share of the bytes must have the ratio.
const LEAST_SHARE: f64 = 0.8;
/// Less is no other batch.
const LEAST_CHANGE: f64 = 0.02;
/// Lines that must have the ratio if it is also the ratio of the inputs.
const LINES_WITH_INPUTS: usize = 2;
/// Lines that must have the ratio if no inputs were recorded.
const LINES_WITHOUT_INPUTS: usize = 3;
/// The inputs may contain tensors that do not grow with the batch.
const INPUT_TOLERANCE: f64 = 0.1;
/// Allocators round small inputs, such as labels, up to this size.
const BLOCK_BYTES: f64 = 512.0;

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
    ratios.sort_compact_by(|one, two| one.0.total_cmp(&two.0));
    let ratio = weighted_median(&ratios, all)?;
    let same: Vec<f64> = ratios
        .iter()
        .filter(|(other, _)| (other / ratio - 1.0).abs() <= TOLERANCE)
        .map(|&(_, bytes)| bytes as f64)
        .collect();
    let share = same.iter().sum::<f64>() / all;
    let is_other = (ratio - 1.0).abs() >= LEAST_CHANGE && ratio > 0.0;
    let is_confirmed = match inputs_follow(ratio, lines) {
        Some(follow) => follow && same.len() >= LINES_WITH_INPUTS,
        None => same.len() >= LINES_WITHOUT_INPUTS,
    };
    (is_other && is_confirmed && share >= LEAST_SHARE).then_some(BatchRatio { ratio, share })
}

/// Whether the inputs have this ratio too; `None` if a run has none.
fn inputs_follow(ratio: f64, lines: &[LineChange]) -> Option<bool> {
    let inputs = || lines.iter().filter(|line| line.kind == Kind::Inputs.id());
    let before: f64 = inputs().map(|line| line.before as f64).sum();
    let after: f64 = inputs().map(|line| line.after as f64).sum();
    if before == 0.0 || after == 0.0 {
        return None;
    }
    let blocks: f64 = inputs().map(|line| line.blocks.0 as f64 * ratio + line.blocks.1 as f64).sum();
    let expected = before * ratio;
    Some((after - expected).abs() <= INPUT_TOLERANCE * expected + BLOCK_BYTES * blocks)
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

    const KIB: u64 = 1 << 10;

    fn line(kind: Kind, (before, after): (u64, u64)) -> LineChange {
        LineChange {
            status: LineStatus::Grown,
            kind: kind.id().to_owned(),
            place: None,
            moved_from: None,
            before,
            after,
            blocks: (1, 1),
        }
    }

    fn ratio(parameters: (u64, u64), inputs: &[(u64, u64)], activations: &[(u64, u64)]) -> Option<f64> {
        let profile =
            |bytes| Profile { kinds: [("parameters".to_owned(), bytes)].into(), ..Profile::default() };
        let inputs = inputs.iter().map(|&bytes| line(Kind::Inputs, bytes));
        let activations = activations.iter().map(|&bytes| line(Kind::Activations, bytes));
        let lines: Vec<LineChange> = inputs.chain(activations).collect();
        find(&profile(parameters.0), &profile(parameters.1), &lines).map(|batch| batch.ratio)
    }

    #[test]
    fn one_ratio_of_most_bytes_is_another_batch() {
        assert_eq!(ratio((9, 9), &[], &[(100, 200), (300, 600), (40, 80), (10, 10)]), Some(2.0));
        assert_eq!(ratio((9, 9), &[], &[(100, 75), (300, 225), (40, 30)]), Some(0.75));
        // Other parameters, the same batch, one line that grew, nothing at all.
        assert_eq!(ratio((9, 8), &[], &[(100, 200), (300, 600), (40, 80)]), None);
        assert_eq!(ratio((9, 9), &[], &[(100, 100), (300, 300), (40, 40)]), None);
        assert_eq!(ratio((9, 9), &[], &[(100, 100), (300, 600), (100, 100)]), None);
        assert_eq!(ratio((9, 9), &[], &[]), None);
    }

    #[test]
    fn one_line_is_another_batch_only_if_the_inputs_follow() {
        let large = 1 << 30;
        assert_eq!(ratio((9, 9), &[], &[(large, 2 * large)]), None);
        assert_eq!(ratio((9, 9), &[], &[(large, 2 * large), (64, 128)]), None);
        assert_eq!(ratio((9, 9), &[(64 * KIB, 128 * KIB)], &[(large, 2 * large)]), Some(2.0));
        assert_eq!(ratio((9, 9), &[(64 * KIB, 183 * KIB)], &[(large, 2 * large)]), None);
        let many = [(large, 2 * large), (large, 2 * large), (large, 2 * large)];
        assert_eq!(ratio((9, 9), &[(64 * KIB, 64 * KIB)], &many), None);
        // Labels of a small batch fit in one block, whatever the batch.
        assert_eq!(ratio((9, 9), &[(512, 512)], &many), Some(2.0));
    }
}
