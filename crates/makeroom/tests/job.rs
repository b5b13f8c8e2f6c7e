//! `makeroom job` over recordings of real programs: 16 ranks on the software GPU with eight devices, each failing in
//! another way. Each must get the right verdict for the whole job.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    recorded_with(scenario, scenario, &[])
}

/// The same with options of `run`; the test names the directory.
fn recorded_with(test: &str, scenario: &str, options: &[&str]) -> Stage {
    let stage = stage(test);
    let words = [&["run", "--no-status", "-o", "recordings/%p.room"], options, &["--", "./ranks", scenario]];
    let run = makeroom(&stage, &words.concat());
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
    // The screen has what a user needs next: the fix, and whose memory fills the GPU.
    assert!(shown.contains("1. balance the work of rank 3") && shown.contains("GPU 3, 8.00 GiB"), "{shown}");
    assert!(shown.contains("makeroom view recordings/"), "{shown}");
    // From an archive, ranks have pages and commands too.
    let packed =
        Command::new("tar").args(["-cf", "all.tar", "recordings"]).current_dir(stage.directory()).status();
    assert!(packed.unwrap().success());
    let page = makeroom(&stage, &["job", "--json", "all.tar", "-o", "archive.html", "--pages", "1"]);
    let packed: Value = serde_json::from_slice(&page.stdout).unwrap();
    assert_eq!(ranks(&packed["culprits"]), [3]);
    assert!(stage.path("archive-ranks/rank-3.html").exists(), "{}", text(&page.stderr));
    let command = packed["ranks"][3]["command"].as_str().unwrap();
    let extracted = Command::new("sh")
        .args(["-c", command.split(" && ").next().unwrap()])
        .current_dir(stage.directory())
        .status();
    assert!(
        command.starts_with("tar -xf all.tar -- recordings/") && extracted.unwrap().success(),
        "{command}"
    );
}

#[test]
fn the_account_of_a_rank_with_a_limit_is_that_of_the_limit() {
    let answer = answer(&recorded_with("limit", "heavy", &["--limit", "4GiB"]));
    assert_eq!(ranks(&answer["culprits"]), [3], "{:#}", answer["verdict"]);
    assert_eq!(followed(&answer, "shared_gpu"), 0);
    let account = &answer["account"];
    assert_eq!(account["total_bytes"], 4_u64 << 30, "{account:#}");
    assert_eq!(account["unaccounted_bytes"], 0);
    assert_eq!(account["name"], "GPU 3 with --limit, rank 3");
    let lines: Vec<&str> =
        account["lines"].as_array().unwrap().iter().filter_map(|line| line["what"].as_str()).collect();
    assert_eq!(lines, ["live memory", "CUDA context", "free"]);
}

/// `run` in front of a launcher: one summary, and one recording per rank in one folder.
#[test]
fn a_run_of_ranks_has_one_summary() {
    let folder = stage("launcher");
    let run = makeroom(&folder, &["run", "--no-status", "--", "./ranks", "heavy"]);
    let shown = text(&run.stderr);
    let folders: Vec<PathBuf> = fs::read_dir(folder.directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("makeroom."))
        .collect();
    let [recordings] = folders.as_slice() else { panic!("{folders:?}\n{shown}") };
    for rank in 0..16 {
        assert!(recordings.join(format!("rank{rank}.room")).exists(), "{rank}: {shown}");
    }
    let name = recordings.file_name().unwrap().to_string_lossy();
    assert!(shown.starts_with("makeroom: rank 3: allocation of 7.00 GiB failed on GPU 3\n"), "{shown}");
    let (_, summary) =
        shown.split_once("makeroom: 16 ranks of ./ranks used up to").unwrap_or_else(|| panic!("{shown}"));
    assert!(summary.contains("RANK 3 HOLDS MORE THAN THE OTHERS (certain)"), "{shown}");
    assert!(summary.contains("ranks 0–2 and 4–15: terminated by the launcher"), "{shown}");
    assert!(
        summary.ends_with(&format!("16 recordings saved; for all ranks: makeroom job {name}\n")),
        "{shown}"
    );
    assert_eq!(shown.matches("makeroom: ").count(), 2, "one line for the failure, one summary: {shown}");
    let job = makeroom(&folder, &["job", "--json", &name]);
    let answer: Value = serde_json::from_slice(&job.stdout).unwrap();
    assert_eq!(ranks(&answer["culprits"]), [3]);
    // A second run to the same file gets another folder; `--summary` still has every recording.
    for expected in ["caught", "caught.2"] {
        let words = [
            "run",
            "--no-status",
            "-o",
            "caught.room",
            "--summary",
            "summary.json",
            "--",
            "./ranks",
            "caught",
        ];
        let run = makeroom(&folder, &words);
        assert!(run.status.success());
        assert!(
            text(&run.stderr).contains("rank 7 caught a failed allocation")
                || text(&run.stderr).contains("Rank 7 caught a failed allocation"),
            "{}",
            text(&run.stderr)
        );
        assert_eq!(fs::read_dir(folder.path(expected)).unwrap().count(), 16);
        let summary: Value = serde_json::from_slice(&fs::read(folder.path("summary.json")).unwrap()).unwrap();
        assert_eq!(summary.as_array().unwrap().len(), 16);
    }
}

/// One process with a rank is not a job: `mpirun makeroom run` has one summary per process, as before.
#[test]
fn a_single_rank_has_its_own_summary() {
    let folder = stage("single");
    let run = folder
        .command(env!("CARGO_BIN_EXE_makeroom"))
        .args(["run", "--no-status", "-o", "one.room", "--", "./ranks", "single"])
        .env("NO_COLOR", "1")
        .envs([("RANK", "2"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "2")])
        .output()
        .unwrap();
    let shown = text(&run.stderr);
    assert!(shown.contains(", rank 2) used up to 512.00 MiB"), "{shown}");
    assert!(folder.path("one/rank2.room").exists() && !shown.contains("makeroom job"), "{shown}");
}

#[test]
fn a_request_that_exceeds_the_gpu_is_not_blamed_on_a_neighbor() {
    let answer = answer(&recorded("impossible"));
    assert_eq!(answer["verdict"]["cause"], "request_too_large", "{:#}", answer["verdict"]);
    assert_eq!(ranks(&answer["culprits"]), [3]);
    let summary = answer["verdict"]["summary"].as_str().unwrap();
    assert!(summary.contains("can never fit") && summary.contains("the whole GPU has 8.00 GiB"), "{summary}");
    assert!(!answer.to_string().contains("rank 11 holds"), "{answer:#}");
    assert_eq!((followed(&answer, "shared_gpu"), followed(&answer, "terminated")), (0, 15));
}

/// `makeroom env --keep failed` leaves nothing after a job that succeeds, and the hint says so.
#[test]
fn a_directory_without_recordings_is_explained() {
    let stage = stage("kept-none");
    fs::create_dir_all(stage.path("oom/.makeroom")).unwrap();
    for (words, hint) in [
        (&["job", "oom"][..], "processes that succeed leave none"),
        (&["why", "oom"], "processes that succeed leave none"),
        (&["view", "oom"], "this directory contains no files"),
        (&["job", "recordings"], "recognized by their names"),
    ] {
        let output = makeroom(&stage, words);
        let shown = text(&output.stderr);
        assert!(!output.status.success() && shown.contains(hint), "{words:?}: {shown}");
        assert!(!shown.contains("makeroom job oom"), "{words:?}: {shown}");
    }
}

#[test]
fn logs_are_numbered_in_archives_too_and_cannot_be_compared() {
    let stage = stage("numbered");
    fs::create_dir_all(stage.path("logs")).unwrap();
    let failed = "Traceback (most recent call last):\n  File \"t.py\", line 3, in main\n    f(x)\nValueError: bad shape\n";
    for (name, text) in [("logs/job_0.txt", "step 1\n"), ("logs/job_1.txt", failed)] {
        fs::write(stage.path(name), text).unwrap();
    }
    let packed =
        Command::new("tar").args(["-czf", "logs.tar.gz", "logs"]).current_dir(stage.directory()).status();
    assert!(packed.unwrap().success());
    for path in ["logs", "logs.tar.gz"] {
        let shown = text(&makeroom(&stage, &["job", path]).stdout);
        assert!(shown.contains("RANK 1 FAILED"), "{path}: {shown}");
        assert!(shown.contains("based on 2 logs"), "{path}: {shown}");
    }
    let output = makeroom(&stage, &["diff", "logs", "logs"]);
    let shown = text(&output.stderr);
    assert!(!output.status.success() && shown.contains("makeroom job logs"), "{shown}");
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

/// Without a handler for the launcher's signal, all recordings stop alike; the order of their ends tells them apart.
#[test]
fn a_rank_killed_by_sigkill_and_the_others_without_a_handler() {
    let answer = answer(&recorded("unhandled"));
    assert_eq!(answer["verdict"]["cause"], "rank_killed", "{:#}", answer["verdict"]);
    assert_eq!(ranks(&answer["culprits"]), [5], "{:#}", answer["verdict"]);
    assert_ne!(answer["verdict"]["certainty"], "certain");
    assert_eq!(followed(&answer, "killed"), 15);
}

#[test]
fn a_rank_that_exited_and_the_others_without_a_handler() {
    let answer = answer(&recorded("crashed"));
    assert_eq!(answer["verdict"]["cause"], "other_failure", "{:#}", answer["verdict"]);
    assert_eq!(ranks(&answer["culprits"]), [9]);
    assert_eq!(followed(&answer, "killed"), 15);
}

#[test]
fn ranks_that_were_killed_together_have_no_first() {
    let answer = answer(&recorded("all-killed"));
    assert_eq!(answer["verdict"]["cause"], "all_killed", "{:#}", answer["verdict"]);
    assert!(ranks(&answer["culprits"]).is_empty());
}

#[test]
fn a_rank_that_did_not_end_when_asked_is_no_culprit() {
    let answer = answer(&recorded("stubborn"));
    assert_eq!(answer["verdict"]["cause"], "terminated", "{:#}", answer["verdict"]);
    assert_eq!((followed(&answer, "terminated"), followed(&answer, "killed")), (15, 1));
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
    // On a busy machine the victim may fail too late for its clock; the verdict does not depend on that.
    let is_before = (0..5).any(|_| {
        let answer = answer(&recorded("skew"));
        assert_eq!(answer["verdict"]["cause"], "rank_holds_more", "{:#}", answer["verdict"]);
        assert_eq!(ranks(&answer["culprits"]), [3]);
        assert_eq!(followed(&answer, "shared_gpu"), 1);
        let notes = answer["notes"].to_string();
        let failed = notes.split_once("rank 11 failed ");
        let before = failed.and_then(|(_, rest)| rest.split_once(" ms before rank 3 by its clock"));
        before.is_some_and(|(before, _)| before.parse::<u64>().unwrap() <= 50)
    });
    assert!(is_before, "the victim was recorded after the culprit");
}

#[test]
fn bad_files_are_named_and_the_rest_is_answered() {
    let stage = recorded_with("bad-files", "caught", &[]);
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

#[test]
fn a_recording_without_its_end_is_incomplete_but_its_rank_was_not_killed() {
    let stage = recorded_with("truncated", "caught", &[]);
    let before = answer(&stage);
    assert!(before["used"]["torn"].as_array().unwrap().is_empty(), "{:#}", before["used"]);
    let entries = fs::read_dir(stage.path("recordings")).unwrap().flatten();
    let path = entries.map(|entry| entry.path()).min().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 7]).unwrap();
    let answer = answer(&stage);
    assert_eq!(answer["verdict"]["cause"], before["verdict"]["cause"]);
    assert_eq!(answer["used"]["torn"].as_array().unwrap().len(), 1, "{:#}", answer["used"]);
    let is_killed = |rank: &Value| rank["fate"] == "killed";
    assert!(!answer["ranks"].as_array().unwrap().iter().any(is_killed), "{:#}", answer["ranks"]);
    assert!(answer["notes"].to_string().contains("is incomplete"), "{:#}", answer["notes"]);
}
