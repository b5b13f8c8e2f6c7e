//! Live memory at the failure or the peak, grouped by kind, line, module, stage, thread, stream or process.

use std::collections::BTreeMap;

use makeroom_core::{AnnotationStage, Bytes, DeviceIndex, DeviceTrace, FastMap, StackId, StreamId, Trace};
use makeroom_kind::{Allocation, Kind, Kinds, Rule};

use super::choice::chosen_device;
use super::sites::Places;

/// Scopes that are open at once; more are not told apart.
const MOST_SCOPES: usize = 64;

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

/// Live memory in groups: Σ `groups` = `live`.
#[derive(Clone, Debug)]
pub struct Grouped {
    /// What it is grouped by.
    pub by: By,
    /// The GPU.
    pub device: DeviceIndex,
    /// Whether the moment is that of the first failed allocation; otherwise it is the peak.
    pub is_failure: bool,
    /// Number of events before the moment.
    pub events: usize,
    /// Live memory.
    pub live: Bytes,
    /// The groups, largest first; kinds in their own order.
    pub groups: Vec<Group>,
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

/// Groups the live memory of a device; `None` if the recording has no device.
pub fn grouped(trace: &Trace, device: Option<DeviceIndex>, by: By) -> Option<Grouped> {
    let device = chosen_device(trace, device)?;
    let kinds = Kinds::new(trace, device);
    let actions = device.events.actions();
    let failure = actions.iter().position(|&action| action == makeroom_core::Action::OutOfMemory);
    let events = failure.unwrap_or(kinds.peak().0);
    let mut names = Names::new(trace, device, by);
    let mut groups: BTreeMap<String, Sums> = BTreeMap::new();
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
        By::Kind => groups.sort_by_key(|group| Kind::from_id(&group.name)),
        _ => groups.sort_by_key(|group| std::cmp::Reverse(group.bytes)),
    }
    let live = groups.iter().map(|group| group.bytes).sum();
    Some(Grouped { by, device: device.device, is_failure: failure.is_some(), events, live, groups })
}

fn by_size<T: Ord + Copy>(parts: FastMap<T, Bytes>) -> Vec<(T, Bytes)> {
    let mut parts: Vec<(T, Bytes)> = parts.into_iter().collect();
    parts.sort_by(|one, two| two.1.cmp(&one.1).then_with(|| one.0.cmp(&two.0)));
    parts
}

/// Names the group of an allocation. Allocations come in order of birth.
struct Names<'trace> {
    trace: &'trace Trace,
    device: &'trace DeviceTrace,
    places: Places<'trace>,
    by: By,
    of_stack: FastMap<StackId, String>,
    /// Starts and ends of scopes, by time.
    scopes: Vec<(u64, AnnotationStage, &'trace str)>,
    next_scope: usize,
    open: Vec<&'trace str>,
}

impl<'trace> Names<'trace> {
    fn new(trace: &'trace Trace, device: &'trace DeviceTrace, by: By) -> Self {
        // Optimizers mark their own steps, which the phases show anyway.
        let is_own =
            |name: &str| !["Optimizer.", "ProfilerStep#"].iter().any(|start| name.starts_with(start));
        let here = trace.annotations.iter().filter(|annotation| {
            is_own(&annotation.name) && annotation.device.is_none_or(|index| index == device.device)
        });
        let mut scopes: Vec<_> =
            here.map(|annotation| (annotation.time_us, annotation.stage, annotation.name.as_str())).collect();
        scopes.sort_by_key(|&(time, _, _)| time);
        Self {
            trace,
            device,
            places: Places::new(trace),
            by,
            of_stack: FastMap::default(),
            scopes,
            next_scope: 0,
            open: Vec::new(),
        }
    }

    fn name(&mut self, allocation: &Allocation) -> String {
        match self.by {
            By::Kind => allocation.kind.id().to_owned(),
            By::Line | By::Module => {
                let (places, by) = (self.places, self.by);
                let name = || match by {
                    By::Line => places.compared(allocation.stack),
                    _ => module(places, allocation.stack),
                };
                self.of_stack.entry(allocation.stack).or_insert_with(name).clone()
            }
            By::Stage => self.stage(allocation),
            By::Thread => self.thread(allocation),
            By::Stream => match allocation.stream {
                StreamId(0) => "default stream".to_owned(),
                StreamId(stream) => format!("stream {stream:#x}"),
            },
            By::Process => self.process(),
        }
    }

    fn stage(&mut self, allocation: &Allocation) -> String {
        let Some(born) = allocation.born() else { return "before the recording".to_owned() };
        let events = &self.device.events;
        if let Some(label) = events.label(born) {
            return self.trace.stacks.name_text(label).to_owned();
        }
        let time = events.get(born).map_or(0, |event| event.time_us);
        while let Some(&(_, stage, name)) = self.scopes.get(self.next_scope).filter(|scope| scope.0 <= time) {
            self.next_scope += 1;
            match stage {
                AnnotationStage::Start if self.open.len() < MOST_SCOPES => self.open.push(name),
                AnnotationStage::Start => {}
                AnnotationStage::End => {
                    if let Some(position) = self.open.iter().rposition(|open| *open == name) {
                        self.open.remove(position);
                    }
                }
            }
        }
        if let Some(scope) = self.open.last() {
            return (*scope).to_owned();
        }
        match (events.compile_context(born), allocation.phase) {
            (Some(context), _) => format!("compiled frame {}", self.trace.stacks.name_text(context)),
            (None, Some(phase)) => phase.id().replace('_', " "),
            (None, None) => "no stage recorded".to_owned(),
        }
    }

    fn thread(&self, allocation: &Allocation) -> String {
        let threads = self.trace.process.as_ref().map(|process| &process.threads[..]).unwrap_or_default();
        match allocation.born() {
            _ if threads.is_empty() => "threads are not recorded".to_owned(),
            None => "before the recording".to_owned(),
            Some(born) => match threads.get(self.device.events.thread(born)) {
                Some(thread) => format!("thread {thread}"),
                None => "other threads".to_owned(),
            },
        }
    }

    fn process(&self) -> String {
        match &self.trace.process {
            Some(process) => {
                let rank = process.identity.job.rank.map_or(String::new(), |rank| format!(", rank {rank}"));
                format!("process {}{rank}", process.identity.pid)
            }
            None => "the process that wrote the recording".to_owned(),
        }
    }
}

/// The source file of the line that stands for a stack.
fn module(places: Places<'_>, stack: StackId) -> String {
    match places.site(stack) {
        Some((frame, _)) => {
            let (function, file) = places.names(frame);
            if file.is_empty() || file == "??" { function } else { file }
        }
        None => places.compared(stack),
    }
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Action, Annotation, Event, TraceKind};

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
        assert!(grouped(&Trace::new(TraceKind::Room), None, By::Kind).is_none());
    }
}
