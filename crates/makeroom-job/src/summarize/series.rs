//! Memory over time and over steps, in a bounded number of points.
//!
//! A recording of at most 200 changes is kept exactly. A longer one is cut into 200 intervals of equal length, each with
//! the value at its end and its peak, so that neither a short peak nor the value at a failure is lost.

use makeroom_core::{Action, Bytes, DeviceTrace, FastMap, Start, Trace};
use makeroom_explain::{held_over_time, step_starts};

use super::waste::{Waste, WasteOverTime};
use crate::tables::{SeriesRow, StepRow};

/// Points of a series, and steps.
pub(crate) const MOST_POINTS: usize = 200;

/// One change of held memory.
#[derive(Clone, Copy)]
struct Change {
    elapsed_us: u64,
    held: u64,
    peak: u64,
}

/// A device over time.
pub(super) struct OverTime {
    points: Vec<Change>,
    steps: Vec<(u64, u64)>,
    failures: FastMap<usize, u64>,
    waste: Option<WasteOverTime>,
    pub(super) peak_bytes: u64,
    pub(super) last_bytes: u64,
    /// The contexts of the process with their code, at the end.
    pub(super) context_bytes: u64,
}

impl OverTime {
    pub(super) fn new(trace: &Trace, device: &DeviceTrace, start: &Start, began_us: Option<u64>) -> Self {
        let has_times = began_us.is_some();
        let began_us = began_us.unwrap_or(0);
        let mut starts = step_starts(trace, device).into_iter().peekable();
        let mut steps: Vec<(u64, u64)> = Vec::new();
        let mut changes: Vec<Change> = Vec::new();
        let mut failures = FastMap::default();
        let mut before = None;
        let mut waste = has_times.then(|| WasteOverTime::new(start));
        let over_time = held_over_time(trace, device, start, |index, event, held| {
            let held = held.get();
            if let Some(waste) = &mut waste {
                waste.apply(event, held);
            }
            // Without times, the number of the event is the time.
            let elapsed_us = if has_times { event.time_us.saturating_sub(began_us) } else { index as u64 };
            if event.action == Action::OutOfMemory {
                failures.insert(index, held);
            }
            if starts.next_if(|&start| start <= index).is_some() {
                steps.push((held, held));
            }
            if let Some((peak, floor)) = steps.last_mut() {
                (*peak, *floor) = ((*peak).max(held), (*floor).min(held));
            }
            if before != Some(held) {
                before = Some(held);
                changes.push(Change { elapsed_us, held, peak: held });
            }
        });
        let (first, context_bytes) = (over_time.before, over_time.contexts.map_or(0, Bytes::get));
        let last_bytes = changes.last().map_or(first.get(), |change| change.held);
        let peak_bytes = changes.iter().map(|change| change.held).fold(first.get(), u64::max);
        if !first.is_zero() {
            changes.insert(0, Change { elapsed_us: 0, held: first.get(), peak: first.get() });
        }
        let (points, steps) = (reduced(changes), merged(&steps));
        Self { points, steps, failures, waste, peak_bytes, last_bytes, context_bytes }
    }

    /// Cached and fragmented memory; nothing if the recording has no times.
    pub(super) fn waste(&self, ended_us: Option<u64>) -> Waste {
        self.waste.as_ref().map_or_else(Waste::default, |waste| waste.until(ended_us))
    }

    /// Memory held when the event at an index failed.
    pub(super) fn held_at_failure(&self, index: usize) -> Option<u64> {
        self.failures.get(&index).copied()
    }

    pub(super) fn rows(self, recording: &str, device: u32) -> (SeriesRow, Vec<StepRow>) {
        let series = SeriesRow {
            recording: recording.to_owned(),
            device,
            elapsed_us: self.points.iter().map(|point| point.elapsed_us).collect(),
            held_bytes: self.points.iter().map(|point| point.held).collect(),
            peak_bytes: self.points.iter().map(|point| point.peak).collect(),
        };
        let step = |(number, (peak_bytes, floor_bytes)): (usize, (u64, u64))| StepRow {
            recording: recording.to_owned(),
            device,
            step: number as u32,
            peak_bytes,
            floor_bytes,
        };
        (series, self.steps.into_iter().enumerate().map(step).collect())
    }
}

/// At most [`MOST_POINTS`] points: one per interval of equal length that has changes.
fn reduced(changes: Vec<Change>) -> Vec<Change> {
    let (Some(first), Some(last)) = (changes.first(), changes.last()) else { return changes };
    if changes.len() <= MOST_POINTS {
        return changes;
    }
    let (start, length) = (first.elapsed_us, last.elapsed_us.saturating_sub(first.elapsed_us).max(1));
    let interval = |change: &Change| {
        let since = u128::from(change.elapsed_us.saturating_sub(start));
        ((since * MOST_POINTS as u128 / u128::from(length)) as usize).min(MOST_POINTS - 1)
    };
    let mut points: Vec<(usize, Change)> = Vec::new();
    for change in changes {
        match points.last_mut() {
            // Times of a hostile recording may go backward; its points do not.
            Some((number, point)) if interval(&change) <= *number => {
                point.peak = point.peak.max(change.held);
                point.held = change.held;
                point.elapsed_us = point.elapsed_us.max(change.elapsed_us);
            }
            _ => points.push((interval(&change), change)),
        }
    }
    points.into_iter().map(|(_, point)| point).collect()
}

/// At most [`MOST_POINTS`] steps; neighbors are merged.
fn merged(steps: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let each = steps.len().div_ceil(MOST_POINTS).max(1);
    let merge = |steps: &[(u64, u64)]| {
        let peak = steps.iter().map(|step| step.0).max().unwrap_or(0);
        (peak, steps.iter().map(|step| step.1).min().unwrap_or(0))
    };
    steps.chunks(each).map(merge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_peak_survives_the_reduction() {
        let changes: Vec<Change> = (0..100_000)
            .map(|time| {
                let held = if time == 77_777 { 1_000_000 } else { time % 100 };
                Change { elapsed_us: time, held, peak: held }
            })
            .collect();
        let points = reduced(changes);
        assert!(points.len() <= MOST_POINTS, "{}", points.len());
        assert_eq!(points.iter().map(|point| point.peak).max(), Some(1_000_000));
        assert_eq!(points.last().map(|point| (point.elapsed_us, point.held)), Some((99_999, 99)));
    }

    #[test]
    fn times_that_go_backward_do_not_add_points() {
        let change = |elapsed_us| Change { elapsed_us, held: elapsed_us, peak: elapsed_us };
        let changes: Vec<Change> = (0..1000).flat_map(|time| [change(time), change(1000 - time)]).collect();
        let points = reduced(changes);
        assert!(points.len() <= MOST_POINTS);
        assert!(points.is_sorted_by_key(|point| point.elapsed_us));
    }

    #[test]
    fn many_steps_are_merged() {
        let steps: Vec<(u64, u64)> = (0..1000).map(|step| (step + 10, step)).collect();
        let merged = merged(&steps);
        assert_eq!((merged.len(), merged[0], merged[199]), (200, (14, 0), (1009, 995)));
    }
}
