//! Applies the rules to all allocations, from the most certain to the least.
//!
//! 1. Private pools and frames that identify memory on their own.
//! 2. Workspaces that a library keeps from its first use on.
//! 3. Memory of the backward pass: gradients outlive it, the rest is temporary.
//! 4. Memory that outlives steps (`lasting`), by the sizes of the gradients.
//! 5. Memory of the forward pass and of the program's own code, by when it is freed.
//! 6. Caches of inference (`cache`).
//! 7. Allocations of an incomplete step: as earlier ones of the same stack.

use makeroom_core::{FastMap, PoolId, StackId};

use crate::marks::Marks;
use crate::phases::{Phase, Phases};
use crate::sizes::Sizes;
use crate::table::{Allocation, Table};
use crate::{Kind, Rule, cache, lasting};

/// Sizes of PyTorch's cuBLAS workspaces: on Hopper and later, and on earlier GPUs.
const CUBLAS_SIZES: [u64; 2] = [32 << 20, (8 << 20) + (128 << 10)];
/// The size of its cuBLASLt workspace.
const CUBLAS_LT_SIZE: u64 = 1 << 20;

/// Whether PyTorch's workspaces for cuBLAS have this size.
pub(crate) fn is_workspace_size(size: u64) -> bool {
    CUBLAS_SIZES.contains(&size) || size == CUBLAS_LT_SIZE
}

/// The evidence for one device.
pub(crate) struct Evidence<'run> {
    pub(crate) phases: &'run Phases,
    pub(crate) marks: &'run [Marks],
    /// Whether the program may be a model's: logs of RMM come from data frames.
    pub(crate) may_be_model: bool,
    /// Whether sizes are those of PyTorch's blocks, which can be larger than the requests.
    pub(crate) has_block_sizes: bool,
}

impl Evidence<'_> {
    /// The marks of an allocation's stack.
    pub(crate) fn of(&self, row: &Allocation) -> Marks {
        self.marks.get(row.stack.index()).copied().unwrap_or_default()
    }

    /// The marks of the stack of its free.
    pub(crate) fn of_free(&self, row: &Allocation) -> Marks {
        self.marks.get(row.free_stack.index()).copied().unwrap_or_default()
    }

    /// Its phase when it was allocated.
    pub(crate) fn phase(&self, row: &Allocation) -> Phase {
        self.phases.at(row.born())
    }

    /// Whether it is allocated by a module's call, or during the forward pass.
    pub(crate) fn is_forward(&self, row: &Allocation) -> bool {
        self.of(row).has(Marks::FORWARD) || self.phase(row) == Phase::Forward
    }
}

/// Gives every allocation its kind.
pub(crate) fn assign(
    table: Table,
    evidence: &Evidence<'_>,
    pools: &FastMap<usize, PoolId>,
) -> Vec<Allocation> {
    let mut rows = table.rows;
    private_pools(&mut rows, evidence, pools);
    for row in &mut rows {
        by_frames(row, evidence);
    }
    workspaces(&mut rows, evidence);
    let gradients = backward(&mut rows, evidence);
    lasting::assign(&mut rows, evidence, &gradients);
    if evidence.phases.are_without_gradients() {
        cache::assign(&mut rows, evidence);
    }
    let next_births = next_births(&rows);
    for (row, next_birth) in rows.iter_mut().zip(next_births) {
        if row.is_open() {
            by_lifetime(row, evidence, next_birth);
        }
    }
    like_earlier(&mut rows, evidence);
    rows
}

fn private_pools(rows: &mut [Allocation], evidence: &Evidence<'_>, pools: &FastMap<usize, PoolId>) {
    // A pool whose first number is not zero belongs to a capture. The others may be the program's own (`MemPool`),
    // unless the functions that capture graphs allocated in them.
    let mut of_graphs: FastMap<PoolId, bool> = FastMap::default();
    for (&number, &pool) in pools {
        let Some(row) = rows.get(number) else { continue };
        *of_graphs.entry(pool).or_default() |= pool.0 != 0 || evidence.of(row).has(Marks::GRAPH);
    }
    for (&number, pool) in pools {
        if of_graphs.get(pool) == Some(&true)
            && let Some(row) = rows.get_mut(number)
        {
            row.set(Kind::GraphPools, Rule::PrivatePool);
        }
    }
}

/// Rules that need only the stack, and how long the allocation lived.
fn by_frames(row: &mut Allocation, evidence: &Evidence<'_>) {
    let marks = evidence.of(row);
    if !row.is_open() || marks == Marks::NONE {
        return;
    }
    let is_called = marks.has(Marks::FORWARD.with(Marks::ENGINE));
    let is_freed_early = row.end() < evidence.phases.first_pass;
    if let Some(library) = marks.library() {
        row.set(Kind::Workspaces, Rule::LibraryStack(library));
    } else if marks.has(Marks::ARENA) {
        row.set(Kind::FrameworkCache, Rule::AllocatorStack);
    } else if marks.has(Marks::CACHE) {
        row.set(Kind::KvCache, Rule::CacheStack);
    } else if marks.has(Marks::LOADER) {
        row.set(Kind::Inputs, Rule::DataLoader);
    } else if marks.has(Marks::GATHER) {
        row.set(Kind::Parameters, Rule::GatheredParameters);
    } else if marks.has(Marks::BUCKET) {
        row.set(Kind::Gradients, Rule::GradientBucket);
    } else if marks.has(Marks::OPTIMIZER) {
        match evidence.phases.outlives_optimizer(row.born(), row.end()) {
            Some(false) => row.set(Kind::Temporaries, Rule::FreedInOptimizer),
            Some(true) => row.set(Kind::OptimizerState, Rule::OptimizerStack),
            // The recording ends in this step.
            None if marks.has(Marks::STATE) => row.set(Kind::OptimizerState, Rule::OptimizerStack),
            None => {}
        }
    } else if marks.has(Marks::MOVE) && !is_called {
        row.set(Kind::Parameters, Rule::ModuleStack);
    } else if marks.has(Marks::BUILD) && !is_called {
        if is_freed_early {
            row.set(Kind::Temporaries, Rule::FreedInLoading);
        } else {
            row.set(Kind::Parameters, Rule::ModuleStack);
        }
    }
}

/// The workspaces that PyTorch allocates for cuBLAS on first use, one per thread and stream, and never frees.
fn workspaces(rows: &mut [Allocation], evidence: &Evidence<'_>) {
    let mut parameters = Sizes::default();
    for row in rows.iter().filter(|row| row.kind == Kind::Parameters) {
        parameters.add(row.size.get());
    }
    let last_pass = evidence.phases.passes.last().map_or(usize::MAX, |pass| pass.start);
    let mut has_workspace = false;
    for row in rows.iter_mut().filter(|row| row.is_open() && row.is_kept()) {
        let size = row.size.get();
        // The last gradients are never freed in the recording either.
        let may_be_gradient = row.born().is_some_and(|born| born >= last_pass) && parameters.contains(size);
        let is_workspace = if CUBLAS_SIZES.contains(&size) {
            !may_be_gradient
        } else {
            let is_used = evidence.phase(row) != Phase::Setup
                || row.born().is_none()
                || evidence.phases.first_pass == usize::MAX;
            size == CUBLAS_LT_SIZE && has_workspace && is_used && !may_be_gradient
        };
        // Blocks of a size that parameters have too may be anything if nobody saw them being allocated.
        if is_workspace && !(row.born().is_none() && parameters.contains(size)) {
            has_workspace = true;
            row.set(Kind::Workspaces, Rule::CublasWorkspace);
        }
    }
}

/// Memory that is allocated in backward passes. Returns the sizes of the gradients of one pass.
fn backward(rows: &mut [Allocation], evidence: &Evidence<'_>) -> Sizes {
    let mut parameters = Sizes::default();
    for row in rows.iter().filter(|row| row.kind == Kind::Parameters) {
        parameters.add(row.size.get());
    }
    let mut gradients = Sizes::default();
    let mut of_pass = (0, Sizes::default());
    let mut unmatched = Vec::new();
    for (number, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.is_open()) {
        let Some(pass) = row.born().and_then(|born| evidence.phases.pass_of(born)) else { continue };
        if of_pass.0 != pass.start {
            gradients.widen(&of_pass.1);
            of_pass = (pass.start, Sizes::default());
        }
        let marks = evidence.of(row);
        let outlives = row.end() >= pass.end;
        if marks.has(Marks::RECOMPUTE.with(Marks::FORWARD)) && !outlives {
            let is_freed_in_forward = evidence.phases.frees_have_stacks
                && evidence.of_free(row).has(Marks::RECOMPUTE.with(Marks::FORWARD));
            if is_freed_in_forward {
                row.set(Kind::Temporaries, Rule::FreedInBackward);
            } else {
                row.set(Kind::Activations, Rule::Recomputed);
            }
        } else if pass.end == usize::MAX {
            if row.is_kept() && parameters.contains(row.size.get()) {
                row.set(Kind::Gradients, Rule::SizeOfParameter);
            } else {
                row.set(Kind::Temporaries, Rule::FreedInBackward);
            }
        } else if !outlives {
            row.set(Kind::Temporaries, Rule::FreedInBackward);
        } else {
            of_pass.1.add(row.size.get());
            if evidence.of_free(row).has(Marks::ZERO_GRAD) {
                row.set(Kind::Gradients, Rule::FreedByZeroGrad);
            } else if parameters.contains(row.size.get()) {
                row.set(Kind::Gradients, Rule::OutlivedBackward);
            } else {
                row.set(Kind::Gradients, Rule::OutlivedBackwardOtherSize);
                unmatched.push(number);
            }
        }
    }
    gradients.widen(&of_pass.1);
    if parameters.is_empty() {
        // The sizes are those of parameters that are found by them.
        for number in unmatched {
            rows[number].rule = Rule::OutlivedBackward;
        }
    }
    gradients
}

/// The event that allocates after each row, or `usize::MAX`.
fn next_births(rows: &[Allocation]) -> Vec<usize> {
    let births = rows.iter().skip(1).map(|row| row.born().unwrap_or(0));
    births.chain([usize::MAX]).collect()
}

/// Memory of the forward pass and of the program's own code.
fn by_lifetime(row: &mut Allocation, evidence: &Evidence<'_>, next_birth: usize) {
    let (phases, end) = (evidence.phases, row.end());
    let is_forward = evidence.is_forward(row);
    let is_immediate = end < next_birth && row.born().is_some();
    if is_immediate && evidence.of(row).has(Marks::CONVOLUTION) {
        row.set(Kind::Workspaces, Rule::WithinConvolution);
        return;
    }
    let Some(pass) = phases.pass_after(row.born()) else {
        return without_pass(row, evidence, is_immediate);
    };
    if end < pass.start {
        if is_forward && phases.fails_between(row.born(), end) {
            return without_pass(row, evidence, is_immediate);
        }
        let is_gradient = evidence.of_free(row).has(Marks::ZERO_GRAD);
        match () {
            () if is_gradient => row.set(Kind::Gradients, Rule::FreedByZeroGrad),
            () if is_forward => row.set(Kind::Temporaries, Rule::FreedInForward),
            () => row.set(Kind::Temporaries, Rule::FreedAgain),
        }
    } else if end < pass.end {
        row.set(Kind::Activations, Rule::SavedForBackward);
    } else if is_forward {
        row.set(Kind::Activations, Rule::ForwardOutput);
    } else if evidence.of_free(row).has(Marks::ZERO_GRAD) {
        row.set(Kind::Gradients, Rule::FreedByZeroGrad);
    } else {
        row.set(Kind::Inputs, Rule::BetweenSteps);
    }
}

/// An allocation that no backward pass follows.
fn without_pass(row: &mut Allocation, evidence: &Evidence<'_>, is_immediate: bool) {
    let is_forward = evidence.is_forward(row);
    let is_training = !evidence.phases.are_without_gradients();
    let is_freed = !row.is_kept() && !evidence.phases.fails_between(row.born(), row.end());
    if evidence.phase(row) == Phase::Optimizer {
        match evidence.phases.outlives_optimizer(row.born(), row.end()) {
            Some(true) => row.set(Kind::OptimizerState, Rule::OptimizerPhase),
            Some(false) => row.set(Kind::Temporaries, Rule::FreedInOptimizer),
            None => {}
        }
        return;
    }
    match () {
        () if is_freed && is_forward && (is_training || is_immediate) => {
            row.set(Kind::Temporaries, Rule::FreedInForward);
        }
        () if is_forward => row.set(Kind::Activations, Rule::ForwardStack),
        () if is_training && !is_freed && evidence.phase(row) == Phase::Between => {
            row.set(Kind::Inputs, Rule::BetweenSteps);
        }
        () if !row.is_kept() => row.set(Kind::Temporaries, Rule::FreedAgain),
        () => {}
    }
}

/// Allocations of the last, incomplete step are what earlier ones of their stack were, by bytes.
fn like_earlier(rows: &mut [Allocation], evidence: &Evidence<'_>) {
    let is_meant = |row: &Allocation| {
        let is_interrupted = row.is_kept() || evidence.phases.fails_between(row.born(), row.end());
        is_interrupted && row.stack != StackId::NONE && matches!(row.rule, Rule::ForwardStack | Rule::NoRule)
    };
    if !rows.iter().any(is_meant) {
        return;
    }
    let mut earlier: FastMap<(StackId, Kind), u64> = FastMap::default();
    for row in rows.iter().filter(|row| !is_meant(row) && row.stack != StackId::NONE) {
        let bytes = earlier.entry((row.stack, row.kind)).or_default();
        *bytes = bytes.saturating_add(row.size.get());
    }
    // Temporaries of the same operation were freed when it returned, so what is live is one of its other results.
    // Kinds break ties, so that the result does not depend on the order of a hash table.
    let mut most: FastMap<StackId, (bool, u64, Kind)> = FastMap::default();
    for (&(stack, kind), &bytes) in &earlier {
        let candidate = (kind != Kind::Temporaries, bytes, kind);
        let entry = most.entry(stack).or_insert(candidate);
        *entry = (*entry).max(candidate);
    }
    for row in rows.iter_mut().filter(|row| is_meant(row)) {
        match most.get(&row.stack) {
            Some(&(_, _, kind)) if kind != Kind::Unknown => row.set(kind, Rule::LikeEarlier),
            _ => {}
        }
    }
}
