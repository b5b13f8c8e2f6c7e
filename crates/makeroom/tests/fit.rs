//! `makeroom fit` on a program whose memory behaves like training, on the software GPU. Answers are compared with the
//! truth, found by running the program itself with every candidate.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use makeroom_simcard::testing::Stage;
use serde_json::Value;

/// A directory with the software GPU and the program.
struct Machine(Stage);

impl Machine {
    fn new(test: &str, cards: &'static str) -> Self {
        let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("fit").join(test)).with_machine(cards);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/train.c");
        stage.compile(source, &["-g", "-l:libcuda.so.1"]);
        Self(stage)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.0.command(program);
        command.env("NO_COLOR", "1");
        command
    }

    /// Whether the program completes with a batch size.
    fn runs(&self, batch: u64) -> bool {
        let path = self.0.path("train");
        self.command(path.to_str().unwrap()).args(["once", &batch.to_string()]).status().unwrap().success()
    }

    /// The largest batch size with which the program completes.
    fn truth(&self) -> u64 {
        let (mut enough, mut too_many) = (1, 1 << 14);
        while enough + 1 < too_many {
            let middle = u64::midpoint(enough, too_many);
            if self.runs(middle) { enough = middle } else { too_many = middle }
        }
        enough
    }

    fn fit(&self, words: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_makeroom")).arg("fit").args(words).output().unwrap()
    }

    /// The answer as JSON.
    fn answer(&self, words: &[&str]) -> Value {
        let output = self.fit(&[&["--json"], words].concat());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// No process or directory of a run is left behind.
    fn assert_clean(&self) {
        let train = self.0.path("train");
        let programs = fs::read_dir("/proc").unwrap().flatten();
        let left: Vec<_> = programs
            .filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(|program| program == train))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        let folders = fs::read_dir(self.0.path("makeroom")).unwrap().flatten();
        let left: Vec<_> =
            folders.filter(|entry| entry.file_name().to_string_lossy().starts_with("fit-")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn the_largest_batch_is_found_in_four_runs_without_a_refusal() {
    let machine = Machine::new("largest", "memory=16GiB,context=400MiB");
    let answer = machine.answer(&["--", "./train", "plain", "{}"]);
    let batch = answer["batch"].as_u64().unwrap();
    let truth = machine.truth();
    assert!(batch <= truth && batch * 100 >= truth * 98, "{batch} of {truth}: {answer:#}");
    assert_eq!(answer["confirmed"], true);
    let runs = answer["runs"].as_array().unwrap();
    assert!(runs.len() <= 4 && runs.iter().all(|run| run["refused"] == false), "{answer:#}");
    let sites = answer["sites"].as_array().unwrap();
    assert!(sites[0]["place"].as_str().unwrap().contains("train.c"), "{sites:?}");
    machine.assert_clean();
}

#[test]
fn a_refusal_that_the_program_gets_over_is_not_the_end() {
    let machine = Machine::new("greedy", "memory=6GiB,context=400MiB");
    let answer = machine.answer(&["--", "./train", "greedy", "{}"]);
    let (batch, truth) = (answer["batch"].as_u64().unwrap(), machine.truth());
    assert!(batch <= truth && batch * 100 >= truth * 97, "{batch} of {truth}: {answer:#}");
    let runs = answer["runs"].as_array().unwrap();
    assert!(runs.iter().all(|run| run["refused"] == false && run["refusals_survived"] == 1), "{answer:#}");
    let said =
        String::from_utf8(machine.fit(&["--runs", "2", "--", "./train", "greedy", "{}"]).stdout).unwrap();
    assert!(said.contains("an allocation failed once, and the program continued"), "{said}");
}

#[test]
fn another_card_is_answered_by_its_size() {
    let machine = Machine::new("card", "memory=16GiB,context=400MiB");
    let small = machine.answer(&["--memory", "6GiB", "--", "./train", "plain", "{}"]);
    let large = machine.answer(&["--memory", "64GiB", "--", "./train", "plain", "{}"]);
    assert_eq!(
        (&small["confirmed"], &large["confirmed"]),
        (&true.into(), &false.into()),
        "{small:#} {large:#}"
    );
    let truth = |cards| Machine(machine.0.clone().with_machine(cards)).truth();
    for (answer, truth) in
        [(small, truth("memory=6GiB,context=400MiB")), (large, truth("memory=64GiB,context=400MiB"))]
    {
        let batch = answer["batch"].as_u64().unwrap();
        assert!(batch <= truth && batch * 100 >= truth * 97, "{batch} of {truth}");
    }
}

#[test]
fn bounds_and_multiples_are_kept_and_workers_are_ended() {
    let machine = Machine::new("bounds", "memory=16GiB,context=400MiB");
    let answer = machine.answer(&["--max", "50", "--multiple", "8", "--", "./train", "worker", "{}"]);
    assert_eq!(answer["batch"], 48, "{answer:#}");
    machine.assert_clean();
}

#[test]
fn of_several_ranks_the_one_that_limits_the_batch_is_named() {
    let machine = Machine::new("ranks", "devices=4,memory=6GiB,context=400MiB");
    let answer = machine.answer(&["--multiple", "2", "--", "./train", "ranks", "{}"]);
    // Rank 2 has half a batch more.
    let (batch, truth) = (answer["batch"].as_u64().unwrap(), machine.truth() * 2 / 3);
    assert!(batch <= truth && batch * 100 >= truth * 97, "{batch} of {truth}: {answer:#}");
    assert_eq!(answer["limiting_rank"], 2, "{answer:#}");
    for run in answer["runs"].as_array().unwrap() {
        let ranks = run["ranks"].as_array().unwrap();
        let peak = |rank: &Value| rank["peak_live_bytes"].as_u64().unwrap();
        assert_eq!((ranks.len(), &ranks[0]["rank"]), (4, &Value::from(2)), "{run:#}");
        assert!(peak(&ranks[0]) > peak(&ranks[1]), "{run:#}");
        assert_eq!(run["peak_live_bytes"], ranks[0]["peak_live_bytes"]);
    }
    machine.assert_clean();
    let said = machine.fit(&["--multiple", "2", "--", "./train", "ranks", "{}"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(
        said.split_whitespace().collect::<Vec<_>>().join(" ").contains("Rank 2 of 4 limits it: with "),
        "{said}"
    );
    assert!(machine.answer(&["--max", "8", "--", "./train", "plain", "{}"])["limiting_rank"].is_null());
}

#[test]
fn too_large_a_beginning_is_survived() {
    let machine = Machine::new("beginning", "memory=4GiB,context=400MiB");
    let answer = machine.answer(&["--start", "4096", "--", "./train", "plain", "{}"]);
    let (batch, truth) = (answer["batch"].as_u64().unwrap(), machine.truth());
    assert!(batch <= truth && batch * 100 >= truth * 95, "{batch} of {truth}: {answer:#}");
    assert_eq!(answer["runs"][0]["refused"], true);
}

#[test]
fn a_beginning_that_is_far_off_is_survived_and_what_was_not_run_is_not_called_the_largest() {
    let machine = Machine::new("far-off", "memory=4GiB,context=400MiB");
    let truth = machine.truth();
    let answer = machine.answer(&["--start", "1000000", "--", "./train", "plain", "{}"]);
    let told = answer["batch"].as_u64().unwrap();
    assert!(told <= truth && told * 100 >= truth * 95, "{told} of {truth}: {answer:#}");
    let answer = machine.answer(&["--runs", "2", "--", "./train", "plain", "{}"]);
    assert_eq!(
        (&answer["reason"], &answer["confirmed"]),
        (&"out_of_runs".into(), &false.into()),
        "{answer:#}"
    );
    let told = answer["batch"].as_u64().unwrap();
    assert!(told <= truth && told * 100 >= truth * 95, "{told} of {truth}: {answer:#}");
    let said = machine.fit(&["--runs", "2", "--", "./train", "plain", "{}"]).stdout;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains(" was confirmed, and no runs were left (--runs)"), "{said}");
}

/// The verdict must agree with the table below it, and the table with how the runs ended.
#[test]
fn more_of_the_same_is_not_called_the_same_memory() {
    let machine = Machine::new("pile", "memory=16GiB,context=400MiB");
    let output = machine.fit(&["--", "./train", "pile", "{}"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!output.status.success() && said.contains("NO MODEL FOUND"), "{said}");
    assert!(said.contains("The live peak was 36.00 MiB with 4 and 2.25 GiB with 256"), "{said}");
    assert!(!said.contains("DOES NOT DEPEND") && !said.contains("was stopped once"), "{said}");
    assert_eq!(said.matches("exited on its own").count(), 2, "{said}");
    let answer = machine.answer(&["--", "./train", "pile", "{}"]);
    assert_eq!((&answer["reason"], &answer["runs"][0]["end"]), (&"no_law".into(), &"by_itself".into()));
}

#[test]
fn what_was_asked_to_be_kept_free_is_kept_free() {
    let machine = Machine::new("margin", "memory=4GiB,context=400MiB");
    for (percent, bytes) in [("0", 0), ("25", 1 << 30)] {
        let answer = machine.answer(&["--runs", "2", "--margin", percent, "--", "./train", "plain", "{}"]);
        assert_eq!(answer["memory"]["margin_bytes"].as_u64(), Some(bytes), "{answer:#}");
    }
}

#[test]
fn what_cannot_be_answered_is_said() {
    let machine = Machine::new("bad", "memory=16GiB,context=400MiB");
    let said = |words: &[&str]| {
        let output = machine.fit(words);
        assert!(!output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    for (words, message) in [
        (&["--", "./train", "plain", "4"][..], "the command has no {} for the batch size"),
        (&["--", "./train", "deaf", "{}"], "MEMORY DOES NOT DEPEND ON THE BATCH SIZE"),
        (&["--", "./train", "quit", "{}"], "ValueError: the labels are missing"),
        (&["--", "./train", "nothing", "{}"], "allocated no GPU memory"),
        (&["--", "./no-such-program", "{}"], "./no-such-program: No such file"),
        (
            &["--allocator", "bfc", "--", "./train", "plain", "{}"],
            "cannot run a program with the allocator `bfc`",
        ),
        (&["--margin", "80", "--", "./train", "plain", "{}"], "expected a number from 0 to 50"),
        (&["--memory", "100MiB", "--", "./train", "plain", "{}"], "NO TESTED BATCH SIZE FITS"),
        (&["--max", "5", "--multiple", "8", "--", "./train", "plain", "{}"], "no multiple of 8 is at most 5"),
        (&["--max", "4294967296", "--", "./train", "plain", "{}"], "4294967296 is not in 1..=4294967295"),
        (&["--", "false", "{}"], "with batch size 4, the program ended with exit status: 1\n\nhint: "),
        (&["--seconds", "1", "--", "sleep", "1{}"], "allocated no GPU memory within 1 s"),
    ] {
        let all = said(words);
        assert!(all.contains(message), "{words:?}: {all}");
    }
    machine.assert_clean();
}
