//! Hooks for the less common ways to allocate, each on the software GPU: the events and their figures.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{Program, Recording};
use makeroom_trace::room::{Event, EventKind};

/// Compiled without checking for functions that the minimal driver lacks: the software GPU has them.
fn recorded(name: &str) -> Recording {
    let recording = Program::with_missing(name).on_software_gpu().check_one();
    recording.assert_complete();
    recording
}

fn only(recording: &Recording, kind: EventKind) -> Event {
    let events = recording.events_of(kind);
    assert_eq!(events.len(), 1, "{}", kind.name());
    events[0]
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_of_others_is_told_from_the_programs_own() {
    let recording = recorded("sharing.c");
    let opened = recording.events_of(EventKind::IpcOpen);
    assert_eq!(opened.len(), 2, "an exchange handle and a pool's pointer");
    assert_eq!(only(&recording, EventKind::IpcClose).address, opened[0].address);
    let own = recording.events_of(EventKind::DeviceAlloc);
    assert_ne!(own[0].address, opened[0].address);

    let imports = recording.events_of(EventKind::ExternalImport);
    assert_eq!(imports.iter().map(|event| event.size.get()).collect::<Vec<_>>(), [6 * MIB, 0]);
    let mapped = only(&recording, EventKind::ExternalMap);
    assert_eq!((mapped.size.get(), mapped.extra), (4 * MIB, imports[0].address.0));
    assert_eq!(only(&recording, EventKind::ExternalDestroy).address, imports[0].address);

    let pools = recording.events_of(EventKind::PoolCreate);
    assert_eq!(pools.iter().map(|event| event.extra).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(opened[1].pool, pools[1].pool);
    let frees = recording.events_of(EventKind::StreamFree);
    assert_eq!(frees[0].address, opened[1].address);
    assert_eq!(recording.count(EventKind::PoolDestroy), 2);
}

#[test]
fn every_hold_on_physical_memory_is_seen() {
    let recording = recorded("sharing.c");
    let created = recording.events_of(EventKind::PhysicalCreate)[0];
    let retained = only(&recording, EventKind::PhysicalRetain);
    let mapped = only(&recording, EventKind::Map);
    assert_eq!((retained.address, retained.extra), (created.address, mapped.address.0));
    let releases = recording.events_of(EventKind::PhysicalRelease);
    let of_handle = |event: &&Event| event.address == created.address;
    let results: Vec<_> = releases.iter().filter(of_handle).map(|event| event.result).collect();
    assert_eq!(results, [0, 0, 0, 1], "created, imported, retained, and once too often");
}

#[test]
fn multicast_objects_are_views() {
    let recording = recorded("sharing.c");
    let object = only(&recording, EventKind::MulticastCreate);
    assert_eq!((object.size.get(), object.extra), (4 * MIB, 1));
    assert_eq!(only(&recording, EventKind::MulticastAdd).address, object.address);
    let handle = recording.events_of(EventKind::PhysicalCreate)[1];
    let block = recording.events_of(EventKind::DeviceAlloc)[1];
    let bound: Vec<_> =
        recording.events_of(EventKind::MulticastBind).iter().map(|event| event.extra).collect();
    assert_eq!(bound, [handle.address.0, block.address.0]);
    assert_eq!(recording.count(EventKind::MulticastUnbind), 2);
    assert_eq!(recording.events_of(EventKind::PhysicalRelease).last().unwrap().address, object.address);
}

/// In the analyzer's view the program holds nothing at the end, and imported memory never counted.
#[test]
fn the_analyser_counts_what_the_program_took() {
    let recording = recorded("sharing.c");
    let makeroom_trace::Input::Trace(trace) = makeroom_trace::open(&recording.path).unwrap() else {
        panic!("not a recording")
    };
    let (mut live, mut peak) = (0_i64, 0);
    for event in trace.devices[0].events.iter() {
        let size = event.size.get().cast_signed();
        match event.action {
            makeroom_core::Action::Alloc => live += size,
            makeroom_core::Action::FreeCompleted => live -= size,
            _ => {}
        }
        peak = peak.max(live);
    }
    assert_eq!((live, peak), (0, 5 * MIB.cast_signed()));
}

#[test]
fn allocation_nodes_and_what_graphs_take() {
    let recording = recorded("graphs.c");
    let taken = recording.events_of(EventKind::GraphAlloc);
    assert_eq!(taken.iter().map(|event| event.size.get()).collect::<Vec<_>>(), [3 * MIB, 5 * MIB]);
    assert!(taken.iter().all(|event| event.address.0 != 0 && event.extra == taken[0].extra));
    let freed: Vec<_> = recording.events_of(EventKind::GraphFree).iter().map(|event| event.address).collect();
    assert_eq!(freed, [taken[0].address, taken[1].address]);
    assert_ne!(only(&recording, EventKind::LaunchFailed).result, 0);
    // The software GPU gives each graph allocation a 32 MiB chunk, at the first launch.
    let figures: Vec<_> =
        recording.events_of(EventKind::GraphMemory).iter().map(|event| event.size.get()).collect();
    assert_eq!(figures, [64 * MIB, 0]);
    assert_eq!(recording.count(EventKind::GraphTrim), 1);
}

#[test]
fn what_the_drivers_pool_takes_is_asked_at_a_refusal() {
    let recording = recorded("pools.c");
    let refused = recording.events_of(EventKind::StreamAlloc)[1];
    assert_eq!(refused.result, 2);
    // The software GPU's pool allocates chunks of 32 MiB.
    let taken = recording.events_of(EventKind::PoolMemory);
    let last = taken.last().unwrap();
    assert_eq!((last.size.get(), last.device.0), (32 * MIB, 0));
    assert!(last.time_ns >= refused.time_ns || taken.len() == 1);
}

#[test]
fn green_contexts_are_contexts() {
    let recording = recorded("green.c");
    assert_eq!(recording.kinds(), ["context_create", "device_alloc", "device_free", "context_destroy"]);
    let created = only(&recording, EventKind::ContextCreate);
    assert_ne!(created.context.0, 0);
    assert_eq!(only(&recording, EventKind::ContextDestroy).context, created.context);
}

/// Blocks of 1, 2, 4 and 8 MiB are freed on two streams, the first again, and the per-thread stream. Each kind of
/// wait leaves the blocks that it does not cover.
#[test]
fn frees_that_the_program_has_waited_for_are_complete() {
    let left = |way: &str| {
        let recording = Program::with_missing("waits.c").argument(way).on_software_gpu().check_one();
        recording.assert_complete();
        let makeroom_trace::Input::Trace(trace) = makeroom_trace::open(&recording.path).unwrap() else {
            panic!("not a recording")
        };
        let frees = trace.process.unwrap().stream_frees;
        let waits = recording.count(EventKind::StreamWait) + recording.count(EventKind::ContextWait);
        (frees.iter().map(|frees| frees.at_end.bytes.get() / MIB).sum::<u64>(), waits)
    };
    for (way, expected) in [
        ("nothing", (15, 0)),
        ("stream", (14, 1)),
        ("query", (13, 1)),
        ("context", (12, 1)),
        ("event", (14, 1)),
        ("moved", (15, 0)),
        ("destroyed", (15, 0)),
        ("thread", (7, 1)),
        ("default", (15, 0)),
        ("elsewhere", (15, 1)),
        ("stream-gone", (15, 0)),
        ("all", (0, 2)),
    ] {
        assert_eq!(left(way), expected, "{way}");
    }
}

/// A free may come from any device: it counts on the device whose memory it was.
#[test]
fn frees_count_on_the_device_whose_memory_it_was() {
    let program = Program::with_missing("two_frees.c")
        .on_software_gpu()
        .variable("MAKEROOM_SIMGPU", "devices=3,memory=2GiB,context=256MiB");
    let recording = program.check_one();
    let makeroom_trace::Input::Trace(trace) = makeroom_trace::open(&recording.path).unwrap() else {
        panic!("not a recording")
    };
    assert_eq!(trace.devices.iter().map(|device| device.device.0).collect::<Vec<_>>(), [1, 2]);
    for device in &trace.devices {
        let live: i64 = device
            .events
            .iter()
            .map(|event| match event.action {
                makeroom_core::Action::Alloc => event.size.get().cast_signed(),
                makeroom_core::Action::FreeCompleted => -event.size.get().cast_signed(),
                _ => 0,
            })
            .sum();
        assert_eq!((device.events.len(), live), (6, 0), "device {}", device.device.0);
    }
}

#[test]
fn a_kernel_of_a_library_that_does_not_start_is_named() {
    let recording = recorded("kernels.c");
    let failed = only(&recording, EventKind::LaunchFailed);
    assert_eq!((recording.name(failed.extra), failed.size.get()), ("saxpy", 4 * MIB));
}
