//! The summary of `makeroom run`, with one program on the software GPU for each finding. To accept changes to the
//! snapshots: `INSTA_UPDATE=always cargo test -p makeroom findings`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use makeroom_simcard::testing::{self, text};
use serde_json::Value;

/// A directory with the software GPU and a compiled program.
struct Stage(testing::Stage);

impl Stage {
    fn new(program: &str) -> Self {
        Self::named(program, program)
    }

    fn named(name: &str, program: &str) -> Self {
        let stage = testing::Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("findings").join(name));
        let stage = Self(stage.with_machine("memory=8GiB,context=500MiB"));
        stage.compile(program);
        stage
    }

    fn with_machine(self, description: &str) -> Self {
        Self(self.0.with_machine(description))
    }

    fn compile(&self, program: &str) {
        self.compile_with(program, &[]);
    }

    fn compile_with(&self, program: &str, flags: &[&str]) {
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(format!("{program}.c"));
        let usual = ["-O0", "-fno-inline", "-rdynamic", "-l:libcuda.so.1"];
        self.0.compile(source, &[flags, &usual].concat());
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.0.command(program)
    }

    /// Runs the program under `makeroom run`. Returns its messages, without parts that differ from run to run.
    fn said(&self, words: &[&str], program: &str) -> String {
        let output = self
            .command(env!("CARGO_BIN_EXE_makeroom"))
            .args(["run", "-o", "run.room", "--summary", "summary.json"])
            .args(words)
            .args(["--", &format!("./{program}")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        self.same_everywhere(&text(&output.stderr))
    }

    fn same_everywhere(&self, said: &str) -> String {
        let said = said.replace(&format!("{}/", self.0.directory().display()), "");
        let mut parts = said.split("(PID ");
        let mut same = parts.next().unwrap_or("").to_owned();
        for part in parts {
            same.push_str("(PID PID");
            same.push_str(part.trim_start_matches(|character: char| character.is_ascii_digit()));
        }
        same
    }

    fn why(&self) -> String {
        let output = self.command(env!("CARGO_BIN_EXE_makeroom")).args(["why", "run.room"]).output().unwrap();
        let said = text(&output.stdout);
        let lines = said.lines().map(|line| match line.split_once("The process, ") {
            Some((before, rest)) => format!("{before}The process, {} PID", rest.split(' ').next().unwrap()),
            None => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn summary(&self) -> Value {
        // Like a recording, it contains the command line.
        let mode = std::fs::metadata(self.0.path("summary.json")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut all: Value =
            serde_json::from_slice(&std::fs::read(self.0.path("summary.json")).unwrap()).unwrap();
        all[0]["explanation"].take()
    }
}

fn cause(summary: &Value) -> &str {
    summary["verdict"]["cause"].as_str().unwrap()
}

#[test]
fn a_clean_program_is_called_clean() {
    let stage = Stage::new("clean");
    insta::assert_snapshot!(stage.said(&[], "clean"));
    let summary = stage.summary();
    assert_eq!(cause(&summary), "none");
    assert_eq!(summary["run"]["never_freed"], Value::Array(Vec::new()));
    assert_eq!(summary["run"]["contexts_never_destroyed"], Value::Array(Vec::new()));
}

#[test]
fn a_program_that_asks_for_no_memory_is_clean_too() {
    let stage = Stage::new("nothing");
    stage.said(&[], "nothing");
    let summary = stage.summary();
    assert_eq!(cause(&summary), "none");
    assert_eq!(
        summary["verdict"]["summary"],
        "No allocation failed; the process allocated no memory on GPU 0."
    );
    assert!(stage.why().contains("NOTHING FAILED"));
}

#[test]
fn a_program_without_recorded_stacks_is_not_spoken_of_as_pythons() {
    let stage = Stage::named("no_stacks", "full");
    stage.said(&["--no-stacks"], "full");
    let said = stage.why();
    assert!(said.contains("no stacks were recorded"), "{said}");
    assert!(!said.contains("Python"), "{said}");
}

/// Memory that a running program holds is not reported as never freed.
#[test]
fn a_program_that_still_runs_is_said_to() {
    let stage = Stage::named("running", "holder");
    let mut run = stage
        .command(env!("CARGO_BIN_EXE_makeroom"))
        .args(["run", "-o", "run.room", "--", "./holder"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 8];
    run.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let while_it_runs = stage.why();
    drop(run.stdin.take());
    run.wait().unwrap();
    let after = stage.why();
    assert!(while_it_runs.contains("note: the program is still running"), "{while_it_runs}");
    assert!(!while_it_runs.contains("never freed"), "{while_it_runs}");
    assert!(after.contains("never freed") && !after.contains("still running"), "{after}");
}

#[test]
fn a_kernel_that_did_not_start_is_the_verdict() {
    let stage = Stage::new("launch");
    insta::assert_snapshot!(stage.said(&[], "launch"));
    let summary = stage.summary();
    assert_eq!(cause(&summary), "shared_memory_or_kernel_resource");
    assert_eq!(summary["run"]["failed_launches"][0]["count"], 2);
    insta::assert_snapshot!(stage.why());
}

/// If the driver does not report a kernel's name, the name of its host stub is used.
#[test]
fn a_kernel_is_named_by_its_stub() {
    let mut stage = Stage::new("stub");
    stage.0 = stage
        .0
        .with_machine("memory=8GiB,context=500MiB,fail=cuFuncGetName:1:400,fail=cuKernelGetName:1:400");
    stage.said(&[], "stub");
    let launch = &stage.summary()["run"]["failed_launches"][0];
    assert_eq!(launch["kernel"], "smooth", "{launch}");
    assert!(launch["site"].as_str().unwrap().starts_with("filter"), "{launch}");
}

#[test]
fn device_side_malloc_is_told_with_its_heap() {
    let stage = Stage::new("heap");
    insta::assert_snapshot!(stage.said(&[], "heap"));
    assert_eq!(stage.summary()["run"]["kernel_heap"]["limit_bytes"], 8 << 20);
}

/// Frameworks allocate half a gigabyte in a second when they start.
#[test]
fn a_short_run_is_not_told_to_look_for_host_buffers() {
    let stage = Stage::new("host");
    let said = stage.said(&[], "host");
    assert!(!said.contains("host memory") && !said.contains("host buffers"), "{said}");
    assert!(stage.summary()["run"]["host_growth"].is_null());
}

#[test]
fn host_memory_that_grows_through_a_long_run_is_told() {
    use makeroom_core::Bytes;
    use makeroom_trace::room::{Encoder, Header, Sample, ThreadNumber, beginning, seal};
    let stage = Stage::named("host-long", "host");
    for (minutes, is_told) in [(1, false), (2, false), (10, true)] {
        let mut encoder = Encoder::new(ThreadNumber(1), Vec::new());
        for second in 0..minutes * 60 {
            let resident = Some(Bytes::mib(1000 + second * 20));
            encoder.sample(&Sample { time_ns: second * 1_000_000_000, resident, ..Sample::default() });
        }
        let mut file = beginning(&Header::default());
        assert!(seal(encoder.bytes(), &mut file));
        std::fs::write(stage.0.path("run.room"), file).unwrap();
        let said = stage.why();
        assert_eq!(said.contains("host memory: the process grew from"), is_told, "{minutes}: {said}");
    }
}

#[test]
fn memory_that_was_never_freed_is_told_by_place() {
    let stage = Stage::new("leak");
    insta::assert_snapshot!(stage.said(&[], "leak"));
    insta::assert_snapshot!(stage.why());
}

#[test]
fn pinned_memory_that_was_refused_is_the_verdict() {
    let stage = Stage::new("pinned").with_machine("memory=8GiB,host=256MiB");
    insta::assert_snapshot!(stage.said(&[], "pinned"));
    assert_eq!(cause(&stage.summary()), "host_memory");
}

#[test]
fn lines_are_told_where_the_program_was_built_with_them() {
    let stage = Stage::named("lines", "leak");
    stage.compile_with("leak", &["-g"]);
    let said = stage.said(&[], "leak");
    let left = stage.summary()["run"]["never_freed"].clone();
    let site = left[1]["sites"][0]["site"].as_str().unwrap();
    assert!(site.ends_with("leak.c:6 stage"), "{site}");
    assert!(said.contains("leak.c:6 stage"), "{said}");
    // The program does not exist on another machine.
    std::fs::remove_file(stage.0.path("leak")).unwrap();
    let why = stage.why();
    assert!(why.contains("leak.c:6 stage"), "{why}");
    assert!(!stage.0.path("run.room.lines").exists());
    // A snapshot contains them too.
    let makeroom = || stage.command(env!("CARGO_BIN_EXE_makeroom"));
    let exported = makeroom().args(["export", "--to", "snapshot", "run.room", "-o", "run.pickle"]).output();
    assert!(exported.unwrap().status.success());
    let why = text(&makeroom().args(["why", "run.pickle"]).output().unwrap().stdout);
    assert!(why.contains("cuda.h:34 take") && !why.contains("_start"), "{why}");
}

/// Memory that is never freed is reported the same way when the pool serves it.
#[test]
fn the_pool_hides_no_leak() {
    let stage = Stage::named("pooled-leak", "leak");
    let said = stage.said(&["--pool"], "leak");
    assert!(said.contains("never freed: 1.00 GiB of GPU memory in 1 allocation"), "{said}");
    assert!(said.contains("1 × take in leak, called by load in leak"), "{said}");
}

/// Under `run --pool`, PyTorch keeps its own allocator: savings are attributed to expandable segments, not to the
/// pool.
#[test]
fn expandable_segments_are_told_with_what_they_saved() {
    let stage = Stage::named("expandable", "expandable");
    let said = stage.said(&["--pool", "--no-stacks"], "expandable");
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        line.contains("PyTorch reserved 300.00 MiB at its peak (292.00 MiB live), and would have reserved"),
        "{said}"
    );
    assert!(line.contains("expandable segments saved "), "{said}");
    assert!(!line.contains("the pool saved"), "{said}");
    assert!(line.contains("took up to 8.00 MiB from makeroom's pool"), "{said}");
    let run = &stage.summary()["run"];
    let torch = &run["expandable_segments"][0];
    assert_eq!(torch["peak_reserved_bytes"], 300 << 20, "{run:#}");
    assert!(torch["native_reserved_bytes"].as_u64().unwrap() > 2 << 30, "{run:#}");
    assert_eq!(
        run["pools"][0]["native_reserved_bytes"],
        Value::Null,
        "the pool served a library alone: {run:#}"
    );
    assert_eq!(run["pools"][0]["beside_pytorch"], true);
}

impl Stage {
    /// The output of `expandable` and makeroom's messages, under `makeroom run` with `front` before it.
    fn expanded(&self, settings: Option<&str>, front: &[&str], words: &[&str]) -> (String, String) {
        let command: Vec<&str> = front.iter().copied().chain([env!("CARGO_BIN_EXE_makeroom")]).collect();
        let mut command = {
            let mut started = self.command(command[0]);
            started.args(&command[1..]);
            started
        };
        if let Some(settings) = settings {
            command.env("PYTORCH_CUDA_ALLOC_CONF", settings);
        }
        let output = command.args(["run", "-o", "run.room"]).args(words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    }
}

/// Whether the system permits `pidfd_getfd`, without which PyTorch's settings stay unchanged.
fn may_copy_descriptors() -> bool {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let copied = pidfd_open(getpid(), PidfdFlags::empty())
        .and_then(|process| pidfd_getfd(&process, 0, PidfdGetfdFlags::empty()));
    copied.is_ok()
}

/// Expandable segments are added to the user's settings, unless the user chose otherwise.
#[test]
fn pytorchs_settings_are_merged() {
    let stage = Stage::named("expandable-settings", "expandable");
    let run = |theirs: Option<&str>, options: &[&str]| {
        stage.expanded(theirs, &[], &[options, &["--", "./expandable", "same"]].concat())
    };
    assert_eq!(run(None, &[]).0, "settings: none\n");
    if may_copy_descriptors() {
        let (settings, said) = run(Some("max_split_size_mb:64"), &["--pool"]);
        assert_eq!(settings, "settings: max_split_size_mb:64,expandable_segments:True\n");
        assert!(said.starts_with("makeroom: expandable (PID "), "nothing is said before it runs: {said}");
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            line.contains("this program does not fragment: PyTorch reserved 60.00 MiB at its peak"),
            "{said}"
        );
    }
    let (settings, said) = run(Some("expandable_segments:False"), &["--pool"]);
    assert_eq!(settings, "settings: expandable_segments:False\n");
    assert!(
        said.starts_with(
            "makeroom: PyTorch runs without expandable segments: PYTORCH_CUDA_ALLOC_CONF has expandable_segments:False\n"
        ),
        "{said}"
    );
    assert!(!said.contains("changed"), "the line before the run says why: {said}");
    if may_copy_descriptors() {
        let (settings, _) = run(None, &["--pool", "--spill", "1GiB"]);
        assert_eq!(
            settings, "settings: expandable_segments:True\n",
            "pages spill under PyTorch's own allocator"
        );
    }
    let (settings, _) = run(None, &["--pool=expandable", "--spill", "1GiB"]);
    assert_eq!(settings, "settings: backend:cudaMallocAsync\n");
}

/// With expandable segments, sharing tensors needs `pidfd_getfd`. Where it is forbidden, PyTorch's settings stay
/// unchanged, unless the user turned them on.
#[test]
fn where_tensors_could_not_be_shared_pytorch_is_left_alone() {
    let stage = Stage::named("expandable-forbidden", "expandable");
    stage.compile("no_pidfd");
    let run = |theirs: Option<&str>| {
        stage.expanded(theirs, &["./no_pidfd"], &["--pool", "--", "sh", "-c", "exec ./expandable same"])
    };
    let (settings, said) = run(None);
    assert_eq!(settings, "settings: none\n");
    let line = said.lines().next().unwrap();
    assert!(line.contains("needs pidfd_getfd, which this system does not permit"), "{said}");
    assert!(line.ends_with("set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"), "{said}");
    let (settings, said) = run(Some("expandable_segments:True"));
    assert_eq!(settings, "settings: expandable_segments:True\n");
    assert!(!said.contains("pidfd_getfd"), "{said}");
}

/// Otherwise, a program that sets the variable before it imports PyTorch would silently save nothing.
#[test]
fn a_program_that_changes_pytorchs_settings_is_told() {
    let stage = Stage::named("expandable-changed", "expandable");
    let chosen = Some("expandable_segments:True");
    let (_, said) = stage.expanded(chosen, &[], &["--pool", "--", "./expandable", "default"]);
    let words = "makeroom: --pool turned on expandable segments, but PyTorch did not use them";
    assert!(said.contains(words), "{said}");
    let (_, said) = stage.expanded(chosen, &[], &["--", "./expandable", "default"]);
    assert!(!said.contains("expandable segments"), "without --pool: {said}");
    let (_, said) = stage.expanded(chosen, &[], &["--pool", "--", "./expandable", "same"]);
    assert!(!said.contains(words), "they were used: {said}");
}

/// A pool that was requested and serves nothing is reported.
#[test]
fn memory_that_the_pool_cannot_serve_is_told() {
    let stage = Stage::named("pooled-contexts", "contexts");
    let said = stage.said(&["--pool"], "contexts");
    assert!(
        said.contains("the program created its own CUDA context, which allocates from the driver"),
        "{said}"
    );
}

/// Compiled programs often allocate through a wrapper of their own. Its caller is the useful name.
#[test]
fn who_called_the_function_that_asks_is_told() {
    let stage = Stage::new("steps");
    let said = stage.said(&[], "steps");
    let summary = stage.summary();
    assert_eq!(cause(&summary), "leak", "{said}");
    assert_eq!(summary["sites"][0]["caller"], "keep_result in steps", "{}", summary["sites"]);
    let fixes = summary["causes"][0]["fixes"].to_string();
    assert!(
        fixes.contains(
            "allocated at take_or_end in steps alive after every step (called from keep_result in steps)"
        ),
        "{fixes}"
    );
    assert!(fixes.contains("in C++ and Rust") && !fixes.contains("loss"), "{fixes}");
}

#[test]
fn frees_in_stream_order_are_no_leak() {
    let stage = Stage::new("streams");
    insta::assert_snapshot!(stage.said(&[], "streams"));
    assert_eq!(stage.summary()["run"]["never_freed"], Value::Array(Vec::new()));
}

#[test]
fn contexts_of_its_own_that_a_program_forgets_are_told() {
    let stage = Stage::new("contexts");
    insta::assert_snapshot!(stage.said(&[], "contexts"));
}

#[test]
fn a_full_device_is_accounted_for_to_the_byte() {
    let stage = Stage::new("full");
    insta::assert_snapshot!(stage.said(&[], "full"));
    let summary = stage.summary();
    assert_eq!(cause(&summary), "live_data_fills_device");
    assert_eq!(summary["ledger"]["unaccounted_bytes"], 0, "{}", summary["ledger"]);
}

#[test]
fn a_limit_of_run_is_named_as_such() {
    let stage = Stage::named("limit", "full").with_machine("memory=12GiB");
    insta::assert_snapshot!(stage.said(&["--limit", "6GiB"], "full"));
    let summary = stage.summary();
    assert_eq!(cause(&summary), "live_data_fills_device");
    assert_eq!(summary["causes"][1]["cause"], "artificial_limit");
    assert_eq!(summary["ledger"]["total_bytes"], 6_u64 << 30);
}

#[test]
fn other_processes_are_told_from_this_one() {
    let stage = Stage::new("holder");
    stage.compile("full");
    let mut holder = stage.command("./holder").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 7];
    holder.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let output = stage
        .command(env!("CARGO_BIN_EXE_makeroom"))
        .args(["run", "-o", "run.room", "--summary", "summary.json", "--", "./full"])
        .output()
        .unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let said = text(&output.stderr);
    // In a container, the driver's PIDs are the host's, and mean nothing here.
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    if namespace == Path::new("pid:[4026531836]") {
        assert!(said.contains(&format!("process {}, holder, user ", holder.id())), "{said}");
    }
    let summary = stage.summary();
    assert_eq!(cause(&summary), "other_processes", "{}", text(&output.stderr));
    let unaccounted = summary["ledger"]["unaccounted_bytes"].as_i64().unwrap();
    assert_eq!(unaccounted, 0, "{}", summary["ledger"]);
}

/// A program that fills the GPU on purpose does not leak. A leak is mentioned last, as a possibility.
#[test]
fn filling_the_card_is_not_called_a_leak() {
    let stage = Stage::new("probe");
    let said = stage.said(&[], "probe");
    let summary = stage.summary();
    assert_eq!(cause(&summary), "live_data_fills_device", "{said}");
    let causes = summary["causes"].as_array().unwrap();
    let leak = causes.iter().find(|cause| cause["cause"] == "leak").unwrap();
    assert_eq!(leak["certainty"], "possible");
    assert!(!said.contains("LEAK"), "{said}");
}

/// A loop that keeps 32 MiB per round, on a GPU that is full after this many rounds.
fn leak_of_rounds(rounds: u64) -> (Stage, String) {
    let stage = Stage::named(&format!("rounds-{rounds}"), "rounds");
    let memory = 500 + 256 + 32 * rounds - 16;
    let stage = stage.with_machine(&format!("memory={memory}MiB,context=500MiB,reserve=0"));
    let said = stage.said(&["--no-status"], "rounds");
    (stage, said)
}

/// Without step markers, rounds are recognized by the 32 MiB kept in each one, not by a share of the recording.
#[test]
fn a_leak_is_told_by_its_rounds() {
    let (stage, said) = leak_of_rounds(233);
    let summary = stage.summary();
    assert_eq!((cause(&summary), &summary["verdict"]["certainty"]), ("leak", &"likely".into()), "{said}");
    assert_eq!(summary["growth"]["per_step_bytes"], 32 << 20, "{said}");
    let steps = summary["growth"]["steps"].as_u64().unwrap();
    assert!(steps > 233 * 3 / 5 && steps < 233, "{steps}");
    assert!(said.contains(&format!("over {steps} steps, 32.00 MiB per step")), "{said}");
    assert!(summary["growth"]["leaking"][0].to_string().contains("keep"), "{summary}");
}

/// A few rounds may be data that is loaded piece by piece: a leak is only a possibility.
#[test]
fn a_leak_of_a_few_rounds_is_considered() {
    for rounds in [40, 20, 12] {
        let (stage, _) = leak_of_rounds(rounds);
        let summary = stage.summary();
        assert_eq!(cause(&summary), "live_data_fills_device");
        let causes = summary["causes"].as_array().unwrap();
        let leak = causes.iter().find(|cause| cause["cause"] == "leak").unwrap();
        assert_eq!(leak["certainty"], "possible");
        assert!(summary["growth"]["leaking"][0].to_string().contains("keep"), "{summary}");
        if rounds == 12 {
            insta::assert_snapshot!(stage.why());
        }
    }
}

/// Weights are also many blocks of the same size, but all are allocated before the work begins.
#[test]
fn weights_are_no_leak() {
    let stage = Stage::named("weights", "rounds");
    stage.compile_with("rounds", &["-DWEIGHTS=40"]);
    let said = stage.said(&["--no-status"], "rounds");
    let summary = stage.summary();
    assert_eq!(cause(&summary), "live_data_fills_device", "{said}");
    let causes = summary["causes"].as_array().unwrap();
    assert!(causes.iter().all(|cause| cause["cause"] != "leak"), "{summary}");
}

/// A request can be smaller than the limit and still larger than what the context leaves of it.
#[test]
fn a_limit_is_told_with_what_the_context_leaves() {
    let stage = Stage::named("limit-of-context", "rounds");
    let said = stage.said(&["--no-status", "--limit", "700MiB"], "rounds");
    assert!(said.contains("REQUEST EXCEEDS THE DEVICE (certain)"), "{said}");
    let summary = stage.summary();
    assert_eq!(
        summary["verdict"]["summary"],
        "A single allocation of 256.00 MiB was requested; `makeroom run --limit` allows 700.00 MiB in total, 200.00 MiB after the CUDA context."
    );
}
