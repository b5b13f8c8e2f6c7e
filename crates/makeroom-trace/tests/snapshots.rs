//! All shapes of snapshots from different PyTorch versions and writers, built by hand.

use crate::support::pickler::{Data, Writer, dict, for_each_writer, int, list, pickle, read_trace, text};
use makeroom_core::{
    Action, Address, Annotation, AnnotationStage, BlockState, Bytes, DeviceIndex, PoolId, StackId, StreamId,
    Trace, TraceKind,
};

fn frame(line: i32) -> Data {
    dict([("name", text("forward")), ("filename", text("model.py")), ("line", int(line))])
}

fn event(action: &str, address: i64) -> Data {
    dict([
        ("action", text(action)),
        ("addr", int(address)),
        ("size", int(512)),
        ("stream", int(7)),
        ("time_us", int(1_700_000_000_000_000_i64)),
        ("compile_context", text("N/A")),
        ("frames", list([frame(3), frame(4)])),
    ])
}

fn block(address: i64, size: i32, state: &str) -> Data {
    dict([
        ("address", int(address)),
        ("size", int(size)),
        ("requested_size", int(size - 1)),
        ("state", text(state)),
        ("frames", list([frame(9)])),
    ])
}

fn segment(device: i32, address: i64, blocks: Data) -> Data {
    dict([
        ("device", int(device)),
        ("address", int(address)),
        ("total_size", int(2048)),
        ("stream", int(0)),
        ("segment_type", text("small")),
        ("segment_pool_id", Data::Tuple(vec![int(0), int(3)])),
        ("is_expandable", Data::Bool(true)),
        ("frames", list([])),
        ("blocks", blocks),
    ])
}

fn snapshot_of(events: Data) -> Data {
    dict([("segments", list([])), ("device_traces", list([events]))])
}

fn read(data: &Data) -> Trace {
    read_trace(&pickle(data, Writer::Protocol4)).expect("a snapshot")
}

#[test]
fn a_whole_snapshot_comes_out_the_same_from_every_writer() {
    let blocks = list([
        block(4096, 512, "active_allocated"),
        block(4608, 512, "active_pending_free"),
        block(5120, 512, "active_awaiting_free"),
        block(5632, 512, "inactive"),
    ]);
    let annotation = |stage| {
        dict([("name", text("step")), ("stage", text(stage)), ("device", int(0)), ("time_us", int(5))])
    };
    let data = dict([
        ("segments", list([segment(0, 4096, blocks)])),
        ("device_traces", list([list([event("alloc", 4096), event("free_requested", 4096)])])),
        (
            "allocator_settings",
            dict([
                ("PYTORCH_CUDA_ALLOC_CONF", text("max_split_size_mb:64")),
                ("max_split_size", int(64 << 20)),
                ("garbage_collection_threshold", Data::Float(0.75)),
                ("expandable_segments", Data::Bool(true)),
                ("roundup_power2_divisions", dict([("1", int(8)), ("32768", int(4))])),
            ]),
        ),
        ("external_annotations", list([annotation("START"), annotation("END")])),
        ("some_new_key", list([Data::None, Data::Float(1.5), list([list([])])])),
    ]);
    for_each_writer(&data, |trace| {
        assert_eq!(trace.kind, TraceKind::TorchSnapshot);
        assert_eq!(trace.notes, ["parts of the snapshot that this version does not read: `some_new_key`"]);
        let [device] = &trace.devices[..] else { panic!("{:?}", trace.devices) };
        let events: Vec<_> = device.events.iter().collect();
        assert_eq!(events.len(), 2);
        assert_eq!(events[0].action, Action::Alloc);
        assert_eq!(events[0].address, Address(4096));
        assert_eq!(events[0].size, Bytes::new(512));
        assert_eq!(events[0].stream, StreamId(7));
        assert_eq!(events[0].time_us, 1_700_000_000_000_000);
        assert_eq!(events[0].stack, events[1].stack);
        let lines = |stack: StackId| {
            let frames = trace.stacks.frames_of(stack).iter();
            frames.map(|&frame| trace.stacks.frame_at(frame).line).collect::<Vec<_>>()
        };
        assert_eq!(lines(events[0].stack), [3, 4]);

        let segment = &device.segments[0];
        assert_eq!((segment.address, segment.size), (Address(4096), Bytes::kib(2)));
        assert!(segment.is_small && segment.is_expandable);
        assert_eq!(segment.pool, PoolId(0, 3));
        assert_eq!(segment.stack, StackId::NONE);
        let states: Vec<_> = segment.blocks.iter().map(|block| block.state).collect();
        let pending = BlockState::PendingFree;
        assert_eq!(states, [BlockState::Live, pending, pending, BlockState::Free]);
        assert_eq!(segment.blocks[0].requested, Some(Bytes::new(511)));
        assert_eq!(lines(segment.blocks[3].stack), [9]);

        assert_eq!(trace.settings.text.as_deref(), Some("max_split_size_mb:64"));
        assert_eq!(trace.settings.max_split_size, Some(Bytes::mib(64)));
        assert_eq!(trace.settings.garbage_collection_threshold, Some(0.75));
        assert_eq!(trace.settings.expandable_segments, Some(true));
        let divisions = trace.settings.roundup_power2_divisions.expect("they are given");
        assert_eq!((divisions[0], divisions[1], divisions[15]), (8, 0, 4));

        let annotation =
            |stage| Annotation { name: "step".to_owned(), stage, device: Some(DeviceIndex(0)), time_us: 5 };
        assert_eq!(trace.annotations, [annotation(AnnotationStage::Start), annotation(AnnotationStage::End)]);
    });
}

#[test]
fn keys_may_come_in_any_order_and_be_missing() {
    let events = list([
        dict([("size", int(8)), ("addr", int(16)), ("action", text("alloc"))]),
        dict([("action", text("free_completed"))]),
    ]);
    for_each_writer(&dict([("device_traces", list([events]))]), |trace| {
        let events = &trace.devices[0].events;
        let first = events.get(0).expect("an event");
        assert_eq!((first.address, first.size), (Address(16), Bytes::new(8)));
        assert_eq!((first.stack, first.time_us), (StackId::NONE, 0));
        assert_eq!(events.get(1).map(|event| event.action), Some(Action::FreeCompleted));
        assert_eq!(events.pool(0), None);
        assert_eq!(trace.settings, makeroom_core::AllocatorSettings::default());
    });
}

#[test]
fn a_refusal_has_free_memory_in_place_of_an_address() {
    let events = list([
        dict([("action", text("oom")), ("device_free", int(99)), ("size", int(512))]),
        dict([("action", text("oom")), ("size", int(512))]),
    ]);
    for_each_writer(&snapshot_of(events), |trace| {
        let free: Vec<_> = trace.devices[0].events.iter().map(|event| event.device_free()).collect();
        assert_eq!(free, [Some(Bytes::new(99)), None]);
    });
}

#[test]
fn addresses_beyond_63_bits_are_the_same_from_both_writers() {
    let address = 0xffff_8000_0000_0200_u64;
    let as_python = event("alloc", 0);
    let Data::Dict(mut pairs) = as_python else { unreachable!() };
    pairs[1].1 = int(address);
    let data = snapshot_of(list([Data::Dict(pairs)]));
    // The C++ writer casts to a signed number; Python writes nine bytes.
    for_each_writer(&data, |trace| {
        assert_eq!(trace.devices[0].events.get(0).map(|event| event.address), Some(Address(address)));
    });
}

#[test]
fn old_blocks_have_a_history_and_no_addresses() {
    let old = |state: &str, size: i32, history: Data| {
        dict([("size", int(size)), ("state", text(state)), ("history", history)])
    };
    let tenant =
        |size: i32, line| dict([("addr", int(1)), ("frames", list([frame(line)])), ("real_size", int(size))]);
    let blocks = list([
        old("active_allocated", 1024, list([tenant(1000, 1), tenant(10, 2)])),
        old("inactive", 1024, list([])),
    ]);
    for_each_writer(&dict([("segments", list([segment(0, 4096, blocks)]))]), |trace| {
        assert_eq!(trace.notes, [""; 0]);
        let blocks = &trace.devices[0].segments[0].blocks;
        assert_eq!(blocks[0].requested, Some(Bytes::new(1000)));
        assert_eq!(trace.stacks.frame_at(trace.stacks.frames_of(blocks[0].stack)[0]).line, 1);
        assert_eq!((blocks[0].address, blocks[1].address), (Address(4096), Address(5120)));
        assert_eq!(blocks[1].requested, None);
    });
}

#[test]
fn a_bare_list_of_segments_is_a_snapshot_too() {
    let blocks = list([block(4096, 2048, "inactive")]);
    let data = list([segment(1, 8192, list([block(8192, 2048, "inactive")])), segment(0, 4096, blocks)]);
    for_each_writer(&data, |trace| {
        let devices: Vec<_> = trace.devices.iter().map(|device| device.device.0).collect();
        assert_eq!(devices, [0, 1]);
        assert_eq!(trace.event_count(), 0);
        assert_eq!(trace.notes, [""; 0]);
    });
}

#[test]
fn devices_are_told_by_their_position() {
    let data = dict([
        ("segments", list([segment(3, 4096, list([block(4096, 2048, "inactive")]))])),
        (
            "device_traces",
            list([
                list([]),
                list([event("alloc", 1), event("alloc", 2)]),
                list([event("mystery", 3)]),
                list([event("alloc", 4)]),
            ]),
        ),
        (
            "trace_alloc_overflowed",
            list([Data::Bool(false), Data::Bool(true), Data::Bool(false), Data::Bool(false)]),
        ),
    ]);
    for_each_writer(&data, |trace| {
        let devices: Vec<_> = trace
            .devices
            .iter()
            .map(|device| (device.device.0, device.events.len(), device.segments.len(), device.overflowed))
            .collect();
        assert_eq!(devices, [(1, 2, 0, Some(true)), (3, 1, 1, Some(false))]);
        assert_eq!(trace.devices[1].events.get(0).map(|event| event.address), Some(Address(4)));
    });
}

#[test]
fn a_recorder_with_room_left_has_lost_nothing() {
    let with = |room: i64| {
        let events = list([event("alloc", 1)]);
        let data = dict([("device_traces", list([events])), ("trace_alloc_max_entries", int(room))]);
        read(&data).devices[0].overflowed
    };
    assert_eq!(with(100), Some(false));
    assert_eq!(with(1), None);
    for flags in [list([Data::Bool(true)]), Data::Bool(true)] {
        let events = list([event("alloc", 1)]);
        let data = dict([("device_traces", list([events])), ("trace_alloc_overflowed", flags)]);
        assert_eq!(read(&data).devices[0].overflowed, Some(true));
    }
}

#[test]
fn unknown_actions_are_counted() {
    let events = list([event("alloc", 1), event("teleport", 2), event("teleport", 3), event("size", 4)]);
    for_each_writer(&snapshot_of(events), |trace| {
        assert_eq!(trace.event_count(), 1);
        assert_eq!(
            trace.notes,
            [
                "trace entries of the unknown kind `teleport`, skipped: 2",
                "trace entries of the unknown kind `size`, skipped: 1",
            ]
        );
    });
}

#[test]
fn pools_of_events_are_tuples_or_lists() {
    let in_pool = |pool| {
        let Data::Dict(mut pairs) = event("alloc", 1) else { unreachable!() };
        pairs.push((text("pool_id"), pool));
        Data::Dict(pairs)
    };
    let events = list([
        event("alloc", 1),
        in_pool(Data::Tuple(vec![int(0), int(2)])),
        in_pool(list([int(0), int(2)])),
        event("alloc", 1),
    ]);
    for_each_writer(&snapshot_of(events), |trace| {
        let events = &trace.devices[0].events;
        let pools: Vec<_> = (0..4).map(|index| events.pool(index)).collect();
        assert_eq!(pools, [PoolId(0, 0), PoolId(0, 2), PoolId(0, 2), PoolId(0, 0)].map(Some));
    });
}

#[test]
fn words_of_the_format_may_be_names_of_functions() {
    let frame_in = |name: &str| dict([("name", text(name)), ("filename", text("")), ("line", int(-1))]);
    let data = snapshot_of(list([dict([
        ("action", text("alloc")),
        ("frames", list([frame_in("alloc"), frame_in("N/A"), frame_in("größe")])),
    ])]));
    let trace = read(&data);
    let stack = trace.devices[0].events.get(0).expect("an event").stack;
    let names: Vec<_> = trace
        .stacks
        .frames_of(stack)
        .iter()
        .map(|&frame| trace.stacks.name_text(trace.stacks.frame_at(frame).function))
        .collect();
    assert_eq!(names, ["alloc", "N/A", "größe"]);
    assert_eq!(trace.stacks.frame_at(trace.stacks.frames_of(stack)[0]).line, 0);
}

#[test]
fn long_lists_come_in_portions() {
    let events: Vec<_> = (0..2500).map(|address| event("alloc", address)).collect();
    let frames: Vec<_> = (0..2500).map(frame).collect();
    let Data::Dict(mut pairs) = event("free_requested", 0) else { unreachable!() };
    let deep = pairs.iter_mut().find(|(key, _)| matches!(key, Data::Text(key) if key == "frames"));
    deep.expect("frames").1 = Data::List(frames);
    let data = dict([("device_traces", list([Data::List(events), list([Data::Dict(pairs)])]))]);
    for_each_writer(&data, |trace| {
        assert_eq!(trace.devices[0].events.len(), 2500);
        assert!(trace.devices[0].events.iter().enumerate().all(|(row, event)| event.address.0 == row as u64));
        let deep = trace.devices[1].events.get(0).expect("an event").stack;
        assert_eq!(trace.stacks.frames_of(deep).len(), 2500);
    });
}

#[test]
fn sound_pickles_of_something_else_are_named() {
    for (data, found) in [
        (Data::None, "None"),
        (text("hello"), "a string"),
        (int(7), "a number"),
        (list([]), "an empty list"),
        (list([int(1), int(2), int(3)]), "a list of something else"),
        (dict([]), "an empty dict or a list of something else"),
        (dict([("model", int(1)), ("epoch", int(2))]), "a dict with the keys `model`, `epoch`"),
        (dict([("segments", int(1))]), "a dict whose `segments` is not a list"),
        (list([event("alloc", 1)]), "a list of trace entries without the snapshot around it"),
    ] {
        let error = read_trace(&pickle(&data, Writer::Protocol4)).expect_err("not a snapshot");
        let text = error.to_string();
        assert!(text.ends_with(&format!("and contains {found}")), "{text}");
        assert!(text.contains(&format!("byte {}", pickle(&data, Writer::Protocol4).len())), "{text}");
        assert!(error.hint().is_some_and(|hint| hint.contains("_dump_snapshot")));
    }
}

#[test]
fn trouble_inside_is_noted_and_not_an_error() {
    let data = dict([(
        "segments",
        list([
            int(3),
            dict([("what", int(1))]),
            segment(0, 8192, list([block(8192, 2047, "inactive")])),
            segment(0, 7000, list([])),
        ]),
    )]);
    let trace = read(&data);
    assert_eq!(
        trace.notes,
        [
            "entries of `segments` that are not segments, skipped: 1",
            "device 0: segments that overlap the next one: 1, the first at 0x1b58",
            "device 0: segments not filled exactly by their blocks: 2; the first, at 0x1b58, has 0 B of blocks in 2.00 KiB",
        ]
    );
}
