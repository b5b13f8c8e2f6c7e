//! Shared by the tests of the built libraries: compiling and running the C programs of `tests/programs`.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use makeroom_simcard::testing::{self, Stage, succeeded};

/// The directory of one test.
pub(crate) fn stage(test: &str) -> Stage {
    Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("simgpu").join(test))
}

/// Compiles a C program of `tests/programs`.
pub(crate) fn compile(stage: &Stage, program: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(program);
    stage.compile(source.with_extension("c"), &[&["-std=gnu11", "-O1"], options].concat())
}

/// A command on a machine with this description.
pub(crate) fn command(stage: &Stage, program: &Path, machine: &str) -> Command {
    let mut command = stage.command(program);
    command.env("MAKEROOM_SIMGPU", machine);
    command
}

/// Runs a program to its end and returns its output.
pub(crate) fn run(stage: &Stage, program: &Path, machine: &str) -> String {
    succeeded(&command(stage, program, machine).output().unwrap())
}

/// A program's complete output.
pub(crate) fn text(output: &Output) -> String {
    testing::text(&output.stdout) + &testing::text(&output.stderr)
}
