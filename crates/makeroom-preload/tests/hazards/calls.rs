//! Hazards inside and around single calls.

use makeroom_trace::room::{EndReason, EventKind};

use crate::support::{compile, driver, everywhere, text};

#[test]
fn a_plain_program_is_recorded_whole() {
    for program in everywhere("plain.c") {
        let recording = program.check_one();
        recording.assert_complete();
        assert_eq!(
            recording.kinds(),
            [
                "context_create",
                "device_alloc",
                "device_alloc",
                "device_free",
                "stream_alloc",
                "stream_free",
                "pinned_alloc",
                "pinned_free",
                "device_alloc",
                "context_destroy",
            ]
        );
        let allocations = recording.events_of(EventKind::DeviceAlloc);
        assert_eq!(allocations.iter().map(|event| event.result).collect::<Vec<_>>(), [0, 0, 2]);
        assert_eq!(allocations[0].size.get(), 3 << 20);
        assert_ne!(allocations[0].context.0, 0);
        assert_eq!(recording.devices.len(), 1);
        assert!(recording.devices[0].uuid.starts_with(b"GPU-"));
        assert!(recording.samples.iter().any(|sample| sample.device.is_some()));
        assert!(recording.samples.iter().any(|sample| sample.resident.is_some()));
        let end = recording.end.unwrap();
        assert_eq!((end.reason, end.status), (EndReason::Exit, 7));
        assert!(text(&recording.header.executable).ends_with("plain"));
    }
}

#[test]
fn the_device_is_asked_right_after_a_context_was_made() {
    for program in everywhere("plain.c") {
        let recording = program.check_one();
        let created = recording.events_of(EventKind::ContextCreate)[0].time_ns;
        let allocated = recording.events_of(EventKind::DeviceAlloc)[0].time_ns;
        let times =
            recording.samples.iter().filter(|sample| sample.device.is_some()).map(|sample| sample.time_ns);
        assert_eq!(times.filter(|time| (created..allocated).contains(time)).count(), 1);
    }
}

#[test]
fn a_jump_out_of_a_driver_call() {
    for program in everywhere("longjmp.c") {
        let program = program.variable("MAKEROOM_SIMGPU", "slow=cuMemAlloc_v2:1:5000");
        let recording = program.check_one();
        recording.assert_complete();
        recording.assert_balanced();
        assert_eq!(recording.count(EventKind::DeviceAlloc), 2);
    }
}

#[test]
fn null_pointers_and_missing_contexts_are_the_drivers_business() {
    for program in everywhere("nulls.c") {
        let recording = program.check_one();
        recording.assert_complete();
        let created: Vec<_> = recording
            .events_of(EventKind::PhysicalCreate)
            .iter()
            .map(|event| (event.result, event.extra, event.context.0 != 0))
            .collect();
        assert_eq!(created, [(0, 0, false), (0, 1, true), (1, 1, true)]);
        assert_eq!(recording.events_of(EventKind::DeviceFree)[0].result, 1);
    }
}

#[test]
fn a_capture_is_not_broken() {
    for program in everywhere("capture.c") {
        let recording = program.check_one();
        recording.assert_complete();
        assert_eq!(recording.events_of(EventKind::StreamAlloc).len(), 5);
        let captured = recording.events_of(EventKind::StreamAlloc);
        let (first, last) = (captured[0].time_ns, captured[4].time_ns);
        assert!(
            !recording
                .samples
                .iter()
                .any(|sample| sample.device.is_some() && sample.time_ns > first && sample.time_ns < last)
        );
    }
}

#[test]
fn errno_and_signals_stay_the_programs() {
    for program in everywhere("errno.c") {
        program.check_one().assert_complete();
    }
}

#[test]
fn a_launch_that_fails_is_named_and_device_malloc_is_seen() {
    for (program, reason) in everywhere("launches.c").into_iter().zip([701, 1]) {
        let recording = program.check_one();
        recording.assert_complete();
        let failed = recording.events_of(EventKind::LaunchFailed);
        assert_eq!(failed.len(), 1);
        assert_eq!((failed[0].result, failed[0].size.get()), (reason, 4 << 20));
        assert_eq!(recording.name(failed[0].extra), "saxpy");
        assert_eq!(recording.events_of(EventKind::ModuleLoad)[0].extra, 1);
    }
}

#[test]
fn a_driver_that_calls_itself_is_recorded_once() {
    for program in everywhere("nested.c") {
        let recording = program.check_one();
        recording.assert_complete();
        assert_eq!(recording.kinds(), ["context_create", "managed_alloc"]);
    }
}

#[test]
fn tensors_are_heard_and_exceptions_pass_through() {
    let driver = driver();
    let search = format!("-L{}", driver.display());
    compile("c10.cpp", "driver/libc10.so", &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
    compile("c10_cuda.cpp", "driver/libc10_cuda.so", &["-shared", "-fPIC", &search, "-lc10"]);
    for program in everywhere("exception.cpp") {
        let recording = program.search(&driver).check_one();
        recording.assert_complete();
        let tensors: Vec<_> = recording
            .events
            .iter()
            .filter(|(_, event)| matches!(event.kind, EventKind::TensorAlloc | EventKind::TensorFree))
            .map(|(_, event)| (event.kind.name(), event.address.0, event.size.get(), event.result))
            .collect();
        assert_eq!(
            tensors,
            [
                ("tensor_alloc", 0x1000, 512, 0),
                ("tensor_free", 0x1000, 512, 0),
                ("tensor_alloc", 0, 1 << 30, 2),
                ("tensor_alloc", 0x3000, 512, 0),
            ]
        );
        assert_eq!(recording.count(EventKind::DeviceAlloc), 1);
        // Without Python only the thread's name is known cheaply.
        let stack = recording.stack(&recording.events_of(EventKind::TensorAlloc)[0]);
        assert_eq!(stack, ["thread exception in "]);
    }
    // In native-only mode tensors get native stacks too.
    let program = crate::support::Program::new("exception.cpp").search(&driver);
    let recording = program.variable("MAKEROOM_STACKS", "native").check_one();
    let stack = recording.stack(&recording.events_of(EventKind::TensorAlloc)[0]);
    assert!(stack.iter().any(|frame| frame.starts_with("allocates in ")), "{stack:?}");
}
