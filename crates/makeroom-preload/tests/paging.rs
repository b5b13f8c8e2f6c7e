//! Programs on a stand-in for PyTorch's allocator whose segments are paged: same contents, less memory, on the software
//! GPU.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::PathBuf;

use crate::support::{Program, Recording, compile, scratch, text};
use makeroom_trace::room::EventKind;

/// The stand-in, and the program on it.
fn built() -> (PathBuf, PathBuf) {
    let directory = scratch().join("paging");
    std::fs::create_dir_all(&directory).unwrap();
    let search = format!("-L{}", directory.display());
    compile("c10_quiet.cpp", "paging/libc10.so", &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
    let shared = ["-shared", "-fPIC", "-Wl,-soname,libc10_cuda.so", "-lcuda", &search, "-lc10"];
    let torch = compile("expandable.cpp", "paging/libc10_cuda.so", &shared);
    let flags = ["-lcuda", "-Wl,--unresolved-symbols=ignore-all", torch.to_str().unwrap()];
    (compile("paging.c", "paging/paging", &flags), directory)
}

/// A random program with this seed, with this many steps and up to this many MiB of live memory.
fn program(seed: u32, steps: u32, live: u32) -> Program {
    let (path, directory) = built();
    Program::other(&path, "paging")
        .on_software_gpu()
        .search(&directory)
        .argument(&seed.to_string())
        .argument(&steps.to_string())
        .argument(&live.to_string())
        .variable("MAKEROOM_SIMGPU", "memory=2GiB,context=0,module=0")
        .variable("MAKEROOM_POOL", "paging")
}

/// The number after a word of the program's output.
fn figure(output: &str, word: &str) -> u64 {
    let mut words = output.split_whitespace().skip_while(|found| *found != word);
    words.nth(1).and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {word} in {output:?}"))
}

fn run(program: &Program) -> (String, String) {
    let output = program.recorded();
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    assert!(stdout.ends_with("the contents are right\n"), "{stdout}{}", text(&output.stderr));
    (stdout, text(&output.stderr))
}

/// The peak of the physical bytes in a recording.
fn peak(recording: &Recording) -> u64 {
    let (mut held, mut peak) = (0_u64, 0);
    let mut sizes = std::collections::HashMap::new();
    let mut events = recording.events_of(EventKind::PhysicalCreate);
    events.extend(recording.events_of(EventKind::PhysicalRelease));
    events.sort_by_key(|event| event.time_ns);
    // The program's own handles do not have the prefix.
    for event in events.into_iter().filter(|event| event.address.0 >> 48 == 0x6d) {
        if event.kind == EventKind::PhysicalCreate {
            sizes.insert(event.address, event.size.get());
            held += event.size.get();
        } else {
            held -= sizes.remove(&event.address).unwrap_or(0);
        }
        peak = peak.max(held);
    }
    peak
}

#[test]
fn contents_are_right_and_pages_move() {
    let alone = program(1, 300, 1024).alone();
    assert!(alone.status.success(), "{}", text(&alone.stdout));
    assert_eq!(text(&alone.stdout), "reserved 0\nthe contents are right\n");
    for seed in [1, 2, 3] {
        let program = program(seed, 300, 1024);
        let (stdout, stderr) = run(&program);
        assert_eq!(stderr, "");
        assert!(figure(&stdout, "moved") > 20, "no page moved: {stdout}");
        let (live, physical) = (figure(&stdout, "live"), figure(&stdout, "physical"));
        assert!(physical < live + live / 8, "{stdout}");
        assert_eq!((figure(&stdout, "left"), figure(&stdout, "of")), (0, 0), "{stdout}");
        let recordings = program.recordings();
        let [recording] = &recordings[..] else { panic!("{} recordings", recordings.len()) };
        recording.assert_complete();
        assert_eq!(peak(recording), physical, "a recording counts physical bytes");
        let [pages] = recording.pages[..] else { panic!("{:?}", recording.pages) };
        assert_eq!((pages.peak_live, pages.peak_physical, pages.peak_on_host), (live, physical, 0));
        assert!(pages.peak_mapped >= live && pages.moved >= figure(&stdout, "moved"), "{pages:?}");
        assert!(pages.reports > 200 && pages.inside_ns > 0, "{pages:?}");
    }
}

#[test]
fn without_paging_nothing_changes() {
    let program = program(1, 150, 512).variable("MAKEROOM_POOL", "on");
    program.check_one().assert_complete();
}

#[test]
fn graphs_sharing_threads_and_forks_work_as_without_pages() {
    let alone = program(4, 200, 800).argument("graph").alone();
    assert_eq!(text(&alone.stdout), "reserved 0\nthe contents are right\n");
    for seed in [4, 5] {
        let (stdout, stderr) = run(&program(seed, 200, 800).argument("graph"));
        assert_eq!(stderr, "");
        assert!(figure(&stdout, "moved") > 10, "{stdout}");
    }
}

/// More is live than the card has: growth fails, and PyTorch's own path handles it.
#[test]
fn growth_that_fails_is_retried_after_a_trim() {
    let small = program(6, 400, 4000).variable("MAKEROOM_SIMGPU", "memory=512MiB,context=0,module=0");
    let (stdout, stderr) = run(&small);
    assert_eq!(stderr, "", "blocks went to the host");
    assert!(figure(&stdout, "physical") <= 512 << 20, "{stdout}");
    let limited = program(6, 400, 4000).variable("MAKEROOM_LIMIT", &(300_u64 << 20).to_string());
    let (stdout, stderr) = run(&limited);
    assert_eq!(stderr, "", "blocks went to the host");
    assert!(figure(&stdout, "physical") <= 300 << 20, "{stdout}");
    assert!(figure(&stdout, "moved") > 0, "{stdout}");
}

/// Live memory exceeds the card by 20 %: the rest is in host memory, within the quota, with the right contents.
#[test]
fn memory_beyond_the_card_is_in_host_memory() {
    const CARD: u64 = 1 << 30;
    let machine = format!("memory={CARD},context=0,module=0");
    let beyond = |spill: u64| {
        program(8, 200, 1229)
            .argument("fill")
            .variable("MAKEROOM_SIMGPU", &machine)
            .variable("MAKEROOM_SPILL", &spill.to_string())
    };
    let program = beyond(384 << 20);
    let (stdout, stderr) = run(&program);
    let (live, physical, host) =
        (figure(&stdout, "live"), figure(&stdout, "physical"), figure(&stdout, "host"));
    assert!(live > CARD + CARD / 6 && physical <= CARD, "{stdout}");
    assert!(host > CARD / 8 && host <= 384 << 20, "{stdout}");
    assert_eq!(stderr.matches("in host memory, as --spill allows").count(), 1, "{stderr}");
    let [recording] = &program.recordings()[..] else { panic!("one recording") };
    let pages = recording.pages[0];
    assert_eq!((pages.peak_live, pages.peak_physical), (live, physical), "{pages:?}");
    assert!(pages.peak_on_host >= host, "{pages:?}");
    let without = beyond(0).recorded();
    assert!(text(&without.stdout).contains("not enough memory"), "{}", text(&without.stdout));
}

/// A network adapter reads memory by its physical addresses, also after PyTorch freed the tensor.
#[test]
fn memory_that_another_device_may_know_does_not_move() {
    // Any file under this name.
    let device = format!("/dev/infiniband/uverbs-test-{}", std::process::id());
    if fs::create_dir_all("/dev/infiniband").and_then(|()| fs::write(&device, "")).is_err() {
        eprintln!("skipped: this user may not create a device file");
        return;
    }
    let program = program(1, 300, 1024).variable("OPENED", &device);
    let (stdout, _) = run(&program);
    fs::remove_file(&device).unwrap();
    assert!(figure(&stdout, "moved") < 10, "memory of large tensors moved: {stdout}");
    let [recording] = &program.recordings()[..] else { panic!("one recording") };
    assert!(recording.notes.iter().any(|note| text(&note.text).contains("may have registered GPU memory")));
}

/// A kernel that uses freed memory fails only with paging, so the notice names the way back.
#[test]
fn an_illegal_access_names_the_way_back() {
    let machine = "memory=2GiB,context=0,module=0,fail=cuStreamSynchronize:40:700";
    let output = program(9, 100, 512).variable("MAKEROOM_SIMGPU", machine).recorded();
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("run with --pool=expandable"), "{}", text(&output.stderr));
    let other = program(9, 100, 512).variable("MAKEROOM_SIMGPU", machine).variable("MAKEROOM_POOL", "on");
    assert!(!text(&other.recorded().stderr).contains("expandable"));
}

#[test]
fn driver_calls_may_fail() {
    let functions = [
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuMemUnmap",
        "cuMemRelease",
        "cuCtxRecordEvent",
        "cuEventQuery",
        "cuEventCreate",
    ];
    for function in functions {
        for number in [1, 2, 7, 40] {
            let machine = format!("memory=2GiB,context=0,module=0,fail={function}:{number}");
            run(&program(7, 120, 600).variable("MAKEROOM_SIMGPU", &machine));
        }
    }
}
