//! For any recording, however broken: kinds add up to live memory at every moment, and nothing panics.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::HashMap;

use makeroom_core::{
    Action, Address, Annotation, AnnotationStage, Bytes, DeviceTrace, Event, Events, Frame, StackId,
    StreamId, Trace, TraceKind,
};
use makeroom_kind::Kinds;
use proptest::prelude::*;

const ACTIONS: [Action; 9] = [
    Action::Alloc,
    Action::FreeRequested,
    Action::FreeCompleted,
    Action::SegmentAlloc,
    Action::SegmentFree,
    Action::SegmentMap,
    Action::SegmentUnmap,
    Action::Snapshot,
    Action::OutOfMemory,
];

/// Live bytes after each number of events, counted independently of the kinds.
fn live(device: &DeviceTrace) -> Vec<u64> {
    let start = makeroom_core::Start::new(device);
    let mut sizes: HashMap<u64, u64> =
        start.blocks.iter().map(|block| (block.address.0, block.requested.get())).collect();
    let mut bytes = vec![sizes.values().sum()];
    for event in device.events.iter() {
        match event.action {
            Action::Alloc => {
                sizes.insert(event.address.0, event.size.get());
            }
            Action::FreeCompleted => {
                sizes.remove(&event.address.0);
            }
            _ => {}
        }
        bytes.push(sizes.values().sum());
    }
    bytes
}

fn adds_up(trace: &Trace) {
    for device in &trace.devices {
        let kinds = Kinds::new(trace, device);
        let live = live(device);
        let step = (live.len() / 40).max(1);
        for (position, &bytes) in live.iter().enumerate().step_by(step) {
            assert_eq!(kinds.at(position).live().get(), bytes, "after {position} events");
        }
        assert_eq!(kinds.peak().1.get(), live.iter().copied().max().unwrap());
        assert_eq!(kinds.at(kinds.peak().0).live(), kinds.peak().1);
    }
}

/// Frames of every part of a training program.
fn stacks(trace: &mut Trace) -> Vec<StackId> {
    let frames = [
        ("torch/nn/modules/module.py", "_apply"),
        ("torch/nn/modules/module.py", "_call_impl"),
        ("torch/nn/modules/conv.py", "_conv_forward"),
        ("torch/optim/adam.py", "_init_group"),
        ("torch/optim/adam.py", "step"),
        ("torch/optim/optimizer.py", "zero_grad"),
        ("torch/autograd/__init__.py", "_make_grads"),
        ("torch/utils/checkpoint.py", "recompute_fn"),
        ("transformers/cache_utils.py", "update"),
        ("train.py", "f1"),
    ];
    let stacks = &mut trace.stacks;
    let mut frame = |file: &str, function: &str| {
        let (file, function) = (stacks.name(file), stacks.name(function));
        stacks.frame(Frame { file, function, line: 1, ..Frame::default() })
    };
    let root = frame("train.py", "<module>");
    let inner: Vec<_> = frames.iter().map(|(file, function)| frame(file, function)).collect();
    let mut ids = vec![StackId::NONE];
    for frame in inner {
        ids.push(trace.stacks.stack(&[frame, root]));
        ids.push(trace.stacks.stack(&[frame]));
    }
    ids
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_events_have_kinds_that_add_up(
        rows in prop::collection::vec((0..9_usize, 0..12_u64, 0..6_usize, 0..21_usize), 0..400),
        scopes in prop::collection::vec((0..400_u64, any::<bool>()), 0..8),
    ) {
        let sizes = [512, 1 << 20, 32 << 20, 4, 0, (1 << 56) - 1];
        let mut trace = Trace::new(TraceKind::TorchSnapshot);
        let ids = stacks(&mut trace);
        let mut device = DeviceTrace::default();
        for (time, (action, address, size, stack)) in rows.into_iter().enumerate() {
            device.events.push(Event {
                // Half of the events allocate.
                action: if action % 2 == 0 { Action::Alloc } else { ACTIONS[action] },
                address: Address(address * 512),
                size: Bytes::new(sizes[size]),
                stream: StreamId(address % 2),
                time_us: time as u64,
                stack: ids[stack],
            });
        }
        for (time_us, is_start) in scopes {
            let stage = if is_start { AnnotationStage::Start } else { AnnotationStage::End };
            let name = "Optimizer.step#Adam.step".to_owned();
            trace.annotations.push(Annotation { name, stage, device: None, time_us });
        }
        trace.devices.push(device);
        adds_up(&trace);
        adds_up(&crate::support::without_stacks(trace));
    }

    #[test]
    fn real_recordings_may_be_cut_and_mixed_up(
        name in prop::sample::select(vec!["unnamed", "sgd", "adamw-late", "kv"]),
        cut in (0.0..1.0_f64, 0.0..1.0_f64),
        mutations in prop::collection::vec((0.0..1.0_f64, 0.0..1.0_f64, 0..9_usize), 0..40),
    ) {
        let mut trace = crate::support::open(&format!("kinds/{name}.pickle.gz"));
        let device = &mut trace.devices[0];
        let mut events: Vec<Event> = device.events.iter().collect();
        for (one, two, action) in mutations {
            let at = |share: f64| (share * (events.len() - 1) as f64) as usize;
            let (one, two) = (at(one), at(two));
            match action % 4 {
                0 => events.swap(one, two),
                1 => events[one].stack = events[two].stack,
                2 => events[one].address = events[two].address,
                _ => events[one].action = ACTIONS[action],
            }
        }
        let length = events.len() as f64;
        let (from, to) = ((cut.0.min(cut.1) * length) as usize, (cut.0.max(cut.1) * length) as usize);
        device.events = Events::default();
        events[from..to].iter().for_each(|&event| device.events.push(event));
        adds_up(&trace);
    }
}
