//! Finds backward passes without stacks, by the shape that training gives to a recording.
//!
//! A forward pass keeps a result of nearly every operation, and the backward pass frees them in reverse order. So within
//! a step the number of live results rises to the start of the backward pass and falls in it. Numbers are used and not
//! bytes, because they do not depend on the length of a sequence or the size of a batch.
//!
//! Steps end where an optimizer's `record_function` scope ends. Recordings without scopes are cut where the number of
//! short-lived allocations has fallen. A part whose results are not freed in reverse order is not a training step.

use makeroom_core::{Action, DeviceTrace};

use crate::phases::{Phase, Phases, Spans};
use crate::table::Table;

/// A backward pass frees at least this many results in reverse order.
const LEAST_RESULTS: usize = 6;
/// How many other chains are compared with the longest one.
const MOST_CHAINS: usize = 3;
/// Results that live for fewer events may be temporaries.
const LEAST_LIFE: usize = 16;
/// A pass lasts at least until this share of its results is freed: the program frees the last ones itself.
const PASS_SHARE: f64 = 0.95;
/// Cuts are made where the number of short-lived allocations falls below this share of its maximum …
const LOW: f64 = 0.4;
/// … after it was above this one.
const HIGH: f64 = 0.6;

/// The birth and the end of an allocation, as events.
type Life = (usize, usize);

/// The phases of a recording without stacks.
pub(crate) fn phases(device: &DeviceTrace, table: &Table, optimizer: &Spans) -> Phases {
    let length = device.events.len();
    let lives: Vec<Life> = table.rows.iter().filter_map(|row| Some((row.born()?, row.end()))).collect();
    let mut cuts: Vec<usize> = optimizer.ends().collect();
    if cuts.is_empty() {
        let is_short = |&(born, end): &Life| end < length && (end - born) * 2 < length;
        cuts = valleys(&lives.iter().copied().filter(is_short).collect::<Vec<_>>(), length);
    }
    cuts.push(length);
    let mut of_event = vec![Phase::Setup; length];
    let mut start = 0;
    let mut rest = &lives[..];
    let mut has_pass = false;
    for cut in cuts {
        let (inside, later) = rest.split_at(rest.partition_point(|&(born, _)| born < cut));
        rest = later;
        if let Some(step) = Step::find(inside, cut, optimizer) {
            of_event[start..step.forward].fill(if has_pass { Phase::Between } else { Phase::Setup });
            of_event[step.forward..step.backward].fill(Phase::Forward);
            of_event[step.backward..step.end].fill(Phase::Backward);
            of_event[step.end..cut].fill(Phase::Between);
            has_pass = true;
        } else if has_pass {
            of_event[start..cut].fill(Phase::Between);
            // A step that fails has no backward pass.
            let failure = (start..cut).find(|&event| device.events.actions()[event] == Action::OutOfMemory);
            of_event[start..failure.unwrap_or(start)].fill(Phase::Forward);
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

/// The events at which the number of short-lived allocations is lowest between two rises.
fn valleys(lives: &[Life], length: usize) -> Vec<usize> {
    let mut changes = vec![0_i32; length + 1];
    for &(born, end) in lives {
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
    /// Finds them among the allocations that are made before `cut`, by birth.
    fn find(lives: &[Life], cut: usize, optimizer: &Spans) -> Option<Self> {
        let is_meant = |&(born, end): &Life| end < cut && !optimizer.contains(born);
        let within: Vec<Life> = lives.iter().copied().filter(is_meant).collect();
        let backward = busiest(&within, first_chain(&within)?)?;
        let saved = || within.iter().filter(|&&(born, end)| born < backward && end >= backward);
        let mut ends: Vec<usize> = saved().map(|&(_, end)| end).collect();
        ends.sort_unstable();
        let end = *ends.get((ends.len().saturating_sub(1) as f64 * PASS_SHARE) as usize)? + 1;
        let end =
            optimizer.next_start(backward).unwrap_or_else(|| last_gradient(lives, backward, end)).min(cut);
        let forward = saved().filter(|&&(_, freed)| freed < end).map(|&(born, _)| born).min()?;
        // A backward pass computes: memory that is only freed in reverse order is a program that exits.
        let births = lives.iter().filter(|&&(born, _)| (backward..end).contains(&born)).count();
        (births * 4 >= ends.len()).then_some(Self { forward, backward, end })
    }
}

/// The innermost allocation of the first long chain of nested ones: each is made after the one around it and freed
/// before it. A forward and a backward pass make such a chain as long as the model. Gradients do so too: they are
/// allocated from the last to the first layer and freed from the first to the last one. But they come later.
fn first_chain(lives: &[Life]) -> Option<Life> {
    let mut long: Vec<Life> = lives.iter().copied().filter(|(born, end)| end - born >= LEAST_LIFE).collect();
    let (mut first, length) = innermost(&long)?;
    for _ in 0..MOST_CHAINS {
        long.retain(|&(born, end)| born > first.0 || end < first.0);
        match innermost(&long) {
            Some((other, other_length)) if other_length * 4 >= length => first = first.min(other),
            _ => break,
        }
    }
    Some(first)
}

/// The innermost allocation of the longest chain of nested ones, and the length of that chain.
fn innermost(lives: &[Life]) -> Option<(Life, usize)> {
    // Patience sorting: `tails[n]` is the allocation with the latest end that is the innermost of n + 1 nested ones.
    let mut tails: Vec<Life> = Vec::new();
    for &(born, end) in lives {
        let depth = tails.partition_point(|&(_, around)| around > end);
        match tails.get_mut(depth) {
            Some(tail) => *tail = (born, end),
            None => tails.push((born, end)),
        }
    }
    let length = tails.len();
    tails.last().map(|&innermost| (innermost, length)).filter(|_| length >= LEAST_RESULTS)
}

/// The event within a lifetime after which most are live.
fn busiest(lives: &[Life], (first, last): Life) -> Option<usize> {
    let mut changes = vec![0_i32; last - first + 2];
    for &(born, end) in lives.iter().filter(|&&(born, end)| born <= last && end >= first) {
        changes[born.max(first) - first] += 1;
        changes[end.min(last) - first + 1] -= 1;
    }
    let mut live = 0;
    let numbers = changes.iter().map(|change| {
        live += change;
        live
    });
    // The first of equals: of the operations around the start of the backward pass, those before it keep results.
    let (at, _) =
        numbers.enumerate().take(last - first + 1).min_by_key(|&(_, number)| std::cmp::Reverse(number))?;
    Some(first + at + 1)
}

/// The event after the birth of the last gradient: it outlives the pass and is freed with the others.
fn last_gradient(lives: &[Life], backward: usize, end: usize) -> usize {
    let first = lives.partition_point(|&(born, _)| born < backward);
    let after = lives.partition_point(|&(born, _)| born < end);
    let frees: Vec<usize> = lives[first..after]
        .iter()
        .filter(|&&(_, freed)| freed >= end && freed != usize::MAX)
        .map(|&(_, freed)| freed)
        .collect();
    let (Some(&from), Some(&to)) = (frees.iter().min(), frees.iter().max()) else { return end };
    // The last gradient is that of the first layer, so it is often freed right before the others.
    let usual = (to - from) / frees.len() + 1;
    let near = from.saturating_sub(2 * usual)..=to + 2 * usual;
    let latest = from.min(end + (end - backward) / 4);
    let is_gradient = |&&(born, freed): &&Life| born < latest && near.contains(&freed);
    lives[after..].iter().rfind(is_gradient).map_or(end, |&(born, _)| born + 1)
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
        // Gradients: the last one is allocated after the last result was freed.
        rows.extend([(65, 100), (70, 101), (83, 102)]);
        // State of the optimizer, and the next step.
        rows.extend([(90, usize::MAX), (104, 110)]);
        let find = |rows: &[Life]| Step::find(rows, 120, &Spans::default());
        assert_eq!(find(&rows), Some(Step { forward: 0, backward: 38, end: 84 }));
        let in_order: Vec<_> = (0..10).map(|layer| (layer * 4, 60 + layer * 2)).collect();
        assert_eq!(find(&in_order), None);
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[(3, 3), (3, 3)]), None);
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
