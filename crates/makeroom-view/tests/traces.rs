//! For every real recording, the responses add up at random moments and agree with `why`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use makeroom_explain::TraceQuestion;
use makeroom_trace::Input;
use makeroom_view::{Opened, OpenedInput, Viewer};
use serde_json::Value;

/// Number of moments to check per recording.
const MOMENTS: u64 = 24;

fn recordings() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directories = [root.join("traces"), root.join("crates/makeroom-trace/tests/golden")];
    let mut found: Vec<PathBuf> = directories
        .iter()
        .flat_map(|directory| fs::read_dir(directory).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    found.retain(|path| path.extension().is_some_and(|ending| ending == "gz" || ending == "room"));
    found.sort();
    assert!(found.len() > 12, "{found:?}");
    found
}

fn open(path: &Path) -> Viewer {
    let input = match makeroom_trace::open(path).unwrap() {
        Input::Trace(trace) => OpenedInput::Trace(Box::new(trace)),
        Input::Text(text) => OpenedInput::Text(String::from_utf8(text).unwrap()),
    };
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    Viewer::new(vec![Opened { name, bytes: None, input, question: TraceQuestion::default() }])
}

fn get(viewer: &Viewer, path: &str) -> Value {
    let answer = viewer.answer(path, "").unwrap_or_else(|refusal| panic!("{path}: {refusal}"));
    serde_json::from_slice(&answer).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// Positions from the first to the last, chosen by a linear congruential generator.
fn positions(events: u64) -> Vec<u64> {
    let mut seed = 77_u64;
    let mut found = vec![0, events];
    found.extend((0..MOMENTS).map(|_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % (events + 1)
    }));
    found
}

/// The series at one position: live bytes, reserved bytes, and the layers.
fn sums(viewer: &Viewer, device: &str, position: u64) -> (u64, u64, Vec<u64>) {
    let tile = get(viewer, &format!("{device}/series/0/{}", position / 512));
    let column = (position % 512) as usize;
    let layers = tile["layers"].as_array().unwrap().iter().map(|layer| number(&layer["live"][column]));
    (number(&tile["live"][column]), number(&tile["reserved"][column]), layers.collect())
}

#[test]
fn moments_series_stacks_and_rows_agree_everywhere() {
    for path in recordings() {
        let viewer = open(&path);
        let inputs: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
        for (index, device) in inputs["inputs"][0]["devices"].as_array().unwrap().iter().enumerate() {
            let name = format!("/api/0/{index}");
            for position in positions(number(&device["events"])) {
                let at = format!("{}{name} at {position}", path.display());
                let (live, reserved, layers) = sums(&viewer, &name, position);
                assert_eq!(layers.iter().sum::<u64>(), live, "layers of {at}");
                let moment = get(&viewer, &format!("{name}/moment/{position}"));
                check_moment(&moment, &at);
                assert_eq!(number(&moment["live"]), live, "live of {at}");
                assert_eq!(number(&moment["reserved"]), reserved, "reserved of {at}");
                let stacks = get(&viewer, &format!("{name}/live/{position}"));
                let nodes = stacks["nodes"].as_array().unwrap();
                assert_eq!(nodes.iter().map(|node| number(&node[1])).sum::<u64>(), live, "stacks of {at}");
                assert_eq!(number(&stacks["total"]), live, "stacks of {at}");
                let rows = get(&viewer, &format!("{name}/allocations/{position}"));
                assert_eq!(number(&rows["bytes"]), live, "rows of {at}");
                let blocks: u64 = nodes.iter().map(|node| number(&node[2])).sum();
                assert_eq!(number(&rows["total"]), blocks, "rows of {at}");
            }
        }
    }
}

/// reserved = live + rounding + free, in total and for each segment, and rows fill their segment.
fn check_moment(moment: &Value, at: &str) {
    let sum = |part: &Value| number(&part["live"]) + number(&part["rounding"]) + number(&part["free"]);
    assert_eq!(sum(moment), number(&moment["reserved"]), "{at}");
    let segments = moment["segments"].as_array().unwrap();
    for what in ["live", "rounding", "free", "reserved"] {
        let parts: u64 = segments.iter().map(|segment| number(&segment[what])).sum();
        assert_eq!(parts, number(&moment[what]), "{what} of {at}");
    }
    for segment in segments {
        assert_eq!(sum(segment), number(&segment["reserved"]), "{segment} {at}");
        let rows = segment["blocks"].as_array().unwrap();
        let mut end = 0;
        for row in rows {
            assert_eq!(number(&row[0]), end, "rows follow each other: {segment} {at}");
            end += number(&row[1]);
        }
        assert_eq!(end, number(&segment["size"]), "rows fill their segment: {segment} {at}");
        let of = |states: &[u64]| {
            let chosen = rows.iter().filter(|row| states.contains(&number(&row[2])));
            chosen.map(|row| number(&row[1])).sum::<u64>()
        };
        assert_eq!(of(&[1, 2]), number(&segment["live"]) + number(&segment["rounding"]), "{at}");
        assert_eq!(of(&[0]), number(&segment["free"]), "{at}");
    }
}

#[test]
fn the_key_moments_are_those_of_why() {
    let mut compared = 0;
    for path in recordings() {
        let viewer = open(&path);
        let inputs: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
        let input = &inputs["inputs"][0];
        let ledger = &input["why"]["ledger"];
        let devices = input["devices"].as_array().unwrap();
        let Some(index) = devices.iter().position(|device| device["device"] == ledger["device"]) else {
            continue;
        };
        let moment = get(&viewer, &format!("/api/0/{index}/moment/{}", devices[index]["start"]));
        let lines = ledger["lines"].as_array().unwrap();
        let at = |what: &str| lines.iter().position(|line| line["what"].as_str().unwrap().starts_with(what));
        let bytes = |line: usize| number(&lines[line]["bytes"]);
        let name = path.display();
        if let (Some(rounding), Some(unused)) = (at("rounding"), at("unused")) {
            // The lines before it are live memory: tensors, other memory, and memory of libraries.
            let live: u64 = (0..rounding).map(bytes).sum();
            assert_eq!(number(&moment["live"]), live, "{name}");
            assert_eq!(number(&moment["rounding"]), bytes(rounding), "{name}");
            assert_eq!(number(&moment["free"]), bytes(unused), "{name}");
            compared += 1;
        } else {
            let live = at("live").unwrap();
            assert!(number(&moment["live"]) >= bytes(live), "{name}");
            assert_eq!(number(&moment["live"]), number(&moment["reserved"]), "{name}");
        }
        let request = &input["why"]["request"]["bytes"];
        if !request.is_null() {
            assert_eq!(devices[index]["failures"][0]["size"], *request, "{name}");
        }
    }
    assert!(compared >= 10, "{compared}");
}

#[test]
fn a_coarse_bucket_is_the_highest_of_its_finer_ones() {
    for path in recordings() {
        let viewer = open(&path);
        let inputs: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
        for (index, device) in inputs["inputs"][0]["devices"].as_array().unwrap().iter().enumerate() {
            let level = |level: u64| {
                let width = 4_u64.pow(level as u32);
                let tiles = (number(&device["events"]) + 1).div_ceil(width).div_ceil(512);
                let columns = |what: &'static str| {
                    let tiles = (0..tiles).map(move |tile| format!("/api/0/{index}/series/{level}/{tile}"));
                    tiles.flat_map(|path| numbers(&get(&viewer, &path)[what])).collect::<Vec<u64>>()
                };
                (columns("live"), columns("low"), columns("event"))
            };
            let mut finer = level(0);
            for coarse in 1..number(&device["levels"]) {
                let coarser = level(coarse);
                let highest: Vec<u64> = finer.0.chunks(4).map(|four| *four.iter().max().unwrap()).collect();
                let lowest: Vec<u64> = finer.1.chunks(4).map(|four| *four.iter().min().unwrap()).collect();
                assert_eq!(coarser.0, highest, "{} level {coarse}", path.display());
                assert_eq!(coarser.1, lowest, "{} level {coarse}", path.display());
                finer = coarser;
            }
            assert_eq!(finer.0.len(), finer.2.len());
            let peak =
                finer.0.iter().zip(&finer.2).max_by_key(|(live, event)| (**live, std::cmp::Reverse(**event)));
            let (live, event) = peak.unwrap();
            assert_eq!((*live, *event), (number(&device["peak"]["live"]), number(&device["peak"]["event"])));
        }
    }
}

/// capacity = base + reserved + free at the moment of the verdict, wherever `why` knows them.
#[test]
fn the_capacity_of_a_device_is_that_of_the_account() {
    let mut checked = 0;
    for path in recordings() {
        let inputs: Value = serde_json::from_slice(&open(&path).overview().unwrap()).unwrap();
        let input = &inputs["inputs"][0];
        let device = &input["devices"][number(&input["first_device"]) as usize];
        let ledger = &input["why"]["ledger"];
        let lines = ledger["lines"].as_array().cloned().unwrap_or_default();
        let free = lines.iter().find(|line| line["what"] == "free").map(|line| number(&line["bytes"]));
        let (Some(total), Some(free)) = (ledger["total_bytes"].as_u64(), free) else { continue };
        if device["kind"] == "pinned" {
            continue;
        }
        let viewer = open(&path);
        let start = number(&device["start"]);
        let name = format!("/api/0/{}", number(&input["first_device"]));
        let reserved = number(&get(&viewer, &format!("{name}/moment/{start}"))["reserved"]);
        let mut base = device["capacity"]["base"].as_array().unwrap().iter();
        let base = base.rfind(|step| number(&step[0]) <= start).map_or(0, |step| number(&step[1]));
        assert_eq!(base + reserved + free, total, "{}", path.display());
        assert_eq!(number(&device["capacity"]["bytes"]), total, "{}", path.display());
        checked += 1;
    }
    assert!(checked > 2, "{checked}");
}

/// A limit on a process does not count other processes: at no moment are they below its memory.
#[test]
fn the_base_under_a_limit_is_what_the_limit_counts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/fit");
    for name in ["varied_57.room.gz", "conv_2900.room.gz"] {
        let inputs: Value = serde_json::from_slice(&open(&root.join(name)).overview().unwrap()).unwrap();
        let input = &inputs["inputs"][0];
        let lines = input["why"]["ledger"]["lines"].as_array().unwrap();
        let contexts = lines.iter().find(|line| line["what"] == "context and code").unwrap();
        let capacity = &input["devices"][0]["capacity"];
        assert_eq!(capacity["is_limit"], true, "{name}");
        let base = capacity["base"].as_array().unwrap();
        assert!(!base.is_empty(), "{name}");
        for step in base {
            assert_eq!((number(&step[1]), number(&step[2])), (number(&contexts["bytes"]), 0), "{name}");
        }
    }
}

/// Everything that layers can stand for.
const BY: [&str; 11] =
    ["line", "frame", "file", "kind", "module", "stage", "thread", "stream", "process", "size", "allocation"];

/// Layers of every kind add up to the same series, and the recommended setting is computed for PyTorch's recordings.
#[test]
fn other_sites_have_the_same_sums() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let viewer = open(&root.join("oom_fragmented.pickle.gz"));
    let lines = get(&viewer, "/api/0/0/series/0/3");
    for (by, name) in BY.into_iter().zip([
        "workloads.py:25 train_lm",
        "activations.py:66 forward",
        "activations.py",
        "optimizer state",
        "workloads.py",
        "backward",
        "no thread recorded",
        "default stream",
        "the process that wrote the recording",
        "64 MiB to 256 MiB",
        "other allocations",
    ]) {
        let other = get(&viewer, &format!("/api/0/0/by/{by}/series/0/3"));
        assert_eq!(numbers(&other["live"]), numbers(&lines["live"]), "{by}");
        let sites = get(&viewer, &format!("/api/0/0/by/{by}/sites"));
        let text = sites.to_string();
        assert!(text.contains(&format!("{name}\"")), "{by}: {text}");
        let moment = get(&viewer, &format!("/api/0/0/by/{by}/moment/12242"));
        assert_eq!(moment["live"], get(&viewer, "/api/0/0/moment/12242")["live"]);
    }
    assert!(viewer.answer("/api/0/0/by/nothing/sites", "").is_err());
    assert_eq!(get(&viewer, "/api/0/0/alternative")["state"], "idle");
}

/// The layers of kinds and stages are the groups of `makeroom why --by` at every moment.
#[test]
fn layers_are_the_groups_of_why() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/kinds");
    for name in ["adamw.pickle.gz", "kv.pickle.gz", "adamw-late.pickle.gz"] {
        let viewer = open(&root.join(name));
        let inputs: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
        for position in positions(number(&inputs["inputs"][0]["devices"][0]["events"])) {
            for by in ["kind", "module", "stage", "stream"] {
                let tile = get(&viewer, &format!("/api/0/0/by/{by}/series/0/{}", position / 512));
                let column = (position % 512) as usize;
                let mut layers: Vec<u64> = tile["layers"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|layer| number(&layer["live"][column]))
                    .filter(|&bytes| bytes > 0)
                    .collect();
                let groups = get(&viewer, &format!("/api/0/0/groups/{by}/{position}"));
                let mut groups: Vec<u64> = groups["groups"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|group| number(&group["bytes"]))
                    .filter(|&bytes| bytes > 0)
                    .collect();
                layers.sort_unstable();
                groups.sort_unstable();
                assert_eq!(layers, groups, "{name} {by} {position}");
            }
        }
    }
}

/// Each of the largest allocations at the peak has a layer, which ends when it is freed.
#[test]
fn the_largest_allocations_have_layers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let viewer = open(&root.join("oom_fragmented.pickle.gz"));
    let inputs: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
    let start = number(&inputs["inputs"][0]["devices"][0]["start"]);
    let rows = get(&viewer, &format!("/api/0/0/by/allocation/allocations/{start}"));
    let largest: Vec<u64> =
        rows["rows"].as_array().unwrap().iter().take(23).map(|row| number(&row["requested"])).collect();
    let tile = get(&viewer, &format!("/api/0/0/by/allocation/series/0/{}", start / 512));
    let mut layers: Vec<u64> = tile["layers"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|layer| !layer["site"].is_null())
        .map(|layer| number(&layer["live"][(start % 512) as usize]))
        .collect();
    layers.sort_unstable_by_key(|&bytes| std::cmp::Reverse(bytes));
    assert_eq!(layers, largest);
    let sites: Vec<u64> = rows["rows"].as_array().unwrap().iter().map(|row| number(&row["site"])).collect();
    assert_ne!(sites[0], sites[1]);
    assert_eq!(sites[30], sites[40], "the rest has one site");
}

#[test]
fn groups_add_up_at_every_moment() {
    for path in recordings() {
        let viewer = open(&path);
        let inputs: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
        let Some(devices) = inputs["inputs"][0]["devices"].as_array() else { continue };
        for (index, device) in devices.iter().enumerate() {
            let events = number(&device["events"]);
            for position in positions(events).into_iter().take(6) {
                let (live, _, _) = sums(&viewer, &format!("/api/0/{index}"), position);
                for by in ["kind", "stage", "stream"] {
                    let groups = get(&viewer, &format!("/api/0/{index}/groups/{by}/{position}"));
                    let sum: u64 = groups["groups"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|group| number(&group["bytes"]))
                        .sum();
                    assert_eq!(sum, live, "{} {index} {by} {position}", path.display());
                    assert_eq!(number(&groups["live_bytes"]), live);
                }
            }
        }
    }
}

#[test]
fn two_inputs_have_a_difference() {
    let open = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/kinds").join(name);
        let Input::Trace(trace) = makeroom_trace::open(&path).unwrap() else { panic!("{name} is text") };
        let input = OpenedInput::Trace(Box::new(trace));
        Opened { name: name.to_owned(), bytes: None, input, question: TraceQuestion::default() }
    };
    let viewer = Viewer::new(vec![open("adamw.pickle.gz"), open("adamw-batch.pickle.gz")]);
    let difference = get(&viewer, "/api/0/0/diff/1/0");
    assert_eq!(difference["verdict"]["id"], "other_batch");
    let titles: Vec<&Value> =
        difference["kinds"].as_array().unwrap().iter().map(|kind| &kind["title"]).collect();
    assert!(titles.contains(&&Value::from("optimizer state")), "{titles:?}");
    assert_eq!(get(&viewer, "/api/1/0/diff/0/0")["before_bytes"], difference["after_bytes"]);
    assert_eq!(get(&viewer, "/api/0/0/diff/0/0")["verdict"]["id"], "same");
    for path in ["/api/0/0/diff/2/0", "/api/0/0/diff/1/9", "/api/0/0/diff/1/x", "/api/0/0/groups/color/1"] {
        assert_eq!(viewer.answer(path, "").unwrap_err().status, 404, "{path}");
    }
}

#[test]
fn unused_memory_is_the_same_share_in_the_verdict_and_at_the_peak() {
    let mut compared = 0;
    for path in recordings() {
        let viewer = open(&path);
        let overview: Value = serde_json::from_slice(&viewer.overview().unwrap()).unwrap();
        let input = &overview["inputs"][0];
        let summary = input["why"]["verdict"]["summary"].as_str().unwrap();
        for (index, device) in input["devices"].as_array().unwrap().iter().enumerate() {
            let peak = &device["peak"];
            let moment = get(&viewer, &format!("/api/0/{index}/moment/{}", peak["event"]));
            if device["has_segments"] == true {
                assert_eq!(peak["unused"], moment["free"], "{path:?}");
            }
            if input["first_device"] == index && summary.contains("% of it unused") {
                let share = 100.0 * number(&peak["unused"]) as f64 / number(&peak["reserved"]).max(1) as f64;
                assert!(
                    summary.contains(&format!("{share:.0} % of it unused")),
                    "{path:?}: {summary}, {share}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 5, "{compared}");
}

#[test]
fn the_difference_of_two_inputs_names_a_leak_and_the_moment_of_a_failure() {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let diff = |before: &str, after: &str| {
        let opened = [before, after].map(|name| {
            let Input::Trace(trace) = makeroom_trace::open(&traces.join(name)).unwrap() else {
                panic!("{name}")
            };
            let input = OpenedInput::Trace(Box::new(trace));
            Opened { name: name.to_owned(), bytes: None, input, question: TraceQuestion::default() }
        });
        get(&Viewer::new(opened.into()), "/api/0/0/diff/1/0")
    };
    let leak = diff("kinds/adamw.pickle.gz", "kinds/adamw-features.pickle.gz");
    assert_eq!(leak["verdict"]["id"], "leak", "{leak}");
    assert!(leak["verdict"]["summary"].as_str().unwrap().starts_with("The later run leaks."), "{leak}");
    let failed = diff("oom_fragmented.pickle.gz", "gpt2_varlen.pickle.gz");
    assert_eq!((&failed["before_moment"], &failed["after_moment"]), (&"failure".into(), &"peak".into()));
}
