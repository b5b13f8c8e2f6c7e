//! What a recording of a whole process adds to the account of one device: its contexts, its libraries, the limit that it
//! ran under.

use std::collections::BTreeMap;

use makeroom_core::{Bytes, Event};

use super::overhead::{Measured, Overhead};
use super::state::State;
use super::taken::outside;
use super::verdict::{Beside, Refusal};
use super::{Room, Subject};

/// Frameworks that keep what they freed.
const KEEPERS: [&str; 6] = ["PyTorch", "CuPy", "JAX", "TensorFlow", "RMM", "PaddlePaddle"];

impl Subject<'_> {
    /// What the device holds beside the requests of this process at a moment, and how large it is.
    pub(super) fn overhead(&self, time_us: u64, state: &State, is_closed: bool) -> Option<(Overhead, Bytes)> {
        let process = self.trace.process.as_ref()?;
        let total = process.device_sample_near(self.device.device, time_us)?.total;
        let segments = state.segments.iter().map(|segment| Bytes::new(segment.size));
        let blocks: Vec<Bytes> = segments.chain(outside(state).map(|block| block.requested)).collect();
        let measured = Measured::new(process, self.device, &self.history.start);
        Some((measured.at(time_us, &blocks, is_closed)?, total))
    }

    /// What libraries asked the driver for, largest first.
    pub(super) fn libraries(&self, state: &State) -> Vec<(&'static str, Bytes)> {
        if self.trace.process.is_none() {
            return Vec::new();
        }
        let mut libraries: BTreeMap<&'static str, Bytes> = BTreeMap::new();
        for block in outside(state) {
            if let Some(name) = self.places.library(block.stack) {
                *libraries.entry(name).or_default() += block.requested;
            }
        }
        let mut libraries: Vec<_> = libraries.into_iter().collect();
        libraries.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        libraries
    }

    /// What else decides about a refusal.
    pub(super) fn beside(
        &self,
        event: &Event,
        overhead: Option<&(Overhead, Bytes)>,
        libraries: &[(&'static str, Bytes)],
    ) -> Option<Beside> {
        let process = self.trace.process.as_ref()?;
        let frees = process.stream_frees.iter().find(|frees| frees.device == self.device.device);
        let asker = self.places.library(event.stack);
        let is_other = |(name, _): &&(&'static str, Bytes)| KEEPERS.contains(name) && Some(*name) != asker;
        let overhead = overhead.map(|(overhead, _)| *overhead).unwrap_or_default();
        Some(Beside {
            limit_of_run: None,
            contexts: overhead.contexts,
            context_count: overhead.context_count,
            further_contexts: overhead.further_contexts,
            others: overhead.others,
            pending: frees.and_then(|frees| frees.at_refusal).unwrap_or_default(),
            other_framework: libraries.iter().find(is_other).copied(),
        })
    }

    /// Whether somebody else than the framework whose blocks were recorded was refused.
    pub(super) fn is_refused_to_other(&self, index: usize) -> bool {
        let refused = self.trace.process.iter().flat_map(|process| &process.refused_to_others);
        refused.into_iter().any(|&refused| refused == (self.device.device, index))
    }

    /// Judges against the limit that `makeroom run` set, if that is what refused. Contexts count under it too.
    pub(super) fn apply_limit_of_run(&self, refusal: &mut Refusal<'_>) {
        let Some(limit) = self.trace.process.as_ref().and_then(|process| process.limit) else { return };
        let contexts = refusal.contexts();
        if refusal.room == Room::Unknown && refusal.wants() + contexts > limit {
            refusal.room = Room::Limit(limit - contexts);
            if let Some(beside) = &mut refusal.beside {
                beside.limit_of_run = Some(limit);
            }
        }
    }
}
