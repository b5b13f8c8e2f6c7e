//! `diff` and `gate` as programs and CI use them: exit statuses, files, annotations, the GitHub Action.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn trace(name: &str) -> String {
    root().join("traces/kinds").join(format!("{name}.pickle.gz")).display().to_string()
}

fn makeroom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_makeroom")).args(arguments).env("COLUMNS", "100").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = makeroom(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("makeroom-gate-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn pairs_with_one_change_are_told_apart() {
    let verdict =
        |after: &str| json(&["diff", "--json", &trace("adamw"), &trace(after)])["verdict"]["id"].clone();
    assert_eq!(verdict("adamw"), "same");
    assert_eq!(verdict("adamw-leak"), "same");
    assert_eq!(verdict("adamw-batch"), "other_batch");
    assert_eq!(verdict("adamw-scores"), "line");
    let off = json(&["diff", "--json", &trace("checkpointing"), &trace("checkpointing-off")]);
    assert_eq!(off["verdict"]["id"], "kind");
    assert!(off["verdict"]["summary"].as_str().unwrap().contains("activations went from"));
}

#[test]
fn a_baseline_is_written_compared_and_exceeded() {
    let scratch = Scratch::new("baseline");
    let (base, report) = (scratch.file("memory.json"), scratch.file("gate.xml"));
    assert!(makeroom(&["gate", &trace("adamw"), "--against", &base, "--write"]).status.success());
    let text = fs::read_to_string(&base).unwrap();
    assert!(text.starts_with("{\n  \"format\": \"makeroom baseline 1\",\n  \"peak_bytes\": "), "{text}");
    assert_eq!(
        makeroom(&["gate", &trace("adamw"), "--against", &base, "--allow", "0%"]).status.code(),
        Some(0)
    );
    let exceeded = makeroom(&["gate", &trace("adamw-scores"), "--against", &base, "--junit", &report]);
    assert_eq!(exceeded.status.code(), Some(3));
    assert_eq!(stdout(&exceeded).lines().count(), 1);
    assert!(stdout(&exceeded).starts_with("fail "), "{}", stdout(&exceeded));
    assert!(fs::read_to_string(&report).unwrap().contains("failures=\"1\""));
    assert_eq!(
        makeroom(&["gate", &trace("adamw-scores"), "--against", &base, "--allow", "64MiB"]).status.code(),
        Some(0)
    );
    // A baseline and a report may be replaced; other files are not.
    assert!(makeroom(&["gate", &trace("adamw-sgd"), "--against", &base, "--write"]).status.success());
    let notes = scratch.file("notes.txt");
    fs::write(&notes, "mine").unwrap();
    assert_eq!(makeroom(&["gate", &trace("adamw"), "--against", &notes, "--write"]).status.code(), Some(1));
    assert_eq!(fs::read_to_string(&notes).unwrap(), "mine");
}

#[test]
fn bad_input_is_not_an_exceeded_allowance() {
    let scratch = Scratch::new("bad");
    for (name, content) in [
        ("empty.json", "{}"),
        (
            "other.json",
            "{\"format\": \"makeroom baseline 9\", \"peak_bytes\": 1, \"kinds\": {}, \"lines\": []}",
        ),
        ("cut.json", "{\"format\": \"makeroom base"),
        ("text.txt", "hello"),
    ] {
        let path = scratch.file(name);
        fs::write(&path, content).unwrap();
        let output = makeroom(&["gate", &trace("adamw"), "--against", &path]);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(output.stdout.is_empty(), "{name}");
    }
    assert_eq!(makeroom(&["diff", &trace("adamw"), &scratch.file("missing")]).status.code(), Some(1));
    assert_eq!(
        makeroom(&["gate", &trace("adamw"), "--against", "x", "--allow", "much"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_directory_stands_for_its_fullest_recording() {
    let scratch = Scratch::new("directory");
    for name in ["adamw", "adamw-batch"] {
        fs::copy(trace(name), scratch.0.join(format!("{name}.pickle.gz"))).unwrap();
    }
    fs::write(scratch.0.join("rank0.log"), "loss 3.1\n").unwrap();
    let directory = scratch.0.display().to_string();
    let same = json(&["diff", "--json", &directory, &trace("adamw-batch")]);
    assert_eq!(same["verdict"]["id"], "same");
}

#[test]
fn the_file_of_a_directory_is_named() {
    let scratch = Scratch::new("named");
    for name in ["adamw", "adamw-batch"] {
        fs::copy(trace(name), scratch.0.join(format!("{name}.pickle.gz"))).unwrap();
    }
    let (directory, used) = (scratch.0.display().to_string(), scratch.file("adamw-batch.pickle.gz"));
    let text = stdout(&makeroom(&["diff", &directory, &trace("adamw")]));
    assert!(text.contains(&format!("note: before is {used}")) && !text.contains("after is"), "{text}");
    assert_eq!(json(&["diff", "--json", &trace("adamw"), &directory])["after"], used);
    let gated = makeroom(&["gate", &directory, "--against", &directory]);
    assert!(stdout(&gated).starts_with(&format!("pass {used}: ")), "{}", stdout(&gated));
    assert!(stderr(&gated).contains(&format!("note: the baseline is {used}")), "{}", stderr(&gated));
    let written = makeroom(&["gate", &directory, "--against", &scratch.file("m.json"), "--write"]);
    assert!(stderr(&written).contains(&format!(" of {used}")), "{}", stderr(&written));
}

#[test]
fn a_missing_or_wrong_baseline_has_a_hint() {
    let scratch = Scratch::new("hint");
    let missing = scratch.file("m.json");
    let output = makeroom(&["gate", &trace("adamw"), "--against", &missing]);
    let hint = format!("create it with: makeroom gate {} --against {missing} --write", trace("adamw"));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&hint), "{}", stderr(&output));
    for content in ["hello", "[]", "\"x\"", "", "{}"] {
        let path = scratch.file("other.json");
        fs::write(&path, content).unwrap();
        let output = makeroom(&["gate", &trace("adamw"), "--against", &path]);
        assert_eq!(output.status.code(), Some(1), "{content}");
        assert!(stderr(&output).contains("this is not a baseline"), "{content}: {}", stderr(&output));
        assert!(!stderr(&output).contains("makeroom why"), "{content}: {}", stderr(&output));
    }
}

#[test]
fn a_report_that_cannot_be_written_does_not_hide_the_result() {
    let scratch = Scratch::new("folder");
    let report = scratch.file("missing/gate.xml");
    let mkdir = format!("mkdir -p {}", scratch.file("missing"));
    for (run, status, word) in [("adamw", 1, "pass "), ("adamw-scores", 3, "fail ")] {
        let output = makeroom(&["gate", &trace(run), "--against", &trace("adamw"), "--junit", &report]);
        assert_eq!(output.status.code(), Some(status), "{run}");
        assert!(stdout(&output).starts_with(word), "{}", stdout(&output));
        assert!(stderr(&output).contains(&mkdir), "{}", stderr(&output));
    }
    let output =
        makeroom(&["gate", &trace("adamw"), "--against", &scratch.file("missing/m.json"), "--write"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&mkdir) && !stderr(&output).contains("-o"), "{}", stderr(&output));
    let run = trace("adamw-scores");
    let output = makeroom(&["gate", &run, "--against", &trace("adamw"), "--junit", &run]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("write to another file: --junit FILE"), "{}", stderr(&output));
}

#[test]
fn an_allowance_needs_a_unit() {
    for amount in ["10", "0.02"] {
        let output = makeroom(&["gate", &trace("adamw"), "--against", &trace("adamw"), "--allow", amount]);
        assert_eq!(output.status.code(), Some(2), "{amount}");
        assert!(stderr(&output).contains("such as 2% or a size such as 100MiB"), "{}", stderr(&output));
    }
}

#[test]
fn peaks_that_cannot_be_compared_are_remarked() {
    let failed = root().join("traces/oom_batch.pickle.gz").display().to_string();
    let output = makeroom(&["gate", &failed, "--against", &failed]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("an allocation failed in this run"), "{}", stderr(&output));
    let below = makeroom(&["gate", &trace("adamw"), "--against", &failed]);
    assert_eq!(below.status.code(), Some(0));
    assert!(stderr(&below).contains("more than 20 % below the baseline"), "{}", stderr(&below));
    // A recording cannot be replaced by a baseline.
    assert!(!stderr(&below).contains("--write"), "{}", stderr(&below));
    let near = makeroom(&["gate", &trace("adamw-sgd"), "--against", &trace("adamw")]);
    assert_eq!(stderr(&near), "");
}

#[test]
fn a_run_that_failed_is_no_baseline() {
    let failed = root().join("traces/oom_batch.pickle.gz").display().to_string();
    let scratch = Scratch::new("failed");
    let baseline = scratch.file("memory.json");
    let refused = makeroom(&["gate", &failed, "--against", &baseline, "--write"]);
    assert_eq!((refused.status.code(), Path::new(&baseline).exists()), (Some(1), false));
    assert!(stderr(&refused).contains("an allocation failed in this run"), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("hint: ") && stderr(&refused).contains("--force"),
        "{}",
        stderr(&refused)
    );
    // Later comparisons warn about a baseline that was written nevertheless.
    let forced = makeroom(&["gate", &failed, "--against", &baseline, "--write", "--force"]);
    assert!(forced.status.success() && stderr(&forced).contains("is too low"), "{}", stderr(&forced));
    assert!(fs::read_to_string(&baseline).unwrap().contains("\"is_incomplete\": true"));
    let warning =
        format!("warning: {baseline}: an allocation failed in this run, so the recorded peak is too low");
    let gate = makeroom(&["gate", &trace("adamw"), "--against", &baseline]);
    assert!(stderr(&gate).contains(&warning), "{}", stderr(&gate));
    let difference = json(&["diff", "--json", &baseline, &trace("adamw")]);
    assert_eq!(
        (&difference["before_is_incomplete"], &difference["after_is_incomplete"]),
        (&true.into(), &false.into())
    );
}

#[test]
fn a_snapshot_and_a_recording_are_compared_by_what_both_contain() {
    let recording = root().join("traces/kinds/adamw.room.gz").display().to_string();
    for (before, after, sides) in [
        (trace("adamw"), recording.clone(), ["before", "after"]),
        (recording.clone(), trace("adamw"), ["after", "before"]),
    ] {
        let difference = json(&["diff", "--json", &before, &after]);
        let [snapshot, recorded] = sides;
        assert_eq!(difference[format!("{snapshot}_source")], "torch_snapshot");
        assert_eq!(difference[format!("{recorded}_source")], "recording");
        assert!(
            difference[format!("{recorded}_left_out_bytes")].as_u64().unwrap() > 100 << 20,
            "{difference}"
        );
        let growth = difference["growth_bytes"].as_i64().unwrap().unsigned_abs();
        assert!(growth < difference["before_bytes"].as_u64().unwrap() / 40, "{difference}");
        assert_eq!(difference["notes"].as_array().unwrap().len(), 1);
        let workspaces =
            difference["kinds"].as_array().unwrap().iter().find(|kind| kind["kind"] == "workspaces");
        let workspaces = workspaces.unwrap();
        assert_eq!(workspaces["before_bytes"], workspaces["after_bytes"]);
    }
    let text = stdout(&makeroom(&["diff", &trace("adamw"), &recording]));
    assert!(
        text.contains("note: the earlier run is a PyTorch snapshot, and the later run is a makeroom"),
        "{text}"
    );
    let gate = makeroom(&["gate", &recording, "--against", &trace("adamw"), "--allow", "2.5%"]);
    assert_eq!(gate.status.code(), Some(0), "{}", stdout(&gate));
    assert!(stderr(&gate).contains("is excluded"), "{}", stderr(&gate));
    // The baseline of a recording cannot be reduced; the warning remains.
    let scratch = Scratch::new("recorders");
    let baseline = scratch.file("memory.json");
    assert!(makeroom(&["gate", &recording, "--against", &baseline, "--write"]).status.success());
    let gate = makeroom(&["gate", &trace("adamw"), "--against", &baseline]);
    assert!(stderr(&gate).contains("Only a recording contains the memory of libraries"), "{}", stderr(&gate));
    assert_eq!(stderr(&makeroom(&["gate", &recording, "--against", &baseline])), "");
}

#[test]
fn a_profile_without_history_has_no_peak() {
    let profile = root().join("traces/jax_memory.prof.gz").display().to_string();
    let difference = json(&["diff", "--json", &profile, &profile]);
    assert_eq!(
        (&difference["before_moment"], &difference["after_source"]),
        (&"end".into(), &"jax_profile".into())
    );
    let text = stdout(&makeroom(&["diff", &profile, &profile]));
    assert!(
        text.contains("SAME LIVE MEMORY") && text.contains("note: the later run: no history was recorded"),
        "{text}"
    );
}

#[test]
fn a_run_that_failed_is_compared_at_its_failure() {
    let traces = root().join("traces");
    let [failed, other] = ["oom_batch", "gpt2_varlen"]
        .map(|name| traces.join(format!("{name}.pickle.gz")).display().to_string());
    let moments = |difference: &Value| {
        [&difference["before_moment"], &difference["after_moment"]].map(Value::to_string)
    };
    let difference = json(&["diff", "--json", &other, &failed]);
    assert_eq!(moments(&difference), ["\"peak\"", "\"failure\""]);
    // The same moment and memory as `why --by kind`.
    let grouped = json(&["why", "--by", "kind", "--json", &failed]);
    assert_eq!((&grouped["moment"], &grouped["live_bytes"]), (&"failure".into(), &difference["after_bytes"]));
    assert!(difference["after_failed_request_bytes"].as_u64().unwrap() > 0);
    let text = stdout(&makeroom(&["diff", &other, &failed]));
    assert!(text.contains("THE LATER RUN FAILED") && text.contains("    failed request  "), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().eq(["at", "peak", "at", "failure"])), "{text}");
    let back = stdout(&makeroom(&["diff", &failed, &other]));
    assert!(back.contains("THE LATER RUN DID NOT FAIL"), "{back}");
    let both = json(&["diff", "--json", &failed, &failed]);
    assert_eq!(moments(&both), ["\"failure\"", "\"failure\""]);
    assert_eq!(both["verdict"]["id"], "same");
    // Runs that did not fail are compared at their peaks.
    assert_eq!(moments(&json(&["diff", "--json", &trace("adamw"), &trace("sgd")])), ["\"peak\"", "\"peak\""]);
}

#[test]
fn a_leak_is_growth_per_step() {
    let difference = json(&["diff", "--json", &trace("adamw-long"), &trace("adamw-features")]);
    assert_eq!(difference["verdict"]["id"], "leak");
    assert_eq!(difference["before_step_growth"], Value::Null);
    let growth = &difference["after_step_growth"];
    assert_eq!(growth["bytes_per_step"], f64::from(1 << 20));
    assert_eq!(growth["measured_by"], "Optimizer.step");
    assert_eq!(growth["lines"].as_array().unwrap().len(), 1, "{growth}");
    assert_eq!(growth["lines"][0]["place"], "kinds.py:69 forward");
    let text = stdout(&makeroom(&["diff", &trace("adamw-long"), &trace("adamw-features")]));
    assert!(text.contains("LEAK (1.00 MiB per step)"), "{text}");
    assert!(text.contains("over 21 steps, 1.00 MiB per step (step: Optimizer.step)\n"), "{text}");
    // Three steps are too few to tell.
    assert_eq!(json(&["diff", "--json", &trace("adamw"), &trace("adamw")])["after_step_growth"], Value::Null);
    // A recording of `makeroom run` has no marks, but classes.
    let room = root().join("traces/kinds/adamw-features.room.gz").display().to_string();
    for by in ["kind", "line", "module"] {
        let grouped = json(&["why", "--by", by, "--json", &room]);
        let growth = &grouped["growth"];
        assert_eq!(growth["step"], "backward pass", "{growth}");
        assert_eq!(growth["bytes_per_step"], f64::from(1 << 20), "{growth}");
        assert_eq!(growth["groups"][0]["keeper"], "the module Gpt", "{growth}");
        assert_eq!(growth["groups"][0]["bytes"], growth["bytes"], "{growth}");
    }
    assert_eq!(json(&["why", "--by", "kind", "--json", &trace("adamw-long")])["growth"], Value::Null);
    // Within the allowance, a leak is a warning.
    let gate =
        makeroom(&["gate", &trace("adamw-features"), "--against", &trace("adamw-long"), "--allow", "50%"]);
    assert_eq!(gate.status.code(), Some(0));
    assert!(
        stderr(&gate).contains("the run leaks. Live memory grows by 1.00 MiB per step"),
        "{}",
        stderr(&gate)
    );
    // A baseline remembers it: the same leak is not reported again.
    let scratch = Scratch::new("leak");
    let baseline = scratch.file("memory.json");
    let written = makeroom(&["gate", &trace("adamw-features"), "--against", &baseline, "--write"]);
    assert!(written.status.success(), "{}", stderr(&written));
    let gate = makeroom(&["gate", &trace("adamw-features"), "--against", &baseline]);
    assert_eq!((gate.status.code(), stderr(&gate)), (Some(0), String::new()));
}

#[test]
fn the_action_annotates_and_summarizes() {
    let scratch = Scratch::new("action");
    let (summary, report) = (scratch.file("summary.md"), scratch.file("gate.xml"));
    let action = |run: &str| {
        Command::new(root().join("deploy/github/gate"))
            .env("COMMAND", env!("CARGO_BIN_EXE_makeroom"))
            .env("RUN", trace(run))
            .env("AGAINST", trace("adamw"))
            .env("ALLOW", "2%")
            .env("JUNIT", &report)
            .env("GITHUB_STEP_SUMMARY", &summary)
            .output()
            .unwrap()
    };
    let passed = action("adamw-leak");
    assert_eq!(passed.status.code(), Some(0), "{}", String::from_utf8_lossy(&passed.stderr));
    assert!(stdout(&passed).starts_with("::notice title=makeroom gate::"));
    let failed = action("adamw-scores");
    assert_eq!(failed.status.code(), Some(3));
    // At the line that the message names.
    assert!(stdout(&failed).starts_with("::error file=kinds.py,line=32,"), "{}", stdout(&failed));
    assert!(stdout(&failed).contains("activations at kinds.py:32 forward are new"), "{}", stdout(&failed));
    let summary = fs::read_to_string(summary).unwrap();
    assert_eq!(summary.matches("### Peak GPU memory").count(), 2);
    assert!(summary.contains("PEAK GREW BY"), "{summary}");
    // Every input of the Action is passed on.
    let definition = fs::read_to_string(root().join("action.yml")).unwrap();
    for input in ["run", "against", "allow", "junit", "makeroom"] {
        assert!(definition.contains(&format!("${{{{ inputs.{input} }}}}")), "{input}");
    }
}
