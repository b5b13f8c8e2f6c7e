//! The inputs of `makeroom why`: files, several files, pipes, logs of any size.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const LOG: &str = "examples/other-process.txt";
const SNAPSHOT: &str = "traces/oom_fragmented.pickle.gz";
const ERROR: &str = "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 8.00 GiB total capacity; 7.00 GiB already allocated; 0 bytes free; 7.50 GiB reserved in total by PyTorch)\n";

fn why(arguments: &[&str], input: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_makeroom"));
    command.arg("why").args(arguments).current_dir(ROOT).env("NO_COLOR", "1").env("COLUMNS", "100");
    command.stdin(input).output().unwrap()
}

fn file(path: &str) -> File {
    File::open(Path::new(ROOT).join(path)).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("why");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

#[test]
fn standard_input_is_read_without_a_dash() {
    for path in [LOG, SNAPSHOT] {
        let named = why(&[path], Stdio::null());
        assert!(named.status.success());
        for arguments in [&[][..], &["-"]] {
            let piped = why(arguments, file(path));
            assert_eq!((piped.status, &piped.stdout), (named.status, &named.stdout), "{path} {arguments:?}");
        }
    }
}

#[test]
fn a_pipe_can_carry_a_log_or_a_snapshot() {
    for path in [LOG, SNAPSHOT] {
        let mut source =
            Command::new("cat").arg(path).current_dir(ROOT).stdout(Stdio::piped()).spawn().unwrap();
        let piped = why(&["--json"], source.stdout.take().unwrap());
        source.wait().unwrap();
        assert_eq!(json(&piped), json(&why(&["--json", path], Stdio::null())), "{path}");
    }
}

#[test]
fn each_of_several_files_has_a_heading() {
    let output = why(&[LOG, SNAPSHOT], Stdio::null());
    let text = String::from_utf8(output.stdout).unwrap();
    let alone = |path: &str| String::from_utf8(why(&[path], Stdio::null()).stdout).unwrap();
    let expected = format!("==> {LOG} <==\n{}\n==> {SNAPSHOT} <==\n{}", alone(LOG), alone(SNAPSHOT));
    assert_eq!(text, expected);
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn several_inputs_are_one_json_array() {
    let output = why(&["--json", LOG, "-"], file(SNAPSHOT));
    let explained = json(&output);
    let files: Vec<&str> =
        explained.as_array().unwrap().iter().map(|one| one["file"].as_str().unwrap()).collect();
    assert_eq!(files, [LOG, "standard input"]);
    let mut first = explained[0].clone();
    first.as_object_mut().unwrap().remove("file");
    assert_eq!(first, json(&why(&["--json", LOG], Stdio::null())), "one input is an object without a name");
}

#[test]
fn a_missing_file_leaves_the_others() {
    for arguments in [&[LOG, "no-such-file", LOG][..], &["--json", LOG, "no-such-file", LOG]] {
        let output = why(arguments, Stdio::null());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("cannot open no-such-file"), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).matches("process 485 holds").count() % 2, 0);
        assert!(!output.stdout.is_empty());
    }
}

#[test]
fn a_large_log_is_explained_with_its_line_numbers() {
    let path = scratch("large.log");
    let mut log = File::create(&path).unwrap();
    let calm = "step 100 loss 0.25 lr 3e-4 tokens/s 41000\n".repeat(250_000);
    for part in [&calm, ERROR, &calm, &calm, ERROR] {
        log.write_all(part.as_bytes()).unwrap();
    }
    let named = json(&why(&["--json", path.to_str().unwrap()], Stdio::null()));
    assert_eq!(named["request"]["bytes"], 3_u64 << 30);
    // The run continued for half a million steps after the first failure; the last one ended it.
    assert_eq!(
        named["notes"][0],
        "an earlier out-of-memory error on line 250001 was caught, and the program continued"
    );
    assert_eq!(json(&why(&["--json"], File::open(&path).unwrap())), named);
}

#[test]
fn an_answer_fits_one_screen() {
    // One that fits, and the longest of each kind.
    let paths = [LOG, SNAPSHOT, "examples/errors/torchrun.txt", "examples/errors/xgboost.txt"];
    let lines = |arguments: &[&str]| {
        let text = String::from_utf8(why(arguments, Stdio::null()).stdout).unwrap();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut shortened = 0;
    for path in paths {
        let (short, whole) = (lines(&[path]), lines(&["--verbose", path]));
        assert!(short.len() <= 24, "{path}: {} lines", short.len());
        // The verdict is the same, and what is left out is said.
        assert_eq!(short[..3], whole[..3], "{path}");
        assert_eq!(short.len() < whole.len(), short.last().unwrap().contains("--verbose"), "{path}");
        shortened += usize::from(short.len() < whole.len());
    }
    assert!(shortened > 0, "no answer was too long");
}
