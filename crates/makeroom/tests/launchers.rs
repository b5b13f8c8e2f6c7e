//! The recipes of docs/job-recipes.md: `makeroom env` in a shell, then a launcher that does not know makeroom.
//!
//! Each launcher starts four ranks on the software GPU, of which rank 2 runs out of memory. A launcher that is not
//! installed, or has no cluster, is skipped; the shell, with the variables of torchrun, always runs.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and reports what it skips")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use makeroom_simcard::testing::{Stage, plain, text};
use serde_json::Value;

/// A folder with the software GPU and the program, `train`.
fn stage(test: &str) -> PathBuf {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("launchers").join(test));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/rank.c");
    let program = stage.compile(source, &["-O0", "-rdynamic", "-l:libcuda.so.1"]);
    let folder = stage.directory().to_path_buf();
    fs::rename(program, folder.join("train")).unwrap();
    folder
}

/// Runs a script as a user would type it, with `makeroom` in the path.
fn shell(folder: &Path, script: &str) -> Output {
    let programs = Path::new(env!("CARGO_BIN_EXE_makeroom")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    plain("bash")
        .args(["-c", script])
        .current_dir(folder)
        .env("PATH", path)
        .env("LD_LIBRARY_PATH", folder)
        .env("MAKEROOM_SIMGPU", "devices=8,memory=8GiB,context=64MiB")
        .env("MAKEROOM_SIMGPU_DIR", folder)
        .env("XDG_RUNTIME_DIR", folder)
        // Open MPI refuses root, which tests in a container are, and more ranks than cores.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .output()
        .unwrap()
}

/// Whether a command exists and succeeds; if not, the test says that it is skipped.
fn has(probe: &str) -> bool {
    let works = Command::new("sh").args(["-c", probe]).output().is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("skipped: {probe} does not work here");
    }
    works
}

/// The answer about a directory of recordings: rank 2 of four is to blame, and each rank has one file.
fn assert_rank_2(folder: &Path, directory: &str, launcher: &Output) -> Value {
    let output = shell(folder, &format!("makeroom job --json {directory}"));
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{} {}", text(&launcher.stderr), text(&output.stderr)));
    let ranks = |list: &str| -> Vec<u64> {
        answer[list].as_array().unwrap().iter().filter_map(|entry| entry["rank"].as_u64()).collect()
    };
    assert_eq!(ranks("culprits"), [2], "{:#}", answer["verdict"]);
    assert_eq!(ranks("ranks"), [0, 1, 2, 3]);
    assert_eq!(answer["used"]["recordings"], 4, "{:#}", answer["used"]);
    assert_eq!(answer["used"]["other_jobs"], serde_json::json!([]));
    answer
}

/// Four ranks as torchrun starts them; the shell ends the others when rank 2 has failed.
const RANKS: &str = "
    export TORCHELASTIC_RUN_ID=none WORLD_SIZE=4
    for rank in 0 1 2 3; do RANK=$rank LOCAL_RANK=$rank ./train $1 & pids[rank]=$!; done
    wait ${pids[2]}; sleep 0.3; kill ${pids[@]} 2>/dev/null; wait";

#[test]
fn variables_in_a_shell_record_every_rank() {
    let folder = stage("shell");
    let run = shell(&folder, &format!("eval \"$(makeroom env --to oom)\"; set -- 2; {RANKS}"));
    assert_rank_2(&folder, "oom", &run);
    // A job may run as another user than the one who placed the recorder.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let recorder = folder.join("oom/.makeroom");
    assert_eq!(mode(&recorder), 0o755);
    for entry in fs::read_dir(&recorder).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o755);
    }
}

#[test]
fn a_job_that_does_not_fail_leaves_nothing() {
    let folder = stage("clean");
    let run = shell(
        &folder,
        &format!(
            "eval \"$(makeroom env --to oom/%j --keep failed)\"; MAKEROOM_JOB_ID=7; export MAKEROOM_JOB_ID; set --; {RANKS}"
        ),
    );
    let left = fs::read_dir(folder.join("oom/7")).unwrap().count();
    assert_eq!(left, 0, "{}", text(&run.stderr));
}

#[test]
fn mpirun_passes_the_named_variables_on() {
    if !has("mpirun --version | grep -q 'Open MPI'") {
        return;
    }
    let folder = stage("mpirun");
    let run = shell(
        &folder,
        "eval \"$(makeroom env --to oom)\"
         timeout 60 mpirun -n 4 -x LD_PRELOAD -x MAKEROOM_FILE -x MAKEROOM_RUN_ID -x MAKEROOM_KEEP ./train 2",
    );
    assert_rank_2(&folder, "oom", &run);
}

#[test]
fn srun_exports_the_variables() {
    if !has("sinfo --noheader --states=idle,mixed | grep -q .") {
        return;
    }
    let folder = stage("srun");
    let run = shell(
        &folder,
        "eval \"$(makeroom env --to \"$PWD/oom/%j\" --keep failed)\"
         timeout 60 srun --ntasks 4 --overcommit --kill-on-bad-exit ./train 2",
    );
    let answer = assert_rank_2(&folder, "oom/*", &run);
    let job = answer["ranks"][0]["recording"].as_str().unwrap().split('/').nth(1).unwrap();
    assert!(job.parse::<u32>().is_ok(), "the folder is named by the job's ID: {job}");
}
