//! `makeroom demo` on the software GPU: every situation is run, recorded and explained, and the explanation is right.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::Output;

use makeroom_simcard::testing::{plain, text};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// A directory for one test: the program writes its libraries and recordings there.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("demo").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn makeroom(folder: &Path, words: &[&str]) -> Output {
    plain(env!("CARGO_BIN_EXE_makeroom"))
        .args(words)
        .current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        // Settings that users have for their own programs must not affect the demonstrations.
        .env("MAKEROOM", "off")
        .env("MAKEROOM_LIMIT", "1")
        .output()
        .unwrap()
}

/// One situation from `--json`.
fn situation(name: &str) -> Value {
    let output = makeroom(&folder(name), &["demo", "--gpu", "software", "--json", name]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["gpu"], "software");
    assert_eq!(answer["situations"][0]["name"], name);
    answer["situations"][0].clone()
}

fn cause(situation: &Value) -> (&str, &str) {
    let verdict = &situation["explanation"]["verdict"];
    (verdict["cause"].as_str().unwrap(), verdict["certainty"].as_str().unwrap())
}

fn requested(situation: &Value) -> u64 {
    situation["explanation"]["request"]["bytes"].as_u64().unwrap()
}

/// A line of the ledger, in MiB.
fn line(situation: &Value, what: &str) -> u64 {
    let lines = situation["explanation"]["ledger"]["lines"].as_array().unwrap();
    let found = lines.iter().find(|line| line["what"].as_str().unwrap().starts_with(what));
    let found = found.unwrap_or_else(|| panic!("{what} is not in {lines:#?}"));
    found["bytes"].as_u64().unwrap() / MIB
}

/// Whether the explanation names a function of the situation.
fn shows(situation: &Value, function: &str) -> bool {
    situation["explanation"].to_string().contains(function)
}

#[test]
fn fragmentation() {
    let shown = situation("fragmentation");
    assert_eq!(cause(&shown), ("fragmentation", "certain"));
    assert_eq!(requested(&shown), 144 * MIB);
    assert_eq!((line(&shown, "live tensors"), line(&shown, "context and code")), (824, 512));
    assert_eq!((line(&shown, "unused, fragmented"), line(&shown, "free")), (684, 28));
    assert_eq!(shown["explanation"]["ledger"]["unaccounted_bytes"], 0);
    assert!(shows(&shown, "fragmentation::results_that_are_kept"));
    assert!(shows(&shown, "expandable_segments:True"));
}

#[test]
fn large_batch() {
    let shown = situation("large-batch");
    assert_eq!(cause(&shown), ("live_data_fills_device", "likely"));
    assert_eq!((requested(&shown), line(&shown, "live memory"), line(&shown, "free")), (128 * MIB, 1458, 78));
    let sites = shown["explanation"]["sites"].to_string();
    for place in ["weights", "optimizer_state", "activations_of_a_layer"] {
        assert!(sites.contains(&format!("large_batch::{place}")), "{sites}");
    }
}

#[test]
fn missing_free() {
    let shown = situation("missing-free");
    assert_eq!(cause(&shown), ("leak", "likely"));
    let left = &shown["explanation"]["run"]["never_freed"][0];
    assert_eq!(left["bytes"], 191 * 8 * MIB);
    let growth = &shown["explanation"]["growth"];
    assert!(growth["per_step_bytes"].as_u64().unwrap() > 60 * MIB);
    assert!(growth["leaking"].to_string().contains("missing_free::input_of_a_request"));
    assert!(!growth["leaking"].to_string().contains("output_of_a_request"));
}

#[test]
fn stream_ordered_frees() {
    let shown = situation("stream-ordered-frees");
    assert_eq!(cause(&shown), ("cache_held_by_framework", "likely"));
    let waiting = &shown["explanation"]["run"]["pending_frees"][0]["at_refusal"];
    assert_eq!((&waiting["bytes"], &waiting["streams"]), (&(608 * MIB).into(), &4.into()));
    assert_eq!((line(&shown, "cached by the driver's pools"), line(&shown, "free")), (640, 204));
    assert!(shows(&shown, "cudaDeviceSynchronize"));
}

#[test]
fn two_frameworks() {
    let shown = situation("two-frameworks");
    assert_eq!(cause(&shown), ("cache_held_by_framework", "likely"));
    assert!(shows(&shown, "torch.cuda.empty_cache()"));
    assert_eq!(requested(&shown), 614 * MIB);
    let site = shown["explanation"]["request"]["site"].as_str().unwrap();
    assert!(site.contains("two_frameworks::workspace_of_the_second"), "{site}");
    // The first framework's cache is not live, and would be large enough.
    assert_eq!((line(&shown, "live tensors"), line(&shown, "unused, fragmented")), (76, 1288));
}

#[test]
fn context_left_behind() {
    let shown = situation("context-left-behind");
    assert_eq!(cause(&shown), ("non_framework_overhead", "likely"));
    let contexts = &shown["explanation"]["run"]["contexts_never_destroyed"][0];
    assert_eq!(contexts["count"], 3);
    let site = contexts["site"].as_str().unwrap();
    assert!(site.contains("context_left_behind::context_of_a_worker"), "{site}");
    // Four contexts of 384 MiB: these three and the default one.
    assert_eq!((line(&shown, "context and code"), line(&shown, "live memory")), (4 * 384, 64));
    assert_eq!(shown["explanation"]["ledger"]["unaccounted_bytes"], 0);
}

#[test]
fn other_process() {
    let shown = situation("other-process");
    assert_eq!(cause(&shown), ("other_processes", "likely"));
    assert_eq!((requested(&shown), line(&shown, "free")), (512 * MIB, 104));
    assert!(line(&shown, "other processes") > 1024);
}

#[test]
fn kernel_heap() {
    let shown = situation("kernel-heap");
    assert_eq!(cause(&shown), ("none", "certain"));
    let causes = shown["explanation"]["causes"].as_array().unwrap();
    let heap = causes.iter().find(|cause| cause["cause"] == "shared_memory_or_kernel_resource").unwrap();
    assert_eq!(heap["bytes"], 8 * MIB);
    assert!(shows(&shown, "cudaLimitMallocHeapSize"));
    assert!(shown["said"][0].as_str().unwrap().contains("64.00 MiB from a heap of 8.00 MiB"));
}

#[test]
fn pinned_memory() {
    let shown = situation("pinned-memory");
    assert_eq!(cause(&shown), ("host_memory", "certain"));
    let run = &shown["explanation"]["run"];
    assert_eq!((&run["pinned_refusals"], &run["pinned_peak_bytes"]), (&1.into(), &(128 * MIB).into()));
    assert!(run["never_freed"].to_string().contains("pinned_memory::buffer_of_a_batch"));
}

#[test]
fn every_situation_is_shown_and_its_recording_kept_where_asked() {
    let folder = folder("all");
    let output = makeroom(&folder, &["demo", "--gpu", "software", "-o", "kept"]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listed = makeroom(&folder, &["demo", "--list", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|listed| listed["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 9);
    let mut kept: Vec<String> = std::fs::read_dir(folder.join("kept"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    let mut expected: Vec<String> = names.iter().map(|name| format!("{name}.room")).collect();
    expected.sort();
    assert_eq!(kept, expected);
    for name in names {
        assert!(said.contains(&format!("\n  {name}: ")), "{said}");
        let why = makeroom(&folder, &["why", &format!("kept/{name}.room")]);
        assert!(why.status.success(), "{}", text(&why.stderr));
    }
    assert!(said.contains("Ran, recorded and explained 9 programs"), "{said}");
}

#[test]
fn nothing_is_left_behind_and_errors_are_told() {
    let folder = folder("errors");
    assert!(makeroom(&folder, &["demo", "--gpu", "software", "large-batch"]).status.success());
    let left: Vec<String> = std::fs::read_dir(folder.join("makeroom"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(left.iter().all(|name| !name.starts_with("demo-")), "{left:?}");
    let unknown = makeroom(&folder, &["demo", "framgentation"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(
        text(&unknown.stderr).contains("unknown demonstration `framgentation`\n\nhint: makeroom demo --list")
    );
}
