//! A directory with the programs that these tests run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The signal with the highest number.
const LAST: i32 = 64;

/// The directory of one test.
pub(crate) struct Stage {
    pub(crate) folder: PathBuf,
}

impl Stage {
    pub(crate) fn new(test: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("signals").join(test);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let stage = Self { folder };
        for name in ["ears", "keyboard"] {
            let source =
                Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signals").join(format!("{name}.c"));
            stage.compile(name, &fs::read_to_string(source).unwrap());
        }
        stage
    }

    /// Compiles a program.
    pub(crate) fn compile(&self, name: &str, source: &str) {
        let file = format!("{name}.c");
        fs::write(self.folder.join(&file), source).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
        let built = Command::new(compiler)
            .args(["-w", "-o", name, &file])
            .current_dir(&self.folder)
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }

    /// `makeroom run` with this program and all default signal actions: the tests may run under `nohup` or in the
    /// background of a shell, where some signals are ignored.
    pub(crate) fn run(&self, program: &[&str]) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_makeroom")]);
        command.args(["run", "--no-status", "-o", "run.room", "--"]).args(program);
        self.surround(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// The same on a terminal (see `keyboard.c`).
    pub(crate) fn on_terminal(&self, place: &str, input: &str, program: &[&str]) -> Command {
        let mut command = Command::new(self.folder.join("keyboard"));
        command.args([
            place,
            input,
            env!("CARGO_BIN_EXE_makeroom"),
            "run",
            "--no-status",
            "-o",
            "run.room",
            "--",
        ]);
        command.args(program);
        self.surround(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    pub(crate) fn surround<'command>(&self, command: &'command mut Command) -> &'command mut Command {
        command.current_dir(&self.folder).env("XDG_RUNTIME_DIR", &self.folder).env_remove("LD_PRELOAD")
    }

    /// Waits for a file and returns its content.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match fs::read_to_string(self.folder.join(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => assert!(Instant::now() < end, "{name} never came"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until `ears` is counting. Returns its parent's PID and its own.
    pub(crate) fn ready(&self) -> (i32, i32) {
        let text = self.wait_for("ready");
        let (parent, own) = text.split_once(' ').unwrap();
        (parent.parse().unwrap(), own.parse().unwrap())
    }

    /// Waits until `ears` has received this many signals.
    pub(crate) fn hears(&self, count: usize) {
        let counts = |heard: &str| -> usize {
            heard.split_whitespace().filter_map(|word| word.split_once(':')?.1.parse::<usize>().ok()).sum()
        };
        self.wait_for_signals(|heard| counts(heard) >= count);
    }

    /// Waits until `ears` has received a signal.
    pub(crate) fn hears_signal(&self, signal: i32) {
        self.wait_for_signals(|heard| heard.split_whitespace().any(|word| word == format!("{signal}:1")));
    }

    fn wait_for_signals(&self, is_enough: impl Fn(&str) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let heard = fs::read_to_string(self.folder.join("heard")).unwrap_or_default();
            if is_enough(&heard) {
                return;
            }
            assert!(Instant::now() < end, "ears received only {heard:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends `ears`, which has received `count` signals, and returns its counts.
    ///
    /// A last signal is sent through `parent`, and is taken out of the result. The kernel delivers it after all others
    /// that are pending, so a signal that is forwarded twice has arrived before it.
    pub(crate) fn counts(&self, parent: i32, count: usize) -> Vec<String> {
        self.hears(count);
        send(parent, LAST);
        self.hears(count + 1);
        let mut got = self.end();
        assert_eq!(got.pop(), Some(format!("{LAST}:1")), "{got:?}");
        got
    }

    /// Ends `ears` at once and returns its counts.
    pub(crate) fn end(&self) -> Vec<String> {
        self.write("go", b"go");
        let end = Instant::now() + Duration::from_secs(60);
        while !self.folder.join("got").exists() {
            assert!(Instant::now() < end, "ears did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let got = fs::read_to_string(self.folder.join("got")).unwrap();
        got.split_whitespace().map(str::to_owned).collect()
    }

    /// Writes a file that another process waits for, atomically.
    pub(crate) fn write(&self, name: &str, content: &[u8]) {
        let draft = self.folder.join(format!("{name}.draft"));
        fs::write(&draft, content).unwrap();
        fs::rename(draft, self.folder.join(name)).unwrap();
    }
}

/// Sends a signal to a process, or to a process group if negative.
pub(crate) fn send(process: i32, signal: i32) {
    let status = Command::new("bash").args(["-c", &format!("kill -{signal} -- {process}")]).status();
    assert!(status.unwrap().success(), "kill -{signal} {process}");
}

/// The child of a process that has this command line.
pub(crate) fn child_called(process: i32, name: &str) -> i32 {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    let is_it = |child: &&str| {
        fs::read_to_string(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.trim_end_matches('\0') == name)
    };
    children.split_whitespace().find(is_it).expect("the child").parse().unwrap()
}

/// The state of a process: the letter in `/proc/PID/stat`.
pub(crate) fn state(process: i32) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    status.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a process has stopped, or has resumed.
pub(crate) fn wait_until_stopped(process: i32, is_stopped: bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while (state(process) == Some('T')) != is_stopped {
        assert!(Instant::now() < end, "{process} is {:?}", state(process));
        std::thread::sleep(Duration::from_millis(5));
    }
}
