//! How `gpu/check` evaluates a measurement of the recorder, on the software GPU: a figure, or the reason why the
//! measurement is invalid. Needs `python3`, as `gpu/check` does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Output};

use makeroom_simcard::testing::{Stage, text};

/// A directory with the software GPU and the program.
fn stage(name: &str) -> Stage {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("measured").join(name));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/measured.c");
    stage.compile(source, &["-l:libcuda.so.1"]);
    stage
}

/// Runs the program and creates the files of `gpu/support/runs.py`: NAME.run.json, .run.err and .replay.json.
fn record(stage: &Stage, name: &str, more: &str, variables: &[(&str, &str)]) {
    let makeroom = env!("CARGO_BIN_EXE_makeroom");
    let at = |end: &str| stage.path(format!("{name}.{end}"));
    let run = stage
        .command(makeroom)
        .args(["run", "-o", &format!("{name}.room"), "--", "./measured", more])
        .env("GPU_CHECK_FIGURES", at("run.json"))
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", text(&run.stderr));
    std::fs::write(at("run.err"), run.stderr).unwrap();
    if at("room").exists() {
        let replay = Command::new(makeroom)
            .args(["replay", "--json", "--allocator", "ideal", "--no-smallest"])
            .arg(at("room"))
            .output()
            .unwrap();
        std::fs::write(at("replay.json"), replay.stdout).unwrap();
    }
}

fn judge(stage: &Stage, name: &str) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../gpu/support/cost.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(stage.path(name));
    command.output().unwrap()
}

#[test]
fn a_measurement_that_cannot_be_right_is_none() {
    if Command::new("python3").arg("--version").output().is_err() {
        return;
    }
    let stage = stage("cost");
    let measure = [("MAKEROOM_MEASURE", "on")];
    record(&stage, "right", "0", &measure);
    let answer = judge(&stage, "right");
    assert!(answer.status.success(), "{}", text(&answer.stderr));
    let figures: Vec<f64> =
        text(&answer.stdout).split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [percent, each, calls, seconds] = figures[..] else { panic!("{figures:?}") };
    assert!((calls - 2000.0).abs() < 0.5, "{calls}");
    assert!(percent > 0.0 && percent < 100.0 && each > 20.0 && seconds > 0.0, "{figures:?}");

    let wrong = |name: &str, expected: &str| {
        let answer = judge(&stage, name);
        assert!(!answer.status.success(), "{name}: {}", text(&answer.stdout));
        assert!(text(&answer.stderr).contains(expected), "{name}: {}", text(&answer.stderr));
    };
    record(&stage, "unasked", "0", &[]);
    wrong("unasked", "the recorder measured nothing");
    record(&stage, "off", "0", &[("MAKEROOM_MEASURE", "on"), ("MAKEROOM", "off")]);
    wrong("off", "the recorder measured nothing");
    record(&stage, "missed", "1500", &measure);
    wrong("missed", "PyTorch counts 2500 allocations, the recorder saw 2000 events");

    // The recording of another run, and one whose hooks claim to take almost no time.
    let at = |name: &str, end: &str| stage.path(format!("{name}.{end}"));
    let replay = std::fs::read_to_string(at("right", "replay.json")).unwrap();
    let other =
        replay.replacen("\"done\": 1000", "\"done\": 900", 1).replacen("\"done\":1000", "\"done\":900", 1);
    assert_ne!(other, replay);
    for end in ["run.json", "run.err"] {
        std::fs::copy(at("right", end), at("other", end)).unwrap();
    }
    std::fs::write(at("other", "replay.json"), other).unwrap();
    wrong("other", "not the same run");
    let own = std::fs::read_to_string(at("right", "run.json")).unwrap();
    let (before, after) = own.split_once("\"inside_ns\": ").unwrap();
    let after = after.split_once(',').unwrap().1;
    std::fs::write(at("right", "run.json"), format!("{before}\"inside_ns\": 14000,{after}")).unwrap();
    wrong("right", "7 ns per call are less than two clock reads take");
}
