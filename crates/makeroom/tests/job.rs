//! `makeroom job` over recordings of real programs: 16 ranks on the software GPU with eight devices, each failing in
//! another way. Each must get the right verdict for the whole job.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::Output;

use makeroom_simcard::testing::{Stage, text};
use serde_json::Value;

/// A directory with the software GPU and the program.
fn stage(test: &str) -> Stage {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("job").join(test));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/ranks.c");
    stage.compile(source, &["-O0", "-rdynamic", "-l:libcuda.so.1"]);
    fs::create_dir(stage.path("recordings")).unwrap();
    stage.with_machine("devices=8,memory=8GiB,context=64MiB")
}

fn makeroom(stage: &Stage, words: &[&str]) -> Output {
    stage.command(env!("CARGO_BIN_EXE_makeroom")).args(words).env("NO_COLOR", "1").output().unwrap()
}

/// Records a job of 16 ranks.
fn recorded(scenario: &str) -> Stage {
    let stage = stage(scenario);
    let run =
        makeroom(&stage, &["run", "--no-status", "-o", "recordings/job.room", "--", "./ranks", scenario]);
    let found = fs::read_dir(stage.path("recordings")).unwrap().count();
    assert_eq!(found, 16, "{scenario}: {}", text(&run.stderr));
    stage
}

fn answer(stage: &Stage) -> Value {
    let output = makeroom(stage, &["job", "--json", "recordings"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ranks(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().filter_map(|entry| entry["rank"].as_u64()).collect()
}

/// The ranks that ended in one way as a consequence.
fn followed(answer: &Value, kind: &str) -> usize {
    let consequences = answer["consequences"].as_array().unwrap();
    let found = consequences.iter().find(|consequence| consequence["kind"] == kind);
    found.map_or(0, |found| found["ranks"].as_array().unwrap().len())
}

#[test]
fn one_heavy_rank() {
    let stage = recorded("heavy");
    let answer = answer(&stage);
    assert_eq!(answer["verdict"]["cause"], "rank_holds_more", "{:#}", answer["verdict"]);
    assert_eq!(answer["verdict"]["certainty"], "certain");
    assert_eq!(ranks(&answer["culprits"]), [3]);
    let line = answer["culprits"][0]["lines"][0]["place"].as_str().unwrap();
    assert!(line.contains("activations"), "{line}");
    assert_eq!(followed(&answer, "terminated"), 15);
    // Both ranks of the GPU are in its account, which closes.
    let account = &answer["account"];
    let whose = |name: &str| account["lines"].as_array().unwrap().iter().any(|line| line["what"] == name);
    assert!(whose("rank 3") && whose("rank 11"), "{account:#}");
    let open = account["unaccounted_bytes"].as_i64().unwrap().unsigned_abs();
    assert!(open < 64 << 20, "{account:#}");
    // On one screen, with the verdict first.
    let shown = text(&makeroom(&stage, &["job", "recordings"]).stdout);
    assert!(shown.trim_start().starts_with("RANK 3 HOLDS MORE THAN THE OTHERS (certain)"), "{shown}");
    assert!(shown.lines().count() <= 24, "{shown}");
    // `why` on the folder, and on all files, does the same.
    let why = makeroom(&stage, &["why", "recordings"]);
    assert_eq!(text(&why.stdout), shown);
    let page = makeroom(&stage, &["job", "recordings", "-o", "job.html", "--pages", "2"]);
    assert!(page.status.success(), "{}", text(&page.stderr));
    let html = fs::read_to_string(stage.path("job.html")).unwrap();
    assert!(html.contains("job-ranks/rank-3.html") && html.len() < 200_000);
    assert!(stage.path("job-ranks/rank-3.html").exists());
}

#[test]
fn all_ranks_on_one_gpu() {
    let answer = answer(&recorded("one-gpu"));
    assert_eq!(answer["verdict"]["cause"], "ranks_share_gpu", "{:#}", answer["verdict"]);
    assert_eq!(answer["idle_cards"].as_array().unwrap().len(), 7);
    assert!(followed(&answer, "shared_gpu") >= 1);
    assert!(answer["fixes"][0]["command"].as_str().unwrap().contains("LOCAL_RANK"));
}

#[test]
fn a_rank_killed_by_sigkill() {
    let answer = answer(&recorded("killed"));
    assert_eq!(answer["verdict"]["cause"], "rank_killed", "{:#}", answer["verdict"]);
    assert_eq!(ranks(&answer["culprits"]), [5]);
    assert_eq!(followed(&answer, "terminated"), 15);
}

#[test]
fn a_caught_error() {
    let answer = answer(&recorded("caught"));
    assert_eq!(answer["verdict"]["cause"], "caught", "{:#}", answer["verdict"]);
    assert_eq!(answer["caught"], serde_json::json!(["rank 7"]));
    assert!(ranks(&answer["culprits"]).is_empty());
}

#[test]
fn two_pipeline_stages() {
    let answer = answer(&recorded("stages"));
    assert_eq!(answer["verdict"]["cause"], "group_holds_more", "{:#}", answer["verdict"]);
    assert_eq!(answer["groups"].as_array().unwrap().len(), 2);
    let summary = answer["verdict"]["summary"].as_str().unwrap();
    assert!(summary.contains("head") || summary.contains("logits"), "{summary}");
    assert_eq!(ranks(&answer["culprits"]), (8..16).collect::<Vec<_>>());
}

#[test]
fn uneven_experts() {
    let answer = answer(&recorded("experts"));
    assert_eq!(answer["verdict"]["cause"], "rank_holds_more", "{:#}", answer["verdict"]);
    assert_eq!(ranks(&answer["culprits"]), [11]);
    assert!(answer["culprits"][0]["lines"][0]["place"].as_str().unwrap().contains("experts"));
}

#[test]
fn a_victim_that_fails_first_by_a_skewed_clock() {
    let stage = recorded("skew");
    let answer = answer(&stage);
    assert_eq!(answer["verdict"]["cause"], "rank_holds_more", "{:#}", answer["verdict"]);
    assert_eq!(ranks(&answer["culprits"]), [3]);
    assert_eq!(followed(&answer, "shared_gpu"), 1);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("rank 11 failed") && notes.contains("before rank 3 by its clock"), "{notes}");
}

#[test]
fn bad_files_are_named_and_the_rest_is_answered() {
    let stage = recorded("caught");
    let recordings = stage.path("recordings");
    fs::write(recordings.join("damaged.pickle"), b"\x80\x04\x95garbage").unwrap();
    fs::write(recordings.join("notes.txt"), "remember the milk\n").unwrap();
    let any = fs::read_dir(&recordings)
        .unwrap()
        .flatten()
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "room"));
    fs::remove_file(any.unwrap().path()).unwrap();
    let answer = answer(&stage);
    assert_eq!(answer["used"]["recordings"], 15);
    assert_eq!(answer["used"]["missing_ranks"].as_array().unwrap().len(), 1);
    assert!(answer["used"]["unread"][0]["file"].as_str().unwrap().ends_with("damaged.pickle"));
    let nothing = makeroom(&stage, &["job", "recordings/notes.txt", "recordings/nothing"]);
    assert!(!nothing.status.success());
    assert!(text(&nothing.stderr).contains("cannot open recordings/nothing"), "{}", text(&nothing.stderr));
}
