//! Memory that grows from step to step: what kind it is, and on which line.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use makeroom_core::{
    Action, Annotation, AnnotationStage, Bytes, DeviceTrace, Event, Frame, StackId, Trace, TraceKind,
};
use makeroom_explain::{By, Growing, TraceQuestion, explain_trace, grouped, growing};
use makeroom_kind::{Kind, Kinds};

const MIB: u64 = 1 << 20;
const STEPS: u64 = 16;

/// A program that trains, with a stack for each of its parts.
struct Program {
    trace: Trace,
    device: DeviceTrace,
    next: u64,
    time: u64,
}

impl Program {
    fn stack(&mut self, frames: &[(&str, u32, &str)]) -> StackId {
        let frames: Vec<_> = frames
            .iter()
            .chain(&[("train.py", 90, "<module>")])
            .map(|&(file, line, function)| {
                let (file, function) = (self.trace.stacks.name(file), self.trace.stacks.name(function));
                self.trace.stacks.frame(Frame { file, function, line, ..Frame::default() })
            })
            .collect();
        self.trace.stacks.stack(&frames)
    }

    fn add(&mut self, action: Action, address: u64, size: u64, stack: StackId) {
        self.time += 10;
        self.device.events.push(Event { time_us: self.time, stack, ..Event::new(action, address, size) });
    }

    fn take(&mut self, size: u64, stack: StackId) -> (u64, u64) {
        let address = self.next;
        self.next += size;
        self.add(Action::Alloc, address, size, stack);
        (address, size)
    }

    fn give(&mut self, (address, size): (u64, u64), stack: StackId) {
        self.add(Action::FreeRequested, address, size, stack);
        self.add(Action::FreeCompleted, address, size, stack);
    }
}

/// A run of training.
#[derive(Clone, Copy)]
struct Run {
    steps: u64,
    layers: u64,
    /// Size of the parameters of a layer.
    parameters: u64,
    /// Size of the result of the forward pass.
    result: u64,
    /// Each step of this many keeps its result; 0 for none.
    keeps_every: u64,
    /// Whether the optimizer marks its steps, as in PyTorch's snapshots.
    is_marked: bool,
    /// Whether batches have different sizes.
    is_varied: bool,
}

/// Few steps that keep all or none of their results.
const SHORT: Run = Run {
    steps: STEPS,
    layers: 4,
    parameters: 2 * MIB,
    result: 5 * MIB,
    keeps_every: 1,
    is_marked: true,
    is_varied: false,
};

/// A run of hours that keeps little, without marks.
const LONG: Run = Run {
    steps: 100_000,
    layers: 1,
    parameters: 512 * MIB,
    result: 2048,
    keeps_every: 10,
    is_marked: false,
    is_varied: false,
};

fn training(run: Run) -> Trace {
    let mut program = Program {
        trace: Trace::new(TraceKind::TorchSnapshot),
        device: DeviceTrace::default(),
        next: 512,
        time: 1,
    };
    let module = "torch/nn/modules/module.py";
    let moved = program.stack(&[(module, 1, "convert"), (module, 2, "_apply"), (module, 3, "to")]);
    let forward = program.stack(&[("model.py", 8, "forward"), (module, 9, "_call_impl")]);
    let loss = program.stack(&[("model.py", 12, "forward"), (module, 9, "_call_impl")]);
    let own = program.stack(&[("train.py", 20, "batch")]);
    let zero = program.stack(&[("torch/optim/optimizer.py", 7, "zero_grad")]);
    let state =
        program.stack(&[("torch/optim/adam.py", 5, "_init_group"), ("torch/optim/adam.py", 6, "step")]);
    for _ in 0..run.layers {
        program.take(run.parameters, moved);
    }
    for step in 0..run.steps {
        let batch = if run.is_varied { 1 + step * 7 % 5 } else { 1 };
        let input = program.take(batch * MIB, own);
        let saved: Vec<_> = (0..run.layers).map(|_| program.take(3 * batch * MIB, forward)).collect();
        let result = program.take(run.result, loss);
        let mut gradients = Vec::new();
        for block in saved.into_iter().rev() {
            let temporary = program.take(7 * batch * MIB, StackId::NONE);
            program.give(block, StackId::NONE);
            program.give(temporary, StackId::NONE);
            gradients.push(program.take(run.parameters, StackId::NONE));
        }
        let scope = |stage, time_us| Annotation {
            name: "Optimizer.step#AdamW.step".to_owned(),
            stage,
            device: None,
            time_us,
        };
        if run.is_marked {
            program.trace.annotations.push(scope(AnnotationStage::Start, program.time + 1));
        }
        let scratch = program.take(MIB, state);
        if step == 0 {
            for _ in 0..2 * run.layers {
                program.take(run.parameters, state);
            }
        }
        program.give(scratch, state);
        if run.is_marked {
            program.trace.annotations.push(scope(AnnotationStage::End, program.time + 1));
        }
        for gradient in gradients {
            program.give(gradient, zero);
        }
        if run.keeps_every == 0 || step % run.keeps_every != 0 {
            program.give(result, own);
        }
        program.give(input, own);
    }
    let Program { mut trace, device, .. } = program;
    trace.devices.push(device);
    trace
}

#[test]
fn growing_memory_has_a_line_and_a_kind() {
    let growth = explain_trace(&training(SHORT), &TraceQuestion::default()).growth.unwrap();
    assert_eq!(growth.per_step, Bytes::mib(5));
    assert_eq!(growth.leaking.len(), 1, "{:?}", growth.leaking);
    let [(kind, _, bytes)] = growth.kinds[..] else { panic!("{:?}", growth.kinds) };
    assert_eq!((kind, bytes), (Kind::Activations, Bytes::mib(5 * growth.steps as u64)));
}

#[test]
fn a_program_that_gives_everything_back_does_not_grow() {
    assert!(
        explain_trace(&training(Run { keeps_every: 0, ..SHORT }), &TraceQuestion::default()).growth.is_none()
    );
}

fn grows(run: Run) -> Option<Growing> {
    let trace = training(run);
    let device = &trace.devices[0];
    growing(&trace, device, &Kinds::new(&trace, device))
}

#[test]
fn a_slow_leak_of_a_long_run_is_found_by_its_backward_passes() {
    let trace = training(LONG);
    let device = &trace.devices[0];
    let growing = growing(&trace, device, &Kinds::new(&trace, device)).unwrap();
    assert_eq!((growing.measured_by.as_str(), growing.parts), ("backward pass", None));
    assert!((70_000..=80_000).contains(&growing.steps), "{}", growing.steps);
    // Less than 1 % of live memory, 2 KiB every ten steps.
    assert_eq!(growing.lines.len(), 1, "{:?}", growing.lines);
    let line = &growing.lines[0];
    assert_eq!((line.place.as_deref(), line.kind), (Some("model.py:12 forward"), Kind::Activations));
    assert_eq!(line.bytes, growing.bytes);
    assert!(growing.bytes.get().abs_diff(growing.steps as u64 * 2048 / 10) <= 4096, "{}", growing.bytes);
    let pace = explain_trace(&trace, &TraceQuestion::default()).growth.unwrap().pace();
    assert!(pace.ends_with("steps, 200.00 KiB per 1000 steps"), "{pace}");
}

#[test]
fn a_long_run_that_gives_everything_back_does_not_grow() {
    for is_varied in [false, true] {
        assert_eq!(grows(Run { keeps_every: 0, is_varied, steps: 20_000, ..LONG }), None);
    }
    // Memory that the first steps keep now and then is not a leak.
    assert_eq!(grows(Run { keeps_every: 90_000, ..LONG }), None);
}

#[test]
fn a_leak_among_batches_of_different_sizes_is_found() {
    let growing = grows(Run { is_varied: true, keeps_every: 1, steps: 2000, result: MIB, ..LONG }).unwrap();
    assert_eq!(growing.lines[0].place.as_deref(), Some("model.py:12 forward"));
    assert_eq!(growing.bytes.get() / growing.steps as u64, MIB);
}

#[test]
fn groups_show_what_grows() {
    let trace = training(SHORT);
    for (by, name) in [(By::Kind, "activations"), (By::Line, "model.py:12 forward"), (By::Module, "model.py")]
    {
        let grouped = grouped(&trace, None, by).unwrap();
        let [growth] = &grouped.growth[..] else { panic!("{by:?}: {:?}", grouped.growth) };
        let growing = grouped.growing.unwrap();
        assert_eq!((growth.name.as_str(), growth.bytes), (name, growing.bytes), "{by:?}");
        assert_eq!(growth.line.as_ref(), growing.lines.first(), "{by:?}");
    }
    assert!(grouped(&training(Run { keeps_every: 0, ..SHORT }), None, By::Kind).unwrap().growing.is_none());
}
