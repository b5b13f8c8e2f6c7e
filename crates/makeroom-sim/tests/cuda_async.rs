//! Compares the model of the driver's stream-ordered pool with the driver itself.
//!
//! The allocations of recordings were repeated with `cuMemAllocFromPoolAsync` on an idle H200 (driver 580), with one
//! stream for each stream of the recording. The figures are the peaks of the pool's reserved memory.

use std::path::PathBuf;

use makeroom_core::Start;
use makeroom_sim::{Program, Step, parse};
use makeroom_trace::Input;

const MEASURED: [(&str, u64); 6] = [
    ("gpt2_varlen", 16_173_236_224),
    ("oom_batch", 8_657_043_456),
    ("oom_fragmented", 6_106_906_624),
    ("streams", 536_870_912),
    ("graphs", 167_772_160),
    ("seed004", 335_544_320),
];

/// The part of a recording that was repeated on the device: successful requests and completed frees.
fn measured_program(name: &str) -> Program {
    let file = format!("../../traces/{name}.pickle.gz");
    let Ok(Input::Trace(trace)) = makeroom_trace::open(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file))
    else {
        panic!("{name} is no recording");
    };
    let device = &trace.devices[0];
    let mut program = Program::new(device, &trace.stacks, &Start::new(device));
    let was_replayed =
        |step: &Step| !matches!(step, Step::AllocateRefused(_) | Step::EmptyCache | Step::FreeRequested(_));
    let (steps, events) =
        std::iter::zip(program.steps, program.events).filter(|(step, _)| was_replayed(step)).unzip();
    program.steps = steps;
    program.events = events;
    program.older = 0;
    program
}

#[test]
fn the_pool_reserves_what_the_driver_reserved() {
    let spec = parse("cuda-async").ok();
    for (name, reserved) in MEASURED {
        let outcome = spec.as_ref().map(|spec| spec.run(&measured_program(name), None));
        assert_eq!(outcome.map(|outcome| outcome.peak_reserved), Some(reserved), "{name}");
    }
}
