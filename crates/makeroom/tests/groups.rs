//! `--by` in every command that has it: `why`, `run`, `job` and `export`. The groups must add up, and a grouping that the
//! input has no data for must say so.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use makeroom_simcard::testing::{Stage, text};
use serde_json::Value;

const GROUPS: [&str; 7] = ["kind", "line", "module", "stage", "thread", "stream", "process"];

/// Two blocks from one function and one from another, and a failed request.
const PROGRAM: &str = r"
#include <stddef.h>
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(unsigned long *, size_t);
static int take_large(void) {
    unsigned long kept;
    return cuMemAlloc_v2(&kept, 64 << 20);
}
static int take_small(void) {
    unsigned long kept;
    return cuMemAlloc_v2(&kept, 3 << 20);
}
int main(void) {
    void *context;
    unsigned long pointer;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || take_large() || take_small() || take_large()) return 99;
    cuMemAlloc_v2(&pointer, (size_t)1 << 40);
    return 0;
}
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn trace(name: &str) -> String {
    root().join("traces").join(name).display().to_string()
}

fn makeroom(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_makeroom")).args(words).env("COLUMNS", "100").output().unwrap()
}

fn json(words: &[&str]) -> Value {
    let output = makeroom(words);
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sum(grouped: &Value) -> u64 {
    grouped["groups"].as_array().unwrap().iter().map(|group| group["bytes"].as_u64().unwrap()).sum()
}

#[test]
fn why_groups_in_every_way() {
    let snapshot = trace("kinds/adamw.pickle.gz");
    for by in GROUPS {
        let grouped = json(&["why", "--by", by, "--json", &snapshot]);
        assert_eq!(grouped["live_bytes"].as_u64().unwrap(), sum(&grouped), "{by}");
        assert_eq!(grouped["by"], by);
        // A snapshot names neither its threads nor its process.
        let is_recorded = !["thread", "process"].contains(&by);
        assert_eq!(grouped["recorded"], is_recorded, "{by}");
        assert_eq!(grouped["hint"].is_null(), is_recorded, "{by}");
        let shown = text(&makeroom(&["why", "--by", by, &snapshot]).stdout);
        assert_eq!(shown.contains("hint: "), !is_recorded, "{by}: {shown}");
    }
    let kinds = json(&["why", "--by", "kind", "--json", &snapshot]);
    assert_eq!(kinds["groups"][0]["name"], "parameters");
    assert_eq!(kinds["groups"][0]["bytes"], 20_844_160);
    let threads = json(&["why", "--by", "thread", "--json", &trace("fit/gpt_27.room.gz")]);
    assert!(threads["groups"].as_array().unwrap().len() > 1, "{threads}");
    assert_eq!(threads["recorded"], true);
}

#[test]
fn run_shows_the_groups_with_its_summary() {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("groups").join("run"));
    stage.compile_text("program", PROGRAM, &["-O0", "-rdynamic", "-l:libcuda.so.1"]);
    let run = |by: &str| {
        let words = [
            "run",
            "--by",
            by,
            "--summary",
            "summary.json",
            "-o",
            "run.room",
            "--no-status",
            "--",
            "./program",
        ];
        let output = stage.command(env!("CARGO_BIN_EXE_makeroom")).args(words).output().unwrap();
        let summary: Value = serde_json::from_slice(&fs::read(stage.path("summary.json")).unwrap()).unwrap();
        (text(&output.stderr), summary)
    };
    let (said, summary) = run("line");
    assert!(said.contains("Live memory by line, when the allocation failed: 131.00 MiB on GPU 0"), "{said}");
    assert_eq!(sum(&summary[0]["groups"]), 131 << 20);
    let names: Vec<&str> = summary[0]["groups"]["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["name"].as_str().unwrap())
        .collect();
    assert!(names[0].contains("take_large") && names[1].contains("take_small"), "{names:?}");
    let (said, summary) = run("process");
    assert!(said.contains("    process "), "{said}");
    assert_eq!(summary[0]["groups"]["recorded"], true);
}

#[test]
fn the_ranks_of_a_job_are_compared() {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("groups").join("job"));
    fs::create_dir(stage.path("ranks")).unwrap();
    for (rank, name) in ["adamw", "adamw", "adamw-batch", "adamw"].into_iter().enumerate() {
        let from = trace(&format!("kinds/{name}.pickle.gz"));
        fs::copy(from, stage.path("ranks").join(format!("rank{rank}.pickle.gz"))).unwrap();
    }
    let ranks = stage.path("ranks").display().to_string();
    let across = json(&["job", "--by", "kind", "--json", &ranks]);
    assert_eq!(across["recordings"], 4);
    let group = |name: &str| {
        let groups = across["groups"].as_array().unwrap();
        groups.iter().find(|group| group["name"] == name).unwrap().clone()
    };
    assert_eq!(group("parameters")["least_bytes"], group("parameters")["most_bytes"]);
    assert_eq!(group("activations")["most_in"], "rank 2");
    assert_eq!(group("activations")["median_bytes"], group("activations")["least_bytes"]);
    // `why` on the directory shows the same.
    let shown = text(&makeroom(&["job", "--by", "kind", &ranks]).stdout);
    assert!(shown.contains("rank 2") && shown.contains("4 recordings"), "{shown}");
    assert_eq!(text(&makeroom(&["why", "--by", "kind", &ranks]).stdout), shown);
    let threads = text(&makeroom(&["job", "--by", "thread", &ranks]).stdout);
    assert!(threads.contains("hint: this format does not record threads"), "{threads}");
    // Logs have no allocations to group.
    fs::create_dir(stage.path("logs")).unwrap();
    for rank in 0..2 {
        let log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n";
        fs::write(stage.path("logs").join(format!("rank{rank}.log")), log).unwrap();
    }
    let logs = makeroom(&["job", "--by", "kind", &stage.path("logs").display().to_string()]);
    assert_eq!(logs.status.code(), Some(1), "{}", text(&logs.stdout));
}

#[test]
fn a_file_next_to_a_directory_and_the_chosen_gpu_count() {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("groups").join("file"));
    fs::create_dir(stage.path("ranks")).unwrap();
    for rank in 0..2 {
        let to = stage.path("ranks").join(format!("rank{rank}.pickle.gz"));
        fs::copy(trace("kinds/adamw.pickle.gz"), to).unwrap();
    }
    fs::copy(trace("kinds/sgd.pickle.gz"), stage.path("extra.pickle.gz")).unwrap();
    fs::write(stage.path("notes.txt"), "step 1\n").unwrap();
    let [ranks, extra, notes] =
        ["ranks", "extra.pickle.gz", "notes.txt"].map(|name| stage.path(name).display().to_string());
    let across = json(&["why", "--by", "kind", "--json", &ranks, &extra]);
    assert_eq!(across["recordings"], 3, "{across}");
    let activations = &across["groups"].as_array().unwrap()[3];
    assert_eq!(
        (&activations["name"], &activations["most_in"]),
        (&"activations".into(), &extra.as_str().into())
    );
    // A log is named, and the recordings are compared.
    let output = makeroom(&["why", "--by", "kind", &ranks, &notes]);
    assert!(text(&output.stdout).contains("2 recordings"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("notes.txt is not a recording"), "{}", text(&output.stderr));
    // No recording has this GPU.
    let output = makeroom(&["why", "--by", "kind", "--device", "3", &ranks, &extra]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("has no device 3, only 0"), "{said}");
    let chosen = json(&["why", "--by", "kind", "--json", "--device", "0", &ranks, &extra]);
    assert_eq!(chosen, across);
}

#[test]
fn lines_of_a_snapshot_with_cpp_frames_are_those_of_python() {
    let lines = |name: &str| -> Vec<(String, u64)> {
        let grouped = json(&["why", "--by", "line", "--json", &trace(name)]);
        let groups = grouped["groups"].as_array().unwrap().clone();
        let line =
            |group: &Value| (group["name"].as_str().unwrap().to_owned(), group["bytes"].as_u64().unwrap());
        groups.iter().map(line).filter(|(name, _)| name.contains(".py:")).collect()
    };
    let (with, without) = (lines("kinds/adamw-all.pickle.gz"), lines("kinds/adamw.pickle.gz"));
    assert_eq!(with, without);
    // In the backward pass, which has no Python frames, the operator is named, not the code that recorded the stack.
    let grouped = text(&makeroom(&["why", "--by", "line", &trace("kinds/adamw-all.pickle.gz")]).stdout);
    assert!(!grouped.contains("unwind") && !grouped.contains("CachingAllocator"), "{grouped}");
    assert!(grouped.contains("torch::autograd::generated::"), "{grouped}");
    let explained = text(&makeroom(&["why", "--verbose", &trace("kinds/adamw-all.pickle.gz")]).stdout);
    assert!(!explained.contains("unwind"), "{explained}");
    assert!(explained.contains("kinds.py:30 forward  via torch/nn/modules/linear.py"), "{explained}");
}

#[test]
fn long_paths_keep_their_line_numbers() {
    let shown = text(&makeroom(&["why", "--by", "line", &trace("kinds/compiled.pickle.gz")]).stdout);
    let rows: Vec<&str> = shown.lines().filter(|line| line.contains('…')).collect();
    assert!(rows.len() > 5, "{shown}");
    for row in &rows {
        let name = row.split("  ").find(|part| part.contains('…')).unwrap();
        let number = name.rsplit_once(".py:").map(|(_, rest)| rest.split(' ').next().unwrap());
        assert!(number.is_some_and(|number| number.parse::<u32>().is_ok()), "{row}");
    }
}

#[test]
fn exports_have_groups_where_the_format_has_room_for_them() {
    let snapshot = trace("kinds/adamw.pickle.gz");
    let perfetto = json(&["export", "--to", "perfetto", "--by", "kind", &snapshot]);
    let counters =
        perfetto["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "live by kind");
    let most = counters.map(|event| event["args"]["optimizer_state"].as_u64().unwrap()).max();
    assert_eq!(most, Some(41_688_320));
    let speedscope = json(&["export", "--to", "speedscope", "--by", "stage", &snapshot]);
    let frames = speedscope["shared"]["frames"].as_array().unwrap();
    assert!(frames.iter().any(|frame| frame["name"] == "optimizer"));
    let table = makeroom(&["export", "--to", "csv", "--by", "kind", &snapshot]);
    assert_eq!(table.status.code(), Some(1));
    assert!(
        text(&table.stderr).contains("hint: use --by with perfetto or speedscope"),
        "{}",
        text(&table.stderr)
    );
}

#[test]
fn logs_alone_have_no_groups() {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("groups").join("logs"));
    fs::create_dir(stage.path("logs")).unwrap();
    for rank in 0..2 {
        fs::write(stage.path("logs").join(format!("rank{rank}.log")), "step 1\n").unwrap();
    }
    let output = makeroom(&["job", "--by", "kind", &stage.path("logs").display().to_string()]);
    let said = text(&output.stderr);
    assert!(said.contains("logs do not show memory by kind; pass recordings or snapshots"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}
