//! One run, reduced to the memory at its peak or at its failure. As a file, it is a baseline: one kind or line of code per
//! row, sorted, so that a change of the program shows as a change of few rows.

use std::collections::BTreeMap;

use makeroom_core::{
    Action, Bytes, DeviceTrace, FastMap, SortCompact as _, StackId, Start, Taken, Trace, TraceKind,
};
use makeroom_kind::{Kind, Kinds};
use makeroom_ordered::OrderedMap;
use serde::{Deserialize, Serialize};

/// The value of [`Profile::format`].
pub const BASELINE: &str = "makeroom baseline 1";
/// Lines of code that are kept, the largest.
const MOST_LINES: usize = 200;

/// The memory of one GPU at the peak of a run, or when an allocation failed.
///
/// Σ `kinds` = `peak_bytes`, and Σ `lines` ≤ `peak_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What the file is: [`BASELINE`].
    pub format: String,
    /// The most that was live; the live memory at the failure if `failed_request_bytes` is known.
    pub peak_bytes: u64,
    /// The request that failed, if this is the memory at a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_request_bytes: Option<u64>,
    /// The most that was taken from the driver, by the framework's allocator and by all other code that was recorded, if
    /// the recording shows segments.
    pub reserved_bytes: Option<u64>,
    /// Live bytes by the ID of a kind.
    pub kinds: BTreeMap<String, u64>,
    /// Live bytes by kind and line, by place.
    pub lines: Vec<Line>,
    /// Growth of live memory from step to step, if there is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub growth: Option<StepGrowth>,
    /// What recorded the run, which determines the memory that it contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// Whether the recording has no history, so that this is the memory when it was written, not the peak.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_without_history: bool,
    /// Whether an allocation failed in the run, so that it would have needed more than its peak.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_incomplete: bool,
    /// The most memory that was live outside of the framework's allocator, if it is left out.
    #[serde(skip)]
    pub left_out_bytes: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What recorded a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// PyTorch, as a snapshot: the memory of its allocator, with the sizes that were requested.
    TorchSnapshot,
    /// `makeroom run`: the memory of the whole process, with the sizes of PyTorch's blocks.
    Recording,
    /// RMM's logging resource.
    RmmLog,
    /// JAX, as a profile of live buffers.
    JaxProfile,
}

impl From<TraceKind> for Source {
    fn from(kind: TraceKind) -> Self {
        match kind {
            TraceKind::TorchSnapshot => Self::TorchSnapshot,
            TraceKind::Room => Self::Recording,
            TraceKind::RmmLog => Self::RmmLog,
            TraceKind::JaxProfile => Self::JaxProfile,
        }
    }
}

impl Source {
    /// Its ID in JSON.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::TorchSnapshot => "torch_snapshot",
            Self::Recording => "recording",
            Self::RmmLog => "rmm_log",
            Self::JaxProfile => "jax_profile",
        }
    }
}

/// Live memory that grows from step to step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepGrowth {
    /// Number of steps.
    pub steps: u64,
    /// What marks a step; empty in baselines that do not record it.
    #[serde(default)]
    pub measured_by: String,
    /// How much live memory grew over all of them.
    pub bytes: u64,
    /// The lines that grow, fastest first.
    pub lines: Vec<GrowingLine>,
}

/// A line whose memory grows from step to step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GrowingLine {
    /// The program's innermost own line; `None` if no stack was recorded.
    pub place: Option<String>,
    /// The ID of its kind.
    pub kind: String,
    /// How much it grew over all steps.
    pub bytes: u64,
    /// The object that keeps the memory, if the frames show it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keeper: Option<String>,
}

impl StepGrowth {
    /// Bytes per step.
    pub fn per_step(&self) -> f64 {
        self.bytes as f64 / self.steps.max(1) as f64
    }
}

/// The memory of one kind that one line of code allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The program's innermost own line; `None` if no stack was recorded.
    pub place: Option<String>,
    /// The ID of its kind.
    pub kind: String,
    /// Live bytes.
    pub bytes: u64,
    /// Number of live blocks.
    pub blocks: u64,
}

impl Profile {
    /// Reduces the recording of a device; `place` names the line of a stack.
    pub fn new(trace: &Trace, device: &DeviceTrace, place: impl Fn(StackId) -> Option<String>) -> Self {
        let profile = Self::of_kinds(device, &Kinds::new(trace, device), place);
        Self { source: Some(trace.kind.into()), ..profile }
    }

    /// Reduces the recording of a device whose kinds are known to its peak.
    pub fn of_kinds(device: &DeviceTrace, kinds: &Kinds, place: impl Fn(StackId) -> Option<String>) -> Self {
        Self::at(kinds.peak().0, None, device, kinds, place)
    }

    /// Reduces the recording to the moment that limits it: `failure`, the number of events before a failed request and its
    /// size, or else the peak.
    pub fn of_need(
        device: &DeviceTrace,
        kinds: &Kinds,
        failure: Option<(usize, Bytes)>,
        place: impl Fn(StackId) -> Option<String>,
    ) -> Self {
        match failure {
            Some((events, request)) => Self::at(events, Some(request.get()), device, kinds, place),
            None => Self::of_kinds(device, kinds, place),
        }
    }

    /// The memory after `peak` events.
    fn at(
        peak: usize,
        failed_request_bytes: Option<u64>,
        device: &DeviceTrace,
        kinds: &Kinds,
        place: impl Fn(StackId) -> Option<String>,
    ) -> Self {
        let mut by_stack: FastMap<(StackId, Kind), (u64, u64)> = FastMap::default();
        for allocation in kinds.live_at(peak) {
            let entry = by_stack.entry((allocation.stack, allocation.kind)).or_default();
            entry.0 = entry.0.saturating_add(allocation.size.get());
            entry.1 += 1;
        }
        let mut by_line: OrderedMap<(Option<String>, Kind), (u64, u64)> = OrderedMap::new();
        for (&(stack, kind), &(bytes, blocks)) in &by_stack {
            let entry = by_line.entry((place(stack), kind)).or_default();
            entry.0 = entry.0.saturating_add(bytes);
            entry.1 += blocks;
        }
        let mut lines: Vec<Line> = by_line
            .into_iter()
            .map(|((place, kind), (bytes, blocks))| Line { place, kind: kind.id().to_owned(), bytes, blocks })
            .collect();
        lines.sort_compact_by(|one, two| two.bytes.cmp(&one.bytes).then_with(|| one.cmp(two)));
        lines.truncate(MOST_LINES);
        lines.sort();
        let totals = kinds.at(peak);
        Self {
            format: BASELINE.to_owned(),
            peak_bytes: totals.live().get(),
            failed_request_bytes,
            reserved_bytes: peak_reserved(device).map(Bytes::get),
            kinds: totals.iter().map(|(kind, total)| (kind.id().to_owned(), total.bytes.get())).collect(),
            lines,
            is_without_history: totals.live() != Bytes::ZERO
                && !device.events.actions().contains(&Action::Alloc),
            ..Self::default()
        }
    }

    /// The bytes of a kind.
    pub fn of_kind(&self, kind: &str) -> u64 {
        self.kinds.get(kind).copied().unwrap_or(0)
    }
}

fn peak_reserved(device: &DeviceTrace) -> Option<Bytes> {
    let takes = |action: &Action| matches!(action, Action::SegmentAlloc | Action::SegmentMap);
    let has_segments = !device.segments.is_empty() || device.events.actions().iter().any(takes);
    has_segments.then(|| Taken::peak(device, &Start::new(device)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use makeroom_core::{Event, TraceKind};

    #[test]
    fn a_run_is_reduced_to_its_peak() {
        let mut device = DeviceTrace::default();
        for (action, address, size) in [
            (Action::SegmentAlloc, 512, 4096),
            (Action::Alloc, 512, 1000),
            (Action::Alloc, 2048, 500),
            (Action::FreeCompleted, 2048, 500),
            (Action::Alloc, 2048, 100),
        ] {
            device.events.push(Event::new(action, address, size));
        }
        let trace = Trace::new(TraceKind::TorchSnapshot);
        let profile = Profile::new(&trace, &device, |_| None);
        assert_eq!((profile.peak_bytes, profile.reserved_bytes), (1500, Some(4096)));
        assert_eq!(profile.kinds.values().sum::<u64>(), 1500);
        assert_eq!(profile.lines.iter().map(|line| line.bytes).sum::<u64>(), 1500);
        assert_eq!((profile.of_kind("temporaries"), profile.of_kind("unknown")), (500, 1000));
    }

    #[test]
    fn reserved_memory_includes_memory_outside_of_the_allocator() {
        let mut device = DeviceTrace::default();
        for (action, address, size) in
            [(Action::SegmentAlloc, 512, 4096), (Action::Alloc, 512, 4000), (Action::Alloc, 9000, 2000)]
        {
            device.events.push(Event::new(action, address, size));
        }
        let profile = Profile::new(&Trace::new(TraceKind::Room), &device, |_| None);
        assert_eq!((profile.peak_bytes, profile.reserved_bytes), (6000, Some(6096)));
        assert!(!profile.is_without_history);
    }

    #[test]
    fn a_run_that_failed_is_reduced_to_its_failure() {
        use Action::{Alloc, FreeCompleted, OutOfMemory};
        let mut device = DeviceTrace::default();
        for (action, address, size) in
            [(Alloc, 512, 1000), (Alloc, 2048, 500), (FreeCompleted, 2048, 500), (OutOfMemory, 0, 800)]
        {
            device.events.push(Event::new(action, address, size));
        }
        let kinds = Kinds::new(&Trace::new(TraceKind::TorchSnapshot), &device);
        for (failure, peak) in [(Some((3, Bytes::new(800))), 1000), (None, 1500)] {
            let profile = Profile::of_need(&device, &kinds, failure, |_| None);
            assert_eq!(profile.peak_bytes, peak);
            assert_eq!(profile.failed_request_bytes, failure.map(|(_, request)| request.get()));
            assert_eq!(profile.kinds.values().sum::<u64>(), peak);
        }
    }
}
