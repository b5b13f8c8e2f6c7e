//! What a recording of a whole process adds to the account of one device: its contexts, its libraries, the limit that it
//! ran under.

use makeroom_core::{Bytes, Event, Library, SortCompact as _};
use makeroom_ordered::OrderedMap;

use super::overhead::{Measured, Overhead};
use super::pieces::Pieces;
use super::state::State;
use super::taken::outside;
use super::verdict::{ProcessOverhead, Refusal};
use super::{Room, Subject};
use crate::thresholds::CONTEXT_CEILING;

/// A driver that has this much more free than it is asked for does not refuse.
const ROOM_TO_SPARE: f64 = 1.05;

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
    pub(super) fn libraries(&self, state: &State) -> Vec<(Library, Bytes)> {
        if self.trace.process.is_none() {
            return Vec::new();
        }
        let mut libraries: OrderedMap<Library, Bytes> = OrderedMap::new();
        for block in outside(state) {
            if let Some(library) = self.places.library(block.stack) {
                *libraries.entry(library).or_default() += block.requested;
            }
        }
        let mut libraries: Vec<_> = libraries.into_iter().collect();
        libraries.sort_compact_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        libraries
    }

    /// What else decides about a refusal.
    pub(super) fn process_overhead(
        &self,
        event: &Event,
        overhead: Option<&(Overhead, Bytes)>,
        libraries: &[(Library, Bytes)],
    ) -> Option<ProcessOverhead> {
        let process = self.trace.process.as_ref()?;
        let frees = process.stream_frees.iter().find(|frees| frees.device == self.device.device);
        let asker = self.places.library(event.stack);
        let is_other = |(library, _): &&(Library, Bytes)| library.caches() && Some(*library) != asker;
        let total = overhead.map(|&(_, total)| total);
        let overhead = overhead.map(|(overhead, _)| *overhead).unwrap_or_default();
        Some(ProcessOverhead {
            limit_of_run: None,
            counted_beyond: Bytes::ZERO,
            contexts: overhead.contexts,
            context_count: overhead.context_count,
            further_contexts: overhead.further_contexts,
            others: overhead.others,
            pending: frees.and_then(|frees| frees.at_refusal).unwrap_or_default(),
            other_framework: libraries.iter().find(is_other).copied(),
            total,
            is_paged: process.pages.iter().any(|pages| pages.device == self.device.device),
        })
    }

    /// Whether somebody else than the framework whose blocks were recorded was refused.
    pub(super) fn is_refused_to_other(&self, index: usize) -> bool {
        let refused = self.trace.process.iter().flat_map(|process| &process.refused_to_others);
        refused.into_iter().any(|&refused| refused == (self.device.device, index))
    }

    /// The room of a run without failures, and the limit that `makeroom run` set, if that makes the room. Contexts count
    /// under it too.
    pub(super) fn room_of_run(
        &self,
        room: Room,
        pieces: &Pieces,
        overhead: Option<&(Overhead, Bytes)>,
    ) -> (Room, Option<Bytes>) {
        let limit = self.trace.process.as_ref().and_then(|process| process.limit);
        let contexts = overhead.map_or(Bytes::ZERO, |(overhead, _)| overhead.contexts);
        let held = pieces.held(self.has_segments());
        match limit.filter(|&limit| room == Room::Unknown && held + contexts <= limit) {
            Some(limit) => (Room::Limit(limit - contexts), Some(limit)),
            None => (room, None),
        }
    }

    /// Judges the refusal at a position against the limit that `makeroom run` set, if that is what refused. Contexts count
    /// under it too.
    ///
    /// It is, if what was recorded goes beyond it; and if not, where the driver was asked and had room for the request. A
    /// framework that asked nobody kept to a limit of its own.
    pub(super) fn apply_limit_of_run(&self, refusal: &mut Refusal<'_>, index: usize) {
        let Some(process) = self.trace.process.as_ref() else { return };
        let Some(limit) = process.limit.filter(|_| refusal.room == Room::Unknown) else { return };
        let wanted = refusal.wants() + refusal.contexts();
        let is_unasked = process.refused_unasked.contains(&(self.device.device, index));
        let has_room = |free: Bytes| free >= refusal.driver_request().scaled(ROOM_TO_SPARE);
        if wanted <= limit && (is_unasked || !refusal.event.device_free().is_some_and(has_room)) {
            return;
        }
        if let Some(process_overhead) = &mut refusal.process_overhead {
            process_overhead.limit_of_run = Some(limit);
            // At the limit itself one byte more is refused.
            let beyond = if wanted <= limit { limit - wanted + Bytes::new(1) } else { Bytes::ZERO };
            // What a context takes is measured by others too: a little more can be its own.
            if process_overhead.contexts + beyond <= CONTEXT_CEILING {
                process_overhead.contexts += beyond;
            } else {
                process_overhead.counted_beyond = beyond;
            }
        }
        refusal.room = Room::Limit(limit - refusal.contexts());
    }
}
