//! How far the ranks differ over time. Each rank's time is counted from the start of its own recording, so the clocks
//! of hosts do not matter.

use super::groups::median;
use super::select::Process;
use crate::report::{Imbalance, ImbalancePoint};

/// Points in time.
const POINTS: u64 = 20;

/// Compares the ranks at equal times since they began; `None` with fewer than three.
pub(super) fn find(processes: &[Process<'_>]) -> Option<Imbalance> {
    let ranks: Vec<&Process<'_>> = processes
        .iter()
        .filter(|process| process.series.iter().any(|series| !series.elapsed_us.is_empty()))
        .collect();
    if ranks.len() < 3 {
        return None;
    }
    let length = |process: &Process<'_>| {
        process.series.iter().filter_map(|series| series.elapsed_us.last()).max().copied()
    };
    // Beyond the median, ranks that ended early would be compared with their last value only.
    let end = median(ranks.iter().filter_map(|process| length(process)).collect());
    if end == 0 {
        return None;
    }
    let held = |process: &Process<'_>, elapsed| {
        process.series.iter().map(|series| series.held_at(elapsed)).fold(0, u64::saturating_add)
    };
    let points: Vec<ImbalancePoint> = (1..=POINTS)
        .filter_map(|point| {
            let elapsed_us = (u128::from(end) * u128::from(point) / u128::from(POINTS)) as u64;
            let values: Vec<u64> = ranks.iter().map(|process| held(process, elapsed_us)).collect();
            let (index, &largest_bytes) =
                values.iter().enumerate().max_by_key(|&(index, &bytes)| (bytes, std::cmp::Reverse(index)))?;
            let largest = ranks[index].label.clone();
            let median_bytes = median(values);
            (median_bytes > 0).then_some(ImbalancePoint { elapsed_us, median_bytes, largest_bytes, largest })
        })
        .collect();
    let ratio = |point: &ImbalancePoint| point.largest_bytes as f64 / point.median_bytes as f64;
    Some(Imbalance { first_ratio: ratio(points.first()?), last_ratio: ratio(points.last()?), points })
}
