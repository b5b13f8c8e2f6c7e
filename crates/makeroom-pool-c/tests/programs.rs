//! C and C++ programs against the header, on the software GPU.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use crate::common::{compile, here, link};
use makeroom_simcard::testing::{Stage, built, succeeded};
use makeroom_trace::Input;

/// One card, and a context without overhead so that figures are exact.
const MACHINE: &str = "memory=1GiB,context=0,module=0";

fn stage(test: &str) -> Stage {
    crate::common::stage(test).with_machine(MACHINE)
}

fn run(program: &Path, stage: &Stage, arguments: &[&str]) -> String {
    succeeded(&stage.command(program).args(arguments).output().unwrap())
}

fn linked(sources: &[&str], stage: &Stage, more: &[&str]) -> std::path::PathBuf {
    let sources: Vec<_> = sources.iter().map(|source| here().join("tests/c").join(source)).collect();
    let sources: Vec<&Path> = sources.iter().map(std::path::PathBuf::as_path).collect();
    let program = stage.path("program");
    let link = link();
    let options: Vec<&str> =
        link.iter().map(String::as_str).chain(["-ldl", "-lpthread"]).chain(more.iter().copied()).collect();
    compile(&sources, &program, &options);
    program
}

fn snapshot_at(path: &Path) -> makeroom_core::Trace {
    let Input::Trace(trace) = makeroom_trace::open(path).unwrap() else { panic!("no trace") };
    assert!(trace.notes.is_empty(), "{:?}", trace.notes);
    trace
}

#[test]
fn a_pool_from_c() {
    let stage = stage("pool");
    let program = linked(&["pool.c"], &stage, &[]);
    let snapshot = stage.path("snapshot.pickle");
    assert_eq!(run(&program, &stage, &[snapshot.to_str().unwrap()]), "done\n");
    let trace = snapshot_at(&snapshot);
    let device = trace.device(None).unwrap();
    let block = device.segments.iter().flat_map(|segment| &segment.blocks);
    let mut live = block.filter(|block| block.state == makeroom_core::BlockState::Live);
    let block = live.next().unwrap();
    assert_eq!(block.requested, Some(makeroom_core::Bytes::new(12345)));
    assert!(live.next().is_none());
    // The frame is the program's call, not the library's.
    let frame = trace.stacks.frame_at(trace.stacks.frames_of(block.stack)[0]);
    assert!(trace.stacks.name_text(frame.file).ends_with("program"));
}

#[test]
fn the_example_runs() {
    let stage = stage("example");
    let program = stage.path("program");
    let link = link();
    compile(&[&here().join("../../examples/c/pool.c")], &program, &[&link[0], &link[1], "-ldl"]);
    let text = run(&program, &stage, &[]);
    assert!(text.contains("600 MiB did not fit") && text.contains("400 allocations"), "{text}");
    let peaks: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(peaks.iter().all(|mebibytes| *mebibytes <= 600), "{text}");
    assert!(snapshot_at(&stage.path("pool.pickle")).event_count() > 1000);
}

#[test]
fn the_static_library_is_the_same() {
    let stage = stage("static");
    let program = stage.path("program");
    let archive = built("libmakeroom_pool.a");
    let source = here().join("tests/c/pool.c");
    compile(&[&source], &program, &[archive.to_str().unwrap(), "-ldl", "-lpthread", "-lm"]);
    assert_eq!(run(&program, &stage, &["snapshot.pickle"]), "done\n");
}

#[test]
fn wrong_arguments_and_forked_children_are_answered() {
    let stage = stage("wrong");
    let program = linked(&["wrong.c"], &stage, &[]);
    assert_eq!(run(&program, &stage, &[]), "done\n");
}

#[test]
fn many_threads_share_a_pool_that_one_destroys() {
    let stage = stage("threads");
    let program = linked(&["threads.c"], &stage, &[]);
    assert_eq!(run(&program, &stage, &[]), "done\n");
}

#[test]
fn what_pytorch_calls() {
    let stage = stage("torch");
    let library = stage.path("libc10.so");
    compile(&[&here().join("tests/c/c10.cpp")], &library, &["-shared", "-fPIC", "-Wl,-soname,libc10.so"]);
    let rpath = format!("-Wl,-rpath,{}", stage.directory().display());
    let program = linked(&["torch.cpp"], &stage, &["-Wl,--no-as-needed", library.to_str().unwrap(), &rpath]);
    let snapshot = stage.path("snapshot.pickle");
    assert_eq!(run(&program, &stage, &[snapshot.to_str().unwrap()]), "done\n");
    assert!(snapshot_at(&snapshot).event_count() > 0);
}

#[test]
fn without_a_driver_a_pool_says_so() {
    let stage = stage("no-driver");
    let program = linked(&["wrong.c"], &stage, &[]);
    let empty = stage.path("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let output = std::process::Command::new(&program).env("LD_LIBRARY_PATH", &empty).output().unwrap();
    if output.status.success() {
        // This machine has a real driver.
        return;
    }
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("could not load the CUDA driver") && text.contains("hint: "), "{text}");
}
