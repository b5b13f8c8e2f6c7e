//! Where the steps of a training or serving loop begin, and what grows from one to the next. Training that is not marked has
//! its backward passes, another loop is recognised by `rounds`; what has no steps is cut into equal parts, and they are not
//! called steps.

use makeroom_core::{Action, AnnotationStage, Bytes, DeviceTrace, FastMap, Framework, Trace};
use makeroom_kind::{Allocation, Certainty, Kind, Kinds, Rule};

use super::history::{Floor, History};
use super::rounds::Rounds;
use super::sites::{HeldByStack, Places, StackTotal};
use super::source::framework;
use super::state::stacks_at;
use crate::Growth;

/// A recording without steps is cut into this many parts of equal length.
const PARTS: usize = 24;
/// And not at all, where a part would have fewer events than this.
const LEAST_EVENTS: usize = 8;
/// So many steps decide about a leak where the program does not mark them: more than a model has layers, which a program that
/// loads one takes piece by piece and keeps just so.
const ENOUGH_STEPS: usize = 100;
/// Fewer steps than this say nothing about growth.
pub(super) const LEAST_STEPS: usize = 6;
/// Growth below this share of the floor is noise.
const LEAST_GROWTH: f64 = 0.05;
/// In runs of at least this many steps, a smaller share is more than noise if it hardly ever falls.
const MANY_STEPS: usize = 1000;
/// That share.
const LEAST_GROWTH_OF_MANY: f64 = 0.005;

/// The steps of a recording.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// The events at which steps begin, ascending.
    pub(crate) starts: Vec<usize>,
    /// What marks them.
    pub(crate) measured_by: String,
    /// Whether the program itself marked them, so that memory from before a step outlasts it. A backward pass begins in the
    /// middle of a step, after the activations are allocated.
    pub(crate) are_marked: bool,
    /// Whether they are certainly steps: marked, or backward passes.
    pub(super) are_certain: bool,
    /// How many there are, where they are no steps but equal parts of the recording.
    pub(super) parts: Option<usize>,
}

impl Steps {
    /// Finds the steps: by the mark that the program repeats, by its backward passes, by what it keeps from each round, or
    /// else by cutting the recording into equal parts.
    pub(crate) fn find(trace: &Trace, device: &DeviceTrace) -> Self {
        Self::find_with(trace, device, || makeroom_kind::steps(trace, device))
    }

    /// The same; `passes` finds the backward passes.
    pub(crate) fn find_with(
        trace: &Trace,
        device: &DeviceTrace,
        passes: impl FnOnce() -> Vec<usize>,
    ) -> Self {
        let trained = || Self::trained(trace, passes);
        let recognised = || Self::recognised(trace, device);
        Self::marked(trace, device).or_else(trained).or_else(recognised).unwrap_or_else(|| {
            let length = device.events.len();
            let starts = if length < PARTS * LEAST_EVENTS {
                Vec::new()
            } else {
                (0..PARTS).map(|part| part * length / PARTS).collect()
            };
            Self {
                starts,
                measured_by: format!("cutting the recording into {PARTS} parts"),
                are_marked: false,
                are_certain: false,
                parts: Some(PARTS),
            }
        })
    }

    /// The steps of training in a recording without marks.
    fn trained(trace: &Trace, passes: impl FnOnce() -> Vec<usize>) -> Option<Self> {
        if framework(trace) != Framework::PyTorch {
            return None;
        }
        let starts = passes();
        let are_enough = starts.len() >= LEAST_STEPS;
        are_enough.then(|| Self {
            starts,
            measured_by: "backward pass".to_owned(),
            are_marked: false,
            are_certain: true,
            parts: None,
        })
    }

    fn recognised(trace: &Trace, device: &DeviceTrace) -> Option<Self> {
        let rounds = Rounds::find(trace, device)?;
        let place = Places::new(trace).site_of(rounds.stack);
        let measured_by = match place {
            Some(place) => format!("each {} request at {place}", rounds.size),
            None => format!("each {} request", rounds.size),
        };
        Some(Self { starts: rounds.starts, measured_by, are_marked: false, are_certain: false, parts: None })
    }

    fn marked(trace: &Trace, device: &DeviceTrace) -> Option<Self> {
        let mut times: FastMap<&str, Vec<u64>> = FastMap::default();
        for annotation in &trace.annotations {
            let is_ours = annotation.device.is_none_or(|index| index == device.device);
            if annotation.stage == AnnotationStage::Start && is_ours {
                times.entry(kind_of(&annotation.name)).or_default().push(annotation.time_us);
            }
        }
        // An optimizer steps once per step; a profiler's own mark is as good; otherwise the scope that is entered
        // least often is the outermost loop.
        let rank = |name: &str| match name {
            name if name.starts_with("Optimizer.step") => 3,
            "ProfilerStep" => 2,
            _ => 1,
        };
        let (name, mut starts) = times
            .into_iter()
            .filter(|(name, times)| times.len() >= LEAST_STEPS || rank(name) > 1)
            .max_by(|one, two| (rank(one.0), two.1.len(), two.0).cmp(&(rank(two.0), one.1.len(), one.0)))?;
        starts.sort_unstable();
        let name = name.split('#').next().unwrap_or(name).to_owned();
        Some(Self {
            starts: positions(device, &starts),
            measured_by: name,
            are_marked: true,
            are_certain: true,
            parts: None,
        })
    }

    /// The event at which the step of an event began.
    pub(crate) fn start_of(&self, index: usize) -> Option<usize> {
        let after = self.starts.partition_point(|&start| start <= index);
        after.checked_sub(1).map(|position| self.starts[position])
    }
}

/// What a scope marks, without its number: a profiler counts its steps in their names.
fn kind_of(name: &str) -> &str {
    if name.starts_with("ProfilerStep#") { "ProfilerStep" } else { name }
}

/// The first event at or after each of the ascending `times`.
fn positions(device: &DeviceTrace, times: &[u64]) -> Vec<usize> {
    let mut positions = Vec::with_capacity(times.len());
    let mut wanted = times.iter().copied().peekable();
    for (index, event) in device.events.iter().enumerate() {
        let mut is_start = false;
        while wanted.next_if(|&time| time <= event.time_us).is_some() {
            is_start = true;
        }
        if is_start {
            positions.push(index);
        }
    }
    positions
}

/// Floors of a run whose live memory keeps growing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rise {
    pub(super) first: Floor,
    pub(super) middle: Floor,
    pub(super) last: Floor,
    /// Number of steps from the first to the last, at least one.
    pub(super) steps: usize,
}

/// The floors between which live memory grows, if it keeps growing.
pub(super) fn rise(history: &History) -> Option<Rise> {
    let settled = settled(floors_before_failure(history));
    if settled.len() < LEAST_STEPS || !keeps_growing(settled) {
        return None;
    }
    let (first, last) = (settled[0], settled[settled.len() - 1]);
    Some(Rise { first, middle: settled[settled.len() / 2], last, steps: settled.len() - 1 })
}

/// The floors of the steps before the first failed allocation: what a program does after that is another story.
pub(super) fn floors_before_failure(history: &History) -> &[Floor] {
    let end = history.failures.first().copied().unwrap_or(usize::MAX);
    &history.floors[..history.floors.partition_point(|floor| floor.index < end)]
}

/// The floors that are compared. Optimizers and caches fill up during the first steps; that is not a leak.
fn settled(floors: &[Floor]) -> &[Floor] {
    &floors[floors.len() / 4..]
}

/// What grows from step to step, if anything does.
pub(crate) fn growth(
    trace: &Trace,
    device: &DeviceTrace,
    history: &History,
    steps: &Steps,
) -> Option<Growth> {
    let rise = rise(history)?;
    let Rise { first, middle, last, steps: count } = rise;
    let moments = [Some(first.index), Some(middle.index), Some(last.index)];
    let rising = rising(&stacks_at(device, history, &moments));
    let kinds = kinds_of(trace, device, &rising, (first.index + 1, last.index + 1));
    let (leaking, _) = Places::new(trace).tree(&rising);
    Some(Growth {
        steps: count,
        parts: steps.parts,
        measured_by: steps.measured_by.clone(),
        first: first.live,
        last: last.live,
        per_step: Bytes::new((last.live - first.live).get() / count as u64),
        moments: (first.index + 1, last.index + 1),
        is_enough: steps.are_certain || count >= ENOUGH_STEPS || device.events.len() >= PARTS * LEAST_EVENTS,
        is_in_steps: is_in_steps(device, steps, &rise),
        leaking,
        kinds,
    })
}

/// What the memory is that rises between two positions, by kind and by the rule that says why it is kept, largest first.
/// Without steps of training, or without a rule that is more than possible, it stays open.
fn kinds_of(
    trace: &Trace,
    device: &DeviceTrace,
    rising: &HeldByStack,
    (first, last): (usize, usize),
) -> Vec<(Kind, Rule, Bytes)> {
    let kinds = Kinds::new(trace, device);
    let mut grown: FastMap<(Kind, Rule), (Bytes, Bytes)> = FastMap::default();
    let is_meant = |allocation: &Allocation| {
        let is_known = allocation.kind != Kind::Unknown && allocation.rule.certainty() != Certainty::Possible;
        is_known && allocation.phase.is_some() && rising.contains_key(&allocation.stack)
    };
    for allocation in kinds.allocations().iter().filter(|allocation| is_meant(allocation)) {
        let sums = grown.entry((allocation.kind, allocation.rule)).or_default();
        if allocation.is_live_at(first) {
            sums.0 += allocation.size;
        }
        if allocation.is_live_at(last) {
            sums.1 += allocation.size;
        }
    }
    let mut grown: Vec<(Kind, Rule, Bytes)> = grown
        .into_iter()
        .filter(|(_, (before, after))| after > before)
        .map(|((kind, rule), (before, after))| (kind, rule, after - before))
        .collect();
    grown.sort_by(|one, two| two.2.cmp(&one.2).then_with(|| (one.0, one.1).cmp(&(two.0, two.1))));
    grown
}

/// Whether there are steps at all: they certainly are steps, or memory is freed between the floors.
pub(super) fn is_in_steps(device: &DeviceTrace, steps: &Steps, rise: &Rise) -> bool {
    steps.are_certain || gives_back(device, rise.first.index..rise.last.index)
}

/// Whether at least one allocation in ten was given back among these events.
fn gives_back(device: &DeviceTrace, events: std::ops::Range<usize>) -> bool {
    let (mut taken, mut given) = (0_usize, 0_usize);
    for event in events.filter_map(|index| device.events.get(index)) {
        match event.action {
            Action::Alloc => taken += 1,
            Action::FreeRequested => given += 1,
            _ => {}
        }
    }
    given * 10 >= taken
}

/// Whether the floor rises, hardly ever falls, and still rises at the end.
pub(super) fn keeps_growing(floors: &[Floor]) -> bool {
    let count = floors.len();
    let (first, last) = (floors[0].live, floors[count - 1].live);
    let gain = last - first;
    let falls = floors.windows(2).filter(|pair| pair[1].live < pair[0].live).count();
    let late = last - floors[count - 1 - count / 4].live;
    let early = floors[count / 4].live - first;
    let noise = if count >= MANY_STEPS { LEAST_GROWTH_OF_MANY } else { LEAST_GROWTH };
    gain.share_of(last) >= noise
        && falls * 8 <= count
        && late.get().saturating_mul(10) >= gain.get()
        && early.get().saturating_mul(10) >= gain.get()
}

/// Stacks whose live bytes rise from the first moment over the second to the third.
fn rising(held: &[HeldByStack]) -> HeldByStack {
    let [first, middle, last] = held else { return HeldByStack::default() };
    let bytes =
        |held: &HeldByStack, stack| held.get(&stack).map_or(Bytes::ZERO, |entry: &StackTotal| entry.bytes);
    last.iter()
        .filter(|&(&stack, entry)| {
            let (early, between) = (bytes(first, stack), bytes(middle, stack));
            early < between && between < entry.bytes
        })
        .map(|(&stack, entry)| {
            let blocks = entry.blocks.saturating_sub(first.get(&stack).map_or(0, |early| early.blocks));
            (stack, StackTotal { bytes: entry.bytes - bytes(first, stack), blocks })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use makeroom_core::{Event, Frame, StackId, TraceKind};

    use super::super::{Room, Subject};
    use super::*;

    const MIB: u64 = 1 << 20;
    const STEPS: u64 = 12;

    /// Training without marks that keeps 1 MiB per step and fails in its last backward pass.
    fn training() -> Trace {
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        let mut stack = |frames: &[(&str, u32, &str)]| {
            let frames: Vec<_> = frames
                .iter()
                .chain(&[("train.py", 90, "<module>")])
                .map(|&(file, line, function)| {
                    let (file, function) = (trace.stacks.name(file), trace.stacks.name(function));
                    trace.stacks.frame(Frame { file, function, line, ..Frame::default() })
                })
                .collect();
            trace.stacks.stack(&frames)
        };
        let module = "torch/nn/modules/module.py";
        let moved = stack(&[(module, 1, "convert"), (module, 2, "_apply"), (module, 3, "to")]);
        let forward = stack(&[("model.py", 8, "forward"), (module, 9, "_call_impl")]);
        let kept = stack(&[("model.py", 12, "forward"), (module, 9, "_call_impl")]);
        let zero = stack(&[("torch/optim/optimizer.py", 7, "zero_grad")]);
        let mut device = DeviceTrace::default();
        let mut add = |action, address, mib: u64, stack| {
            let time_us = device.events.len() as u64;
            device.events.push(Event { time_us, stack, ..Event::new(action, address, mib * MIB) });
        };
        let mut next = MIB;
        let mut address = |mib: u64| {
            next += mib * MIB;
            next - mib * MIB
        };
        for _ in 0..4 {
            add(Action::Alloc, address(2), 2, moved);
        }
        for step in 1..=STEPS {
            let saved: Vec<u64> = (0..4).map(|_| address(3)).collect();
            for &block in &saved {
                add(Action::Alloc, block, 3, forward);
            }
            add(Action::Alloc, address(1), 1, kept);
            let mut gradients = Vec::new();
            for (layer, &block) in saved.iter().rev().enumerate() {
                let temporary = address(7);
                add(Action::Alloc, temporary, 7, StackId::NONE);
                for (freed, mib) in [(block, 3), (temporary, 7)] {
                    add(Action::FreeRequested, freed, mib, StackId::NONE);
                    add(Action::FreeCompleted, freed, mib, StackId::NONE);
                }
                let gradient = address(2);
                add(Action::Alloc, gradient, 2, StackId::NONE);
                gradients.push(gradient);
                if step == STEPS && layer == 1 {
                    add(Action::OutOfMemory, 0, 20, StackId::NONE);
                    break;
                }
            }
            for gradient in gradients {
                add(Action::FreeRequested, gradient, 2, zero);
                add(Action::FreeCompleted, gradient, 2, zero);
            }
        }
        trace.devices.push(device);
        trace
    }

    #[test]
    fn a_failure_inside_a_backward_pass_does_not_count_activations_as_lasting() {
        let trace = training();
        let subject = Subject::new(&trace, &trace.devices[0]);
        assert_eq!(subject.steps.measured_by, "backward pass");
        let failure = subject.history.failures[0];
        // The pass began before the failure and after the activations.
        assert!(subject.steps.start_of(failure).is_some_and(|start| failure - start < 20));
        let state = super::super::states_at(subject.device, &subject.history, &[Some(failure)]).remove(0);
        assert!(subject.split(failure, &state).is_none());
        let explanation = subject.explain(Room::Limit(Bytes::mib(45)));
        let told = format!("{:?} {:?}", explanation.causes, explanation.wont_help);
        assert!(told.contains("reduce the batch size, the sequence length or the image size"), "{told}");
        assert!(!told.contains("this step's memory"), "{told}");
        // Passes still count as steps.
        let growth = explanation.growth.unwrap();
        assert!(growth.is_enough && growth.is_in_steps, "{growth:?}");
    }
}
