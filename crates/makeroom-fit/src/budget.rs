//! What an allocator may take of a card.

use makeroom_core::Bytes;

use crate::law::SizeLaw;
use crate::probe::Probe;

/// The least that is kept free unless somebody asks for less: the driver takes pages of its own as it goes.
const LEAST_MARGIN: Bytes = Bytes::mib(64);

/// How much is kept free beyond what was predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// As a share of the card.
    pub share: f64,
    /// And at least this much.
    pub least: Bytes,
}

impl Margin {
    /// For laws that hold to the byte.
    pub const EXACT: Self = Self { share: 0.005, least: LEAST_MARGIN };
    /// For laws that were estimated.
    pub const ESTIMATED: Self = Self { share: 0.02, least: LEAST_MARGIN };

    /// What somebody asked for, and no more.
    pub const fn asked(share: f64) -> Self {
        Self { share, least: Bytes::ZERO }
    }

    /// With so much more of the card, but no more than for laws that were estimated.
    pub(crate) fn wider(self, share: f64) -> Self {
        Self { share: (self.share + share).min(Self::ESTIMATED.share), ..self }
    }

    fn of(self, card: Bytes) -> Bytes {
        card.scaled(self.share).max(self.least)
    }
}

/// How much of a card is there for an allocator, at any batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Budget {
    /// The card.
    pub card: Bytes,
    /// What is kept free.
    pub margin: Bytes,
    /// What is held beside the allocator, as a law of the batch.
    beside: SizeLaw,
    /// What runs turned out to have less than that leaves.
    missing: Bytes,
}

impl Budget {
    /// The budget on a card of this size, after runs on some card; in any order.
    pub fn new(card: Bytes, probes: &[Probe], margin: Margin) -> Self {
        let held = |probe: &Probe| Some(probe.beside?.held.get());
        let with_libraries = |probe: &Probe| Some((probe.batch, held(probe)? + probe.libraries.get()));
        let mut seen: Vec<(u64, u64)> = probes.iter().filter_map(with_libraries).collect();
        seen.sort_unstable();
        seen.dedup_by_key(|point| point.0);
        let contexts = probes.iter().filter_map(held).min().unwrap_or(0);
        let libraries = probes.iter().map(|probe| probe.libraries.get()).max().unwrap_or(0);
        // What libraries load on first use grows in the first runs; it may fall only because others gave memory back.
        let mut highest = 0;
        for point in &mut seen {
            highest = highest.max(point.1);
            point.1 = highest;
        }
        let is_own = probes.iter().all(|probe| probe.beside.is_none_or(|beside| beside.is_own));
        let law = match (seen.first(), seen.last()) {
            // What a process's contexts hold does not follow the batch; what others hold can only have been added to it.
            _ if is_own => SizeLaw::Fixed(contexts + libraries),
            (Some(&first), Some(&last)) if first.0 != last.0 => SizeLaw::Line([first, last]),
            (_, Some(&last)) => SizeLaw::Fixed(last.1),
            _ => SizeLaw::Fixed(0),
        };
        Self { card, margin: margin.of(card), beside: law, missing: Bytes::ZERO }
    }

    /// The same with so many bytes less.
    pub(crate) fn with_less(self, bytes: u64) -> Self {
        Self { missing: Bytes::new(bytes), ..self }
    }

    /// What is held beside the allocator at a batch.
    pub fn beside(&self, batch: u64) -> Bytes {
        Bytes::new(self.beside.at(batch))
    }

    /// What the allocator may take at a batch.
    pub fn allocator(&self, batch: u64) -> u64 {
        (self.card - self.margin - self.beside(batch) - self.missing).get()
    }
}

#[cfg(test)]
mod tests {
    use makeroom_explain::Beside;

    use super::*;
    use crate::testing::{Shape, training};

    fn probe(batch: u64, held: u64) -> Probe {
        let beside = Beside { total: Bytes::gib(8), held: Bytes::mib(held), is_own: false };
        Probe { beside: Some(beside), ..training(&Shape { steps: 0, ..Shape::default() }, batch) }
    }

    #[test]
    fn what_is_held_beside_is_deducted_and_carried_on_where_it_grows() {
        let budget = Budget::new(Bytes::gib(8), &[probe(8, 600), probe(4, 500)], Margin::EXACT);
        assert_eq!(budget.beside(8), Bytes::mib(600));
        assert_eq!(budget.beside(12), Bytes::mib(700));
        assert_eq!(budget.margin, Bytes::mib(64));
        assert_eq!(budget.allocator(8), (Bytes::gib(8) - Bytes::mib(664)).get());
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
        assert_eq!(budget.beside(100), Bytes::mib(600));
    }

    #[test]
    fn under_a_limit_the_least_that_was_seen_is_the_programs_own() {
        let own = |batch, held| {
            let mut probe = probe(batch, held);
            probe.beside.as_mut().unwrap().is_own = true;
            probe
        };
        let budget = Budget::new(Bytes::gib(8), &[own(4, 1400), own(8, 620), own(16, 800)], Margin::EXACT);
        assert_eq!(budget.beside(32), Bytes::mib(620));
        let mut with_libraries = [own(4, 1400), own(8, 620), own(16, 800)];
        with_libraries[2].libraries = Bytes::mib(64);
        assert_eq!(Budget::new(Bytes::gib(8), &with_libraries, Margin::EXACT).beside(32), Bytes::mib(684));
    }

    #[test]
    fn a_card_without_room_leaves_nothing() {
        assert_eq!(Budget::new(Bytes::mib(100), &[probe(4, 600)], Margin::EXACT).allocator(4), 0);
    }
}
