//! Pages under PyTorch's expandable segments on real recordings: how much memory they hold, and the least that suffices.

use std::path::Path;

use makeroom_core::{Start, Trace};
use makeroom_sim::{Device, PAGE, Program, Pytorch, Settings, parse, replay, smallest_memory};
use makeroom_trace::Input;

fn read(name: &str) -> Trace {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces").join(format!("{name}.pickle.gz"));
    match makeroom_trace::open(&path).expect("the recording is readable") {
        Input::Trace(trace) => trace,
        Input::Text(_) => panic!("{name} is a recording"),
    }
}

fn program(name: &str) -> Program {
    let trace = read(name);
    let device = &trace.devices[0];
    Program::new(device, &trace.stacks, &Start::new(device))
}

#[test]
fn little_more_memory_is_held_than_is_live() {
    let spec = parse("makeroom-paged").expect("the name is known");
    let expandable = parse("pytorch:expandable_segments:True").expect("the name is known");
    for (name, most) in [
        ("gpt2_varlen", 1.01),
        ("oom_batch", 1.01),
        ("oom_fragmented", 1.03),
        ("oom_fragmented-expandable", 1.03),
        ("vit_varbatch-ring", 1.03),
        // Below 2 GB, time matters more.
        ("seed004", 1.1),
    ] {
        let program = program(name);
        let (paged, plain) = (spec.run(&program, None), expandable.run(&program, None));
        assert_eq!(paged.refusal, None);
        let ratio = |reserved| reserved as f64 / paged.peak_live as f64;
        assert!((1.0..=most).contains(&ratio(paged.peak_reserved)), "{name}: {}", ratio(paged.peak_reserved));
        assert!(paged.peak_reserved <= plain.peak_reserved, "{name}: {}", ratio(plain.peak_reserved));
    }
}

/// PyTorch's expandable segments on a device of this size, without a limit of PyTorch's own.
fn completes_without_pages(program: &Program, memory: u64) -> bool {
    let settings = Settings::parse("expandable_segments:True").expect("the setting is valid");
    let mut allocator = Pytorch::new(settings, None);
    replay(program, &mut allocator, &mut Device::new(Some(memory))).refusal.is_none()
}

/// What fits without pages fits with them: the commit rule never refuses what PyTorch could have had.
#[test]
fn pages_need_no_more_memory_than_plain_segments() {
    let spec = parse("makeroom-paged").expect("the name is known");
    for name in ["gpt2_varlen", "oom_fragmented", "vit_varbatch-ring", "seed004", "graphs"] {
        let program = program(name);
        let least = smallest_memory(&program, &spec).expect("it completes");
        assert!(!completes_without_pages(&program, least - PAGE), "{name}: less than {least} suffices");
    }
}

/// CUDA graphs may use all memory of their pools, so it stays.
#[test]
fn the_memory_of_graphs_is_not_taken() {
    let program = program("graphs");
    let outcome = parse("makeroom-paged").expect("the name is known").run(&program, None);
    assert!(outcome.peak_reserved > outcome.peak_live, "{outcome:?}");
}
