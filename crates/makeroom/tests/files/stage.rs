//! A directory with the software GPU and a program that executes the steps in its arguments.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use makeroom_simcard::testing::{self, plain, succeeded};

pub(crate) use makeroom_simcard::testing::text;

/// The directory of one test.
pub(crate) struct Stage(testing::Stage);

impl Stage {
    pub(crate) fn new(test: &str) -> Self {
        let stage = testing::Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("files").join(test));
        fs::copy(program(), stage.path("steps")).unwrap();
        fs::create_dir(stage.path("own")).unwrap();
        Self(stage)
    }

    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path(name)
    }

    /// `makeroom` with these arguments, in this directory.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_of(plain(env!("CARGO_BIN_EXE_makeroom")), words)
    }

    /// `makeroom` started by another program: that program's arguments, then makeroom's path and arguments.
    pub(crate) fn under(&self, other: &[&str], words: &[&str]) -> Command {
        let mut command = plain(other[0]);
        command.args(&other[1..]).arg(env!("CARGO_BIN_EXE_makeroom"));
        self.command_of(command, words)
    }

    fn command_of(&self, mut command: Command, words: &[&str]) -> Command {
        self.0.place(&mut command);
        command.args(words).env("XDG_RUNTIME_DIR", self.path("own")).env_remove("MAKEROOM");
        command
    }

    /// Runs `makeroom run -o FILE -- ./steps STEPS`.
    pub(crate) fn run(&self, file: &str, steps: &str) -> Output {
        let mut words = vec!["run", "--no-status", "-o", file, "--", "./steps"];
        words.extend(steps.split(' '));
        self.command(&words).output().unwrap()
    }

    /// The output of `makeroom why` for a file.
    pub(crate) fn why(&self, file: impl AsRef<OsStr>) -> String {
        succeeded(&self.command(&["why"]).arg(file).output().unwrap())
    }

    /// The output of `makeroom why --json` for a file.
    pub(crate) fn why_json(&self, file: impl AsRef<OsStr>) -> serde_json::Value {
        let output = self.command(&["why", "--json"]).arg(file).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The program, compiled once.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let stage = testing::Stage::new(env!("CARGO_TARGET_TMPDIR"), "files/program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/steps.c");
        stage.compile(source, &["-g", "-rdynamic", "-l:libcuda.so.1"])
    })
}

/// Mounts a tmpfs. Returns whether that was permitted.
pub(crate) fn mount(folder: &Path, option: &str) -> bool {
    fs::create_dir_all(folder).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", option, "tmpfs"]).arg(folder).output();
    mounted.is_ok_and(|output| output.status.success())
}

pub(crate) fn unmount(folder: &Path) {
    let _ = Command::new("umount").arg(folder).output();
}
