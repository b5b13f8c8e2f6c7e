//! The size of an allocation as a function of the batch, called its law.
//!
//! Sizes of tensors are whole multiples, so a law is stored as the observed points and evaluated in integers: linear
//! laws are exact to the byte, and rounding up never loses a byte.

use crate::sizes::Sizes;

/// A batch and the size of an allocation with it.
pub(crate) type Point = (u64, u64);

/// Sizes may differ this much from a line, because libraries align their requests.
const ALIGNMENT: u64 = 512;
/// Larger allocations may differ by 1/500.
const TOLERANCE: u64 = 500;

/// How a size depends on the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeLaw {
    /// Not at all.
    Fixed(u64),
    /// A line through two points.
    Line([Point; 2]),
    /// A parabola through three points.
    Curve([Point; 3]),
    /// Proportional to the mean size at this site, which follows a line through two points: shapes vary from step to
    /// step.
    Share {
        /// The observed size.
        size: u64,
        /// The mean sizes in two runs, of which the last is the one with the observed size.
        means: [Point; 2],
    },
}

/// A law and its quality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) law: SizeLaw,
    /// Whether no point contradicts it.
    pub(crate) is_exact: bool,
}

impl SizeLaw {
    /// The law of the requested sizes, from points with ascending, distinct batches; at least one.
    ///
    /// Recorded block sizes only give bounds on the request, so the simplest law within all bounds is chosen: nearly
    /// every tensor is fixed or proportional to the batch. With the smallest batches, libraries may behave
    /// differently; then the other points decide.
    pub(crate) fn from_points(points: &[Point], kind: Sizes) -> Found {
        if kind == Sizes::Requested || points.len() < 2 {
            return Self::through(points);
        }
        let mut larger = (0..points.len() - 1).map(|first| &points[first..]);
        larger.find_map(|points| Self::plain(points, kind)).unwrap_or_else(|| Self::near_last(points))
    }

    /// Fixed, or proportional to the batch.
    fn plain(points: &[Point], kind: Sizes) -> Option<Found> {
        let is_same = points.windows(2).all(|pair| pair[0].1 == pair[1].1);
        let proportional = if is_same { None } else { Self::proportional(points, kind) };
        proportional.or_else(|| Self::fixed(points, kind))
    }

    /// The fallback if no simple law fits, because a library changed its algorithm between the runs. The last point is
    /// closest to the batches of interest, so the law goes through it. Beyond it, the size continues to grow as
    /// before, but at most in proportion to the batch.
    fn near_last(points: &[Point]) -> Found {
        let Some((&last, before)) = points.split_last() else { return Self::through(points) };
        let proportional = Self::Line([(0, 0), last]);
        let rises = |&&before: &&Point| before.1 <= last.1 && before.1 >= proportional.at(before.0);
        let line = before.last().filter(rises).map(|&before| Self::Line([before, last]));
        Found { law: line.unwrap_or(proportional), is_exact: points.len() == 2 && line.is_some() }
    }

    fn proportional(points: &[Point], kind: Sizes) -> Option<Found> {
        let product = |one: u64, two: u64| u128::from(one) * u128::from(two);
        let less = |one: &&Point, two: &&Point| product(one.1, two.0).cmp(&product(two.1, one.0));
        let &(batch, size) = points.iter().min_by(less)?;
        let law = Self::Line([(0, 0), (batch, size)]);
        let is_within = points.iter().all(|point| law.at(point.0) >= kind.least(point.1));
        (batch > 0 && is_within).then_some(Found { law, is_exact: true })
    }

    fn fixed(points: &[Point], kind: Sizes) -> Option<Found> {
        let size = points.iter().map(|point| point.1).min()?;
        let is_within = points.iter().all(|point| size >= kind.least(point.1));
        is_within.then_some(Found { law: Self::Fixed(size), is_exact: true })
    }

    /// The law through points with ascending, distinct batches; at least one.
    pub(crate) fn through(points: &[Point]) -> Found {
        let Some((&first, &last)) = points.first().zip(points.last()) else {
            return Found { law: Self::Fixed(0), is_exact: false };
        };
        if points.iter().all(|point| point.1 == first.1) {
            return Found { law: Self::Fixed(first.1), is_exact: points.len() > 1 };
        }
        let is_rising = points.windows(2).all(|pair| pair[0].1 <= pair[1].1);
        if !is_rising {
            let largest = points.iter().map(|point| point.1).max().unwrap_or(0);
            return Found { law: Self::Fixed(largest), is_exact: false };
        }
        let line = Self::Line([first, last]);
        // A line with a negative value at batch 0 is not the law: the size grows faster than linearly.
        let crosses_zero =
            i128::from(first.1) * i128::from(last.0) < i128::from(last.1) * i128::from(first.0);
        let between = &points[1..points.len() - 1];
        let is_line = between.iter().all(|&(batch, size)| is_near(line.at(batch), size));
        if is_line && !crosses_zero {
            return Found { law: line, is_exact: true };
        }
        let Some(&middle) = between.last() else {
            return Found { law: Self::Curve([(0, 0), first, last]), is_exact: true };
        };
        if line.at(middle.0) >= middle.1 {
            let law = Self::Curve([first, middle, last]);
            return Found {
                law,
                is_exact: between.iter().all(|&(batch, size)| is_near(law.at(batch), size)),
            };
        }
        // It grows ever more slowly, so extrapolating the last rise overestimates it, which is safe.
        Found { law: Self::Line([middle, last]), is_exact: false }
    }

    /// The size at a batch, rounded up.
    pub fn at(&self, batch: u64) -> u64 {
        match *self {
            Self::Fixed(size) => size,
            Self::Line(points) => line(points, batch),
            Self::Curve(points) => curve(points, batch),
            Self::Share { size, means } => {
                let then = i128::from(means[1].1.max(1));
                let now = i128::from(line(means, batch));
                to_size(div_ceil(i128::from(size) * now, then))
            }
        }
    }

    /// Whether it depends on the batch at all.
    pub fn grows(&self) -> bool {
        !matches!(self, Self::Fixed(_))
    }
}

fn is_near(one: u64, two: u64) -> bool {
    one.abs_diff(two) <= ALIGNMENT.max(two / TOLERANCE)
}

fn line([(batch, size), (next_batch, next_size)]: [Point; 2], at: u64) -> u64 {
    let run = i128::from(next_batch) - i128::from(batch);
    if run == 0 {
        return next_size;
    }
    let rise = i128::from(next_size) - i128::from(size);
    to_size(i128::from(size) + div_ceil(rise * (i128::from(at) - i128::from(batch)), run))
}

/// Newton's form: the divided differences are integers over the product of the distances.
fn curve([(b0, s0), (b1, s1), (b2, s2)]: [Point; 3], at: u64) -> u64 {
    let [b0, b1, b2, s0, s1, s2, at] = [b0, b1, b2, s0, s1, s2, at].map(i128::from);
    let (left, right, whole) = (b1 - b0, b2 - b1, b2 - b0);
    if left == 0 || right == 0 || whole == 0 {
        return to_size(s2);
    }
    let divisor = left * right * whole;
    let slope = (s1 - s0) * right * whole;
    let bend = (s2 - s1) * left - (s1 - s0) * right;
    let Some(more) = bend.checked_mul(at - b1) else { return u64::MAX };
    let Some(rise) = slope.checked_add(more).and_then(|sum| sum.checked_mul(at - b0)) else {
        return u64::MAX;
    };
    to_size(s0 + div_ceil(rise, divisor))
}

fn div_ceil(number: i128, by: i128) -> i128 {
    number.div_euclid(by) + i128::from(number.rem_euclid(by) != 0)
}

/// Clamps to the range of sizes.
fn to_size(size: i128) -> u64 {
    u64::try_from(size.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_does_not_change_is_fixed() {
        let found = SizeLaw::through(&[(2, 700), (8, 700)]);
        assert_eq!(found, Found { law: SizeLaw::Fixed(700), is_exact: true });
        assert_eq!(found.law.at(1000), 700);
    }

    #[test]
    fn two_points_make_a_line_unless_it_would_begin_below_nothing() {
        let line = SizeLaw::through(&[(2, 1024 + 2 * 96), (8, 1024 + 8 * 96)]);
        assert!(line.is_exact);
        assert_eq!(line.law.at(100), 1024 + 9600);
        let square = SizeLaw::through(&[(2, 40), (8, 640)]);
        assert_eq!(square.law.at(100), 100_000);
    }

    #[test]
    fn three_points_tell_a_line_from_a_square_and_from_what_levels_off() {
        assert_eq!(SizeLaw::through(&[(2, 200), (4, 400), (8, 800)]).law.at(16), 1600);
        let square = |batch: u64| 10_000 * batch * batch + 300 * batch + 77;
        let found = SizeLaw::through(&[(2, square(2)), (5, square(5)), (9, square(9))]);
        assert_eq!(found.law.at(33), square(33));
        let levels_off = SizeLaw::through(&[(2, 1 << 20), (4, 4 << 20), (8, 5 << 20)]);
        assert!(!levels_off.is_exact);
        assert_eq!(levels_off.law.at(16), 7 << 20);
    }

    #[test]
    fn what_falls_is_taken_at_its_largest() {
        let found = SizeLaw::through(&[(2, 100), (4, 900), (8, 300)]);
        assert_eq!(found, Found { law: SizeLaw::Fixed(900), is_exact: false });
    }

    #[test]
    fn blocks_that_were_not_cut_hide_a_plain_law_from_nobody() {
        let mib = 1_u64 << 20;
        // 2 MiB per unit, once in a block that was half a mebibyte larger.
        let found =
            SizeLaw::from_points(&[(4, 8 * mib + mib / 2), (27, 54 * mib), (48, 96 * mib)], Sizes::Blocks);
        assert_eq!((found.law.at(59), found.is_exact), (118 * mib, true));
        let fixed = SizeLaw::from_points(&[(4, 5 * mib), (27, 4 * mib)], Sizes::Blocks);
        assert_eq!(fixed, Found { law: SizeLaw::Fixed(4 * mib), is_exact: true });
        let workspace = SizeLaw::from_points(&[(4, 40 * mib), (27, 86 * mib)], Sizes::Blocks);
        assert_eq!(workspace.law.at(50), 132 * mib);
        let other_way = SizeLaw::from_points(&[(4, 60 * mib), (27, 54 * mib), (48, 96 * mib)], Sizes::Blocks);
        assert_eq!((other_way.law.at(59), other_way.is_exact), (118 * mib, true));
    }

    proptest! {
        #[test]
        fn a_law_goes_through_its_points_and_never_overflows(
            batches in prop::collection::btree_set(1_u64..1 << 24, 1..4),
            sizes in prop::collection::vec(0_u64..1 << 50, 3),
            at in any::<u64>(),
        ) {
            let mut sizes = sizes;
            sizes.sort_unstable();
            let points: Vec<Point> = batches.into_iter().zip(sizes).collect();
            let found = SizeLaw::through(&points);
            found.law.at(at);
            let (batch, size) = points[points.len() - 1];
            prop_assert_eq!(found.law.at(batch), size);
        }

        #[test]
        fn a_line_is_exact_to_the_byte(fixed in 0_u64..1 << 40, slope in 0_u64..1 << 30, at in 1_u64..1 << 16) {
            let size = |batch: u64| fixed + slope * batch;
            let found = SizeLaw::through(&[(3, size(3)), (11, size(11)), (40, size(40))]);
            prop_assert_eq!(found.law.at(at), size(at));
        }
    }
}
