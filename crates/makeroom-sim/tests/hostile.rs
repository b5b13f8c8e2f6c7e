//! Replays recordings that no allocator could have written: nothing may overflow or take long.

use std::time::Duration;

use crate::support::cpu_time::cpu_time;
use makeroom_core::{
    Action, Address, Block, BlockState, Bytes, DeviceTrace, Event, PoolId, Segment, StackId, Stacks,
};
use makeroom_sim::{
    Allocation, Device, Memory, Program, Pytorch, Settings, Workload, check, parse, replay_from_start,
};
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

/// Numbers that may cause overflows, and a few adjacent ones.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0_u64),
        Just(u64::MAX),
        Just(1 << 63),
        Just((1 << 56) - 1),
        Just(u64::MAX - (4 << 20)),
        (0_u64..8).prop_map(|number| number << 20),
        (0_u64..8).prop_map(|number| (1 << 40) + (number << 21)),
        (0_u64..4).prop_map(|number| u64::MAX - (number << 20) - 511),
    ]
}

fn segments() -> impl Strategy<Value = Vec<Segment>> {
    let block = (number(), number(), 0..3).prop_map(|(address, size, state)| Block {
        address: Address(address),
        size: Bytes::new(size),
        requested: Some(Bytes::new(size)),
        state: [BlockState::Live, BlockState::PendingFree, BlockState::Free][state as usize],
        stack: StackId::NONE,
    });
    let blocks = prop::collection::vec(block, 0..4);
    let segment = (number(), number(), any::<bool>(), 0_u64..3, blocks).prop_map(
        |(address, size, is_expandable, pool, blocks)| Segment {
            address: Address(address),
            size: Bytes::new(size),
            pool: PoolId(0, pool),
            is_expandable,
            blocks,
            ..Segment::default()
        },
    );
    prop::collection::vec(segment, 0..5).prop_map(|mut segments| {
        segments.sort_by_key(|segment| segment.address);
        for segment in &mut segments {
            segment.blocks.sort_by_key(|block| block.address);
        }
        segments
    })
}

fn devices() -> impl Strategy<Value = DeviceTrace> {
    let events = prop::collection::vec((0..ACTIONS.len(), number(), number()), 0..60);
    (events, segments()).prop_map(|(rows, segments)| {
        let mut device = DeviceTrace { segments, ..DeviceTrace::default() };
        for (action, address, size) in rows {
            device.events.push(Event::new(ACTIONS[action], address, size));
        }
        device
    })
}

fn all_settings() -> Vec<Settings> {
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:32,garbage_collection_threshold:0.6",
        "roundup_power2_divisions:4",
    ]
    .into_iter()
    .filter_map(|settings| Settings::parse(settings).ok())
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn nothing_overflows_in_a_check(device in devices(), limit in prop::option::of(number())) {
        for settings in all_settings() {
            check(&device, &Stacks::default(), settings, limit);
        }
    }

    #[test]
    fn nothing_overflows_in_a_replay(device in devices(), memory in prop::option::of(number())) {
        let workload = Workload::new(&device, &Stacks::default());
        for name in ["pytorch", "pytorch:expandable_segments:True", "bfc", "cupy", "rmm-pool", "cuda-async", "makeroom", "ideal"] {
            let spec = parse(name).expect("there is one");
            workload.run(&spec, Memory { bytes: memory }, false);
            workload.run_recorded(&spec, Memory { bytes: memory }, false);
        }
    }
}

/// Sizes for which the sum of address and size overflows, two of each in a row.
#[test]
fn absurd_sizes_overflow_in_no_allocator() {
    let sizes = [1 << 40, 1 << 42, (1 << 42) + 1, 1 << 47, 1 << 62, 1 << 63, u64::MAX - (4 << 20), u64::MAX];
    for first in sizes {
        for second in sizes {
            let mut device = DeviceTrace::default();
            for (address, size) in [(1 << 40, first), (1 << 50, second), (1 << 40, first)] {
                device.events.push(Event::new(Action::Alloc, address, size));
                device.events.push(Event::new(Action::FreeRequested, address, size));
                device.events.push(Event::new(Action::Alloc, address, second));
            }
            let workload = Workload::new(&device, &Stacks::default());
            for name in ["bfc", "cupy", "rmm-pool", "cuda-async", "makeroom"] {
                workload.run(&parse(name).expect("there is one"), Memory { bytes: None }, false);
            }
        }
    }
}

#[test]
fn live_bytes_beyond_all_numbers_stop_at_the_last() {
    let (pool, stack) = (0, StackId::NONE);
    let allocation = Allocation { size: 1 << 63, stream: 0, pool, slot: 0, stack };
    let program = Program { allocations: vec![allocation; 2], older: 2, ..Program::default() };
    let mut model = Pytorch::new(Settings::default(), None);
    let outcome = replay_from_start(&program, &mut model, &mut Device::new(None));
    assert_eq!((outcome.peak_live, program.peak_live()), (u64::MAX, u64::MAX));
}

#[test]
fn a_pool_for_every_segment_takes_no_longer_than_one_for_all() {
    let start = cpu_time();
    for is_expandable in [false, true] {
        let mut device = DeviceTrace::default();
        for number in 0..30_000_u64 {
            let address = (1 << 40) + number * (4 << 20);
            let action = if is_expandable { Action::SegmentMap } else { Action::SegmentAlloc };
            if number % 2 == 0 {
                device.events.push(Event::new(action, address, 2 << 20));
                device.events.push(Event::new(Action::Alloc, address, 512));
            }
            device.segments.push(Segment {
                address: Address(address),
                size: Bytes::mib(2),
                pool: PoolId(1, number),
                is_expandable,
                ..Segment::default()
            });
        }
        let workload = Workload::new(&device, &Stacks::default());
        assert_eq!(workload.program.allocations.len(), 15_000);
        assert_eq!(workload.program.request(7).pool, PoolId(1, 14));
        check(&device, &Stacks::default(), Settings::default(), None);
    }
    assert!(
        cpu_time().saturating_sub(start) < Duration::from_secs(10),
        "{:?}",
        cpu_time().saturating_sub(start)
    );
}
