//! What the program was doing at each event: loading, the forward pass, the backward pass, the optimizer's step.
//!
//! With stacks, the evidence is in the frames. The autograd engine runs on threads without Python frames, so an event
//! without a stack is the engine's where the program's own events have stacks. `record_function` scopes of optimizers
//! are evidence too. Without stacks, `shape` finds the passes by the numbers of live allocations.

use std::borrow::Borrow;

use makeroom_core::{Action, AnnotationStage, DeviceTrace, Event, Trace};

use crate::marks::Marks;
use crate::shape;
use crate::table::Table;

/// What the program does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Before the first pass.
    #[default]
    Setup,
    /// A forward pass, up to the backward pass.
    Forward,
    /// A backward pass.
    Backward,
    /// A step of an optimizer.
    Optimizer,
    /// After a step, before the next forward pass.
    Between,
}

/// A backward pass: the events from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) start: usize,
    /// The first event after it; `usize::MAX` if the recording ends in it.
    pub(crate) end: usize,
}

/// The phases of a recording.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    /// By event.
    of_event: Vec<Phase>,
    /// All backward passes, in order.
    pub(crate) passes: Vec<Pass>,
    /// Of each step of an optimizer: the first event after it, and the first allocation after it.
    optimizer_ends: Vec<(usize, usize)>,
    /// The first event of a forward or backward pass; `usize::MAX` if there is none.
    pub(crate) first_pass: usize,
    /// Events of failed allocations.
    failures: Vec<usize>,
    /// Whether the stacks of frees tell the thread.
    pub(crate) frees_have_stacks: bool,
}

/// Evidence of one event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Engine,
    Optimizer,
    Forward,
    Build,
    Own,
    Nothing,
}

impl Phase {
    /// Its ID in JSON.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
            Self::Between => "between_steps",
        }
    }
}

impl Phases {
    /// Finds the phases. `table` is called only for a recording without stacks.
    pub(crate) fn new<T: Borrow<Table>>(
        trace: &Trace,
        device: &DeviceTrace,
        marks: &[Marks],
        table: impl FnOnce() -> T,
    ) -> Self {
        let marks_of = |event: &Event| marks.get(event.stack.index()).copied().unwrap_or_default();
        let (mut rooted, mut allocations, mut rooted_frees, mut engine) = (0_usize, 0_usize, 0_usize, false);
        for event in device.events.iter() {
            let marks = marks_of(&event);
            match event.action {
                Action::Alloc => {
                    allocations += 1;
                    rooted += usize::from(marks.has(Marks::ROOT));
                    engine |= marks.has(Marks::ENGINE);
                }
                Action::FreeRequested => rooted_frees += usize::from(marks.has(Marks::ROOT)),
                _ => {}
            }
        }
        // Most allocations of a training run are the engine's; of the others, the first ones already have a stack.
        let are_from_stacks = rooted * 20 >= allocations && rooted > 0 || engine;
        let scopes = Scopes::new(trace, device);
        if !are_from_stacks {
            return shape::phases(device, table().borrow(), &scopes.optimizer);
        }
        let mut phases = Self { frees_have_stacks: rooted_frees > 0, ..Self::default() };
        let mut current = Phase::Setup;
        phases.of_event.reserve_exact(device.events.len());
        for (index, event) in device.events.iter().enumerate() {
            let marks = marks_of(&event);
            let tells_thread = match event.action {
                Action::Alloc => rooted > 0,
                Action::FreeRequested | Action::FreeCompleted => rooted_frees > 0,
                _ => false,
            };
            let is_memory =
                matches!(event.action, Action::Alloc | Action::FreeRequested | Action::FreeCompleted);
            let sign = match () {
                () if !is_memory => Sign::Nothing,
                () if marks.has(Marks::ZERO_GRAD) => Sign::Own,
                () if scopes.optimizer.contains(index) || marks.has(Marks::OPTIMIZER) => Sign::Optimizer,
                () if marks.has(Marks::ENGINE) || tells_thread && !marks.has(Marks::ROOT) => Sign::Engine,
                () if marks.has(Marks::BUILD.with(Marks::MOVE)) && !marks.has(Marks::FORWARD) => Sign::Build,
                () if marks.has(Marks::FORWARD) => Sign::Forward,
                () if marks == Marks::NONE => Sign::Nothing,
                () => Sign::Own,
            };
            current = next(current, sign);
            phases.of_event.push(current);
        }
        phases.find_passes(device);
        phases
    }

    /// Phases that are known already.
    pub(crate) fn of_events(device: &DeviceTrace, of_event: Vec<Phase>) -> Self {
        let mut phases = Self { of_event, ..Self::default() };
        phases.find_passes(device);
        phases
    }

    /// Joins the events of each backward pass. The engine's last frees may come after the program's next ones, so only
    /// an allocation in another phase ends a pass.
    fn find_passes(&mut self, device: &DeviceTrace) {
        // The last frees of a program may have no stack either: a pass allocates.
        let mut allocates = false;
        let mut open: Option<Pass> = None;
        let mut step: Option<(usize, usize)> = None;
        self.first_pass = usize::MAX;
        for (index, (&phase, &action)) in self.of_event.iter().zip(device.events.actions()).enumerate() {
            if action == Action::OutOfMemory {
                self.failures.push(index);
            }
            if self.first_pass == usize::MAX && matches!(phase, Phase::Forward | Phase::Backward) {
                self.first_pass = index;
            }
            match (phase, step.as_mut()) {
                (Phase::Optimizer, _) => step = Some((usize::MAX, usize::MAX)),
                (_, Some((left, next))) => {
                    *left = index.min(*left);
                    if action == Action::Alloc {
                        *next = index;
                        self.optimizer_ends.extend(step.take());
                    }
                }
                (_, None) => {}
            }
            match (phase, open.as_mut()) {
                (Phase::Backward, None) => {
                    open = Some(Pass { start: index, end: usize::MAX });
                    allocates = action == Action::Alloc;
                }
                (Phase::Backward, Some(pass)) => {
                    pass.end = usize::MAX;
                    allocates |= action == Action::Alloc;
                }
                (_, Some(pass)) => {
                    pass.end = pass.end.min(index);
                    if action == Action::Alloc {
                        self.passes.extend(open.take().filter(|_| allocates));
                    }
                }
                (_, None) => {}
            }
        }
        self.passes.extend(open.filter(|_| allocates));
        self.optimizer_ends.extend(step);
    }

    /// The events at which backward passes begin.
    pub(crate) fn pass_starts(&self) -> Vec<usize> {
        self.passes.iter().map(|pass| pass.start).collect()
    }

    /// The phase of an event; of what is older than the recording, loading.
    pub(crate) fn at(&self, event: Option<usize>) -> Phase {
        event.and_then(|event| self.of_event.get(event)).copied().unwrap_or_default()
    }

    /// The backward pass that contains an event.
    pub(crate) fn pass_of(&self, event: usize) -> Option<Pass> {
        let after = self.passes.partition_point(|pass| pass.start <= event);
        let pass = *self.passes.get(after.checked_sub(1)?)?;
        (event < pass.end).then_some(pass)
    }

    /// The first backward pass that starts after an event.
    pub(crate) fn pass_after(&self, event: Option<usize>) -> Option<Pass> {
        let after = event.map_or(0, |event| self.passes.partition_point(|pass| pass.start <= event));
        self.passes.get(after).copied()
    }

    /// Whether an allocation of an optimizer's step outlives the step: it is live when the next phase allocates.
    /// `None` if the recording ends in the step.
    pub(crate) fn outlives_optimizer(&self, born: Option<usize>, end: usize) -> Option<bool> {
        let Some(born) = born else { return Some(true) };
        let after = self.optimizer_ends.partition_point(|&(_, next)| next <= born);
        match self.optimizer_ends.get(after) {
            // Temporaries may be freed when the optimizer returns, before anything else is allocated.
            Some(&(_, next)) if next != usize::MAX => Some(end >= next),
            Some(&(left, _)) if left != usize::MAX => Some(end > left),
            _ => (end != usize::MAX).then_some(false),
        }
    }

    /// Whether an allocation failed between two events: what was live then is freed because the step was given up.
    pub(crate) fn fails_between(&self, born: Option<usize>, end: usize) -> bool {
        let after = born.map_or(0, |born| self.failures.partition_point(|&failure| failure <= born));
        self.failures.get(after).is_some_and(|&failure| failure < end)
    }

    /// Whether there is evidence of any phase.
    pub(crate) fn are_known(&self) -> bool {
        self.first_pass != usize::MAX
    }

    /// Whether there is no backward pass.
    pub(crate) fn are_without_gradients(&self) -> bool {
        self.passes.is_empty()
    }
}

fn next(current: Phase, sign: Sign) -> Phase {
    match (sign, current) {
        (Sign::Engine, _) => Phase::Backward,
        (Sign::Optimizer, _) => Phase::Optimizer,
        (Sign::Forward, _) => Phase::Forward,
        (Sign::Own, Phase::Backward | Phase::Optimizer) => Phase::Between,
        (Sign::Own | Sign::Nothing | Sign::Build, _) => current,
    }
}

/// The events in which a `record_function` scope of an optimizer is open.
struct Scopes {
    optimizer: Spans,
}

/// Ranges of events, ascending and disjoint.
#[derive(Debug, Default)]
pub(crate) struct Spans(Vec<(usize, usize)>);

impl Spans {
    pub(crate) fn contains(&self, event: usize) -> bool {
        let after = self.0.partition_point(|&(start, _)| start <= event);
        after.checked_sub(1).is_some_and(|position| event < self.0[position].1)
    }

    /// The first range that starts at or after an event.
    pub(crate) fn next_start(&self, event: usize) -> Option<usize> {
        let after = self.0.partition_point(|&(start, _)| start < event);
        self.0.get(after).map(|&(start, _)| start)
    }

    /// The first event after each range.
    pub(crate) fn ends(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().map(|&(_, end)| end)
    }
}

impl Scopes {
    fn new(trace: &Trace, device: &DeviceTrace) -> Self {
        let is_meant = |name: &str| name.starts_with("Optimizer.step#");
        let mut times: Vec<(u64, u64)> = Vec::new();
        let mut open: Option<u64> = None;
        let here = trace.annotations.iter().filter(|annotation| {
            is_meant(&annotation.name) && annotation.device.is_none_or(|index| index == device.device)
        });
        for annotation in here {
            match annotation.stage {
                AnnotationStage::Start => open = Some(annotation.time_us),
                AnnotationStage::End => times.extend(open.take().map(|start| (start, annotation.time_us))),
            }
        }
        if times.is_empty() {
            return Self { optimizer: Spans::default() };
        }
        times.sort_unstable();
        // A step that allocates nothing is an empty range: it still ends a step of the program.
        let mut spans: Vec<(usize, usize)> = Vec::new();
        let mut next = times.into_iter().peekable();
        let mut open: Option<usize> = None;
        for (index, event) in device.events.iter().enumerate() {
            while let Some(&(start, end)) = next.peek() {
                if open.is_none() && event.time_us >= start {
                    open = Some(index);
                }
                if event.time_us <= end {
                    break;
                }
                spans.extend(open.take().map(|start| (start, index)));
                next.next();
            }
        }
        spans.extend(open.map(|start| (start, device.events.len())));
        Self { optimizer: Spans(spans) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_code_ends_a_step_and_continues_a_forward_pass() {
        let signs = [
            (Sign::Own, Phase::Setup),
            (Sign::Forward, Phase::Forward),
            (Sign::Own, Phase::Forward),
            (Sign::Engine, Phase::Backward),
            (Sign::Nothing, Phase::Backward),
            (Sign::Optimizer, Phase::Optimizer),
            (Sign::Own, Phase::Between),
            (Sign::Forward, Phase::Forward),
        ];
        let mut phase = Phase::Setup;
        for (sign, expected) in signs {
            phase = next(phase, sign);
            assert_eq!(phase, expected);
        }
    }

    #[test]
    fn a_pass_ends_with_the_next_allocation_of_another_phase() {
        use Phase::{Backward, Between, Forward, Optimizer};
        let mut device = DeviceTrace::default();
        let free = Action::FreeRequested;
        let events = [
            (Forward, Action::Alloc),
            (Backward, Action::Alloc),
            (Between, free),
            (Backward, free),
            (Between, free),
            (Optimizer, Action::Alloc),
            (Backward, Action::Alloc),
        ];
        for (_, action) in events {
            device.events.push(Event::new(action, 512, 1));
        }
        let phases = Phases::of_events(&device, events.iter().map(|&(phase, _)| phase).collect());
        assert_eq!(phases.passes, [Pass { start: 1, end: 4 }, Pass { start: 6, end: usize::MAX }]);
        assert_eq!(phases.pass_of(3).map(|pass| pass.start), Some(1));
        assert_eq!(phases.pass_of(4), None);
        assert_eq!(phases.pass_after(Some(1)).map(|pass| pass.start), Some(6));
        assert_eq!(phases.pass_after(None).map(|pass| pass.start), Some(1));
        assert_eq!(phases.first_pass, 0);
    }
}
