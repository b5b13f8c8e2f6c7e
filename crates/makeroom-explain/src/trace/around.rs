//! Causes that lie beside the refused request: in another allocator of the process, in its contexts, in other processes,
//! in the limit that it ran under. What lies in the allocator that was asked is `verdict`'s.

use makeroom_core::{Bytes, Holder};

use super::room::Room;
use super::verdict::Refusal;
use crate::{Cause, Certainty, Finding};

impl Refusal<'_> {
    pub(super) fn contexts(&self) -> Bytes {
        self.process_overhead.map_or(Bytes::ZERO, |process_overhead| process_overhead.contexts)
    }

    /// What the limit of the run counted beyond what was recorded.
    pub(super) fn counted_beyond(&self) -> Bytes {
        self.process_overhead.map_or(Bytes::ZERO, |process_overhead| process_overhead.counted_beyond)
    }

    /// What of this process's memory is neither live nor cached, and could be had again: contexts that it does not need,
    /// and frees that wait.
    pub(super) fn could_be_back(&self) -> Bytes {
        self.further_contexts()
            + self.process_overhead.map_or(Bytes::ZERO, |process_overhead| process_overhead.pending.bytes)
    }

    /// Somebody else asked the driver, and what the framework keeps without using it would have served the request.
    pub(super) fn kept_by_the_framework(&self) -> Option<Finding> {
        let (request, untaken) = (self.event.size, self.untaken()?);
        let releasable = self.pieces.releasable;
        if untaken >= request || untaken + releasable < request {
            return None;
        }
        let summary = format!(
            "{request} requested outside of {} failed with {untaken} left, while {} has {} cached; it returns {releasable} of that to the driver only on request.",
            self.holder,
            self.holder,
            self.pieces.cached()
        );
        Some(self.finding(Cause::CacheHeldByFramework, Certainty::Likely, releasable, summary))
    }

    /// Contexts take memory before anything is allocated in them.
    pub(super) fn further_contexts_hold_it(&self) -> Option<Finding> {
        let (request, untaken) = (self.event.size, self.untaken()?);
        let (contexts, further) = (self.contexts(), self.further_contexts());
        if untaken >= request || untaken + further < request {
            return None;
        }
        let count = self.process_overhead.map_or(0, |process_overhead| process_overhead.context_count);
        let summary = format!(
            "{request} failed with {untaken} left, while this process has {count} CUDA contexts that hold {contexts}. One is enough: each holds memory until it is destroyed."
        );
        Some(self.finding(Cause::NonFrameworkOverhead, Certainty::Likely, further, summary))
    }

    /// Memory that was freed in stream order is the driver's pools' until the streams are waited for.
    pub(super) fn waiting_frees(&self) -> Option<Finding> {
        let pending = self.process_overhead?.pending;
        let free = self.event.device_free().filter(|_| self.room == Room::Unknown)?;
        let request = self.event.size;
        if free >= request || free + pending.bytes < request {
            return None;
        }
        let summary = format!(
            "{request} failed with {free} free, while the driver's pools still held {} that was freed with cudaFreeAsync: they keep it until the streams are synchronized.",
            pending.bytes
        );
        Some(self.finding(Cause::CacheHeldByFramework, Certainty::Likely, pending.bytes, summary))
    }

    /// Another framework in the same process holds the missing memory; whether it uses it, only that framework knows.
    pub(super) fn other_framework(&self) -> Option<Finding> {
        let (framework, bytes) = self.process_overhead?.other_framework?;
        let free = self.untaken()?;
        let request = self.event.size;
        if free >= request || free + bytes < request {
            return None;
        }
        let summary = format!(
            "{request} failed with {free} free, while {framework} in the same process holds {bytes}: frameworks cache freed memory and do not share it."
        );
        Some(self.finding(Cause::CacheHeldByFramework, Certainty::Likely, bytes, summary))
    }

    pub(super) fn other_processes(&self) -> Option<Finding> {
        let others = self.others();
        let free = self.event.device_free().filter(|_| self.room == Room::Unknown)?;
        let request = self.event.size;
        if others.is_zero() || free >= request || free + others < request {
            return None;
        }
        let summary = format!(
            "{request} failed with {free} free; other processes held {others} of the GPU's memory, this one {}.",
            self.held()
        );
        Some(self.finding(Cause::OtherProcesses, Certainty::Likely, others, summary))
    }

    /// A program without an allocator of its own was refused by a driver that had room: in pieces.
    pub(super) fn pieces_of_the_driver(&self) -> Option<Finding> {
        let free = self.event.device_free().filter(|_| self.room == Room::Unknown)?;
        let request = self.event.size;
        if self.process_overhead.is_none() || self.has_segments && !self.is_of_other || free < request {
            return None;
        }
        let summary = format!(
            "{request} failed while the driver had {free} free: no free range was large enough, or the memory was freed a moment too late."
        );
        Some(self.finding(Cause::Fragmentation, Certainty::Possible, free, summary))
    }

    /// The allocator could have taken what it needed and did not: it kept to a limit that the recording does not
    /// hold, or to a smaller one than was named.
    pub(super) fn room_was_left(&self) -> Option<Finding> {
        let untaken = self.untaken()?;
        let is_spare = untaken >= self.driver_request().scaled(1.05);
        if !is_spare || !self.has_segments || self.is_of_other || self.pool_limit.is_some() {
            return None;
        }
        let request = self.event.size;
        let what = if self.process_overhead.is_some() { "recording" } else { "snapshot" };
        let summary = match self.room {
            Room::Unknown => format!(
                "{request} failed while the driver had {untaken} free: {} applied a limit{}{} that the {what} does not contain.",
                self.holder,
                self.hidden_limit()
                    .map_or(String::new(), |(least, most)| format!(" between {least} and {most}")),
                if self.holder == Holder::PyTorch {
                    " (set_per_process_memory_fraction or an allocator setting)"
                } else {
                    ""
                }
            ),
            Room::Limit(size) if self.limit_of_run().is_some() => format!(
                "{request} failed with {untaken} left of {}: PyTorch applied a smaller limit of its own (set_per_process_memory_fraction or an allocator setting).",
                self.name_of(size)
            ),
            Room::Limit(size) | Room::Card(size) => format!(
                "{request} failed with {untaken} left of the given {size}: the run had a smaller limit."
            ),
        };
        let mut finding = self.finding(Cause::ArtificialLimit, Certainty::Likely, untaken, summary);
        finding.evidence.extend(self.hidden_limit().map(|(least, most)| {
            format!(
                "the limit is at least {least}, which was reserved before the failure, and less than {most}, which the failed request would have required in total"
            )
        }));
        Some(finding)
    }

    /// The bounds of a limit of PyTorch that the recording does not contain: the allocator had reserved the first figure before, and
    /// failed to reserve the second although the driver had the memory. `None` if the limit must have changed.
    pub(super) fn hidden_limit(&self) -> Option<(Bytes, Bytes)> {
        let is_torch = self.holder == Holder::PyTorch && !self.is_of_other;
        let is_hidden = self.room == Room::Unknown && self.has_segments && is_torch;
        let bounds = (self.most_reserved, self.pieces.reserved + self.driver_request());
        (is_hidden && self.untaken()? >= self.driver_request() && bounds.0 < bounds.1).then_some(bounds)
    }

    /// The limit of makeroom's own pool refused, and the device had room.
    pub(super) fn pools_limit_refused(&self) -> Option<Finding> {
        let (limit, request) = (self.pool_limit?, self.event.size);
        let free = self.event.device_free().filter(|&free| free >= request)?;
        let held = self.held();
        let summary = format!(
            "{request} exceeded the pool's limit of {limit}, of which {held} was already in use; the GPU had {free} free."
        );
        (held + request > limit)
            .then(|| self.finding(Cause::ArtificialLimit, Certainty::Certain, free, summary))
    }

    /// The limit refused, and what was recorded does not come up to it.
    pub(super) fn limit_counted_more(&self) -> Option<Finding> {
        let (limit, free) = (self.limit_of_run()?, self.event.device_free()?);
        let beyond = self.counted_beyond();
        let summary = format!(
            "{} failed because of `makeroom run --limit`, not the GPU, which had {free} free: the limit of {limit} counted at least {beyond} that was not recorded, such as memory that other processes allocated while a context was created.",
            self.event.size
        );
        (!beyond.is_zero()).then(|| self.finding(Cause::ArtificialLimit, Certainty::Likely, free, summary))
    }

    /// The card itself had room: only the limit refused.
    pub(super) fn only_the_limit_refused(&self) -> Option<Finding> {
        let limit = self.limit_of_run().filter(|_| self.counted_beyond().is_zero())?;
        let free = self.event.device_free().filter(|&free| free >= self.event.size)?;
        let summary = format!(
            "The limit of {limit} set by `makeroom run --limit` was reached; the GPU had {free} free."
        );
        Some(self.finding(Cause::ArtificialLimit, Certainty::Certain, free, summary))
    }
}
