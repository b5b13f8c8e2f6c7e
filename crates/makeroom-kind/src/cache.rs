//! Memory of runs without a backward pass: weights that the program allocated itself, and KV caches, which either grow
//! with each token or are blocks of one size from the start.

use std::collections::HashSet;

use makeroom_core::{FastMap, StackId};

use crate::assign::Evidence;
use crate::growth::{Block, Growth, UNSPLIT};
use crate::marks::Marks;
use crate::table::Allocation;
use crate::{Kind, Rule};

/// A model has at least this many weights.
const LEAST_WEIGHTS: usize = 8;

/// Finds weights and caches.
pub(crate) fn assign(rows: &mut [Allocation], evidence: &Evidence<'_>) {
    let last_use = rows.iter().filter(|row| evidence.is_forward(row)).filter_map(Allocation::born).max();
    growing(rows, evidence);
    let Some(last_use) = last_use else {
        if evidence.may_be_model {
            without_stacks(rows);
        }
        return;
    };
    let is_lasting = |row: &Allocation| {
        row.is_open()
            && row.born().is_none_or(|born| born < evidence.phases.first_pass)
            && row.end() > last_use
            && !evidence.of(row).has(Marks::FORWARD)
    };
    let has_parameters = rows.iter().any(|row| row.kind == Kind::Parameters);
    let equal = EqualSizes::new(rows.iter().filter(|row| is_lasting(row)), evidence.has_block_sizes);
    for row in rows.iter_mut().filter(|row| is_lasting(row)) {
        match () {
            () if !has_parameters => row.set(Kind::Parameters, Rule::KeptFromStart),
            () if equal.has_another(row) => row.set(Kind::KvCache, Rule::EqualBlocks),
            () => row.set(Kind::Inputs, Rule::BeforeFirstStep),
        }
    }
}

/// The sizes of blocks, to find others of the same size.
struct EqualSizes {
    counts: FastMap<u64, u32>,
    /// Of large blocks by stack, sorted, if the rest of a block may belong to its size. Requests of one stack that differ by
    /// no more than such a rest count as equal.
    of_stack: FastMap<StackId, Vec<u64>>,
}

impl EqualSizes {
    fn new<'rows>(rows: impl Iterator<Item = &'rows Allocation>, has_block_sizes: bool) -> Self {
        let mut sizes = Self { counts: FastMap::default(), of_stack: FastMap::default() };
        for row in rows {
            let size = row.size.get();
            *sizes.counts.entry(size).or_default() += 1;
            if has_block_sizes && size > UNSPLIT && row.stack != StackId::NONE {
                sizes.of_stack.entry(row.stack).or_default().push(size);
            }
        }
        sizes.of_stack.values_mut().for_each(|sizes| sizes.sort_unstable());
        sizes
    }

    /// Whether another block has the size of this one.
    fn has_another(&self, row: &Allocation) -> bool {
        let size = row.size.get();
        if self.counts.get(&size).is_some_and(|&count| count > 1) {
            return true;
        }
        let sizes = self.of_stack.get(&row.stack).map_or(&[][..], Vec::as_slice);
        let at = sizes.partition_point(|&other| other < size);
        let is_near = |other: Option<&u64>| other.is_some_and(|other| other.abs_diff(size) <= UNSPLIT);
        size > UNSPLIT
            && sizes.get(at) == Some(&size)
            && (is_near(sizes.get(at + 1)) || is_near(at.checked_sub(1).and_then(|before| sizes.get(before))))
    }
}

/// Without stacks, weights are what is allocated in the first half of a run and outlives its last allocation, while
/// most other memory comes and goes.
fn without_stacks(rows: &mut [Allocation]) {
    let Some(last) = rows.iter().filter_map(Allocation::born).max() else { return };
    let is_lasting = |row: &Allocation| row.born().is_none_or(|born| born < last / 2) && row.end() > last;
    let lasting = rows.iter().filter(|row| is_lasting(row)).count();
    if lasting < LEAST_WEIGHTS
        || lasting * 2 > rows.len()
        || rows.iter().any(|row| row.stack != StackId::NONE)
    {
        return;
    }
    for row in rows.iter_mut().filter(|row| row.is_open() && is_lasting(row)) {
        row.set(Kind::Parameters, Rule::KeptFromStart);
    }
}

/// Blocks of one stack that grow by the same amount again and again.
fn growing(rows: &mut [Allocation], evidence: &Evidence<'_>) {
    let mut growths: FastMap<StackId, Growth> = FastMap::default();
    for row in rows.iter().filter(|row| row.is_open() && row.stack != StackId::NONE) {
        let Some(born) = row.born() else { continue };
        if !evidence.of(row).has(Marks::FORWARD) || evidence.of(row).has(Marks::PYTHON) {
            let growth = growths.entry(row.stack).or_default();
            growth.add(Block { born, end: row.end(), size: row.size.get() }, evidence.has_block_sizes);
        }
    }
    let caches: HashSet<StackId> =
        growths.into_iter().filter(|(_, growth)| growth.is_cache()).map(|(stack, _)| stack).collect();
    for row in rows.iter_mut().filter(|row| row.is_open()) {
        if caches.contains(&row.stack) {
            row.set(Kind::KvCache, Rule::GrowsPerToken);
        }
    }
}
