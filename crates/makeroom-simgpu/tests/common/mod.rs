//! Shared by the tests of the built libraries: a directory with them, and compiling and running small C programs.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses part of it, and a test may panic")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The directory of one test: the libraries, the shared file of its machine, its programs.
pub(crate) struct Stage {
    pub(crate) directory: PathBuf,
}

impl Stage {
    /// A new directory with the libraries.
    pub(crate) fn new(test: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simgpu").join(test);
        let _ = std::fs::remove_dir_all(&directory);
        makeroom_simcard::install::link_next_to(&std::env::current_exe().unwrap(), &directory).unwrap();
        Self { directory }
    }

    /// The path of a library.
    pub(crate) fn library(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Compiles a C program of `tests/programs`, with additional compiler arguments.
    pub(crate) fn compile(&self, program: &str, arguments: &[&str]) -> PathBuf {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(program).with_extension("c");
        let made = self.directory.join(program);
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(compiler)
            .args(["-std=gnu11", "-w", "-O1", "-o"])
            .arg(&made)
            .arg(source)
            .args(arguments)
            .args(["-ldl", "-lpthread"])
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        made
    }

    /// A command that finds the simulated GPU of this directory.
    pub(crate) fn command(&self, program: &Path, description: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", &self.directory)
            .env("MAKEROOM_SIMGPU", description)
            .env("MAKEROOM_SIMGPU_DIR", &self.directory);
        command
    }

    /// Runs a program to its end and returns its output.
    pub(crate) fn run(&self, program: &Path, description: &str, arguments: &[&str]) -> String {
        let output = self.command(program, description).args(arguments).output().unwrap();
        assert!(output.status.success(), "{} {arguments:?}: {}", program.display(), text(&output));
        text(&output)
    }
}

/// A program's complete output.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// An open library.
pub(crate) struct Library(*mut c_void);

impl Library {
    /// Opens a library.
    pub(crate) fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path is NUL-terminated; the library's initializers are those of the Rust runtime.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null());
        Self(handle)
    }

    /// The address of a symbol, or null.
    pub(crate) fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open, and the name is NUL-terminated.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }

    /// A function of the library, with the caller's type.
    ///
    /// # Safety
    ///
    /// The type must be the function's.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &str) -> F {
        let symbol = self.symbol(name);
        assert!(!symbol.is_null(), "{name}");
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: the caller promises that F is the function's type; both are one pointer wide.
        unsafe { std::mem::transmute_copy(&symbol) }
    }
}
