//! Properties that hold for every allocator model, on random programs.

use makeroom_core::StackId;
use makeroom_sim::{Allocation, AllocatorSpec, PAGE, Program, Step, parse, smallest_memory};
use proptest::prelude::*;

fn all_allocators() -> Vec<AllocatorSpec> {
    let names = [
        "pytorch",
        "pytorch:expandable_segments:True",
        "pytorch:max_split_size_mb:32,roundup_power2_divisions:4,garbage_collection_threshold:0.6",
        "pytorch-2.9",
        "cuda-async",
        "bfc",
        "bfc:preallocate=false,fraction=1",
        "cupy",
        "rmm-pool",
        "rmm-pool:initial=4MiB",
        "ideal",
    ];
    names.map(|name| parse(name).unwrap_or_else(|error| panic!("{name}: {error}"))).to_vec()
}

/// A request with its stream, or a free of a live allocation, either immediate or pending.
#[derive(Clone, Debug)]
enum Action {
    Allocate { size: u64, stream: u32 },
    Free { index: usize, is_deferred: bool },
    EmptyCache,
}

fn programs() -> impl Strategy<Value = Program> {
    let size = (0_u32..27, 0_u64..1 << 20).prop_map(|(power, low)| (1 << power) + low % (1 << power));
    let action = prop_oneof![
        12 => (size, 0_u32..3).prop_map(|(size, stream)| Action::Allocate { size, stream }),
        10 => (0_usize..1000, 0_u8..8).prop_map(|(index, kind)| Action::Free { index, is_deferred: kind == 0 }),
        1 => Just(Action::EmptyCache),
    ];
    prop::collection::vec(action, 1..200).prop_map(|actions| program(&actions))
}

fn program(actions: &[Action]) -> Program {
    let mut program = Program { streams: vec![0, 1, 2], ..Program::default() };
    let mut live: Vec<u32> = Vec::new();
    let mut pending: Vec<u32> = Vec::new();
    for action in actions {
        match *action {
            Action::Allocate { size, stream } => {
                let number = program.allocations.len() as u32;
                let (pool, stack) = (0, StackId::NONE);
                program.allocations.push(Allocation { size, stream, pool, slot: number, stack });
                program.steps.push(Step::Allocate(number));
                live.push(number);
            }
            Action::Free { index, is_deferred } if !live.is_empty() => {
                let number = live.swap_remove(index % live.len());
                if is_deferred {
                    program.steps.push(Step::FreeRequested(number));
                    pending.push(number);
                } else {
                    program.steps.push(Step::Free(number));
                    program.steps.extend(pending.pop().map(Step::FreeCompleted));
                }
            }
            Action::Free { .. } => {}
            Action::EmptyCache => program.steps.push(Step::EmptyCache),
        }
    }
    program.events = (0..program.steps.len() as u32).collect();
    program
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn reserved_memory_holds_what_is_live_and_keeps_to_the_limit(program in programs(), pages in 1_u64..200) {
        for spec in all_allocators() {
            let free = spec.run(&program, None);
            prop_assert_eq!(free.refusal, None);
            prop_assert_eq!(free.peak_live, program.peak_live());
            // An allocator that empties its cache waits for pending frees, which then complete earlier than recorded.
            let is_waiting = program.steps.iter().any(|step| matches!(step, Step::FreeRequested(_)));
            prop_assert!(is_waiting || free.peak_reserved >= free.peak_live, "{}", spec.name());
            let limited = spec.run(&program, Some(pages * PAGE));
            prop_assert!(is_waiting || limited.peak_reserved >= limited.peak_live, "{}", spec.name());
            // Expandable segments are charged for requests but map whole pages of 20 MiB.
            let is_expandable = spec.settings().is_some_and(|settings| settings.expandable_segments);
            let limit = pages * PAGE + if is_expandable { 20 << 20 } else { 0 };
            prop_assert!(limited.peak_reserved <= limit, "{}", spec.name());
            prop_assert_eq!(spec.run(&program, Some(pages * PAGE)), limited);
        }
    }

    #[test]
    fn the_smallest_memory_is_enough_and_a_page_less_is_not(program in programs()) {
        for spec in all_allocators() {
            let memory = smallest_memory(&program, &spec);
            let Some(memory) = memory else { return Err(TestCaseError::fail(spec.name().to_owned())) };
            prop_assert_eq!(spec.run(&program, Some(memory)).refusal, None);
            if memory > 0 {
                let less = spec.run(&program, Some(memory - PAGE));
                prop_assert!(less.refusal.is_some(), "{}: {}", spec.name(), memory);
            }
        }
    }
}
