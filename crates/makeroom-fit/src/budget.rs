//! The memory of a GPU that is available to an allocator.

use makeroom_core::Bytes;

use crate::law::SizeLaw;
use crate::probe::Probe;

/// The minimum to keep free by default: the driver allocates pages of its own as it runs.
const LEAST_MARGIN: Bytes = Bytes::mib(64);

/// How much to keep free beyond the prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// As a share of the GPU.
    pub share: f64,
    /// At least this much.
    pub least: Bytes,
}

impl Margin {
    /// For laws that are exact to the byte.
    pub const EXACT: Self = Self { share: 0.005, least: LEAST_MARGIN };
    /// For estimated laws.
    pub const ESTIMATED: Self = Self { share: 0.02, least: LEAST_MARGIN };

    /// The share that the user requested, without a minimum.
    pub const fn asked(share: f64) -> Self {
        Self { share, least: Bytes::ZERO }
    }

    /// Wider by a share of the GPU, but not wider than for estimated laws.
    pub(crate) fn wider(self, share: f64) -> Self {
        Self { share: (self.share + share).min(Self::ESTIMATED.share), ..self }
    }

    fn on_card(self, card: Bytes) -> Bytes {
        card.scaled(self.share).max(self.least)
    }
}

/// The memory of a GPU that is available to an allocator, for any batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// Memory of the GPU.
    pub card: Bytes,
    /// Memory kept free.
    pub margin: Bytes,
    /// Memory outside the allocator, as a law of the batch.
    overhead: SizeLaw,
    /// How much less than that runs actually had available.
    missing: Bytes,
}

impl Budget {
    /// The budget on a GPU of this size, from runs on any GPU, in any order.
    pub fn new(card: Bytes, probes: &[Probe], margin: Margin) -> Self {
        let is_own = probes.iter().all(|probe| probe.overhead.is_none_or(|overhead| overhead.is_own));
        let highest = probes.iter().filter_map(held_outside).max().unwrap_or(0);
        let law = match growth(probes) {
            // The contexts of a process do not depend on the batch; memory of other processes can only add to them.
            _ if is_own => {
                let contexts = probes.iter().filter_map(|probe| Some(probe.overhead?.held.get())).min();
                let libraries = probes.iter().map(|probe| probe.libraries.get()).max();
                SizeLaw::Fixed(contexts.unwrap_or(0) + libraries.unwrap_or(0))
            }
            Some(ends) => SizeLaw::Line(ends),
            None => SizeLaw::Fixed(highest),
        };
        Self { card, margin: margin.on_card(card), overhead: law, missing: Bytes::ZERO }
    }

    /// The same with this many bytes less.
    pub(crate) fn with_less(self, bytes: u64) -> Self {
        Self { missing: Bytes::new(bytes), ..self }
    }

    /// Memory outside the allocator at a batch.
    pub fn overhead(&self, batch: u64) -> Bytes {
        Bytes::new(self.overhead.at(batch))
    }

    /// Memory available to the allocator at a batch.
    pub fn allocator(&self, batch: u64) -> u64 {
        (self.card - self.margin - self.overhead(batch) - self.missing).get()
    }
}

/// Memory outside the allocator, including that of libraries, if it was measured.
fn held_outside(probe: &Probe) -> Option<u64> {
    Some(probe.overhead?.held.get() + probe.libraries.get())
}

/// The smallest and the largest batch with their memory outside the allocator, if it grows with the batch.
///
/// Extrapolation multiplies the difference of two measurements, so it must not be noise: both are made during the steps,
/// and the difference exceeds the variation within a run. A decrease can only come from other processes.
fn growth(probes: &[Probe]) -> Option<[(u64, u64); 2]> {
    let settled = || probes.iter().filter(|probe| probe.overhead.is_some_and(|overhead| overhead.is_settled));
    let first = settled().min_by_key(|probe| (probe.batch, held_outside(probe)))?;
    let last = settled().map(|probe| probe.batch).max()?;
    let highest = settled().filter_map(held_outside).max()?;
    let lowest = held_outside(first)?;
    let is_growing = first.batch < last && highest - lowest > first.overhead?.uncertain.get();
    is_growing.then_some([(first.batch, lowest), (last, highest)])
}

#[cfg(test)]
mod tests {
    use makeroom_explain::DeviceOverhead;

    use super::*;
    use crate::testing::{Shape, training};

    fn probe(batch: u64, held: u64) -> Probe {
        let held = Bytes::mib(held);
        let overhead = DeviceOverhead {
            total: Bytes::gib(8),
            held,
            uncertain: Bytes::ZERO,
            is_settled: true,
            is_own: false,
        };
        Probe { overhead: Some(overhead), ..training(&Shape { steps: 0, ..Shape::default() }, batch) }
    }

    #[test]
    fn overhead_is_deducted_and_extrapolated_if_it_grows() {
        let budget = Budget::new(Bytes::gib(8), &[probe(8, 600), probe(4, 500)], Margin::EXACT);
        assert_eq!(budget.overhead(8), Bytes::mib(600));
        assert_eq!(budget.overhead(12), Bytes::mib(700));
        assert_eq!(budget.margin, Bytes::mib(64));
        assert_eq!(budget.allocator(8), (Bytes::gib(8) - Bytes::mib(664)).get());
    }

    #[test]
    fn noise_is_not_growth() {
        let at_12 = |change: fn(&mut DeviceOverhead)| {
            let mut probes = [probe(8, 600), probe(4, 500)];
            change(probes[1].overhead.as_mut().unwrap());
            Budget::new(Bytes::gib(8), &probes, Margin::EXACT).overhead(12)
        };
        assert_eq!(at_12(|first| first.uncertain = Bytes::mib(99)), Bytes::mib(700));
        assert_eq!(at_12(|first| first.uncertain = Bytes::mib(100)), Bytes::mib(600));
        // A measurement from before the steps.
        assert_eq!(at_12(|first| first.is_settled = false), Bytes::mib(600));
        assert_eq!(at_12(|first| (first.is_settled, first.held) = (false, Bytes::mib(800))), Bytes::mib(800));
    }

    #[test]
    fn what_somebody_asked_to_keep_free_is_kept_to() {
        let card = Bytes::gib(8);
        assert_eq!(Budget::new(card, &[probe(4, 600)], Margin::EXACT).margin, Bytes::mib(64));
        assert_eq!(Budget::new(card, &[probe(4, 600)], Margin::asked(0.0)).margin, Bytes::ZERO);
        assert_eq!(Budget::new(card, &[probe(4, 600)], Margin::asked(0.25)).margin, Bytes::gib(2));
    }

    #[test]
    fn what_fell_by_itself_is_not_counted_on() {
        let budget = Budget::new(Bytes::gib(8), &[probe(4, 600), probe(8, 400)], Margin::ESTIMATED);
        assert_eq!(budget.overhead(100), Bytes::mib(600));
    }

    #[test]
    fn under_a_limit_the_least_that_was_seen_is_the_programs_own() {
        let own = |batch, held| {
            let mut probe = probe(batch, held);
            probe.overhead.as_mut().unwrap().is_own = true;
            probe
        };
        let budget = Budget::new(Bytes::gib(8), &[own(4, 1400), own(8, 620), own(16, 800)], Margin::EXACT);
        assert_eq!(budget.overhead(32), Bytes::mib(620));
        let mut with_libraries = [own(4, 1400), own(8, 620), own(16, 800)];
        with_libraries[2].libraries = Bytes::mib(64);
        assert_eq!(Budget::new(Bytes::gib(8), &with_libraries, Margin::EXACT).overhead(32), Bytes::mib(684));
    }

    #[test]
    fn a_card_without_room_leaves_nothing() {
        assert_eq!(Budget::new(Bytes::mib(100), &[probe(4, 600)], Margin::EXACT).allocator(4), 0);
    }
}
