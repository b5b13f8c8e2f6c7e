//! Time, order and limits of files.

use makeroom_core::{Action, DeviceIndex, Trace};
use makeroom_trace::room::{Encoder, Event, EventKind, ThreadNumber, beginning, seal};
use makeroom_trace::{Error, Input};

use super::recording::{PYTHON, Recording, actions, by, event, read};
use crate::support::rooms;

#[test]
fn a_sample_keeps_its_place_among_events_of_the_same_microsecond() {
    for step_ns in [1, 300, 5000] {
        let trace = Recording::new()
            .free(5, 1)
            .sampled_while_allocated(10, step_ns)
            .events(7, 50, &[event(EventKind::DeviceAlloc, 0x200, 3)])
            .free(50, 2)
            .read();
        let samples = &trace.process.unwrap().device_samples;
        let before: Vec<_> = samples.iter().map(|sample| sample.events_before).collect();
        // A free is two events: requested and completed. An event at the same nanosecond comes first.
        assert_eq!(before, [Some(0), Some(1), Some(4)], "{step_ns} ns");
    }
}

/// Many programs call `cudaFree(0)` to create their context.
#[test]
fn freeing_nothing_is_no_free() {
    use EventKind::{DeviceAlloc, DeviceFree, StreamFree, TensorAlloc, TensorFree};
    let nothing = [event(DeviceFree, 0, 0), event(StreamFree, 0, 0), event(TensorFree, 0, 0)];
    let trace = Recording::new().events(7, 0, &nothing).read();
    assert_eq!(actions(&trace), []);
    let taken = [event(DeviceAlloc, 0x1000, 64), by(PYTHON, event(TensorAlloc, 0x1000, 64))];
    let trace = Recording::new().events(7, 0, &nothing).events(7, 10, &taken).events(7, 20, &nothing).read();
    assert!(actions(&trace).iter().all(|&(_, address, _)| address != 0), "{:?}", actions(&trace));
    assert_eq!(trace.process.unwrap().calls.iter().map(|call| call.done).sum::<u64>(), 8);
}

#[test]
fn sizes_that_add_up_to_more_than_64_bits_are_read() {
    use EventKind::{DeviceAlloc, GraphAlloc, PinnedAlloc, StreamAlloc, StreamFree, TensorAlloc};
    for kind in [StreamAlloc, GraphAlloc, DeviceAlloc, PinnedAlloc, TensorAlloc] {
        let huge = [event(kind, 0x1000, u64::MAX), event(kind, 0x2000, u64::MAX), event(kind, 0x1000, 3)];
        let freed = [event(StreamFree, 0x2000, 0)];
        let trace =
            Recording::new().events(7, 0, &huge).free(5, 300).events(7, 10, &freed).free(20, 300).read();
        assert!(trace.process.is_some(), "{kind:?}");
    }
}

#[test]
fn batches_of_threads_are_merged_by_time() {
    let trace = Recording::new()
        .events(8, 100, &[event(EventKind::DeviceFree, 64, 0)])
        .events(7, 10, &[event(EventKind::DeviceAlloc, 64, 5)])
        .read();
    let found: Vec<Action> = actions(&trace).iter().map(|&(action, ..)| action).collect();
    assert_eq!(found, [Action::Alloc, Action::FreeRequested, Action::FreeCompleted]);
}

#[test]
fn the_clock_may_wrap_during_the_recording() {
    let header = makeroom_trace::room::Header { monotonic_ns: u64::MAX - 5_000, ..rooms::header() };
    let mut file = beginning(&header);
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    for time_ns in [5_000, u64::MAX - 1_000] {
        let kind = if time_ns < 10_000 { EventKind::DeviceFree } else { EventKind::DeviceAlloc };
        encoder.event(&Event { time_ns, ..event(kind, 64, 5) });
        assert!(seal(&encoder.replace(Vec::new()), &mut file));
    }
    let trace = read(&file);
    let times: Vec<u64> =
        trace.devices[0].events.iter().map(|event| event.time_us - header.wall_ns / 1000).collect();
    assert_eq!(actions(&trace)[0].0, Action::Alloc);
    assert_eq!(times, [4, 10, 10]);
}

#[test]
fn a_file_that_names_every_device_is_refused() {
    let events: Vec<Event> = (0..2000)
        .map(|device| Event { device: DeviceIndex(device), ..event(EventKind::DeviceAlloc, 64, 5) })
        .collect();
    let file = Recording::new().events(7, 10, &events).file;
    match makeroom_trace::read(&file[..]) {
        Err(Error::TooMany { offset, what: "devices", limit: 1024 }) => assert!(offset < file.len() as u64),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_real_run_recorded_again_has_the_same_memory() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/streams-expandable.pickle.gz");
    let Ok(Input::Trace(snapshot)) = makeroom_trace::open(path.as_ref()) else { panic!() };
    let trace = read(&rooms::record_snapshot(&snapshot).0);
    let count = |trace: &Trace, wanted| {
        trace.devices[0].events.actions().iter().filter(|&&action| action == wanted).count()
    };
    for action in [Action::Alloc, Action::FreeCompleted, Action::SegmentMap, Action::SegmentUnmap] {
        assert_eq!(count(&trace, action), count(&snapshot, action), "{action:?}");
    }
    let stacks = |trace: &Trace| {
        let allocations = trace.devices[0].events.iter().filter(|event| event.action == Action::Alloc);
        allocations.map(|event| trace.stacks.frames_of(event.stack).len()).sum::<usize>()
    };
    assert_eq!(stacks(&trace), stacks(&snapshot));
}
