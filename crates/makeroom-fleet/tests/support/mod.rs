//! Runs the program, and makes logs of jobs that ran out of memory.

pub(crate) mod bucket;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An empty folder that is removed at the end.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// `makeroom-fleet` with these arguments and variables.
pub(crate) fn command(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_makeroom-fleet"));
    command.args(arguments).env("COLUMNS", "100").env_remove("AWS_PROFILE").envs(variables.iter().copied());
    command
}

/// Runs it.
pub(crate) fn run_with(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    command(arguments, variables).output().unwrap()
}

/// Runs it; the exit status has to be 0.
pub(crate) fn run(arguments: &[&str]) -> String {
    let output = run_with(arguments, &[]);
    let (out, error) = texts(&output);
    assert!(output.status.success(), "{arguments:?}\n{out}\n{error}");
    out
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A log of a rank that ran out of memory.
pub(crate) fn log(request: u32) -> String {
    format!(
        "Traceback (most recent call last):\n  File \"train.py\", line 25, in <module>\n    x = layer(x)\n\
         torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}.00 MiB. GPU 0 has a total capacity of \
         8.00 GiB of which 61.00 MiB is free. Including non-PyTorch memory, this process has 7.90 GiB memory in use. Of \
         the allocated memory 7.00 GiB is allocated by PyTorch, and 684.00 MiB is reserved by PyTorch but unallocated.\n"
    )
}

/// A folder with two jobs of two ranks each, a foreign file and a torn one.
pub(crate) fn recordings(folder: &Path) -> PathBuf {
    let source = folder.join("recordings");
    for job in ["job-7", "job-8"] {
        fs::create_dir_all(source.join(job)).unwrap();
        for rank in 0..2 {
            fs::write(source.join(job).join(format!("rank{rank}.log")), log(100 + rank)).unwrap();
        }
    }
    fs::write(source.join("train.py"), "print(1)\n").unwrap();
    fs::write(source.join("foreign.pickle"), b"\x80\x04cos\nsystem\n.").unwrap();
    source
}

/// The files below a folder with their contents, by name.
pub(crate) fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}
