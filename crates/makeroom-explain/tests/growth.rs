//! Memory that grows from step to step: what kind it is, and on which line.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use makeroom_core::{
    Action, Annotation, AnnotationStage, Bytes, DeviceTrace, Event, Frame, StackId, Trace, TraceKind,
};
use makeroom_explain::{TraceQuestion, explain_trace};
use makeroom_kind::Kind;

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

/// Trains for some steps; `keeps` is whether each step keeps a result of its forward pass.
fn training(keeps: bool) -> Trace {
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
    for _ in 0..4 {
        program.take(2 * MIB, moved);
    }
    for step in 0..STEPS {
        let input = program.take(MIB, own);
        let saved: Vec<_> = (0..4).map(|_| program.take(3 * MIB, forward)).collect();
        let result = program.take(5 * MIB, loss);
        let mut gradients = Vec::new();
        for block in saved.into_iter().rev() {
            let temporary = program.take(7 * MIB, StackId::NONE);
            program.give(block, StackId::NONE);
            program.give(temporary, StackId::NONE);
            gradients.push(program.take(2 * MIB, StackId::NONE));
        }
        let scope = |stage, time_us| Annotation {
            name: "Optimizer.step#AdamW.step".to_owned(),
            stage,
            device: None,
            time_us,
        };
        program.trace.annotations.push(scope(AnnotationStage::Start, program.time + 1));
        let scratch = program.take(MIB, state);
        if step == 0 {
            for _ in 0..8 {
                program.take(2 * MIB, state);
            }
        }
        program.give(scratch, state);
        program.trace.annotations.push(scope(AnnotationStage::End, program.time + 1));
        for gradient in gradients {
            program.give(gradient, zero);
        }
        if !keeps {
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
    let growth = explain_trace(&training(true), &TraceQuestion::default()).growth.unwrap();
    assert_eq!(growth.per_step, Bytes::mib(5));
    assert_eq!(growth.leaking.len(), 1, "{:?}", growth.leaking);
    let [(kind, _, bytes)] = growth.kinds[..] else { panic!("{:?}", growth.kinds) };
    assert_eq!((kind, bytes), (Kind::Activations, Bytes::mib(5 * growth.steps as u64)));
}

#[test]
fn a_program_that_gives_everything_back_does_not_grow() {
    assert!(explain_trace(&training(false), &TraceQuestion::default()).growth.is_none());
}
