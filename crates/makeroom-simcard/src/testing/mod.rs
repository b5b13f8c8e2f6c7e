//! The test harness of the crates that use the software GPU: a directory per test, compiled C programs, and commands with
//! a known environment. [`SoftwareGpu`] loads the driver into the test process.
//!
//! Everything here panics on failure, with the output of the program that failed, because only tests call it.
//!
//! ```no_run
//! use makeroom_simcard::testing::{Stage, succeeded};
//!
//! // In an integration test: env!("CARGO_TARGET_TMPDIR")
//! let stage = Stage::new("/tmp", "crate/test").with_machine("devices=2,memory=1GiB");
//! let program = stage.compile("tests/programs/allocate.c", &["-O1", "-l:libcuda.so.1"]);
//! assert_eq!(succeeded(&stage.command(program).output().unwrap()), "done\n");
//! ```
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "tests may panic, and this is for tests")]

mod software_gpu;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

pub use software_gpu::SoftwareGpu;

/// Variables that change what commands print or find: those of the developer's terminal would change results.
const SETTINGS: [&str; 10] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "CUDA_VISIBLE_DEVICES",
    "FORCE_COLOR",
    "LD_PRELOAD",
    "LINES",
    "NO_COLOR",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
];

/// The directory of one test, with the libraries of the software GPU, the file of its machine, and the test's programs.
#[derive(Clone, Debug)]
pub struct Stage {
    directory: PathBuf,
    machine: String,
}

impl Stage {
    /// A new, empty directory `name` below `temporary`, with the libraries that cargo built for this test. The machine
    /// has one GPU of 8 GiB.
    pub fn new(temporary: impl AsRef<Path>, name: impl AsRef<Path>) -> Self {
        let directory = temporary.as_ref().join(name);
        let _ = fs::remove_dir_all(&directory);
        crate::install::link_next_to(&env::current_exe().unwrap(), &directory).unwrap();
        Self { directory, machine: "memory=8GiB".to_owned() }
    }

    /// The same directory with another machine, as `MAKEROOM_SIMGPU` describes it.
    #[must_use]
    pub fn with_machine(mut self, description: &str) -> Self {
        description.clone_into(&mut self.machine);
        self
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The description of the machine.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    /// The path of a file in the directory.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }

    /// Compiles a program into the directory, under the source's name. The option `-l:libcuda.so.1` links the driver.
    pub fn compile(&self, source: impl AsRef<Path>, options: &[&str]) -> PathBuf {
        let program = self.path(source.as_ref().file_stem().unwrap());
        let search = format!("-L{}", self.directory.display());
        compile(&[source], &program, &[&["-w", &search], options, &["-ldl", "-lpthread"]].concat());
        program
    }

    /// [`Self::compile`] for a program whose source is the text, under a name.
    pub fn compile_text(&self, name: &str, text: &str, options: &[&str]) -> PathBuf {
        let source = self.path(name).with_extension("c");
        fs::write(&source, text).unwrap();
        self.compile(source, options)
    }

    /// A command in the directory, on its machine.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = plain(program);
        self.place(&mut command);
        command
    }

    /// Makes a command run in the directory, on its machine.
    pub fn place(&self, command: &mut Command) {
        command
            .current_dir(&self.directory)
            .env("LD_LIBRARY_PATH", &self.directory)
            .env("MAKEROOM_SIMGPU", &self.machine)
            .env("MAKEROOM_SIMGPU_DIR", &self.directory)
            .env("XDG_RUNTIME_DIR", &self.directory);
    }
}

/// A command without the settings of the developer's terminal. A test sets its own afterward.
pub fn plain(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in SETTINGS {
        command.env_remove(name);
    }
    command
}

/// Compiles C or C++ sources with the compiler in `CC` or `CXX`.
pub fn compile(sources: &[impl AsRef<Path>], output: &Path, options: &[&str]) {
    let is_cpp = |source: &Path| source.extension().is_some_and(|extension| extension == "cpp");
    let is_cpp = sources.iter().any(|source| is_cpp(source.as_ref()));
    let (variable, usual) = if is_cpp { ("CXX", "c++") } else { ("CC", "cc") };
    let mut command = Command::new(env::var_os(variable).unwrap_or_else(|| usual.into()));
    command.args(sources.iter().map(AsRef::as_ref)).arg("-o").arg(output).args(options);
    succeeded(&command.output().unwrap());
}

/// The path of a library that cargo built for this test, because its crate is in `[dev-dependencies]`.
pub fn built(library: &str) -> PathBuf {
    crate::install::find(&env::current_exe().unwrap(), library).unwrap()
}

/// The standard output of a program that must have succeeded.
pub fn succeeded(output: &Output) -> String {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    out
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether this process runs only this test, given as `module::name`. If not, runs the test in a child process, so that the
/// caller can return. Tests that measure their own process need this, because the tests of a program share a process.
///
/// # Panics
///
/// If the test fails in the child process.
pub fn in_own_process(test: &str) -> bool {
    const ALONE: &str = "TEST_IN_OWN_PROCESS";
    if env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let program = env::current_exe().unwrap();
    let output = Command::new(program).args([test, "--exact"]).env(ALONE, test).output().unwrap();
    assert!(succeeded(&output).contains("1 passed"), "{test} did not run");
    false
}
