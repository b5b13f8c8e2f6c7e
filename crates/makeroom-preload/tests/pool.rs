//! Programs whose memory comes from makeroom's pool: same output, less memory taken from the device.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use crate::support::{Program, text};
use makeroom_trace::room::EventKind;

fn pooled(name: &str) -> Program {
    Program::with_missing(name).on_software_gpu().variable("MAKEROOM_POOL", "on")
}

/// The notice for a program with a context of its own.
const OTHER_CONTEXT: &str = "the program created its own CUDA context, which allocates from the driver: the pool serves \
                             only the primary context, which the CUDA runtime uses";

#[test]
fn every_kind_of_call_is_answered_and_every_byte_is_its_own() {
    let recording = pooled("pool.c").check_one();
    recording.assert_complete();
    let created: u64 =
        recording.events_of(EventKind::PhysicalCreate).iter().map(|event| event.size.get()).sum();
    assert!(created > 0, "the pool took nothing from the device");
    let served = recording.count(EventKind::StreamAlloc) + recording.count(EventKind::DeviceAlloc);
    assert!(served > 2000, "{served} allocations");
    let refused =
        recording.events_of(EventKind::DeviceAlloc).iter().filter(|event| event.result == 2).count();
    assert_eq!(refused, 1);
}

/// A program that reads the totals before and after part of its run gets the pool's time for that part.
#[test]
fn a_program_hears_what_the_pool_cost() {
    let figures = |program: &Program| -> Vec<u64> {
        let output = program.recorded();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).split_whitespace().map(|word| word.parse().unwrap()).collect()
    };
    let program = pooled("measured.c").argument("pool");
    assert_eq!(figures(&program), [], "nothing is measured");
    let program = program.variable("MAKEROOM_MEASURE", "on");
    let [inside, calls, whole] = figures(&program)[..] else { panic!("no answer") };
    assert_eq!(calls, 200);
    assert!(0 < inside && inside < whole, "{inside} of {whole} ns");
    assert_eq!(figures(&program.variable("MAKEROOM_POOL", "off")), [], "there is no pool");
}

#[test]
fn a_capture_goes_to_the_driver() {
    pooled("capture.c").check_one().assert_complete_with(&[OTHER_CONTEXT]);
}

#[test]
fn threads_and_forks_are_as_without_the_pool() {
    for name in ["threads.c", "fork_child.c", "exits.c", "nulls.c"] {
        pooled(name).check();
    }
}

#[test]
fn a_context_of_the_programs_own_is_served_by_the_driver() {
    let recording = pooled("plain.c").check_one();
    assert_eq!(recording.count(EventKind::PhysicalCreate), 0);
    assert_eq!(recording.texts(), [OTHER_CONTEXT]);
}

#[test]
fn what_does_not_fit_goes_to_the_host() {
    let program =
        pooled("spill.c").variable("MAKEROOM_LIMIT", "1342177280").variable("MAKEROOM_SPILL", "1073741824");
    let recording = program.check_one();
    let (host, device): (Vec<_>, Vec<_>) =
        recording.events_of(EventKind::PhysicalCreate).into_iter().partition(|event| event.extra == 1);
    let bytes =
        |events: &[_]| events.iter().map(|event: &makeroom_trace::room::Event| event.size.get()).sum::<u64>();
    assert!(bytes(&host) > 100 << 20, "{} bytes on the host", bytes(&host));
    assert!(bytes(&device) < 1280 << 20, "{} bytes on the device", bytes(&device));
}

#[test]
fn contexts_are_made_and_end_as_without_the_pool() {
    pooled("pool_contexts.c").check_one();
}

#[test]
fn memory_comes_from_the_device_of_its_stream_or_pool() {
    let program = pooled("pool_devices.c").variable("MAKEROOM_SIMGPU", "devices=2,memory=4GiB");
    let output = program.recorded();
    let expected = "\
nothing: 0 0
on the stream of device 1: 0 1
from the pool of device 1, on device 0: 0 1
from the pool of device 0: 1 0
the same memory: 0
left after trimming: 0
left after trimming: 0
";
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
}

#[test]
fn a_refused_peer_changes_nothing() {
    let program = pooled("pool_peers.c")
        .variable("MAKEROOM_SIMGPU", "devices=2,memory=4GiB,fail=cuCtxEnablePeerAccess:1:217");
    let output = program.recorded();
    assert_eq!(text(&output.stdout), "217\n0 3\n0\n3 3\n", "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn what_the_pool_holds_unused_is_there_for_the_driver() {
    let expected = "free: 1\nphysical memory\nrows\nan array\na context\na block beside a capture\n\
                    a free beside a capture\n";
    let small = pooled("pool_room.c").variable("MAKEROOM_SIMGPU", "memory=2112MiB");
    small.check_one();
    let limited = pooled("pool_room.c").variable("MAKEROOM_LIMIT", &(2112_u64 << 20).to_string());
    for program in [small, limited] {
        let output = program.recorded();
        assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    }
}

/// numba fills the range that it is given: the pool's pages would include other blocks.
#[test]
fn the_range_of_an_address_is_the_programs_own_allocation() {
    let recording = pooled("pool_range.c").check_one();
    assert!(recording.count(EventKind::PhysicalCreate) > 0, "the pool served nothing");
    let output = pooled("pool_range.c").recorded();
    let stdout = text(&output.stdout);
    assert!(stdout.contains("its last byte: 0, begins 39 before, 40 bytes"), "{stdout}");
    assert!(stdout.contains("  one by one: 0 and 0, begins 39 before, 40 bytes"), "{stdout}");
    assert!(stdout.contains("  together: 0, begins 39 before, 40 bytes"), "{stdout}");
    let full = pooled("pool_range.c")
        .argument("spill")
        .variable("MAKEROOM_LIMIT", "1342177280")
        .variable("MAKEROOM_SPILL", "1073741824");
    let recording = full.check_one();
    let spilled = recording.events_of(EventKind::PhysicalCreate).into_iter().filter(|event| event.extra == 1);
    assert!(spilled.count() > 0, "nothing was spilled");
}

/// PyTorch's own error names neither the cause nor the setting to change.
#[test]
fn tensors_that_cannot_be_shared_are_told_once() {
    let directory = "exported";
    std::fs::create_dir_all(crate::support::scratch().join(directory)).unwrap();
    let built = crate::support::compile(
        "segments.c",
        &format!("{directory}/libc10_cuda.so"),
        &["-shared", "-fPIC", "-Wl,-soname,libc10_cuda.so", "-lcuda"],
    );
    let program = crate::support::compile(
        "exported_segments.c",
        &format!("{directory}/exported_segments"),
        &["-lcuda", "-Wl,--unresolved-symbols=ignore-all", built.to_str().unwrap()],
    );
    let run = |name: &str| {
        Program::other(&program, name)
            .on_software_gpu()
            .search(built.parent().unwrap())
            .variable("MAKEROOM_POOL", "on")
    };
    let forbidden = run("exported-forbidden").argument("forbidden").recorded();
    assert!(forbidden.status.success(), "{}", text(&forbidden.stdout));
    let stderr = text(&forbidden.stderr);
    assert_eq!(stderr.matches("PyTorch shares a tensor with another process").count(), 1, "{stderr}");
    assert!(stderr.ends_with("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\n"), "{stderr}");
    if every_process_may_copy_descriptors() {
        let permitted = run("exported-permitted").recorded();
        assert!(permitted.status.success() && permitted.stderr.is_empty(), "{}", text(&permitted.stderr));
    }
}

/// Whether this system permits `pidfd_getfd`.
fn every_process_may_copy_descriptors() -> bool {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    // SAFETY: plain system calls on this process.
    let copied = unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0);
        libc::syscall(libc::SYS_pidfd_getfd, process, 0, 0)
    };
    copied >= 0 && scope.map_or(true, |scope| scope.trim() == "0")
}

/// PyTorch's segments, with expandable segments off, and NCCL's buffers are shared with other processes.
#[test]
fn callers_that_share_memory_get_the_drivers_own() {
    for library in ["libc10_cuda.so", "libnccl.so.2"] {
        let directory = format!("callers-{library}");
        std::fs::create_dir_all(crate::support::scratch().join(&directory)).unwrap();
        let built = crate::support::compile(
            "segments.c",
            &format!("{directory}/{library}"),
            &["-shared", "-fPIC", &format!("-Wl,-soname,{library}"), "-lcuda"],
        );
        let found = built.parent().unwrap();
        let program = crate::support::compile(
            "shared_segments.c",
            &format!("{directory}/shared_segments"),
            &["-lcuda", "-Wl,--unresolved-symbols=ignore-all", built.to_str().unwrap()],
        );
        for stacks in ["full", "none"] {
            let program = Program::other(&program, library)
                .on_software_gpu()
                .search(found)
                .variable("MAKEROOM_POOL", "on")
                .variable("MAKEROOM_STACKS", stacks);
            let recording = program.check_one();
            recording.assert_complete();
            let created: u64 =
                recording.events_of(EventKind::PhysicalCreate).iter().map(|event| event.size.get()).sum();
            assert!(
                created > 0 && created < 20 << 20,
                "{created} bytes: the program's own block, and no segment"
            );
        }
    }
    // The pool serves every other library.
    let built = crate::support::compile(
        "segments.c",
        "libother.so",
        &["-shared", "-fPIC", "-Wl,-soname,libother.so", "-lcuda"],
    );
    let flags = ["-lcuda", "-Wl,--unresolved-symbols=ignore-all", built.to_str().unwrap()];
    let program = crate::support::compile("shared_segments.c", "other_segments", &flags);
    let program = Program::other(&program, "other").on_software_gpu().variable("MAKEROOM_POOL", "on");
    let output = program.search(built.parent().unwrap()).recorded();
    assert_ne!(text(&output.stdout), "shared: 0\n", "memory of a pool has no handle");
}

#[test]
fn no_child_waits_for_a_lock_of_its_parent() {
    let output = pooled("pool_fork.c").recorded();
    assert_eq!(text(&output.stdout), "100 children\n", "{}", text(&output.stderr));
}

#[test]
fn pool_and_limit_go_on_where_nothing_is_recorded() {
    let program = pooled("pool_lookup.c")
        .variable("MAKEROOM_FILE", "/no/such/directory/run.room")
        .variable("MAKEROOM_LIMIT", &(1_u64 << 30).to_string());
    let output = program.recorded();
    assert_eq!(text(&output.stdout), "freed\ntaken and given back\n", "{}", text(&output.stderr));
}
