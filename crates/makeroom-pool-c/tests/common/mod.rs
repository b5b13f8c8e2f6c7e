//! Shared test support: C programs compiled against the header, run on the software GPU.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::{env, fs};

/// The crate's directory.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library under test, by file name. Cargo does not build a `cdylib` for its own tests, so this builds it once
/// per test file, in a separate directory, because the outer build may hold the lock of the usual one. With
/// `CARGO_BUILD_TARGET` the library is built for the same target as the tests.
pub(crate) fn library(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool-c-library");
        let mut command = Command::new(env!("CARGO"));
        // The release build without LTO, to build faster.
        command.args(["build", "--lib", "--release", "--config", "profile.release.lto='off'"]);
        command.arg("--manifest-path").arg(here().join("Cargo.toml"));
        let result = command.arg("--target-dir").arg(&directory).output().unwrap();
        assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
        directory.join(env::var("CARGO_BUILD_TARGET").unwrap_or_default()).join("release")
    };
    DIRECTORY.get_or_init(make).join(name)
}

/// A directory for a test's output.
pub(crate) fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pool-c").join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Compiles sources in C or C++, with all warnings as errors.
pub(crate) fn compile(sources: &[&Path], output: &Path, options: &[&str]) {
    let is_cpp = sources.iter().any(|source| source.extension().is_some_and(|extension| extension == "cpp"));
    let (variable, usual) = if is_cpp { ("CXX", "c++") } else { ("CC", "cc") };
    let mut command = Command::new(env::var(variable).unwrap_or_else(|_| usual.to_owned()));
    command.args(["-Wall", "-Wextra", "-Werror", "-g"]).args(sources).arg("-o").arg(output);
    command.arg("-I").arg(here().join("include")).args(options);
    let result = command.output().unwrap();
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr));
}

/// Options that link the shared library in place.
pub(crate) fn link() -> [String; 2] {
    let library = library("libmakeroom_pool.so");
    let directory = library.parent().unwrap().display().to_string();
    [library.display().to_string(), format!("-Wl,-rpath,{directory}")]
}

/// Runs a program on the software GPU.
pub(crate) fn run(program: &Path, directory: &Path, arguments: &[&str], machine: &str) -> Output {
    let driver = directory.join("driver");
    makeroom_simcard::install::link_next_to(&env::current_exe().unwrap(), &driver).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory);
    command.env("LD_LIBRARY_PATH", &driver).env("MAKEROOM_SIMGPU_DIR", &driver);
    command.env("MAKEROOM_SIMGPU", machine).output().unwrap()
}

/// A program's output, if it succeeded.
pub(crate) fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out.into_owned()
}
