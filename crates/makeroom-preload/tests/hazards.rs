//! One small program per hazard, run with and without the library. A hazard passes when output and exit status are the
//! same and the recording is complete, or says what is missing.

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;

use makeroom_trace::room::{EndReason, EventKind};
use support::{Program, compile, driver, library, text};

#[test]
fn a_plain_program_is_recorded_whole() {
    let recording = Program::new("plain.c").check_one();
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
    let allocations = recording.of(EventKind::DeviceAlloc);
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

#[test]
fn every_program_runs_the_same_on_the_software_gpu() {
    let programs = [
        ("plain.c", ""),
        ("fork_child.c", ""),
        ("fork_exec.c", ""),
        ("spawn.c", ""),
        ("threads.c", ""),
        ("thread_end.c", ""),
        ("exits.c", "_exit"),
        ("exits.c", "kill"),
        ("nulls.c", ""),
        ("capture.c", ""),
        ("errno.c", ""),
        ("launches.c", ""),
        ("nested.c", ""),
        ("close_all.c", ""),
        ("limit.c", ""),
    ];
    for (name, argument) in programs {
        let mut program = Program::new(name).on_software_gpu();
        if !argument.is_empty() {
            program = program.argument(argument);
        }
        let recordings = program.check();
        assert!(!recordings.is_empty(), "{name}");
        for recording in recordings {
            assert!(recording.texts().is_empty(), "{name}: {:?}", recording.texts());
            assert!(recording.dropped.is_empty(), "{name}");
        }
    }
    for name in ["late_dlopen.c", "proc_address.c"] {
        Program::without_driver(name).on_software_gpu().check_one().assert_complete();
    }
}

#[test]
fn native_stacks_lead_to_the_program() {
    let recording = Program::new("plain.c").check_one();
    let first = recording.stack(&recording.of(EventKind::DeviceAlloc)[0]);
    assert_eq!(first[0], "main in plain", "{first:?}");
    let frees = recording.of(EventKind::DeviceFree);
    assert!(recording.stack(&frees[0]).is_empty());
}

#[test]
fn stacks_can_be_left_out() {
    let recording = Program::new("plain.c").variable("MAKEROOM_STACKS", "none").check_one();
    recording.assert_complete();
    assert!(recording.events.iter().all(|(_, event)| event.stack.0 == 0));
}

#[test]
fn a_program_without_cuda_leaves_nothing() {
    let program = Program::without_driver("no_cuda.c");
    assert!(program.check().is_empty());
}

#[test]
fn a_machine_without_a_device_leaves_nothing() {
    let program = Program::new("no_device.c").variable("FAKE_NO_DEVICE", "1");
    assert!(program.check().is_empty());
}

#[test]
fn makeroom_off_disables_everything() {
    assert!(Program::new("plain.c").variable("MAKEROOM", "off").check().is_empty());
    assert!(Program::without_driver("proc_address.c").variable("MAKEROOM", "off").check().is_empty());
}

#[test]
fn a_driver_that_is_opened_late_and_twice() {
    let recording = Program::without_driver("late_dlopen.c").check_one();
    recording.assert_complete();
    let sizes: Vec<_> = recording.of(EventKind::DeviceAlloc).iter().map(|event| event.size.get()).collect();
    assert_eq!(sizes, [1 << 20, 2 << 20]);
}

#[test]
fn functions_found_by_cu_get_proc_address() {
    let recording = Program::without_driver("proc_address.c").check_one();
    recording.assert_complete();
    let streams: Vec<_> =
        recording.of(EventKind::StreamAlloc).iter().map(|event| (event.size.get(), event.stream.0)).collect();
    assert_eq!(streams, [(4096, 0), (8192, 2)]);
    assert_eq!(recording.count(EventKind::DeviceAlloc), 1);
}

#[test]
fn forked_children_have_files_of_their_own() {
    let recordings = Program::new("fork_child.c").check();
    let sizes: Vec<Vec<u64>> = recordings
        .iter()
        .map(|recording| recording.of(EventKind::DeviceAlloc).iter().map(|event| event.size.get()).collect())
        .collect();
    assert_eq!(sizes, [vec![1 << 10], vec![2 << 10, 4 << 10], vec![3 << 10]]);
    for recording in &recordings {
        recording.assert_complete();
        recording.assert_balanced();
    }
    assert_eq!(recordings[0].end.unwrap().status, 5);
    assert_eq!(recordings[2].header.parent_pid, recordings[1].header.pid);
}

#[test]
fn executed_programs_have_files_of_their_own() {
    let recordings = Program::new("fork_exec.c").check();
    assert_eq!(recordings.len(), 3);
    assert_eq!(recordings[0].header.pid, recordings[2].header.pid);
    for recording in &recordings {
        recording.assert_complete();
        recording.assert_balanced();
    }
    assert_eq!(recordings[0].end.unwrap().reason, EndReason::Exec);
}

#[test]
fn every_way_to_become_another_program_leaves_a_whole_recording() {
    let ways = ["execve", "execv", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat"];
    for way in ways {
        let recordings = Program::new("exec.c").argument(way).check();
        assert_eq!(recordings.len(), 2, "{way}");
        for recording in &recordings {
            recording.assert_complete();
            recording.assert_balanced();
        }
        assert_eq!(recordings[0].count(EventKind::DeviceAlloc), 21, "{way}");
        assert_eq!(recordings[0].end.unwrap().reason, EndReason::Exec, "{way}");
        assert_eq!(recordings[1].end.unwrap().reason, EndReason::Exit, "{way}");
    }
}

#[test]
fn children_of_vfork_execute_while_their_parent_records() {
    let program = Program::new("vfork_exec.c");
    let recording = program.check_one();
    recording.assert_complete();
    recording.assert_balanced();
    let rounds: usize = fs::read_to_string(program.folder.join("rounds")).unwrap().parse().unwrap();
    assert_eq!(recording.count(EventKind::DeviceAlloc), rounds);
}

#[test]
fn spawned_children_do_not_disturb_their_parent() {
    let recording = Program::new("spawn.c").check_one();
    recording.assert_complete();
    assert_eq!(recording.count(EventKind::DeviceAlloc), 2);
}

#[test]
fn many_threads_at_once_and_one_after_the_other() {
    let recording = Program::new("threads.c").variable("MAKEROOM_STACKS", "none").check_one();
    let lost: u64 = recording.dropped.iter().map(|dropped| dropped.events).sum();
    let seen = recording.count(EventKind::DeviceAlloc) + recording.count(EventKind::DeviceFree);
    assert_eq!(seen as u64 + lost, 2 * (64 * 500 + 1000));
    if lost == 0 {
        recording.assert_complete();
        recording.assert_balanced();
    }
    let threads: std::collections::HashSet<_> = recording.events.iter().map(|(thread, _)| *thread).collect();
    assert!(threads.len() > 64);
}

#[test]
fn calls_while_a_thread_ends() {
    let recording = Program::new("thread_end.c").check_one();
    recording.assert_complete();
    recording.assert_balanced();
    assert_eq!(recording.count(EventKind::DeviceFree), 10);
}

#[test]
fn ends_without_destructors_leave_a_whole_recording() {
    let whole = [
        ("_exit", EndReason::Exit, 11, 20),
        ("_Exit", EndReason::Exit, 12, 20),
        ("quick_exit", EndReason::Exit, 13, 21),
        ("abort-soon", EndReason::Signal, 6, 20),
        ("assert-soon", EndReason::Signal, 6, 20),
        ("raise-soon", EndReason::Signal, 15, 20),
        ("kill-soon", EndReason::Signal, 2, 20),
        ("handled", EndReason::Exit, 14, 21),
    ];
    for (way, reason, status, allocations) in whole {
        let recording = Program::new("exits.c").argument(way).check_one();
        recording.assert_complete();
        recording.assert_balanced();
        let end = recording.end.unwrap();
        assert_eq!((end.reason, end.status), (reason, status), "{way}");
        assert_eq!(recording.count(EventKind::DeviceAlloc), allocations, "{way}");
    }
}

#[test]
fn signals_from_outside_leave_a_readable_recording() {
    for way in ["kill", "terminate", "segfault"] {
        let program = Program::new("exits.c").argument(way);
        let recording = program.check_one();
        assert!(program.recorded().status.signal().is_some());
        assert!(recording.end.is_none());
        recording.assert_balanced();
        assert_eq!(recording.count(EventKind::DeviceAlloc), 20);
    }
    // By `abort` the end is known too.
    let recording = Program::new("exits.c").argument("abort").check_one();
    recording.assert_complete();
    recording.assert_balanced();
    assert_eq!(recording.count(EventKind::DeviceAlloc), 20);
}

#[test]
fn a_jump_out_of_a_driver_call() {
    let recording = Program::new("longjmp.c").check_one();
    recording.assert_complete();
    recording.assert_balanced();
    assert_eq!(recording.count(EventKind::DeviceAlloc), 2);
}

#[test]
fn null_pointers_and_missing_contexts_are_the_drivers_business() {
    let recording = Program::new("nulls.c").check_one();
    recording.assert_complete();
    let created: Vec<_> = recording
        .of(EventKind::PhysicalCreate)
        .iter()
        .map(|event| (event.result, event.extra, event.context.0 != 0))
        .collect();
    assert_eq!(created, [(0, 0, false), (0, 1, true), (1, 1, true)]);
    assert_eq!(recording.of(EventKind::DeviceFree)[0].result, 1);
}

#[test]
fn a_capture_is_not_broken() {
    let recording = Program::new("capture.c").check_one();
    recording.assert_complete();
    assert_eq!(recording.of(EventKind::StreamAlloc).len(), 5);
    let captured = recording.of(EventKind::StreamAlloc);
    let (first, last) = (captured[0].time_ns, captured[4].time_ns);
    assert!(
        !recording
            .samples
            .iter()
            .any(|sample| { sample.device.is_some() && sample.time_ns > first && sample.time_ns < last })
    );
}

#[test]
fn errno_and_signals_stay_the_programs() {
    Program::new("errno.c").check_one();
}

#[test]
fn a_launch_that_fails_is_named_and_device_malloc_is_seen() {
    let recording = Program::new("launches.c").check_one();
    recording.assert_complete();
    let failed = recording.of(EventKind::LaunchFailed);
    assert_eq!(failed.len(), 1);
    assert_eq!((failed[0].result, failed[0].size.get()), (701, 4 << 20));
    assert_eq!(recording.name(failed[0].extra), "saxpy");
    assert_eq!(recording.of(EventKind::ModuleLoad)[0].extra, 1);
}

#[test]
fn a_driver_that_calls_itself_is_recorded_once() {
    let recording = Program::new("nested.c").check_one();
    recording.assert_complete();
    assert_eq!(recording.kinds(), ["context_create", "managed_alloc"]);
}

#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files() {
    let recording = Program::new("close_all.c").check_one();
    recording.assert_complete();
    assert_eq!(recording.count(EventKind::DeviceAlloc), 2);
}

#[test]
fn another_library_that_hooks_dlsym() {
    let other = compile("other_hook.c", "other_hook.so", &["-shared", "-fPIC"]);
    for is_first in [false, true] {
        let program = Program::without_driver("proc_address.c");
        let program = if is_first {
            program.preload(other.clone()).preload(library())
        } else {
            program.preload(library()).preload(other.clone())
        };
        let recording = program.check_one();
        recording.assert_complete();
        assert_eq!(recording.count(EventKind::StreamAlloc), 2);
    }
}

#[test]
fn a_plugin_that_binds_to_itself_is_mentioned() {
    let plugin = compile("plugin.c", "plugin.so", &["-shared", "-fPIC", "-lcuda"]);
    let recording = Program::new("deepbind.c").argument(&plugin.display().to_string()).check_one();
    assert!(recording.end.is_some());
    assert!(recording.texts().iter().any(|text| text.contains("RTLD_DEEPBIND")), "{:?}", recording.texts());
}

#[test]
fn tensors_are_heard_and_exceptions_pass_through() {
    let driver = driver();
    let search = format!("-L{}", driver.display());
    let folder = driver.display().to_string();
    compile("c10.cpp", "driver/libc10.so", &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
    compile("c10_cuda.cpp", "driver/libc10_cuda.so", &["-shared", "-fPIC", &search, "-lc10"]);
    let recording = Program::new("exception.cpp").variable("LD_LIBRARY_PATH", &folder).check_one();
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
    // Without Python the thread's name is all that is known cheaply.
    let stack = recording.stack(&recording.of(EventKind::TensorAlloc)[0]);
    assert_eq!(stack, ["thread exception in "]);
}

#[test]
fn a_limit_makes_the_card_smaller() {
    let program = Program::new("limit.c").variable("MAKEROOM_LIMIT", &(64 << 20).to_string());
    let output = program.recorded();
    assert_eq!(text(&output.stdout), "64 64\n6 blocks, 4 left\n0 2\n");
    let recording = program.recordings().remove(0);
    recording.assert_complete();
    let results: Vec<_> = recording.of(EventKind::DeviceAlloc).iter().map(|event| event.result).collect();
    assert_eq!(results, [0, 0, 0, 0, 0, 0, 2, 0, 2]);
    assert_eq!(recording.limit, Some(64 << 20));
}

#[test]
fn the_device_is_asked_right_after_a_context_was_made() {
    let recording = Program::new("plain.c").check_one();
    let created = recording.of(EventKind::ContextCreate)[0].time_ns;
    let allocated = recording.of(EventKind::DeviceAlloc)[0].time_ns;
    let times =
        recording.samples.iter().filter(|sample| sample.device.is_some()).map(|sample| sample.time_ns);
    assert_eq!(times.filter(|time| (created..allocated).contains(time)).count(), 1);
}

#[test]
fn a_directory_that_cannot_be_written() {
    let program = Program::new("plain.c").variable("MAKEROOM_FILE", "/proc/no/such/place.room");
    let (alone, recorded) = (program.alone(), program.recorded());
    assert_eq!((alone.status, &alone.stdout), (recorded.status, &recorded.stdout));
    let notice = text(&recorded.stderr);
    assert!(notice.starts_with("makeroom: nothing is recorded: /proc/no/such/place.room: "), "{notice}");
    assert_eq!(notice.lines().count(), 1);
}

#[test]
fn a_full_disk_stops_the_recording_and_nothing_else() {
    let program = Program::new("threads.c");
    let disk = program.folder.join("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&disk)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a tiny disk can only be mounted by root");
        return;
    }
    let file = disk.join("run.room");
    let program = program.variable("MAKEROOM_FILE", &file.display().to_string());
    let output = program.recorded();
    let recording = support::Recording::read(&file);
    std::process::Command::new("umount").arg(&disk).output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "done\n");
    let notice = text(&output.stderr);
    assert!(notice.starts_with("makeroom: recording stopped: "), "{notice}");
    assert!(notice.contains("No space left on device"), "{notice}");
    assert_eq!(notice.lines().count(), 1);
    assert!(recording.end.is_none());
}
