//! Live memory at the failure or the peak, grouped by kind, line, module, stage, thread, stream or process.

use makeroom_core::{Bytes, DeviceIndex, DeviceTrace, FastMap, SortCompact as _, Trace, TraceKind};
use makeroom_kind::{Kind, Kinds, Rule};
use makeroom_ordered::OrderedMap;

use super::group_names::GroupNames;
use super::growing::{Growing, GrowingLine, growing};

/// What to group memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Parameters, gradients, activations and so on.
    Kind,
    /// The program's innermost own line.
    Line,
    /// The source file of that line.
    Module,
    /// The program's own label or `record_function` scope, else the phase of training.
    Stage,
    /// The thread that allocated.
    Thread,
    /// The CUDA stream.
    Stream,
    /// The process.
    Process,
}

impl By {
    /// All groupings.
    pub const ALL: [Self; 7] =
        [Self::Kind, Self::Line, Self::Module, Self::Stage, Self::Thread, Self::Stream, Self::Process];

    /// Its name in options, paths and JSON.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Line => "line",
            Self::Module => "module",
            Self::Stage => "stage",
            Self::Thread => "thread",
            Self::Stream => "stream",
            Self::Process => "process",
        }
    }

    /// The grouping with this name.
    #[must_use]
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.id() == id)
    }
}

/// Live memory in groups: Σ `groups` = `live`.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// What it is grouped by.
    pub by: By,
    /// What kind of recording it comes from.
    pub source: TraceKind,
    /// The GPU.
    pub device: DeviceIndex,
    /// Whether the moment is that of the first failed allocation that the run did not get past; otherwise it is the peak.
    pub is_failure: bool,
    /// Whether the recording has what the groups need. If not, there is one group without a name of its own.
    pub is_recorded: bool,
    /// Number of events before the moment.
    pub events: usize,
    /// Live memory.
    pub live: Bytes,
    /// The groups, largest first; kinds in their own order.
    pub groups: Vec<Group>,
    /// Memory that grows from step to step over the run, if any does.
    pub growing: Option<Growing>,
    /// The groups of that memory, fastest first.
    pub growth: Vec<GroupGrowth>,
}

/// A group that grows from step to step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupGrowth {
    /// The name of the group.
    pub name: String,
    /// How much it grew over all steps.
    pub bytes: Bytes,
    /// The line of this group that grows fastest.
    pub line: Option<GrowingLine>,
}

/// One group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name; that of a kind is its ID.
    pub name: String,
    /// Live bytes.
    pub bytes: Bytes,
    /// Number of live blocks.
    pub blocks: u64,
    /// Bytes by kind, largest first.
    pub kinds: Vec<(Kind, Bytes)>,
    /// Bytes by rule, largest first.
    pub rules: Vec<(Rule, Bytes)>,
}

/// Blocks, bytes, and bytes by kind and by rule.
type Sums = (u64, Bytes, FastMap<Kind, Bytes>, FastMap<Rule, Bytes>);

/// Bytes at three moments, and the change of each line by kind.
type RisingSums = ([u64; 3], FastMap<(String, Kind), i64>);

/// Groups the live memory of a device at the failure that limits the run ([`Grouped::failure`]) or at its peak; `None` if
/// the recording has no device.
pub fn grouped(trace: &Trace, device: Option<DeviceIndex>, by: By) -> Option<Grouped> {
    let device = trace.device(device)?;
    let kinds = Kinds::new(trace, device);
    let failure = Grouped::failure(device, &kinds);
    let events = failure.map_or(kinds.peak().0, |(events, _)| events);
    let growing = growing(trace, device, &kinds);
    let growth = growing
        .as_ref()
        .map_or_else(Vec::new, |growing| groups_that_grow(trace, device, &kinds, by, growing));
    let grouped = grouped_at(trace, device, &kinds, by, events);
    Some(Grouped { is_failure: failure.is_some(), growing, growth, ..grouped })
}

/// The groups whose live memory rises over the three moments, fastest first.
fn groups_that_grow(
    trace: &Trace,
    device: &DeviceTrace,
    kinds: &Kinds,
    by: By,
    growing: &Growing,
) -> Vec<GroupGrowth> {
    let mut names = GroupNames::new(trace, device, by);
    let mut places = GroupNames::new(trace, device, By::Line);
    let mut groups: OrderedMap<String, RisingSums> = OrderedMap::new();
    for allocation in kinds.allocations() {
        let live = growing.moments.map(|moment| allocation.is_live_at(moment));
        if live == [false; 3] {
            continue;
        }
        let size = allocation.size.get();
        let (sums, lines) = groups.entry(names.name(allocation)).or_default();
        for (sum, is_live) in sums.iter_mut().zip(live) {
            *sum = sum.saturating_add(if is_live { size } else { 0 });
        }
        let signed = i64::try_from(size).unwrap_or(i64::MAX);
        let change = if live[0] == live[2] {
            0
        } else if live[2] {
            signed
        } else {
            -signed
        };
        let total = lines.entry((places.name(allocation), allocation.kind)).or_default();
        *total = total.saturating_add(change);
    }
    let mut grown: Vec<GroupGrowth> = groups
        .into_iter()
        .filter(|(_, ([first, middle, last], _))| first < middle && middle < last)
        .map(|(name, ([first, _, last], lines))| {
            let fastest = lines.into_iter().max_by(|one, two| (one.1, &two.0).cmp(&(two.1, &one.0)));
            let line = fastest.and_then(|((place, kind), _)| {
                let is_it = |line: &&GrowingLine| line.kind == kind && line.place.as_deref() == Some(&place);
                growing.lines.iter().find(is_it).cloned()
            });
            GroupGrowth { name, bytes: Bytes::new(last - first), line }
        })
        .collect();
    grown.sort_compact_by(|one, two| two.bytes.cmp(&one.bytes).then_with(|| one.name.cmp(&two.name)));
    grown
}

/// Groups the live memory of a device after `events` events.
pub fn grouped_at(trace: &Trace, device: &DeviceTrace, kinds: &Kinds, by: By, events: usize) -> Grouped {
    let mut names = GroupNames::new(trace, device, by);
    let mut groups: OrderedMap<String, Sums> = OrderedMap::new();
    for allocation in kinds.live_at(events) {
        let group = groups.entry(names.name(allocation)).or_default();
        group.0 += 1;
        group.1 += allocation.size;
        *group.2.entry(allocation.kind).or_default() += allocation.size;
        *group.3.entry(allocation.rule).or_default() += allocation.size;
    }
    let mut groups: Vec<Group> = groups
        .into_iter()
        .map(|(name, (blocks, bytes, kinds, rules))| Group {
            name,
            bytes,
            blocks,
            kinds: by_size(kinds),
            rules: by_size(rules),
        })
        .collect();
    match by {
        By::Kind => groups.sort_compact_by_key(|group| Kind::from_id(&group.name)),
        _ => groups.sort_compact_by_key(|group| std::cmp::Reverse(group.bytes)),
    }
    let live = groups.iter().map(|group| group.bytes).sum();
    Grouped {
        by,
        source: trace.kind,
        device: device.device,
        is_failure: false,
        is_recorded: names.is_recorded() || groups.is_empty(),
        events,
        live,
        groups,
        growing: None,
        growth: Vec::new(),
    }
}

fn by_size<T: Ord + Copy>(parts: FastMap<T, Bytes>) -> Vec<(T, Bytes)> {
    let mut parts: Vec<(T, Bytes)> = parts.into_iter().collect();
    parts.sort_compact_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
    parts
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Action, Annotation, AnnotationStage, Event, StreamId};

    use super::*;

    #[test]
    fn memory_is_grouped_by_scope_stream_and_kind_and_adds_up() {
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        let mut device = DeviceTrace::default();
        for (time_us, address, stream) in [(5, 512, 0), (15, 1024, 0), (17, 2048, 7), (25, 4096, 7)] {
            let event = Event::new(Action::Alloc, address, address);
            device.events.push(Event { time_us, stream: StreamId(stream), ..event });
        }
        let decode = trace.stacks.name("decode");
        device.events.set_label(3, decode);
        for (time_us, stage) in [(10, AnnotationStage::Start), (20, AnnotationStage::End)] {
            trace.annotations.push(Annotation { name: "prefill".to_owned(), stage, device: None, time_us });
        }
        trace.devices.push(device);
        let names = |by| {
            let grouped = grouped(&trace, None, by).unwrap();
            assert_eq!(grouped.live, Bytes::new(512 + 1024 + 2048 + 4096));
            assert_eq!(grouped.groups.iter().map(|group| group.bytes).sum::<Bytes>(), grouped.live);
            grouped.groups.into_iter().map(|group| (group.name, group.bytes.get())).collect::<Vec<_>>()
        };
        let owned = |name: &str, bytes| (name.to_owned(), bytes);
        assert_eq!(
            names(By::Stage),
            [owned("decode", 4096), owned("prefill", 3072), owned("no stage recorded", 512)]
        );
        assert_eq!(names(By::Stream), [owned("stream 0x7", 6144), owned("default stream", 1536)]);
        for by in [By::Kind, By::Line, By::Module, By::Thread, By::Process] {
            assert_eq!(names(by).len(), 1, "{by:?}");
        }
        let recorded: Vec<By> =
            By::ALL.into_iter().filter(|&by| grouped(&trace, None, by).unwrap().is_recorded).collect();
        assert_eq!(recorded, [By::Stage, By::Stream]);
        assert!(By::ALL.into_iter().all(|by| By::from_id(by.id()) == Some(by)));
        assert!(grouped(&Trace::new(TraceKind::Room), None, By::Kind).is_none());
    }
}
