//! The built library, loaded as programs load it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;

use common::{command, compile, run, stage, text};
use makeroom_simcard::testing::SoftwareGpu;

type Resolve = extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

fn exported(path: &Path) -> Vec<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(path).output().unwrap();
    let listed = String::from_utf8(output.stdout).unwrap();
    listed.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn only_the_drivers_functions_are_exported_and_each_can_be_resolved() {
    let stage = stage("exported");
    let path = stage.path("libcuda.so.1");
    let names = exported(&path);
    assert!(names.len() > 250, "{}", names.len());
    let library = SoftwareGpu::open(&path);
    // SAFETY: the type is that of the driver's function.
    let resolve: Resolve = unsafe { library.function(c"cuGetProcAddress_v2") };
    for name in names.iter().filter(|name| !name.starts_with("makeroom_simgpu_")) {
        assert!(name.starts_with("cu"), "{name} is exported");
        let per_thread = name.ends_with("_ptsz") || name.ends_with("_ptds");
        let base = name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        let base = ["_v2", "_v3", "_v4"].iter().fold(base, |base, form| base.trim_end_matches(form));
        let text = CString::new(base).unwrap();
        let exported = library.symbol(&CString::new(name.as_str()).unwrap());
        let versions = [
            2000, 3020, 4000, 7000, 10000, 10010, 11000, 11030, 11040, 12000, 12020, 12030, 12050, 12080,
            13000,
        ];
        let found = versions.iter().any(|version| {
            let (mut address, mut status) = (std::ptr::null_mut(), 0);
            let flags = if per_thread { 2 } else { 0 };
            let answer = resolve(text.as_ptr(), &raw mut address, *version, flags, &raw mut status);
            answer == 0 && NonNull::new(address) == exported
        });
        assert!(found, "{name} is exported but not in the table");
    }
}

#[test]
fn a_preloaded_function_does_not_get_into_the_drivers_table() {
    let stage = stage("interposed");
    let program = compile(&stage, "interposed", &[]);
    let preloaded = compile(&stage, "preloaded", &["-shared", "-fPIC"]);
    let output = command(&stage, &program, "").env("LD_PRELOAD", preloaded).output().unwrap();
    assert_eq!(text(&output), "global 4242\ngiven 201\nsame 1\n");
}

#[test]
fn bytes_arrive_where_they_were_sent() {
    let stage = stage("copies");
    let program = compile(&stage, "copies", &[]);
    let said = run(&stage, &program, "devices=2,memory=1GiB,context=0");
    assert_eq!(said.lines().count(), 15, "{said}");
    assert!(said.lines().all(|line| line.ends_with(" arrives")), "{said}");
}

#[test]
fn the_host_cannot_touch_device_memory() {
    let stage = stage("touch");
    let program = compile(&stage, "touch", &[]);
    let output = command(&stage, &program, "").output().unwrap();
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
}

#[test]
fn many_threads_at_once() {
    let stage = stage("threads");
    let program = compile(&stage, "threads", &[]);
    assert_eq!(run(&stage, &program, "memory=1GiB,context=0"), "wrong 0 lost 0\n");
}

#[test]
fn a_description_that_cannot_be_read_is_told() {
    let stage = stage("description");
    let program = compile(&stage, "holder", &[]);
    let output = command(&stage, &program, "memroy=1GiB")
        .arg("1")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(text(&output).contains("`memroy=1GiB` is not understood\n\nhint: the keys are devices, memory"));
    assert!(text(&output).contains("context 3 memory 3"), "{}", text(&output));
}
