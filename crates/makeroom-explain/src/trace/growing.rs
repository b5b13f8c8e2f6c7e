//! Memory that grows from step to step, by kind and line, and what keeps it: for `why --by` and `diff`.
//!
//! The floors of the steps decide whether memory grows (`steps`). A line grows if its live memory rises from the first floor
//! to one in the middle and from there to the last: what a run takes once and keeps does not count. Three moments are enough
//! for a run of any length, so the cost does not depend on the number of steps.

use makeroom_core::{Bytes, DeviceTrace, FastMap, SortCompact as _, StackId, Trace};
use makeroom_kind::{Kind, Kinds};
use makeroom_ordered::OrderedMap;

use super::history::History;
use super::keeper::keeper;
use super::sites::Places;
use super::steps::{Steps, is_in_steps, rise};

/// Lines that are kept, those that grow fastest.
const MOST_LINES: usize = 20;

/// Live memory that grows from step to step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growing {
    /// Number of steps over which it grows.
    pub steps: usize,
    /// Number of equal parts the recording was cut into because it shows no steps; each of `steps` is such a part.
    pub parts: Option<usize>,
    /// What marks a step.
    pub measured_by: String,
    /// How much live memory grew.
    pub bytes: Bytes,
    /// Number of events before the first floor, one in the middle, and the last.
    pub moments: [usize; 3],
    /// The lines that grow, fastest first.
    pub lines: Vec<GrowingLine>,
}

/// The memory of one kind that one line allocates and that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowingLine {
    /// The line; `None` if no stack was recorded.
    pub place: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// How much it grew over all steps.
    pub bytes: Bytes,
    /// Number of blocks it gained.
    pub blocks: u64,
    /// The object that keeps it, if the frames show it.
    pub keeper: Option<String>,
}

/// Bytes and blocks at the three moments.
type Sums = [(u64, u64); 3];

/// Those of a line, and the stack that grows fastest with its growth.
type LineSums = (Sums, (u64, StackId));

/// Finds the memory of a device that grows from step to step; `None` if none does.
pub fn growing(trace: &Trace, device: &DeviceTrace, kinds: &Kinds) -> Option<Growing> {
    let steps = Steps::find_with(trace, device, || kinds.steps().to_vec());
    let history = History::new(device, &steps.starts);
    let rise = rise(&history)?;
    if !is_in_steps(device, &steps, &rise) {
        return None;
    }
    let moments = [rise.first, rise.middle, rise.last].map(|floor| floor.index + 1);
    Some(Growing {
        steps: rise.steps,
        parts: steps.parts,
        measured_by: steps.measured_by,
        bytes: rise.last.live - rise.first.live,
        moments,
        lines: lines(trace, kinds, moments),
    })
}

fn lines(trace: &Trace, kinds: &Kinds, moments: [usize; 3]) -> Vec<GrowingLine> {
    let mut by_stack: FastMap<(StackId, Kind), Sums> = FastMap::default();
    for allocation in kinds.allocations() {
        for (number, &moment) in moments.iter().enumerate() {
            if allocation.is_live_at(moment) {
                let sum = &mut by_stack.entry((allocation.stack, allocation.kind)).or_default()[number];
                *sum = (sum.0.saturating_add(allocation.size.get()), sum.1 + 1);
            }
        }
    }
    let places = Places::new(trace);
    let mut by_line: OrderedMap<(Option<String>, Kind), LineSums> = OrderedMap::new();
    for (&(stack, kind), sums) in &by_stack {
        let place = places.site(stack).map(|_| places.compared(stack));
        let (all, main) = by_line.entry((place, kind)).or_default();
        for (all, one) in all.iter_mut().zip(sums) {
            *all = (all.0.saturating_add(one.0), all.1 + one.1);
        }
        // Of the stacks of a line, the one that grows fastest shows what keeps the memory.
        *main = (*main).max((sums[2].0.saturating_sub(sums[0].0), stack));
    }
    let mut lines: Vec<GrowingLine> = by_line
        .into_iter()
        .filter(|(_, ([first, middle, last], _))| first.0 < middle.0 && middle.0 < last.0)
        .map(|((place, kind), ([first, _, last], (_, stack)))| GrowingLine {
            place,
            kind,
            bytes: Bytes::new(last.0 - first.0),
            blocks: last.1.saturating_sub(first.1),
            keeper: keeper(&trace.stacks, places, stack),
        })
        .collect();
    lines.sort_compact_by_key(|line| std::cmp::Reverse(line.bytes));
    lines.truncate(MOST_LINES);
    lines
}
