//! Memory that outlives steps and whose stack does not identify it: it was allocated by the program's own functions,
//! before the recording began, or without a stack. Sizes decide: parameters have the sizes of the gradients, and
//! optimizer state repeats them.

use std::collections::BTreeMap;

use crate::assign::{Evidence, is_workspace_size};
use crate::phases::Phase;
use crate::sizes::Sizes;
use crate::table::Allocation;
use crate::{Kind, Rule};

/// Finds parameters and optimizer state by the sizes of the gradients.
pub(crate) fn assign(rows: &mut [Allocation], evidence: &Evidence<'_>, gradients: &Sizes) {
    if evidence.phases.are_without_gradients() {
        return;
    }
    let mut known = Sizes::default();
    for row in rows.iter().filter(|row| is_used(row, evidence) && row.rule == Rule::ModuleStack) {
        known.add(row.size.get());
    }
    let mut wanted = gradients.without(&known);
    known.widen(gradients);
    let mut lasting: Vec<usize> = (0..rows.len()).filter(|&row| is_lasting(&rows[row], evidence)).collect();
    // A workspace may have the size of a parameter. It is never freed, so the others come first.
    lasting.sort_by_key(|&row| rows[row].is_kept() && is_workspace_size(rows[row].size.get()));
    let mut state = state_sizes(&lasting, rows, &known, &wanted);
    let last_parameter = last_parameter(rows, &lasting, evidence, &wanted);
    for number in lasting {
        let row = &mut rows[number];
        let size = row.size.get();
        let phase = evidence.phase(row);
        if phase == Phase::Setup && wanted.take(size) {
            row.set(Kind::Parameters, Rule::SizeOfGradient);
        } else if phase == Phase::Optimizer {
            row.set(Kind::OptimizerState, Rule::OptimizerPhase);
        } else if state.take(size) {
            row.set(Kind::OptimizerState, Rule::RepeatsParameters);
        } else if row.is_kept() && is_workspace_size(size) {
            row.set(Kind::Workspaces, Rule::CublasWorkspace);
        } else if number < last_parameter {
            row.set(Kind::Parameters, Rule::KeptFromStart);
        } else if phase == Phase::Setup {
            row.set(Kind::Inputs, Rule::BeforeFirstStep);
        }
    }
}

/// The number of the last parameter. Frozen parameters have no gradient, but are loaded with the others; data comes
/// after them. What is older than the recording is older than the data of its steps.
fn last_parameter(rows: &[Allocation], lasting: &[usize], evidence: &Evidence<'_>, wanted: &Sizes) -> usize {
    let is_parameter = |&&number: &&usize| {
        evidence.phase(&rows[number]) == Phase::Setup && wanted.contains(rows[number].size.get())
    };
    let by_size = lasting.iter().filter(is_parameter).copied().max().unwrap_or(0);
    let older = rows.partition_point(|row| row.born().is_none());
    by_size.max(older)
}

/// The sizes of the optimizer state among lasting memory: as often as most of the sizes occur for each parameter.
fn state_sizes(lasting: &[usize], rows: &[Allocation], known: &Sizes, wanted: &Sizes) -> Sizes {
    let mut found = Sizes::default();
    for &row in lasting {
        found.add(rows[row].size.get());
    }
    let mut state = Sizes::default();
    let mut votes: BTreeMap<u32, u64> = BTreeMap::new();
    for (size, count) in known.iter() {
        let copies = found.count(size).saturating_sub(wanted.count(size)) / count;
        let bytes = votes.entry(copies).or_default();
        *bytes = bytes.saturating_add(size.saturating_mul(u64::from(count)));
    }
    let copies =
        votes.into_iter().max_by_key(|&(copies, bytes)| (bytes, copies)).map_or(0, |(copies, _)| copies);
    for (size, count) in known.iter() {
        state.add_many(size, count.saturating_mul(copies));
    }
    state
}

/// Whether it lived when the first pass began.
fn is_used(row: &Allocation, evidence: &Evidence<'_>) -> bool {
    row.kind == Kind::Parameters && row.end() >= evidence.phases.first_pass
}

/// Whether it outlives a whole step and is not a result of a forward pass.
fn is_lasting(row: &Allocation, evidence: &Evidence<'_>) -> bool {
    let phases = evidence.phases;
    let Some(pass) = phases.pass_after(row.born()).filter(|_| row.is_open()) else { return false };
    if row.end() < pass.end || evidence.is_forward(row) {
        return false;
    }
    match phases.pass_after(Some(pass.start)) {
        Some(second) => row.end() >= second.start,
        // There is only one more pass: data for it is allocated right before it.
        None => row.is_kept() || evidence.phase(row) != Phase::Between,
    }
}
