//! Names the groups of `By`: the line, source file, stage, thread, stream or process of an allocation.

use makeroom_core::{AnnotationStage, DeviceTrace, FastMap, StackId, StreamId, Trace, TraceKind};
use makeroom_kind::{Allocation, Kind};

use super::grouped::By;
use super::sites::Places;

/// Scopes that are open at once; more are not told apart.
const MOST_SCOPES: usize = 64;

/// Names the group of an allocation. Allocations come in order of birth.
pub struct GroupNames<'trace> {
    trace: &'trace Trace,
    device: &'trace DeviceTrace,
    places: Places<'trace>,
    by: By,
    of_stack: FastMap<StackId, String>,
    /// Starts and ends of scopes, by time.
    scopes: Vec<(u64, AnnotationStage, &'trace str)>,
    next_scope: usize,
    open: Vec<&'trace str>,
    is_recorded: bool,
}

impl<'trace> GroupNames<'trace> {
    /// Prepares the names of a device's groups.
    pub fn new(trace: &'trace Trace, device: &'trace DeviceTrace, by: By) -> Self {
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
            is_recorded: false,
        }
    }

    /// Whether any allocation so far had the information that its group needs.
    pub fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The group of an allocation; `None` if the recording does not have it.
    pub fn find(&mut self, allocation: &Allocation) -> Option<String> {
        let was_recorded = std::mem::take(&mut self.is_recorded);
        let name = self.name(allocation);
        let is_found = std::mem::replace(&mut self.is_recorded, was_recorded);
        self.is_recorded |= is_found;
        is_found.then_some(name)
    }

    /// The group of an allocation; that of a kind is its ID.
    pub fn name(&mut self, allocation: &Allocation) -> String {
        match self.by {
            By::Kind => {
                self.is_recorded |= allocation.kind != Kind::Unknown;
                allocation.kind.id().to_owned()
            }
            By::Line | By::Module => {
                let (places, by) = (self.places, self.by);
                self.is_recorded |= allocation.stack != StackId::NONE;
                let name = || match by {
                    By::Line => places.compared(allocation.stack),
                    _ => module(places, allocation.stack),
                };
                self.of_stack.entry(allocation.stack).or_insert_with(name).clone()
            }
            By::Stage => self.stage(allocation),
            By::Thread => self.thread(allocation),
            By::Stream => {
                self.is_recorded |= self.trace.kind != TraceKind::JaxProfile;
                match allocation.stream {
                    StreamId(0) => "default stream".to_owned(),
                    StreamId(stream) => format!("stream {stream:#x}"),
                }
            }
            By::Process => self.process(),
        }
    }

    fn stage(&mut self, allocation: &Allocation) -> String {
        let Some(born) = allocation.born() else { return "before the recording".to_owned() };
        let device = self.device;
        let events = &device.events;
        if let Some(label) = events.label(born) {
            self.is_recorded = true;
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
            self.is_recorded = true;
            return (*scope).to_owned();
        }
        let context = events.compile_context(born);
        self.is_recorded |= context.is_some() || allocation.phase.is_some();
        match (context, allocation.phase) {
            (Some(context), _) => format!("compiled frame {}", self.trace.stacks.name_text(context)),
            (None, Some(phase)) => phase.id().replace('_', " "),
            (None, None) => "no stage recorded".to_owned(),
        }
    }

    fn thread(&mut self, allocation: &Allocation) -> String {
        let trace = self.trace;
        let threads = trace.process.as_ref().map(|process| &process.threads[..]).unwrap_or_default();
        match allocation.born() {
            _ if threads.is_empty() => "no thread recorded".to_owned(),
            None => "before the recording".to_owned(),
            Some(born) => match threads.get(self.device.events.thread(born)) {
                Some(thread) => {
                    self.is_recorded = true;
                    format!("thread {thread}")
                }
                None => "other threads".to_owned(),
            },
        }
    }

    fn process(&mut self) -> String {
        match &self.trace.process {
            Some(process) => {
                self.is_recorded = true;
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
