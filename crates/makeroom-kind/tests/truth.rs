//! Kinds are compared with what programs know about their own tensors: `gpu/programs/kinds.py` wrote down, at several
//! moments, how many bytes of blocks its parameters, gradients, optimizer state, inputs, caches and saved tensors had.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use crate::support::{Moment, block_sizes, bytes_of, marks, moments, open, without_stacks};
use makeroom_core::{Action, Bytes, Events, StackId, Trace};
use makeroom_kind::{Certainty, Kind, Kinds, Rule};

const RECORDINGS: [&str; 16] = [
    "adamw",
    "adamw-all",
    "adamw-batch",
    "adamw-late",
    "adamw-leak",
    "adamw-scores",
    "adamw-sgd",
    "checkpointing",
    "checkpointing-off",
    "compiled",
    "fsdp",
    "growing",
    "kv",
    "lora",
    "sgd",
    "unnamed",
];

const EXACT: [Kind; 5] =
    [Kind::Parameters, Kind::Gradients, Kind::OptimizerState, Kind::Inputs, Kind::KvCache];

fn of_kind(moment: &Moment, kind: Kind) -> u64 {
    moment.bytes[kind.id()]
}

/// Scalars that the program keeps in variables, such as losses: one block each.
const SCALARS: u64 = 4 * 512;

#[test]
fn kinds_are_what_the_program_says() {
    for name in RECORDINGS {
        let trace = open(&format!("kinds/{name}.pickle.gz"));
        let device = &trace.devices[0];
        let kinds = Kinds::new(&trace, device);
        let sizes = block_sizes(device, &kinds);
        for moment in moments(name) {
            let bytes = |kind| bytes_of(&kinds, &sizes, kind, moment.events);
            let at = format!("{name}, {}", moment.name);
            // Blocks of allocations that are older than the recording are known only if they still exist.
            if name != "adamw-late" {
                let live: u64 = Kind::ALL.into_iter().map(bytes).sum();
                assert_eq!(live, moment.bytes["live"], "{at}");
                for kind in EXACT {
                    let (found, expected) = (bytes(kind), of_kind(&moment, kind));
                    let scalars = if kind == Kind::Inputs { SCALARS } else { 0 };
                    assert!(found.abs_diff(expected) <= scalars, "{at}, {kind:?}: {found}, not {expected}");
                }
            }
            let (found, expected) = (bytes(Kind::Activations), of_kind(&moment, Kind::Activations));
            // The program of a run without gradients does not list its activations.
            if expected > 0 {
                assert!(found.abs_diff(expected) * 100 <= expected, "{at}: {found}, not {expected}");
            } else if moment.bytes["gradients"] > 0 {
                assert!(found <= SCALARS, "{at}: {found}");
            }
            assert_eq!(kinds.at(moment.events).bytes(Kind::Unknown), Bytes::ZERO, "{at}");
        }
    }
}

/// Recordings of `makeroom run` with the same programs.
const ROOMS: [&str; 8] =
    ["adamw", "adamw-features", "checkpointing", "growing", "kv", "lora", "sgd", "unnamed"];

#[test]
fn recordings_of_run_are_exact_up_to_rounding() {
    for name in ROOMS {
        let trace = open(&format!("kinds/{name}.room.gz"));
        let device = &trace.devices[0];
        let kinds = Kinds::new(&trace, device);
        let (moments, marks) = (moments(&format!("{name}.room")), marks(&trace, device));
        assert_eq!(moments.len(), marks.len(), "{name}");
        for (moment, position) in moments.into_iter().zip(marks) {
            let totals = kinds.at(position);
            let at = format!("{name}.room, {}", moment.name);
            for kind in EXACT {
                // The recorder sees the sizes to which PyTorch rounds, which are those of its blocks.
                let (found, expected) = (totals.bytes(kind).get(), of_kind(&moment, kind));
                let scalars = if kind == Kind::Inputs { SCALARS } else { 0 };
                assert!(found.abs_diff(expected) <= scalars, "{at}, {kind:?}: {found}, not {expected}");
            }
            let (found, expected) =
                (totals.bytes(Kind::Activations).get(), of_kind(&moment, Kind::Activations));
            // What the model of `features` keeps is an activation, but autograd did not save it.
            if expected > 0 && name != "adamw-features" {
                assert!(found.abs_diff(expected) * 100 <= expected, "{at}: {found}, not {expected}");
            }
            assert_eq!(totals.bytes(Kind::Unknown), Bytes::ZERO, "{at}");
        }
    }
}

#[test]
fn what_is_older_than_the_recording_is_found_by_its_sizes() {
    let trace = open("kinds/adamw-late.pickle.gz");
    let kinds = Kinds::new(&trace, &trace.devices[0]);
    let whole = open("kinds/adamw.pickle.gz");
    let from_start = Kinds::new(&whole, &whole.devices[0]);
    let (late, full) = (kinds.at(kinds.peak().0), from_start.at(from_start.peak().0));
    for kind in Kind::ALL {
        assert_eq!(late.bytes(kind), full.bytes(kind), "{kind:?}");
    }
    assert_eq!(late.get(Kind::Parameters).unwrap().main_rule(), Some(Rule::SizeOfGradient));
    assert_eq!(late.get(Kind::OptimizerState).unwrap().main_rule(), Some(Rule::RepeatsParameters));
    assert_eq!(full.get(Kind::OptimizerState).unwrap().certainty(), Certainty::Certain);
}

#[test]
fn without_stacks_order_sizes_and_lifetimes_give_the_same() {
    for name in RECORDINGS {
        // Without stacks, recomputed activations and caches look like others, and FSDP's gradients have sizes of their own.
        if ["checkpointing", "fsdp", "growing", "kv"].contains(&name) {
            continue;
        }
        let trace = open(&format!("kinds/{name}.pickle.gz"));
        let with = Kinds::new(&trace, &trace.devices[0]);
        let trace = without_stacks(trace);
        let without = Kinds::new(&trace, &trace.devices[0]);
        for moment in moments(name) {
            // While `torch.compile` works, the first step has a shape of its own.
            if name == "compiled" && moment.name == "forward 0" {
                continue;
            }
            let (with, without) = (with.at(moment.events), without.at(moment.events));
            for kind in [Kind::Parameters, Kind::Gradients, Kind::OptimizerState, Kind::Activations] {
                let (found, expected) = (without.bytes(kind).get(), with.bytes(kind).get());
                // Buffers of batch normalization have the sizes of parameters.
                let allowed = if name == "sgd" { 4096 } else { 8 };
                let at = format!("{name}, {}, {kind:?}", moment.name);
                assert!(found.abs_diff(expected) <= allowed, "{at}: {found}, not {expected}");
            }
        }
    }
}

#[test]
fn little_is_unknown_in_recordings_of_real_programs() {
    for name in [
        "gpt2_varlen.pickle.gz",
        "graphs.pickle.gz",
        "oom_batch.pickle.gz",
        "oom_fragmented.pickle.gz",
        "oom_fragmented-expandable.pickle.gz",
        "seed001.pickle.gz",
        "seed004.pickle.gz",
        "streams.pickle.gz",
        "streams-expandable.pickle.gz",
        "vit_varbatch-ring.pickle.gz",
        "fit/conv_2600.room.gz",
        "fit/gpt_54.room.gz",
        "fit/gpt_61.room.gz",
        "fit/varied_57.room.gz",
    ] {
        let trace = open(name);
        for device in &trace.devices {
            let kinds = Kinds::new(&trace, device);
            let (peak, live) = kinds.peak();
            let totals = kinds.at(peak);
            assert_eq!(totals.live(), live, "{name}");
            assert!(totals.bytes(Kind::Unknown).share_of(live) < 0.03, "{name}");
        }
    }
}

#[test]
fn a_step_that_fails_has_its_activations() {
    let trace = open("oom_batch.pickle.gz");
    let device = &trace.devices[0];
    let totals = Kinds::new(&trace, device).at(Kinds::new(&trace, device).peak().0);
    assert!(totals.bytes(Kind::Activations) > Bytes::gib(6));
    assert_eq!(totals.get(Kind::Inputs).unwrap().main_rule(), Some(Rule::BetweenSteps));
    let parameters = totals.bytes(Kind::Parameters).get();
    assert_eq!(totals.bytes(Kind::OptimizerState).get(), 2 * parameters);
}

#[test]
fn graphs_have_pools_of_their_own() {
    let trace = open("graphs.pickle.gz");
    let kinds = Kinds::new(&trace, &trace.devices[0]);
    let totals = kinds.at(kinds.peak().0);
    assert_eq!(totals.get(Kind::GraphPools).unwrap().main_rule(), Some(Rule::PrivatePool));
}

/// The cache of a real recording in blocks of 16 MiB and more, each with an unsplit rest of up to 1 MiB.
fn in_unsplit_blocks(trace: &Trace, is_cache: impl Fn(StackId) -> bool) -> Trace {
    let mut trace = trace.clone();
    let (mut events, mut sizes) = (Events::default(), HashMap::new());
    for (index, mut event) in trace.devices[0].events.iter().enumerate() {
        if event.action == Action::Alloc {
            let rest = index as u64 * 7919 % 2048 * 512;
            sizes.remove(&event.address);
            if is_cache(event.stack) {
                sizes.insert(event.address, Bytes::new(event.size.get() * 32 + rest));
            }
        }
        event.size = sizes.get(&event.address).copied().unwrap_or(event.size);
        events.push(event);
    }
    trace.devices[0].events = events;
    trace
}

#[test]
fn a_growing_cache_is_found_in_blocks_that_were_not_split() {
    let trace = open("kinds/growing.room.gz");
    let births = |trace: &Trace| -> Vec<(Option<usize>, StackId)> {
        let kinds = Kinds::new(trace, &trace.devices[0]);
        let cached = kinds.allocations().iter().filter(|row| row.rule == Rule::GrowsPerToken);
        cached.map(|row| (row.born(), row.stack)).collect()
    };
    let exact = births(&trace);
    // Keys and values of four layers, for all tokens but the first.
    assert_eq!(exact.len(), 23 * 2 * 4);
    let is_cache = |stack| exact.iter().any(|&(_, other)| other == stack);
    assert_eq!(births(&in_unsplit_blocks(&trace, is_cache)), exact);
}
