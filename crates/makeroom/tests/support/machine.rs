//! A simulated machine for one test: a directory with the software driver and NVML, programs that hold memory, and
//! `makeroom` to inspect them.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use makeroom_simcard::testing::{self, Stage, plain};
use serde_json::Value;

pub(crate) use makeroom_simcard::testing::text;

/// 2³⁰ bytes.
pub(crate) const GIB: u64 = 1 << 30;

/// Number of machines created by this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A simulated machine.
pub(crate) struct Machine {
    stage: Stage,
    /// The minor number of the first GPU's device file. Tests run concurrently and see each other's processes.
    minor: u32,
    programs: Vec<Running>,
}

/// A program that is killed at the end of its test, with all its children.
struct Running {
    child: Child,
    group: u32,
    others: Vec<u32>,
    folder: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        // A program in its own PID namespace prints a number that belongs to another process here.
        let is_ours =
            |pid: &&u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.folder);
        let others = self.others.iter().filter(is_ours).map(u32::to_string);
        let targets = others.chain([format!("-{}", self.group)]);
        let _ = Command::new("kill").arg("-KILL").arg("--").args(targets).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

impl Machine {
    /// A machine with one GPU of 8 GiB.
    pub(crate) fn new(test: &str) -> Self {
        Self::with(test, "memory=8GiB")
    }

    /// A machine as `MAKEROOM_SIMGPU` describes it.
    pub(crate) fn with(test: &str, cards: &str) -> Self {
        // The module of the test, so that tests with the same name in several modules have separate directories.
        let thread = std::thread::current();
        let module = thread.name().and_then(|name| name.split("::").next()).unwrap_or("machine").to_owned();
        // Some tests run as other users, who must be able to read it.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        let stage =
            Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new(&module).join(test)).with_machine(cards);
        fs::create_dir(stage.path("dev")).unwrap();
        let minor = std::process::id() * 1000 + NUMBER.fetch_add(1, Ordering::Relaxed);
        for file in ["nvidiactl", "nvidia-uvm", &format!("nvidia{minor}")] {
            fs::write(stage.path("dev").join(file), [0; 4096]).unwrap();
        }
        fs::copy(hold(stage.directory()), stage.path("hold")).unwrap();
        Self { stage, minor, programs: Vec::new() }
    }

    /// The machine's directory.
    pub(crate) fn folder(&self) -> &Path {
        self.stage.directory()
    }

    /// Starts `./hold` with these arguments and returns the PID it prints.
    pub(crate) fn hold(&mut self, words: &[&str]) -> u32 {
        self.start(Command::new("./hold").args(words), 1)[0]
    }

    /// Starts a program that prints this many PIDs.
    pub(crate) fn start(&mut self, command: &mut Command, lines: usize) -> Vec<u32> {
        self.place(command);
        let mut child = spawn(command.process_group(0).stdout(Stdio::piped()));
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut pids = Vec::new();
        for _ in 0..lines {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            pids.push(line.trim().parse().unwrap_or_else(|_| panic!("{command:?} said {line:?}")));
        }
        let (group, folder) = (child.id(), self.stage.directory().canonicalize().unwrap());
        self.programs.push(Running { child, group, others: pids.clone(), folder });
        pids
    }

    /// Makes a command use this machine.
    pub(crate) fn place(&self, command: &mut Command) {
        self.stage.place(command);
        command.env("HOLD_CARD", format!("dev/nvidia{}", self.minor)).env("NO_COLOR", "1");
    }

    /// `makeroom` with these arguments; NVML shows what `scenario` describes.
    pub(crate) fn makeroom(&self, scenario: &str, words: &[&str]) -> Command {
        let mut command = plain(env!("CARGO_BIN_EXE_makeroom"));
        command.args(words).env("MAKEROOM_SIMNVML", self.scenario(scenario));
        if words.first() == Some(&"ps") && !words.contains(&"--proc") && is_container() {
            command.arg("--proc").arg(self.processes());
        }
        self.place(&mut command);
        command
    }

    /// The processes of a container as those of a whole machine: a directory of links to them, whose first process is
    /// in the initial namespace.
    pub(crate) fn processes(&self) -> PathBuf {
        let root = self.stage.path("processes");
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("1/ns")).unwrap();
        symlink(FIRST_PID_NAMESPACE, root.join("1/ns/pid")).unwrap();
        let entries = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries("/proc").filter(|entry| entry.file_name() != "1") {
            symlink(entry.path(), root.join(entry.file_name())).unwrap();
        }
        for entry in entries("/proc/1").filter(|entry| entry.file_name() != "ns") {
            symlink(entry.path(), root.join("1").join(entry.file_name())).unwrap();
        }
        root
    }

    /// The scenario for NVML, with the minor number of the GPU's device file.
    pub(crate) fn scenario(&self, scenario: &str) -> String {
        format!("minor=0:{},{scenario}", self.minor)
    }

    /// The first device in `makeroom ps --json`.
    pub(crate) fn device(&self, scenario: &str) -> Value {
        self.account(scenario)["devices"][0].clone()
    }

    /// The output of `makeroom ps --json`.
    pub(crate) fn account(&self, scenario: &str) -> Value {
        json(&self.makeroom(scenario, &["ps", "--json"]).output().unwrap())
    }
}

/// The output as JSON.
pub(crate) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&output.stdout), text(&output.stderr)))
}

/// Starts a program whose file was just written. Between fork and exec, a child of another test may still have the
/// file open for writing, and exec then fails with ETXTBSY.
fn spawn(command: &mut Command) -> Child {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            started => return started.unwrap(),
        }
    }
}

/// The program that holds memory, compiled once.
fn hold(libraries: &Path) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/hold.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hold-{}", std::process::id()));
        let search = format!("-L{}", libraries.display());
        testing::compile(&[source], &program, &["-w", &search, "-pthread", "-l:libcuda.so.1"]);
        program
    };
    BUILT.get_or_init(build).clone()
}

/// The names of the findings about a holder.
pub(crate) fn findings(device: &Value, pid: u32) -> Vec<String> {
    let holders = device["holders"].as_array().unwrap();
    let holder = holders.iter().find(|holder| holder["pid"] == pid);
    let holder = holder.unwrap_or_else(|| panic!("{pid} is not among {device:#}"));
    let found = holder["findings"].as_array().unwrap();
    found.iter().map(|finding| finding["finding"].as_str().unwrap().to_owned()).collect()
}

/// The first cause of a device's unlisted memory: its name, its certainty, and its evidence as one text.
pub(crate) fn first_cause(device: &Value) -> (String, String, String) {
    let cause = &device["unlisted"]["causes"][0];
    let word = |name: &str| cause[name].as_str().unwrap_or_else(|| panic!("{device:#}")).to_owned();
    (word("cause"), word("certainty"), cause["evidence"].to_string())
}

/// The account of a device adds up: total = free + reserved + Σ holders + unlisted.
pub(crate) fn assert_closes(device: &Value) {
    let figure = |name: &str| device[name].as_i64().unwrap();
    let holders = device["holders"].as_array().unwrap();
    let held: i64 = holders.iter().filter_map(|holder| holder["bytes"].as_i64()).sum();
    let sum = figure("free_bytes")
        + figure("reserved_bytes")
        + held
        + device["unlisted"]["bytes"].as_i64().unwrap();
    assert_eq!(sum, figure("total_bytes"), "{device:#}");
}

/// The initial PID namespace.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Whether the tests run in a container, where not all processes of the machine are visible.
pub(crate) fn is_container() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|namespace| namespace != Path::new(FIRST_PID_NAMESPACE))
}

/// Whether this user may create namespaces; tests that need them are skipped otherwise.
pub(crate) fn may_unshare() -> bool {
    let tried = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}
