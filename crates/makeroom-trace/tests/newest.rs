//! What the newest versions of PyTorch add to snapshots: labels, compiled frames, lines of models, pinned memory.

use crate::support::pickler::{Data, Writer, dict, int, list, pickle, read_trace, text};
use makeroom_core::{Action, Address, Bytes, PoolId, Trace};

fn read(data: &Data) -> Trace {
    read_trace(&pickle(data, Writer::Protocol4)).expect("a snapshot")
}

fn event(action: &str, address: i64, metadata: Data, context: &str) -> Data {
    dict([
        ("action", text(action)),
        ("addr", int(address)),
        ("size", int(512)),
        ("stream", int(0)),
        ("compile_context", text(context)),
        ("user_metadata", metadata),
    ])
}

fn snapshot(events: Data) -> Data {
    dict([("segments", list([])), ("device_traces", list([list([]), events]))])
}

#[test]
fn labels_and_compiled_frames_belong_to_their_events() {
    let trace = read(&snapshot(list([
        event("alloc", 512, text("prefill"), "N/A"),
        event("alloc", 1024, text(""), "1/0"),
        event("free_completed", 512, text("decode"), "N/A"),
    ])));
    let events = &trace.devices[0].events;
    let name = |name: Option<_>| name.map(|name| trace.stacks.name_text(name));
    assert_eq!([0, 1, 2].map(|row| name(events.label(row))), [Some("prefill"), None, Some("decode")]);
    assert_eq!([0, 1].map(|row| name(events.compile_context(row))), [None, Some("1/0")]);
    assert_eq!(trace.notes, Vec::<String>::new());
}

#[test]
fn a_text_for_a_block_labels_its_allocation() {
    let trace = read(&snapshot(list([
        event("alloc", 512, text(""), "N/A"),
        event("free_completed", 512, text(""), "N/A"),
        event("alloc", 512, text(""), "N/A"),
        event("alloc", 1024, text(""), "N/A"),
        event("annotate", 512, text("embedding.weight"), "N/A"),
        event("annotate", 4096, text("of no block"), "N/A"),
        event("annotate", 1024, text(""), "N/A"),
    ])));
    let events = &trace.devices[0].events;
    let name = |name: Option<_>| name.map(|name| trace.stacks.name_text(name));
    assert_eq!(events.len(), 4);
    assert_eq!([0, 2, 3].map(|row| name(events.label(row))), [None, Some("embedding.weight"), None]);
    assert_eq!(trace.notes, ["trace entries of the unknown kind `annotate`, skipped: 1"]);
}

#[test]
fn generated_code_is_shown_at_the_line_of_the_model() {
    let original = "  File \"/home/me/model.py\", line 88, in attention\n    scores = q @ k\n";
    let frame = dict([
        ("name", text("call")),
        ("filename", text("/tmp/torchinductor/ab/cabc.py")),
        ("line", int(99)),
        ("fx_node_name", text("bmm")),
        ("fx_original_trace", text(original)),
    ]);
    let allocation =
        dict([("action", text("alloc")), ("addr", int(512)), ("size", int(512)), ("frames", list([frame]))]);
    let trace = read(&snapshot(list([allocation])));
    let event = trace.devices[0].events.get(0).expect("an event");
    let frame = trace.stacks.frame_at(trace.stacks.frames_of(event.stack)[0]);
    let name = |name| trace.stacks.name_text(name);
    assert_eq!((name(frame.file), frame.line, name(frame.function)), ("/home/me/model.py", 88, "attention"));
}

#[test]
fn pinned_memory_is_a_trace_of_its_own() {
    let host = list([event("alloc", 4096, text(""), "N/A"), event("free_completed", 4096, text(""), "N/A")]);
    for host in [host.clone(), list([list([]), host])] {
        let data = dict([
            ("segments", list([])),
            ("device_traces", list([list([event("alloc", 512, text(""), "N/A")])])),
            ("host_segments", list([])),
            ("host_traces", host),
        ]);
        let trace = read(&data);
        let events: Vec<_> = trace.host.as_ref().expect("host memory").events.iter().collect();
        let rows: Vec<_> = events.iter().map(|event| (event.action, event.address, event.size)).collect();
        let size = Bytes::new(512);
        assert_eq!(
            rows,
            [(Action::Alloc, Address(4096), size), (Action::FreeCompleted, Address(4096), size)]
        );
        assert_eq!(trace.devices.len(), 1);
        assert_eq!(trace.devices[0].events.len(), 1);
    }
}

#[test]
fn pools_of_several_devices_stay_apart() {
    // Memory of a `MemPool`, which another allocator may have provided, is in segments of that pool.
    let segment = |device: i32, pool: i32| {
        let block = dict([
            ("address", int(4096)),
            ("size", int(512)),
            ("state", text("active_allocated")),
            ("frames", list([])),
        ]);
        dict([
            ("device", int(device)),
            ("address", int(4096)),
            ("total_size", int(512)),
            ("segment_type", text("small")),
            ("segment_pool_id", Data::Tuple(vec![int(0), int(pool)])),
            ("blocks", list([block])),
        ])
    };
    let data = dict([
        ("segments", list([segment(1, 3), segment(0, 0)])),
        (
            "device_traces",
            list([
                list([event("alloc", 512, text(""), "N/A")]),
                list([event("alloc", 4096, text(""), "N/A"), event("alloc", 8192, text(""), "N/A")]),
            ]),
        ),
    ]);
    let trace = read(&data);
    let devices: Vec<_> = trace
        .devices
        .iter()
        .map(|device| (device.device.0, device.events.len(), device.segments[0].pool))
        .collect();
    assert_eq!(devices, [(0, 1, PoolId(0, 0)), (1, 2, PoolId(0, 3))]);
    assert_eq!(trace.notes, Vec::<String>::new());
}

#[test]
fn parts_of_later_versions_are_named() {
    let data = dict([
        ("segments", list([])),
        ("device_traces", list([list([event("alloc", 512, dict([("a", int(1))]), "N/A")])])),
        ("fabric_segments", list([int(1)])),
    ]);
    assert_eq!(
        read(&data).notes,
        [
            "parts of the snapshot that this version does not read: `fabric_segments`",
            "labels of events that are not text, skipped: 1"
        ]
    );
}
