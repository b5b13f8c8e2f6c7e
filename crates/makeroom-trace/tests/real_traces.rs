//! Recordings of real programs, compared with PyTorch's own counters.

use crate::support::pickler::real;
use makeroom_core::{Action, BlockState, Bytes, PoolId, Trace};
use makeroom_trace::Input;

fn open(name: &str) -> Trace {
    match makeroom_trace::open(&real(name)) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{name}: {other:?}"),
    }
}

fn count(trace: &Trace, action: Action) -> usize {
    trace.devices.iter().flat_map(|device| device.events.actions()).filter(|&&found| found == action).count()
}

#[test]
fn every_event_is_there() {
    // The counters include one more allocation, from before the recording began.
    for (name, events, allocations) in [
        ("gpt2_varlen", 165_618, 55_170),
        ("oom_fragmented", 13_323, 4_413),
        ("oom_fragmented-expandable", 13_328, 4_418),
        ("oom_batch", 7_195, 2_352),
        ("streams", 4_401, 1_473),
        ("streams-expandable", 4_422, 1_473),
        ("graphs", 1_595, 521),
        ("seed001", 505, 102),
        ("seed004", 400, 133),
    ] {
        let trace = open(name);
        assert_eq!(trace.event_count(), events, "{name}");
        assert_eq!(count(&trace, Action::Alloc) + 1, allocations, "{name}");
        assert_eq!(trace.devices.len(), 1, "{name}");
        assert_eq!(trace.notes, [""; 0], "{name}");
    }
    assert_eq!(open("vit_varbatch-ring").event_count(), 20_000);
}

#[test]
fn a_refusal_says_what_was_asked_and_what_was_free() {
    let trace = open("oom_fragmented");
    let refusal = trace.devices[0].events.iter().find(|event| event.action == Action::OutOfMemory);
    let refusal = refusal.expect("the run ended out of memory");
    assert_eq!(refusal.size, Bytes::new(907_038_720));
    assert_eq!(refusal.device_free(), Some(Bytes::new(143_731_589_120)));
    let frames = trace.stacks.frames_of(refusal.stack);
    let innermost = trace.stacks.frame_at(frames[0]);
    assert_eq!(frames.len(), 10);
    assert_eq!(trace.stacks.name_text(innermost.function), "cross_entropy");
    assert_eq!(trace.stacks.name_text(innermost.file), "site-packages/torch/nn/functional.py");
    assert_eq!(innermost.line, 3504);
}

#[test]
fn segments_are_filled_by_their_blocks() {
    let trace = open("gpt2_varlen");
    let segments = &trace.devices[0].segments;
    assert_eq!(segments.len(), 118);
    assert!(segments.is_sorted_by_key(|segment| segment.address));
    for segment in segments {
        assert_eq!(segment.blocks.iter().map(|block| block.size).sum::<Bytes>(), segment.size);
        assert!(segment.blocks.iter().all(|block| block.requested.is_some()));
    }
    let is_live =
        |state| segments.iter().flat_map(|segment| &segment.blocks).any(|block| block.state == state);
    assert!(is_live(BlockState::Free));
}

#[test]
fn private_pools_expandable_segments_and_settings_are_kept() {
    let graphs = open("graphs");
    let pools: Vec<_> = graphs.devices[0].segments.iter().map(|segment| segment.pool).collect();
    assert!(pools.contains(&PoolId::DEFAULT) && pools.iter().any(|pool| *pool != PoolId::DEFAULT));
    assert_eq!(graphs.settings.expandable_segments, Some(false));
    assert_eq!(graphs.settings.max_split_size, Some(Bytes::new(u64::MAX)));
    assert_eq!(graphs.settings.text.as_deref(), Some(""));
    assert_eq!(graphs.settings.roundup_power2_divisions, Some([0; 16]));

    let expandable = open("streams-expandable");
    assert!(expandable.devices[0].segments.iter().all(|segment| segment.is_expandable));
    assert_eq!(expandable.settings.expandable_segments, Some(true));
    assert!(count(&expandable, Action::SegmentMap) > 0);
    assert!(expandable.devices[0].events.streams().len() >= 2);
}
