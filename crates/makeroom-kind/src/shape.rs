//! Finds backward passes without stacks, by the shape that training gives to a recording.
//!
//! A forward pass keeps a result of nearly every operation, and the backward pass frees them in reverse order. So within
//! a step the number of live results rises to the start of the backward pass and falls in it. Numbers are used and not
//! bytes, because they do not depend on the length of a sequence or the size of a batch.
//!
//! Steps end where an optimizer's `record_function` scope ends. Recordings without scopes are cut where the number of
//! short-lived allocations has fallen. A part whose results are not freed in reverse order is not a training step.

use makeroom_core::DeviceTrace;

use crate::phases::{Phase, Phases, Spans};
use crate::table::{Allocation, Table};

/// A backward pass frees at least this many results.
const LEAST_RESULTS: usize = 6;
/// At least this share of neighboring results is freed in reverse order.
const LEAST_REVERSED: f64 = 0.7;
/// A pass ends when this share of its results is freed: the program frees the last ones itself.
const PASS_SHARE: f64 = 0.95;
/// Cuts are made where the number of short-lived allocations falls below this share of its maximum …
const LOW: f64 = 0.4;
/// … after it was above this one.
const HIGH: f64 = 0.6;

/// The phases of a recording without stacks.
pub(crate) fn phases(device: &DeviceTrace, table: &Table, optimizer: &Spans) -> Phases {
    let length = device.events.len();
    let short_lived: Vec<(usize, usize)> = table
        .rows
        .iter()
        .filter_map(|row| Some((row.born()?, end_of(row, length)?)))
        .filter(|(born, end)| (end - born) * 2 < length)
        .collect();
    let mut cuts: Vec<usize> = optimizer.ends().collect();
    if cuts.is_empty() {
        cuts = valleys(&short_lived, length);
    }
    cuts.push(length);
    let mut of_event = vec![Phase::Setup; length];
    let mut start = 0;
    let mut rows = short_lived.iter().copied().peekable();
    let mut has_pass = false;
    for cut in cuts {
        let mut inside = Vec::new();
        while let Some((born, end)) = rows.next_if(|&(born, _)| born < cut) {
            if born >= start && end < cut {
                inside.push((born, end));
            }
        }
        if let Some(step) = Step::find(&inside) {
            has_pass = true;
            of_event[start..step.forward].fill(if start == 0 { Phase::Setup } else { Phase::Between });
            of_event[step.forward..step.backward].fill(Phase::Forward);
            of_event[step.backward..step.end].fill(Phase::Backward);
            of_event[step.end..cut].fill(Phase::Between);
        } else if has_pass {
            of_event[start..cut].fill(Phase::Between);
        }
        start = cut.max(start);
    }
    for (event, phase) in of_event.iter_mut().enumerate() {
        if optimizer.contains(event) {
            *phase = Phase::Optimizer;
        }
    }
    Phases::of_events(device, of_event)
}

/// The event that ends an allocation, if the recording has it.
fn end_of(row: &Allocation, length: usize) -> Option<usize> {
    Some(row.end()).filter(|&end| end < length)
}

/// The events at which the number of short-lived allocations is lowest between two rises.
fn valleys(rows: &[(usize, usize)], length: usize) -> Vec<usize> {
    let mut changes = vec![0_i32; length + 1];
    for &(born, end) in rows {
        changes[born] += 1;
        changes[end.max(born)] -= 1;
    }
    let mut live = 0;
    let numbers: Vec<i32> = changes
        .iter()
        .map(|change| {
            live += change;
            live
        })
        .collect();
    let most = f64::from(numbers.iter().copied().max().unwrap_or(0));
    let (low, high) = (most * LOW, most * HIGH);
    let mut cuts = Vec::new();
    let mut lowest: Option<(i32, usize)> = None;
    let mut was_high = false;
    for (event, &number) in numbers.iter().enumerate() {
        if f64::from(number) >= high {
            cuts.extend(lowest.take().map(|(_, event)| event));
            was_high = true;
        } else if was_high && f64::from(number) < low && lowest.is_none_or(|(least, _)| number <= least) {
            lowest = Some((number, event));
        }
    }
    cuts
}

/// The phases of one step.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    /// The first event of the forward pass.
    forward: usize,
    /// The first event of the backward pass.
    backward: usize,
    /// The first event after it.
    end: usize,
}

impl Step {
    /// Finds them among the allocations that are made and freed within the step, by birth.
    fn find(rows: &[(usize, usize)]) -> Option<Self> {
        let first = rows.first()?.0;
        let last = rows.iter().map(|&(_, end)| end).max()?;
        let mut changes = vec![0_i32; last - first + 2];
        for &(born, end) in rows {
            changes[born - first] += 1;
            changes[end.max(born) - first] -= 1;
        }
        let (mut live, mut most, mut backward) = (0, 0, first);
        for (offset, change) in changes.iter().enumerate() {
            live += change;
            if live > most {
                (most, backward) = (live, first + offset + 1);
            }
        }
        let saved: Vec<(usize, usize)> =
            rows.iter().copied().filter(|&(born, end)| born < backward && end >= backward).collect();
        if saved.len() < LEAST_RESULTS {
            return None;
        }
        let reversed = saved.windows(2).filter(|pair| pair[1].1 < pair[0].1).count();
        if (reversed as f64) < LEAST_REVERSED * (saved.len() - 1) as f64 {
            return None;
        }
        let mut ends: Vec<usize> = saved.iter().map(|&(_, end)| end).collect();
        ends.sort_unstable();
        let at = ((ends.len() - 1) as f64 * PASS_SHARE) as usize;
        Some(Self { forward: saved[0].0, backward, end: ends[at] + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_found_by_frees_in_reverse_order() {
        // Ten results, freed in reverse order, with a temporary in each layer.
        let mut rows = Vec::new();
        for layer in 0..10 {
            rows.push((layer * 4, 60 + (10 - layer) * 2));
            rows.push((layer * 4 + 1, layer * 4 + 2));
        }
        let step = Step::find(&rows).unwrap();
        assert_eq!((step.forward, step.backward), (0, 37 + 1));
        assert!((76..=81).contains(&step.end), "{step:?}");
        let in_order: Vec<_> = (0..10).map(|layer| (layer * 4, 60 + layer * 2)).collect();
        assert_eq!(Step::find(&in_order), None);
        assert_eq!(Step::find(&[]), None);
        assert_eq!(Step::find(&[(3, 3), (3, 3)]), None);
    }

    #[test]
    fn recordings_are_cut_where_few_are_live() {
        let mut rows = Vec::new();
        for step in 0..3 {
            for layer in 0..10 {
                rows.push((step * 40 + layer, step * 40 + 30 - layer));
            }
        }
        let cuts = valleys(&rows, 120);
        assert_eq!(cuts.len(), 2);
        assert!((30..=40).contains(&cuts[0]) && (70..=80).contains(&cuts[1]), "{cuts:?}");
        assert_eq!(valleys(&[], 0), Vec::<usize>::new());
    }
}
