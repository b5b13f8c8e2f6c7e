//! What each allocation of a recording is: parameters, gradients, optimizer state, activations and so on.
//!
//! Every allocation gets a [`Kind`] and the [`Rule`] that determined it. Evidence, from strong to weak:
//!
//! ```text
//! marks.rs    frames of frameworks: a module that moves, an optimizer that creates its state
//! phases.rs   forward pass, backward pass, optimizer step;  shape.rs  the same without stacks
//! sizes.rs    gradients and optimizer state repeat the sizes of the parameters
//! table.rs    lifetimes: results that live from the forward to the backward pass are activations
//! assign.rs   applies the rules;  lasting.rs  those for memory that outlives steps;  cache.rs  those for inference;
//!             growth.rs  a cache that grows
//! totals.rs   bytes by kind at a moment
//! ```
//!
//! Kinds add up: at any moment, the bytes of all kinds are the live bytes. Memory that no rule explains is
//! [`Kind::Unknown`].
//!
//! ```
//! use makeroom_core::{Action, DeviceTrace, Event, Trace, TraceKind};
//! use makeroom_kind::{Kind, Kinds};
//!
//! let mut device = DeviceTrace::default();
//! device.events.push(Event::new(Action::Alloc, 512, 100));
//! let trace = Trace::new(TraceKind::TorchSnapshot);
//! let kinds = Kinds::new(&trace, &device);
//! assert_eq!(kinds.at(1).bytes(Kind::Unknown).get(), 100);
//! ```
#![forbid(unsafe_code)]

mod assign;
mod cache;
mod growth;
mod kind;
mod lasting;
mod marks;
mod phases;
mod rule;
mod shape;
mod sizes;
mod table;
mod totals;

use makeroom_core::{Bytes, DeviceTrace, Trace, TraceKind};

pub use kind::Kind;
pub use phases::Phase;
pub use rule::{Certainty, Rule};
pub use table::Allocation;
pub use totals::{KindTotal, Totals};

/// The events at which backward passes begin, as [`Kinds::steps`] has them, without the kinds: if stacks show the passes, no
/// allocation has to be looked at.
pub fn steps(trace: &Trace, device: &DeviceTrace) -> Vec<usize> {
    let marks = marks::of_stacks(&trace.stacks);
    phases::Phases::new(trace, device, &marks, || table::Table::new(device)).pass_starts()
}

/// The allocations of a device with their kinds.
#[derive(Debug)]
pub struct Kinds {
    allocations: Vec<Allocation>,
    peak: (usize, Bytes),
    steps: Vec<usize>,
}

impl Kinds {
    /// Determines the kinds of all allocations of a device.
    pub fn new(trace: &Trace, device: &DeviceTrace) -> Self {
        let table = table::Table::new(device);
        let marks = marks::of_stacks(&trace.stacks);
        let phases = phases::Phases::new(trace, device, &marks, || &table);
        let pools = table.private_pools(device);
        let peak = table.peak;
        let may_be_model = trace.kind != TraceKind::RmmLog;
        let has_block_sizes = trace.kind == TraceKind::Room;
        let evidence = assign::Evidence { phases: &phases, marks: &marks, may_be_model, has_block_sizes };
        let mut allocations = assign::assign(table, &evidence, &pools);
        if phases.are_known() {
            for allocation in &mut allocations {
                allocation.phase = allocation.born().map(|born| phases.at(Some(born)));
            }
        }
        Self { allocations, peak, steps: phases.pass_starts() }
    }

    /// The events at which backward passes begin, ascending: one per step of training, or several if gradients accumulate.
    pub fn steps(&self) -> &[usize] {
        &self.steps
    }

    /// All allocations: first those older than the recording, by address, then in order of allocation.
    pub fn allocations(&self) -> &[Allocation] {
        &self.allocations
    }

    /// The number of events before the moment at which most is live, and the live bytes then.
    pub fn peak(&self) -> (usize, Bytes) {
        self.peak
    }

    /// The allocations that are live after `position` events.
    pub fn live_at(&self, position: usize) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(move |allocation| allocation.is_live_at(position))
    }

    /// Live bytes by kind after `position` events.
    pub fn at(&self, position: usize) -> Totals {
        let mut totals = Totals::default();
        for allocation in self.live_at(position) {
            totals.add(allocation.kind, allocation.rule, allocation.size);
        }
        totals
    }
}
