//! The answer: what limits the batch, and what would raise it.

use makeroom_core::{Bytes, FastMap, SortCompact as _};
use makeroom_sim::{AllocatorSpec, Step};

use crate::plan::{Plan, Prediction};
use crate::scaled::{Peak, Scaled};

/// Number of sites to name.
const SITES: usize = 5;
/// An allocation that lives longer than 1/8 of a step is kept for the backward pass.
const KEPT_PART: usize = 8;

/// The composition of memory at a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Composition {
    /// Live at the peak, independent of the batch.
    pub fixed: Bytes,
    /// Live at the peak, per unit of the batch.
    pub per_unit: Bytes,
    /// Reserved by the allocator beyond live memory: rounding and fragmentation.
    pub unused: Bytes,
    /// Device memory outside the allocator.
    pub overhead: Bytes,
    /// The share of the peak whose size laws all runs confirmed, from 0 to 1.
    pub exact_share: f64,
    /// Whether steps differ from each other.
    pub varies: bool,
    /// The sites that allocate most of the growing part, largest first.
    pub sites: Vec<SiteShare>,
}

/// The memory of one site at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteShare {
    /// The site; empty if no stack was recorded.
    pub place: String,
    /// Its memory per unit of the batch.
    pub per_unit: Bytes,
}

/// A change that would allow a larger batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// Its name.
    pub name: String,
    /// How to make it, to paste if possible.
    pub how: String,
    /// The largest batch with it; `None` if none fits.
    pub batch: Option<u64>,
    /// Whether the figure is an estimate, not replayed from the recorded program.
    pub is_estimate: bool,
}

/// The complete answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The batch.
    pub batch: u64,
    /// Memory of the GPU.
    pub card: Bytes,
    /// Memory kept free.
    pub margin: Bytes,
    /// The composition of memory at this batch.
    pub composition: Composition,
    /// Changes that would allow a larger batch, largest first.
    pub alternatives: Vec<Alternative>,
}

impl Answer {
    /// The answer of a plan for a batch.
    pub fn new(plan: &Plan, prediction: &Prediction, batch: u64) -> Self {
        let composition = composition(plan.allocator(), prediction, batch);
        let mut alternatives = allocators(plan, prediction);
        alternatives.extend(changes(plan, prediction));
        alternatives.retain(|alternative| alternative.batch.is_some_and(|other| other > batch));
        alternatives.sort_compact_by_key(|alternative| std::cmp::Reverse(alternative.batch));
        Self {
            batch,
            card: prediction.budget.card,
            margin: prediction.budget.margin,
            composition,
            alternatives,
        }
    }
}

fn composition(allocator: &AllocatorSpec, prediction: &Prediction, batch: u64) -> Composition {
    let scaled = &prediction.scaled;
    let peak = scaled.peak(batch);
    let outcome = scaled.outcome(allocator, scaled.at(batch), prediction.budget.allocator(batch));
    let fixed = fixed(scaled, &peak, batch);
    let per_unit = (peak.bytes - fixed.min(peak.bytes)) / batch.max(1);
    Composition {
        fixed: Bytes::new(fixed),
        per_unit: Bytes::new(per_unit),
        unused: Bytes::new(outcome.peak_reserved.saturating_sub(peak.bytes)),
        overhead: prediction.budget.overhead(batch),
        exact_share: scaled.exact_share(batch),
        varies: scaled.reference().cycles.vary(),
        sites: sites(scaled, &peak, batch),
    }
}

/// The part of a peak that does not depend on the batch.
fn fixed(scaled: &Scaled, peak: &Peak, batch: u64) -> u64 {
    let laws = peak.numbers.iter().map(|&number| scaled.law(number));
    laws.fold(0, |fixed, law| fixed.saturating_add(law.at(0).min(law.at(batch))))
}

fn sites(scaled: &Scaled, peak: &Peak, batch: u64) -> Vec<SiteShare> {
    let reference = scaled.reference();
    let mut held: FastMap<&str, u64> = FastMap::default();
    for &number in &peak.numbers {
        let law = scaled.law(number);
        let growing = law.at(batch).saturating_sub(law.at(0));
        *held.entry(reference.name(reference.keys[number as usize])).or_default() += growing / batch.max(1);
    }
    let mut sites: Vec<SiteShare> = held
        .into_iter()
        .filter(|(_, per_unit)| *per_unit > 0)
        .map(|(place, per_unit)| SiteShare { place: place.to_owned(), per_unit: Bytes::new(per_unit) })
        .collect();
    sites.sort_compact_by(|one, two| (two.per_unit, &one.place).cmp(&(one.per_unit, &two.place)));
    sites.truncate(SITES);
    sites
}

/// Whether the program uses PyTorch's allocator.
fn is_pytorch(plan: &Plan) -> bool {
    plan.allocator().settings().is_some() || plan.allocator().is_cuda_async()
}

/// The same program under other allocators, replayed. `makeroom run --pool` means expandable segments for PyTorch, and
/// makeroom's own pool for other programs. The replay leaves out paging, which hardly changes how much memory is enough.
fn allocators(plan: &Plan, prediction: &Prediction) -> Vec<Alternative> {
    let (name, allocator, how) = if is_pytorch(plan) {
        (
            "expandable segments",
            "pytorch:expandable_segments:True",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or makeroom run --pool -- …",
        )
    } else {
        ("makeroom's pool", "makeroom", "makeroom run --pool -- …")
    };
    let Ok(allocator) = makeroom_sim::parse(allocator) else { return Vec::new() };
    let batch = plan.largest_under(&allocator, &prediction.scaled, &prediction.budget);
    vec![Alternative { name: name.to_owned(), how: how.to_owned(), batch, is_estimate: false }]
}

/// Changes to the program, estimated from its current behavior.
fn changes(plan: &Plan, prediction: &Prediction) -> Vec<Alternative> {
    let scaled = &prediction.scaled;
    let kept = kept_for_backward(scaled);
    // With checkpointing, one of √n activations is kept, and the rest is recomputed.
    let share = (kept.iter().filter(|kept| **kept).count() as f64
        / scaled.reference().cycles.peaks.len().max(1) as f64)
        .sqrt()
        .max(1.0);
    let largest = |size: &dyn Fn(u32, u64, u64) -> u64| {
        plan.largest_of(scaled.reference().batch, |batch| {
            let program = scaled.with_sizes(|number, law| size(number, law.at(0), law.at(batch)));
            let room = prediction.budget.allocator(batch);
            scaled.outcome(plan.allocator(), program, room).refusal.is_none()
        })
    };
    let halved = |_: u32, base: u64, whole: u64| base.min(whole) + whole.saturating_sub(base) / 2;
    let checkpointed = |number: u32, _: u64, whole: u64| {
        if kept[number as usize] { (whole as f64 / share) as u64 } else { whole }
    };
    let mut changes = vec![Alternative {
        name: "half precision".to_owned(),
        how: if is_pytorch(plan) {
            "torch.autocast('cuda', dtype=torch.bfloat16), if activations are 32 bits wide now"
        } else {
            "16-bit types for the data that grows with the batch, if it uses 32-bit types now"
        }
        .to_owned(),
        batch: largest(&halved),
        is_estimate: true,
    }];
    if share > 1.0 {
        changes.push(Alternative {
            name: "checkpointing".to_owned(),
            how: if is_pytorch(plan) {
                "torch.utils.checkpoint on the model's blocks; about a third slower"
            } else {
                "recompute part of the forward pass in the backward pass; about a third slower"
            }
            .to_owned(),
            batch: largest(&checkpointed),
            is_estimate: true,
        });
    }
    changes
}

/// Which allocations grow with the batch and live through much of a step, because the backward pass needs them.
fn kept_for_backward(scaled: &Scaled) -> Vec<bool> {
    let reference = scaled.reference();
    let program = &reference.program;
    let mut kept = vec![false; program.allocations.len()];
    let cycles = reference.cycles.peaks.len();
    if cycles == 0 {
        return kept;
    }
    let least = program.steps.len() / cycles / KEPT_PART;
    let mut since = vec![usize::MAX; program.allocations.len()];
    for (position, step) in program.steps.iter().enumerate() {
        match *step {
            Step::Allocate(number) => since[number as usize] = position,
            Step::Free(number) | Step::FreeCompleted(number) => {
                let lived = position.saturating_sub(since[number as usize]);
                kept[number as usize] = lived > least && scaled.law(number).grows();
            }
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use makeroom_explain::DeviceOverhead;

    use super::*;
    use crate::plan::{Bounds, RunOutcome};
    use crate::probe::Probe;
    use crate::testing::{Shape, training};

    fn answer(shape: &Shape) -> (Answer, Plan) {
        let bounds = Bounds { first: 4, most: 1 << 30, multiple: 1, runs: 4, card: None, margin: None };
        let mut plan = Plan::new(bounds, makeroom_sim::parse("pytorch").unwrap());
        for batch in [4, 64] {
            let overhead = Some(DeviceOverhead {
                total: Bytes::gib(16),
                held: Bytes::mib(500),
                uncertain: Bytes::ZERO,
                is_settled: true,
                is_own: false,
            });
            plan.ran(batch, RunOutcome::Ran(Box::new(Probe { overhead, ..training(shape, batch) })));
        }
        let prediction = plan.predict().unwrap();
        let batch = prediction.batch.unwrap();
        (Answer::new(&plan, &prediction, batch), plan)
    }

    #[test]
    fn the_parts_add_up_to_the_card() {
        let (answer, _) = answer(&Shape::default());
        let parts = &answer.composition;
        let live = parts.fixed.get() + parts.per_unit.get() * answer.batch;
        let taken = live + parts.unused.get() + parts.overhead.get() + answer.margin.get();
        assert!(taken <= answer.card.get());
        // One more would not fit, and one takes at most 1/200 here.
        assert!(answer.card.get() - taken < answer.card.get() / 100, "{answer:?}");
        let sites: u64 = parts.sites.iter().map(|site| site.per_unit.get()).sum();
        assert!(sites <= parts.per_unit.get());
    }

    #[test]
    fn what_would_move_it_is_larger_and_sorted() {
        let (answer, _) = answer(&Shape { layers: 40, ..Shape::default() });
        let names: Vec<&str> = answer.alternatives.iter().map(|other| other.name.as_str()).collect();
        assert!(names.contains(&"half precision") && names.contains(&"checkpointing"), "{names:?}");
        assert!(answer.alternatives.iter().all(|other| other.batch > Some(answer.batch)));
        assert!(answer.alternatives.is_sorted_by_key(|other| std::cmp::Reverse(other.batch)));
        assert!(answer.alternatives.iter().all(|other| other.is_estimate == other.how.starts_with("torch")));
    }

    #[test]
    fn settings_go_into_the_variable_that_every_pytorch_reads() {
        let (_, plan) = answer(&Shape::default());
        let others = allocators(&plan, &plan.predict().unwrap());
        let [expandable] = &*others else { panic!("{others:?}") };
        assert_eq!(expandable.name, "expandable segments");
        assert!(
            expandable.how.starts_with("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"),
            "{expandable:?}"
        );
        assert!(expandable.how.ends_with("makeroom run --pool -- …"), "the same setting: {expandable:?}");
    }
}
