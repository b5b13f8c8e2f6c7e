//! Runs small programs with and without the library, and reads their recordings.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod recording;

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::{env, fs};

use makeroom_simcard::testing;

pub(crate) use makeroom_simcard::testing::text;
pub(crate) use recording::Recording;

/// A compiled program of `tests/programs`, with a directory for its output.
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    preloads: Vec<PathBuf>,
    driver: PathBuf,
    searched: Vec<PathBuf>,
    pub(crate) directory: PathBuf,
}

impl Program {
    /// Compiles a program linked with the driver.
    pub(crate) fn new(name: &str) -> Self {
        Self::compiled(name, &["-lcuda"])
    }

    /// Compiles a program not linked with the driver.
    pub(crate) fn without_driver(name: &str) -> Self {
        Self::compiled(name, &[])
    }

    /// Compiles a program that uses functions that the minimal driver lacks.
    pub(crate) fn with_missing(name: &str) -> Self {
        Self::compiled(name, &["-lcuda", "-Wl,--unresolved-symbols=ignore-all"])
    }

    /// Any executable.
    pub(crate) fn other(path: &Path, label: &str) -> Self {
        static RUNS: Mutex<u32> = Mutex::new(0);
        let mut runs = RUNS.lock().unwrap();
        *runs += 1;
        let directory = scratch().join(format!("{label}-{}", *runs));
        fs::create_dir_all(&directory).unwrap();
        Self {
            path: path.to_owned(),
            arguments: Vec::new(),
            variables: Vec::new(),
            preloads: Vec::new(),
            driver: driver(),
            searched: Vec::new(),
            directory,
        }
    }

    fn compiled(name: &str, libraries: &[&str]) -> Self {
        let path = compile(name, name.trim_end_matches(".c").trim_end_matches(".cpp"), libraries);
        Self::other(&path, name)
    }

    /// Uses the software GPU instead of the minimal driver.
    pub(crate) fn on_software_gpu(mut self) -> Self {
        let test = env::current_exe().unwrap();
        self.driver = self.directory.join("driver");
        makeroom_simcard::install::link_next_to(&test, &self.driver).unwrap();
        self.variable("MAKEROOM_SIMGPU", "memory=8GiB")
    }

    pub(crate) fn argument(mut self, word: &str) -> Self {
        self.arguments.push(word.to_owned());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a directory to the library search path.
    pub(crate) fn search(mut self, directory: &Path) -> Self {
        self.searched.push(directory.to_owned());
        self
    }

    /// Runs it through another program, which receives its path and arguments.
    pub(crate) fn under(mut self, words: &[&str]) -> Self {
        let own = std::mem::replace(&mut self.path, PathBuf::from(words[0]));
        self.arguments.insert(0, own.display().to_string());
        self.arguments.splice(0..0, words[1..].iter().map(ToString::to_string));
        self
    }

    /// Preloads another library, before or after this one in the order of the calls.
    pub(crate) fn preload(mut self, library: PathBuf) -> Self {
        self.preloads.push(library);
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        begin_anew(&mut command);
        command.args(&self.arguments).envs(self.variables.iter().cloned()).current_dir(&self.directory);
        let searched = join([&self.driver].into_iter().chain(&self.searched));
        command.env("LD_LIBRARY_PATH", searched).env("MAKEROOM_SIMGPU_DIR", &self.driver);
        command
    }

    /// The result without the library.
    pub(crate) fn alone(&self) -> Output {
        let mut command = self.command();
        let preloads: Vec<_> = self.preloads.iter().filter(|path| **path != library()).collect();
        if !preloads.is_empty() {
            command.env("LD_PRELOAD", join(preloads));
        }
        command.output().unwrap()
    }

    /// The result under the library.
    pub(crate) fn recorded(&self) -> Output {
        let mut preloads: Vec<_> = self.preloads.iter().collect();
        let library = library();
        if !preloads.contains(&&library) {
            preloads.push(&library);
        }
        let mut command = self.command();
        command.env("LD_PRELOAD", join(preloads));
        if !self.variables.iter().any(|(name, _)| name == "MAKEROOM_FILE") {
            command.env("MAKEROOM_FILE", self.directory.join("run.room"));
        }
        command.output().unwrap()
    }

    /// Runs with and without the library: output and exit status must be the same. Returns the recordings by start
    /// time.
    pub(crate) fn check(&self) -> Vec<Recording> {
        let (alone, recorded) = (self.alone(), self.recorded());
        assert_eq!(alone.status, recorded.status, "{}", text(&recorded.stderr));
        assert_eq!(text(&alone.stdout), text(&recorded.stdout));
        assert_eq!(text(&alone.stderr), text(&recorded.stderr));
        self.recordings()
    }

    /// [`Self::check`] for a single process.
    pub(crate) fn check_one(&self) -> Recording {
        let mut recordings = self.check();
        assert_eq!(recordings.len(), 1);
        recordings.remove(0)
    }

    /// The recordings in the program's directory.
    pub(crate) fn recordings(&self) -> Vec<Recording> {
        let mut recordings: Vec<_> = fs::read_dir(&self.directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "room"))
            .map(|path| Recording::read(&path))
            .collect();
        recordings.sort_by_key(|recording| recording.header.monotonic_ns);
        recordings
    }
}

/// Resets what a program would inherit from the tests' parent: a background job of a script ignores signals, and a
/// shell may be recorded itself.
fn begin_anew(command: &mut Command) {
    const LAST_SIGNAL: i32 = 31;
    let begin = || {
        for signal in 1..=LAST_SIGNAL {
            // SAFETY: the child has one thread, and `signal` is async-signal-safe between fork and exec. Two signals
            // cannot be set, which fails without effect.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        // SAFETY: as above.
        unsafe { libc::umask(0o022) };
        Ok(())
    };
    // SAFETY: the function only makes system calls.
    unsafe { command.pre_exec(begin) };
    let of_recorder = |name: &str| name.starts_with("MAKEROOM") || name.starts_with("LD_");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_recorder)) {
        command.env_remove(name);
    }
}

/// A program on the minimal driver and on the software GPU.
pub(crate) fn everywhere(name: &str) -> [Program; 2] {
    [Program::new(name), Program::new(name).on_software_gpu()]
}

/// [`everywhere`] for programs not linked with the driver.
pub(crate) fn everywhere_without_driver(name: &str) -> [Program; 2] {
    [Program::without_driver(name), Program::without_driver(name).on_software_gpu()]
}

/// Whether the tests run as root.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn join<'paths>(paths: impl IntoIterator<Item = &'paths PathBuf>) -> String {
    let paths: Vec<_> = paths.into_iter().map(|path| path.display().to_string()).collect();
    paths.join(":")
}

/// The library under test, which cargo builds for these tests.
pub(crate) fn library() -> PathBuf {
    PathBuf::from(makeroom_embed::path!(makeroom_preload))
}

pub(crate) fn scratch() -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let directory =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{}", std::process::id()));
        // An earlier process with the same number may have left its own.
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    };
    DIRECTORY.get_or_init(make).clone()
}

/// The directory with the driver that the programs use.
pub(crate) fn driver() -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let directory = scratch().join("driver");
        fs::create_dir_all(&directory).unwrap();
        let flags = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"];
        build("libcuda.c", &directory.join("libcuda.so.1"), &flags);
        std::os::unix::fs::symlink("libcuda.so.1", directory.join("libcuda.so")).unwrap();
        directory
    };
    DIRECTORY.get_or_init(make).clone()
}

/// Compiles a program against the driver.
pub(crate) fn compile(source: &str, output: &str, libraries: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let driver = driver();
    let output = scratch().join(output);
    let _guard = ONE_AT_A_TIME.lock();
    if !output.exists() {
        let search = format!("-L{}", driver.display());
        let flags: Vec<&str> =
            [search.as_str(), "-g", "-rdynamic"].iter().chain(libraries).copied().collect();
        build(source, &output, &flags);
    }
    output
}

fn build(source: &str, output: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    testing::compile(&[source], output, &[&["-w"], flags, &["-ldl", "-lpthread"]].concat());
}
