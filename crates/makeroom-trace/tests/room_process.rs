//! The process record of `.room` recordings, and files of the same run.

use std::io::Write;

use crate::support::content::golden;
use crate::support::rooms;
use makeroom_core::{
    Action, Address, Bytes, ContextRecord, DeviceIndex, FailedLaunch, HostSample, PinnedBlock, ProcessEnd,
    StackId, Trace,
};
use makeroom_trace::room::{
    ContextHandle, DeviceDefinition, DeviceSample, Dropped, Encoder, End, EndReason, Event, EventKind,
    Header, NameNumber, Note, Sample, Severity, ThreadNumber, beginning, seal,
};
use makeroom_trace::{Error, Input};

fn at(time_us: u64) -> u64 {
    rooms::header().monotonic_ns + time_us * 1000
}

fn date(time_us: u64) -> u64 {
    rooms::header().wall_ns / 1000 + time_us
}

fn read(bytes: &[u8]) -> Trace {
    match makeroom_trace::read(bytes) {
        Ok(Input::Trace(trace)) => trace,
        other => panic!("{other:?}"),
    }
}

/// Reads a recording with one batch.
fn recorded(write: impl FnOnce(&mut Encoder)) -> Trace {
    let mut file = beginning(&rooms::header());
    let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
    write(&mut encoder);
    assert!(seal(encoder.bytes(), &mut file));
    read(&file)
}

fn event(kind: EventKind, time_us: u64) -> Event {
    Event { kind, time_ns: at(time_us), ..Event::default() }
}

#[test]
fn pinned_memory_that_is_left_and_its_peak() {
    let sized = |kind, time, address, size| Event {
        address: Address(address),
        size: Bytes::new(size),
        ..event(kind, time)
    };
    let trace = recorded(|encoder| {
        encoder.event(&sized(EventKind::PinnedAlloc, 1, 0x1000, 100));
        encoder.event(&sized(EventKind::HostRegister, 2, 0x2000, 50));
        encoder.event(&sized(EventKind::PinnedFree, 3, 0x1000, 0));
        encoder.event(&sized(EventKind::PinnedAlloc, 4, 0x3000, 20));
        encoder.event(&Event { result: 2, ..sized(EventKind::PinnedAlloc, 5, 0, 9000) });
        encoder.event(&Event { result: 2, extra: 1, ..sized(EventKind::PhysicalCreate, 6, 0, 7000) });
    });
    let history: Vec<_> = trace.pinned.events.iter().map(|event| (event.action, event.size.get())).collect();
    let expected = [
        (Action::Alloc, 100),
        (Action::Alloc, 50),
        (Action::FreeRequested, 100),
        (Action::FreeCompleted, 100),
        (Action::Alloc, 20),
        (Action::OutOfMemory, 9000),
    ];
    assert_eq!(history[..6], expected);
    let pinned = trace.process.unwrap().pinned;
    let block = |address, size, is_registered| PinnedBlock {
        address: Address(address),
        size: Bytes::new(size),
        is_registered,
        stack: StackId::NONE,
    };
    assert_eq!(pinned.live, [block(0x2000, 50, true), block(0x3000, 20, false)]);
    assert_eq!(pinned.peak, Bytes::new(150));
    assert_eq!((pinned.refusals, pinned.largest_refused), (2, Bytes::new(9000)));
    assert!(trace.devices.is_empty());
}

#[test]
fn calls_are_counted_by_kind_and_by_answer() {
    let trace = recorded(|encoder| {
        encoder.event(&event(EventKind::TensorAlloc, 1));
        encoder.event(&event(EventKind::TensorAlloc, 2));
        encoder.event(&Event { result: 2, ..event(EventKind::TensorAlloc, 3) });
        encoder.event(&Event { result: 1, ..event(EventKind::DeviceAlloc, 4) });
        encoder.event(&event(EventKind::PinnedAlloc, 5));
    });
    let calls = trace.process.unwrap().calls;
    let counts: Vec<_> = calls.iter().map(|call| (call.what, call.done, call.failed)).collect();
    assert_eq!(counts, [("device_alloc", 0, 1), ("pinned_alloc", 1, 0), ("tensor_alloc", 2, 1)]);
}

#[test]
fn what_the_driver_keeps_beyond_what_it_handed_out() {
    let sized = |kind, time, address, mebibytes| Event {
        address: Address(address),
        size: Bytes::mib(mebibytes),
        ..event(kind, time)
    };
    let ask = |encoder: &mut Encoder, time| {
        let device = DeviceSample { total: Bytes::gib(1), ..DeviceSample::default() };
        encoder.sample(&Sample { time_ns: at(time), device: Some(device), ..Sample::default() });
    };
    let trace = recorded(|encoder| {
        encoder.event(&sized(EventKind::StreamAlloc, 1, 0x1000, 20));
        encoder.event(&sized(EventKind::StreamAlloc, 2, 0x2000, 30));
        encoder.event(&sized(EventKind::PoolMemory, 3, 0, 64));
        ask(encoder, 4);
        encoder.event(&sized(EventKind::StreamFree, 5, 0x1000, 0));
        for (time, handle) in [(6, 71), (7, 72), (8, 73)] {
            encoder.event(&sized(EventKind::PhysicalCreate, time, handle, 2));
        }
        // One is on the host, one is mapped, one is neither.
        encoder.event(&Event { extra: 1, ..sized(EventKind::PhysicalCreate, 9, 74, 2) });
        encoder.event(&Event { extra: 71, ..sized(EventKind::Map, 10, 0x10_0000, 2) });
        encoder.event(&sized(EventKind::PhysicalRelease, 11, 72, 0));
        ask(encoder, 12);
        encoder.event(&sized(EventKind::Unmap, 13, 0x10_0000, 2));
        ask(encoder, 14);
        encoder.event(&sized(EventKind::PhysicalRelease, 15, 71, 0));
        encoder.event(&sized(EventKind::PhysicalRelease, 16, 73, 0));
        encoder.event(&sized(EventKind::PoolMemory, 17, 0, 0));
        ask(encoder, 18);
    });
    let keeps = trace.process.unwrap().driver_keeps;
    let mebibytes: Vec<_> = keeps
        .iter()
        .map(|keeps| (keeps.time_us, keeps.streams.get() >> 20, keeps.unmapped.get() >> 20))
        .collect();
    assert_eq!(mebibytes, [(date(4), 14, 0), (date(12), 34, 2), (date(14), 34, 4), (date(18), 0, 0)]);
}

#[test]
fn contexts_live_from_their_making_to_their_end() {
    let context = |kind, time, handle| Event { context: ContextHandle(handle), ..event(kind, time) };
    let trace = recorded(|encoder| {
        for event in [
            context(EventKind::PrimaryRetain, 1, 0xa),
            context(EventKind::PrimaryRetain, 2, 0xa),
            context(EventKind::ContextCreate, 3, 0xb),
            context(EventKind::ContextCreate, 4, 0xc),
            context(EventKind::ContextDestroy, 5, 0xb),
            context(EventKind::PrimaryRelease, 6, 0),
            context(EventKind::PrimaryRelease, 7, 0),
            context(EventKind::PrimaryRelease, 8, 0),
            context(EventKind::PrimaryRetain, 9, 0xa),
        ] {
            encoder.event(&event);
        }
    });
    let record = |handle, is_primary, created, destroyed: Option<u64>| ContextRecord {
        device: DeviceIndex(0),
        handle,
        is_primary,
        created_us: date(created),
        destroyed_us: destroyed.map(date),
        stack: StackId::NONE,
    };
    assert_eq!(
        trace.process.unwrap().contexts,
        [
            record(0xa, true, 1, Some(7)),
            record(0xb, false, 3, Some(5)),
            record(0xc, false, 4, None),
            record(0xa, true, 9, None)
        ]
    );
}

#[test]
fn code_limits_launches_and_measurements() {
    let trace = recorded(|encoder| {
        encoder.name(NameNumber(3), b"fill(float*)");
        let module = Event {
            address: Address(0x77),
            size: Bytes::kib(9),
            extra: 1,
            ..event(EventKind::ModuleLoad, 1)
        };
        encoder.event(&module);
        encoder.event(&Event { address: Address(0x77), ..event(EventKind::ModuleUnload, 2) });
        encoder.event(&Event { size: Bytes::mib(64), extra: 2, ..event(EventKind::LimitSet, 3) });
        encoder.event(&Event { size: Bytes::kib(1), extra: 0, ..event(EventKind::LimitSet, 3) });
        for time in 4..7 {
            let launch =
                Event { size: Bytes::mib(4), extra: 3, result: 1, ..event(EventKind::LaunchFailed, time) };
            encoder.event(&launch);
        }
        encoder.sample(&Sample { time_ns: at(9), resident: Some(Bytes::mib(7)), ..Sample::default() });
        encoder.device(&DeviceDefinition {
            device: DeviceIndex(0),
            uuid: b"GPU-1".to_vec(),
            name: b"H200".to_vec(),
            total: Bytes::gib(140),
        });
    });
    let process = trace.process.unwrap();
    assert!(process.code[0].imports_malloc);
    assert_eq!((process.code[0].size, process.code[0].unloaded_us), (Bytes::kib(9), Some(date(2))));
    assert_eq!(process.heap_limits.iter().map(|limit| limit.limit).collect::<Vec<_>>(), [Bytes::mib(64)]);
    let launch = FailedLaunch {
        device: DeviceIndex(0),
        kernel: Some("fill(float*)".to_owned()),
        error: 1,
        shared_memory: Bytes::mib(4),
        count: 3,
        first_us: date(4),
        stack: StackId::NONE,
    };
    assert_eq!(process.failed_launches, [launch]);
    let sample = HostSample { time_us: date(9), resident: Some(Bytes::mib(7)), ..HostSample::default() };
    assert_eq!(process.host_samples, [sample]);
    assert_eq!(process.devices[0].uuid, "GPU-1");
}

/// The last record of a device counts; figures and devices that cannot be true are left out.
#[test]
fn figures_of_paged_memory_are_by_device() {
    let trace = recorded(|encoder| {
        encoder.pages(1, [(1, 7)]);
        encoder.pages(0, [(1, 100), (2, 110), (4, 150)]);
        encoder.pages(0, [(1, 200), (2, 210), (3, 5), (4, 250), (5, 6), (6, 7), (7, 8), (8, 9), (99, 1)]);
        encoder.pages(u64::MAX, [(1, 1)]);
    });
    let [first, second] = trace.process.unwrap().pages[..] else { panic!("two devices") };
    assert_eq!((first.device, second.device, second.peak_live), (DeviceIndex(0), DeviceIndex(1), 7));
    let figures: Vec<u64> = first.figures().into_iter().map(|(_, value)| value).collect();
    assert_eq!(figures, [200, 210, 5, 250, 6, 7, 8, 9]);
    assert_eq!(second.peak_physical, 0);
}

#[test]
fn remarks_losses_and_the_end_are_told() {
    let trace = recorded(|encoder| {
        let note = |time, severity, text: &str| Note { time_ns: at(time), severity, text: text.into() };
        encoder.note(&note(1, Severity::Information, "hello"));
        encoder.note(&note(2, Severity::Warning, "Python 3.15 was not tested: native stacks only"));
        encoder.dropped(&Dropped { time_ns: at(3), events: 40, ..Dropped::default() });
        encoder.dropped(&Dropped { time_ns: at(4), events: 2, ..Dropped::default() });
        encoder.end(&End { time_ns: at(5), reason: EndReason::Exit, status: 3 });
    });
    assert_eq!(
        trace.notes,
        ["Python 3.15 was not tested: native stacks only", "events that the recorder dropped: 42"]
    );
    let process = trace.process.unwrap();
    assert_eq!(process.remarks.len(), 2);
    assert_eq!(process.end, Some(ProcessEnd::Exited(3)));
    assert_eq!(process.identity.command_line, ["python3", "train.py"]);
    assert_eq!(process.identity.working_directory.as_deref(), Some("/home/anna"));
    assert_eq!(process.identity.began_us, date(0));
}

#[test]
fn the_allocators_settings_come_from_the_recorded_variables() {
    let settings = |variables: &[(&str, &str)]| {
        let trace = recorded(|encoder| {
            for (name, value) in variables {
                encoder.variable(name.as_bytes(), value.as_bytes());
            }
        });
        assert_eq!(trace.process.unwrap().identity.environment.len(), variables.len());
        trace.settings.text
    };
    let (old, new) = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF");
    assert_eq!(settings(&[]), None);
    assert_eq!(settings(&[("OTHER", "1")]), None);
    assert_eq!(settings(&[(old, "max_split_size_mb:64")]).as_deref(), Some("max_split_size_mb:64"));
    assert_eq!(settings(&[(new, "a:1"), (old, "a:1")]).as_deref(), Some("a:1"));
    assert_eq!(settings(&[(new, "a:1"), (old, "a:2")]), None, "PyTorch's version decides which one applies");
}

#[test]
fn the_place_in_a_job_is_read_and_what_cannot_be_true_is_left_out() {
    let trace = recorded(|encoder| {
        let fields: [(u64, &[u8]); 7] =
            [(3, b"8"), (1, b"3"), (2, b"x"), (8, b"4711"), (6, b"a\nb"), (99, b"?"), (16, b"\xff")];
        encoder.job(fields);
        encoder.job([(1, b"5".as_slice()), (2, b"1")]);
        encoder.device(&DeviceDefinition { uuid: b"GPU-1".to_vec(), ..DeviceDefinition::default() });
    });
    let job = trace.process.unwrap().identity.job;
    assert_eq!((job.rank, job.world_size, job.local_rank), (Some(3), Some(8), None));
    assert_eq!((job.job_id.as_deref(), job.node, job.launcher), (Some("4711"), None, None));
    assert_eq!((job.host.as_deref(), job.began_us), (Some("node7"), Some(date(0))));
    assert_eq!(job.device_uuids, ["GPU-1"]);
    assert!(trace.notes.is_empty(), "{:?}", trace.notes);
}

#[test]
fn a_job_of_too_many_fields_is_an_error() {
    let fields = |count: usize| {
        let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
        encoder.job((0..count).map(|_| (1, b"1".as_slice())));
        let mut file = beginning(&rooms::header());
        seal(encoder.bytes(), &mut file);
        makeroom_trace::read(&file[..]).is_ok()
    };
    assert!(fields(256));
    assert!(!fields(257));
}

#[test]
fn what_follows_an_end_revokes_it() {
    let end = |time, reason| End { time_ns: at(time), reason, status: 0 };
    let failed = recorded(|encoder| {
        encoder.end(&end(5, EndReason::Exec));
        encoder.note(&Note { time_ns: at(6), severity: Severity::Information, text: "hello".into() });
    });
    assert_eq!(failed.process.unwrap().end, None);
    let again = recorded(|encoder| {
        encoder.end(&end(5, EndReason::Signal));
        encoder.end(&end(6, EndReason::Exec));
    });
    assert_eq!(again.process.unwrap().end, Some(ProcessEnd::Replaced));
}

#[test]
fn two_processes_of_one_run_are_told_apart_and_belong_together() {
    let files: Vec<Vec<u8>> = [(4711, 4000), (4712, 4711)]
        .into_iter()
        .map(|(pid, parent_pid)| beginning(&Header { pid, parent_pid, ..rooms::header() }))
        .collect();
    let [first, second] = [0, 1].map(|file| read(&files[file]).process.unwrap().identity);
    assert_eq!(first.run, second.run);
    assert_eq!(second.parent_pid, first.pid);
    assert_ne!(first.pid, second.pid);
}

#[test]
fn torn_files_say_how_much_was_left() {
    let whole = golden("example.room");
    let trace = read(&whole[..whole.len() - 1]);
    assert_eq!(trace.event_count(), 0);
    assert_eq!(
        trace.notes,
        [
            "the file ends with 66 B of incomplete data, which was not read: the program was killed, or the disk was full"
        ]
    );
    assert_eq!(trace.process.unwrap().unread, Bytes::new(66));
    match makeroom_trace::read(&whole[..50]) {
        Err(error @ Error::NothingRecorded { offset: 50 }) => assert!(error.hint().is_some()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_later_version_wrote_is_passed_over_and_noted() {
    assert_eq!(
        read(&golden("later.room")).notes,
        ["!", "events that the recorder dropped: 1", "records of a later version of makeroom, skipped: 7"]
    );
}

#[test]
fn compressed_recordings_are_read() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&golden("example.room")).unwrap();
    assert_eq!(read(&packed.finish().unwrap()).event_count(), 5);
}
