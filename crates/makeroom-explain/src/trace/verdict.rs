//! Names the cause from a recording: the state at the refused request against the room there was.

use makeroom_core::{Bytes, Event, Holder, Library, PendingFrees, StreamId};
use makeroom_sim::Settings;

use super::pieces::Pieces;
use super::room::Room;
use crate::thresholds::{Shortage, leak_decides, private_pools_decide};
use crate::{Cause, Certainty, Finding, Growth};

/// A refused request and what was there when it was refused.
pub(crate) struct Refusal<'trace> {
    pub(crate) event: Event,
    pub(crate) pieces: &'trace Pieces,
    pub(crate) room: Room,
    /// Who holds the memory, in words.
    pub(crate) holder: Holder,
    /// The limit of makeroom's own pool, where that is the room.
    pub(crate) pool_limit: Option<Bytes>,
    /// What a whole process recorded beside its own requests; `None` where only an allocator was.
    pub(crate) process_overhead: Option<ProcessOverhead>,
    pub(crate) growth: Option<&'trace Growth>,
    /// The most that the allocator had reserved before.
    pub(crate) most_reserved: Bytes,
    /// Whether the recording says what was reserved.
    pub(crate) has_segments: bool,
    /// The settings of the recorded allocator.
    pub(crate) settings: &'trace Settings,
    /// Whether somebody else than the framework whose blocks were recorded asked the driver.
    pub(crate) is_of_other: bool,
}

/// What a recording of a whole process says beside what was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessOverhead {
    /// What `makeroom run --limit` allowed in all, contexts included, if that refused.
    pub(crate) limit_of_run: Option<Bytes>,
    /// What that limit must have counted at least beyond what was recorded: it refused, and neither the device nor what
    /// is known to have been taken was a reason to.
    pub(crate) counted_beyond: Bytes,
    /// What the contexts of this process take, how many they are, and what all but the first of them take.
    pub(crate) contexts: Bytes,
    /// See `contexts`.
    pub(crate) context_count: usize,
    /// See `contexts`.
    pub(crate) further_contexts: Bytes,
    /// What other processes hold, as far as it was measured.
    pub(crate) others: Bytes,
    /// What was freed in stream order and was not known to be back.
    pub(crate) pending: PendingFrees,
    /// The other framework of the process that holds most.
    pub(crate) other_framework: Option<(Library, Bytes)>,
    /// The device's memory, where it was measured.
    pub(crate) total: Option<Bytes>,
    /// PyTorch's segments on the device were paged: free space in them is virtual.
    pub(crate) is_paged: bool,
}

impl Refusal<'_> {
    /// What `makeroom run --limit` allowed in all, if that refused.
    pub(crate) fn limit_of_run(&self) -> Option<Bytes> {
        self.process_overhead?.limit_of_run
    }

    pub(super) fn others(&self) -> Bytes {
        self.process_overhead.map_or(Bytes::ZERO, |process_overhead| process_overhead.others)
    }

    /// What this process would have again if it destroyed all contexts but one.
    pub(super) fn further_contexts(&self) -> Bytes {
        self.process_overhead.map_or(Bytes::ZERO, |process_overhead| process_overhead.further_contexts)
    }

    /// Whether PyTorch's segments on the device were paged.
    pub(super) fn is_paged(&self) -> bool {
        self.process_overhead.is_some_and(|process_overhead| process_overhead.is_paged) && !self.is_of_other
    }

    /// The limit as people know it.
    pub(super) fn name_of(&self, limit: Bytes) -> String {
        match self.limit_of_run() {
            Some(whole) if whole == limit => format!("the limit of {limit} set by `makeroom run --limit`"),
            Some(whole) => {
                format!("the {limit} that `makeroom run --limit` ({whole}) allows after CUDA contexts")
            }
            None if self.pool_limit.is_some() => format!("the pool's limit of {limit}"),
            None => format!("the {limit} available"),
        }
    }

    /// What the allocator could still have taken from the driver.
    pub(crate) fn untaken(&self) -> Option<Bytes> {
        let by_limit = self.room.limit().map(|limit| limit - self.held());
        match (by_limit, self.event.device_free()) {
            (Some(by_limit), Some(free)) => Some(by_limit.min(free)),
            (by_limit, free) => by_limit.or(free),
        }
    }

    /// What is asked of the driver in all, if no unused block serves the request.
    pub(crate) fn wants(&self) -> Bytes {
        self.held() + self.driver_request()
    }

    /// What the allocator held: its segments, or what is live where the recording has no segments.
    pub(super) fn held(&self) -> Bytes {
        self.pieces.held(self.has_segments)
    }

    pub(super) fn live(&self) -> Bytes {
        self.pieces.live + self.pieces.homeless
    }

    /// What the driver is asked for when no unused block serves the request.
    pub(super) fn driver_request(&self) -> Bytes {
        if !self.has_segments || self.is_of_other {
            return self.event.size;
        }
        Bytes::new(self.settings.allocation_size(self.event.size.get()))
    }

    /// All causes that apply, the most convincing first. Never empty.
    pub(crate) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(self.integer_or_shape_bug());
        let limit_of_pool = self.pools_limit_refused();
        if limit_of_pool.is_none() {
            findings.extend(self.request_exceeds());
        }
        let (leak, perhaps) = self.leak().map_or((None, None), |finding| {
            if finding.certainty == Certainty::Possible {
                (None, Some(finding))
            } else {
                (Some(finding), None)
            }
        });
        findings.extend(leak);
        if let Some(limit_of_pool) = limit_of_pool {
            findings.push(limit_of_pool);
            findings.extend(self.request_exceeds());
        }
        // Growth that paging rejects can leave memory free.
        let room_was_left =
            if self.is_paged() { None } else { self.limit_counted_more().or_else(|| self.room_was_left()) };
        let is_full = room_was_left.is_none();
        findings.extend(room_was_left);
        if is_full {
            if self.is_of_other {
                findings.extend(self.kept_by_the_framework());
            } else {
                findings.extend(self.private_pools());
                // Pages of free blocks move to where memory is needed.
                if !self.is_paged() {
                    findings.extend(self.fitting_piece());
                    findings.extend(self.fragmentation());
                }
            }
            findings.extend(self.waiting_frees());
            findings.extend(self.other_framework());
            findings.extend(self.further_contexts_hold_it());
            let (others, live) = (self.other_processes(), self.live_data());
            // Whoever holds more is named first.
            let is_mostly_others = self.others() > self.held();
            findings
                .extend(if is_mostly_others { [others, live] } else { [live, others] }.into_iter().flatten());
            if !self.is_paged() {
                findings.extend(self.pieces_of_the_driver());
            }
        }
        findings.extend(self.only_the_limit_refused());
        findings.extend(perhaps);
        if findings.is_empty() {
            findings.push(self.undetermined());
        }
        findings
    }

    pub(super) fn finding(
        &self,
        cause: Cause,
        certainty: Certainty,
        bytes: Bytes,
        summary: String,
    ) -> Finding {
        let pieces = self.pieces;
        let mut evidence = vec![format!("{} failed, {} live", self.event.size, self.live())];
        if self.has_segments {
            evidence.push(format!(
                "{} reserved, of which {} is cached; the largest free block is {}",
                pieces.reserved,
                pieces.cached(),
                pieces.largest()
            ));
        }
        if let Some(free) = self.event.device_free() {
            evidence.push(format!("{free} free according to the driver"));
        }
        evidence.extend(match (self.limit_of_run(), self.room.limit()) {
            (Some(whole), _) if self.contexts().is_zero() => {
                Some(format!("limited to {whole} by `makeroom run --limit`"))
            }
            (Some(whole), _) => Some(format!(
                "limited to {whole} by `makeroom run --limit`, {} of it used by contexts",
                self.contexts()
            )),
            (None, Some(limit)) => Some(format!("{limit} available to the allocator")),
            (None, None) => None,
        });
        Finding { evidence, ..Finding::new(cause, certainty, summary).bytes(bytes) }
    }

    /// The figures that decide, in the form that texts have them in too.
    fn shortage(&self) -> Shortage {
        Shortage {
            request: self.event.size,
            total: self.room.limit(),
            free: self.untaken(),
            live: Some(self.live()),
            cached: Some(self.pieces.cached()),
            context: Bytes::ZERO,
        }
    }

    /// The device's memory without the contexts: as measured, or the sum of everything that is known to be on it.
    fn usable_device(&self, free: Bytes) -> Bytes {
        let other_framework = self
            .process_overhead
            .and_then(|process_overhead| process_overhead.other_framework)
            .map_or(Bytes::ZERO, |(_, bytes)| bytes);
        let known = free + self.held() + self.others() + self.could_be_back() + other_framework;
        let measured = self
            .process_overhead
            .and_then(|process_overhead| process_overhead.total)
            .map(|total| total - self.contexts());
        known.max(measured.unwrap_or(Bytes::ZERO))
    }

    fn integer_or_shape_bug(&self) -> Option<Finding> {
        let request = self.event.size;
        let summary = format!(
            "{request} was requested. No GPU has that much: an integer overflowed, or a shape is wrong."
        );
        self.shortage()
            .is_absurd()
            .then(|| self.finding(Cause::IntegerOrShapeBug, Certainty::Certain, request, summary))
    }

    fn request_exceeds(&self) -> Option<Finding> {
        let request = self.event.size;
        let (reachable, summary) = match (self.room.limit(), self.limit_of_run(), self.event.device_free()) {
            (Some(limit), Some(whole), _) => {
                let reachable = limit + self.further_contexts();
                let left = if reachable < whole {
                    format!(", {reachable} after the CUDA context")
                } else {
                    String::new()
                };
                (reachable, format!("`makeroom run --limit` allows {whole} in total{left}"))
            }
            (Some(limit), None, _) if self.pool_limit.is_some() => {
                (limit, format!("the pool is limited to {limit}"))
            }
            (Some(limit), None, _) => (limit, format!("the allocator has {limit} in total")),
            (None, _, Some(free)) if !self.others().is_zero() => {
                let reachable = self.usable_device(free);
                (reachable, format!("even without other processes, this GPU has only {reachable}"))
            }
            (None, _, Some(free)) => {
                let reachable = self.usable_device(free);
                (reachable, format!("this GPU has only {reachable} for the whole process"))
            }
            (None, _, None) => return None,
        };
        let summary = format!("A single allocation of {request} was requested; {summary}.");
        let shortage = Shortage { total: Some(reachable), ..self.shortage() };
        (shortage.exceeds_device() && !self.shortage().is_absurd()).then(|| {
            self.finding(Cause::RequestExceedsDevice, Certainty::Certain, request - reachable, summary)
        })
    }

    fn leak(&self) -> Option<Finding> {
        let growth = self.growth?;
        let leaked = growth.last - growth.first;
        if !leak_decides(leaked, self.live()) {
            return None;
        }
        if !growth.is_in_steps {
            let summary = format!(
                "Live memory grew from {} to {} and almost nothing was freed: a leak, or a program that allocates all it can get.",
                growth.first, growth.last
            );
            return Some(self.finding(Cause::Leak, Certainty::Possible, leaked, summary));
        }
        let (certainty, doubt) = if growth.is_enough {
            (Certainty::Likely, "")
        } else {
            (Certainty::Possible, ": a leak, or data that accumulates and is still needed")
        };
        let summary = format!(
            "{} grew from {} to {} {}, until an allocation of {} failed{doubt}.",
            growth.moment(),
            growth.first,
            growth.last,
            growth.pace(),
            self.event.size
        );
        Some(self.finding(Cause::Leak, certainty, leaked, summary))
    }

    /// An unused piece was large enough: PyTorch does not search again after it waited for frees.
    fn fitting_piece(&self) -> Option<Finding> {
        let largest = self.largest_usable(self.event.stream);
        if !self.has_segments || largest < self.event.size {
            return None;
        }
        let summary = format!(
            "{} failed although a free block of {largest} was cached. PyTorch does not search its cache again after waiting for pending frees (pytorch#189504).",
            self.event.size
        );
        let finding = self.finding(Cause::Undetermined, Certainty::Undetermined, largest, summary);
        Some(Finding { bytes: None, ..finding })
    }

    fn private_pools(&self) -> Option<Finding> {
        let pools = self.pieces.private_reserved;
        if !private_pools_decide(pools, self.pieces.reserved, self.event.size) {
            return None;
        }
        let summary = format!(
            "{pools} of the {} reserved belongs to private pools (CUDA graphs, MemPool), which ordinary allocations cannot use.",
            self.pieces.reserved
        );
        Some(self.finding(Cause::NonFrameworkOverhead, Certainty::Likely, pools, summary))
    }

    fn fragmentation(&self) -> Option<Finding> {
        let request = self.event.size;
        if self.limit_of_run().is_some() && !self.has_segments {
            return None;
        }
        let (cached, untaken) = (self.pieces.cached(), self.untaken()?);
        if !self.has_segments {
            // Without segments only the sum can be judged: live and the request fit, and yet it was refused.
            let limit = self.room.limit()?;
            let left = limit - self.live();
            let summary = format!(
                "{request} failed with {} of {limit} live: enough memory is unused, but no free block was large enough.",
                self.live()
            );
            return (left >= request)
                .then(|| self.finding(Cause::Fragmentation, Certainty::Likely, left, summary));
        }
        if !self.shortage().is_fragmented() {
            return None;
        }
        let largest = self.largest_usable(self.event.stream);
        if largest >= request {
            return None;
        }
        let summary = if cached >= request {
            format!(
                "{request} failed although {holder} has {cached} of its {reserved} cached: the largest free block is {largest}.",
                holder = self.holder,
                reserved = self.pieces.reserved
            )
        } else {
            format!(
                "{request} failed although {} was left: {untaken} not reserved yet, and {cached} cached in blocks of at most {largest}.",
                untaken + cached
            )
        };
        Some(self.finding(Cause::Fragmentation, Certainty::Certain, cached, summary))
    }

    fn live_data(&self) -> Option<Finding> {
        let request = self.event.size;
        let live = self.live();
        if self.is_paged() {
            let place = self.room.limit().map_or("the GPU".to_owned(), |limit| self.name_of(limit));
            let summary = format!(
                "{request} does not fit in {place}: {live} is live, and paging must be able to back all memory that PyTorch has reserved, including free space in its segments."
            );
            return Some(self.finding(Cause::LiveDataFillsDevice, Certainty::Likely, live, summary));
        }
        if let Some(limit) = self.room.limit() {
            let summary = match self.limit_of_run() {
                Some(whole) if whole > limit => format!(
                    "The limit of {whole} (`makeroom run --limit`) leaves {limit} after CUDA contexts; {live} of it is live, so {request} more does not fit."
                ),
                _ => format!("{live} is live; {request} more does not fit in {}.", self.name_of(limit)),
            };
            if self.shortage().live_exceeds_device() {
                return Some(self.finding(Cause::LiveDataFillsDevice, Certainty::Certain, live, summary));
            }
        }
        if !self.has_segments && self.room == Room::Unknown {
            let (certainty, summary) = match self.event.device_free() {
                Some(free) if free < request => (
                    Certainty::Likely,
                    format!("{request} failed with {live} live and {free} free on the GPU."),
                ),
                Some(_) => return None,
                None => (
                    Certainty::Possible,
                    format!(
                        "{request} failed with {live} live; the log does not contain the size of the GPU."
                    ),
                ),
            };
            return Some(self.finding(Cause::LiveDataFillsDevice, certainty, live, summary));
        }
        let untaken = self.untaken()?;
        let is_served = !self.is_of_other && self.largest_usable(self.event.stream) >= request;
        if untaken >= self.driver_request() || is_served {
            return None;
        }
        let summary = format!(
            "{request} does not fit: {live} of the {} that {} reserved is live, and only {untaken} more can be reserved.",
            self.pieces.reserved, self.holder
        );
        Some(self.finding(Cause::LiveDataFillsDevice, Certainty::Likely, live, summary))
    }

    fn undetermined(&self) -> Finding {
        let summary =
            format!("{} failed with {} live; the recording does not show why.", self.event.size, self.live());
        Finding {
            bytes: None,
            ..self.finding(Cause::Undetermined, Certainty::Undetermined, Bytes::ZERO, summary)
        }
    }

    /// The largest unused piece that the refused request may have used.
    fn largest_usable(&self, stream: StreamId) -> Bytes {
        self.pieces.usable_for(self.event.size, stream).map(|piece| piece.size).max().unwrap_or(Bytes::ZERO)
    }
}
