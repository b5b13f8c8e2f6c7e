//! `makeroom run` on the software GPU: the program's output and status pass through, everything else goes to stderr.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use makeroom_simcard::testing::{Stage, text};

/// Allocates more than the GPU has, leaks a block and a context, and exits with a nonzero status.
const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(unsigned long *, size_t);
static int keep_block(void) {
    unsigned long kept;
    return cuMemAlloc_v2(&kept, 64 << 20);
}
int main(int count, char **words) {
    void *context;
    unsigned long pointer;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || keep_block()) return 99;
    printf("refused: %d\n", cuMemAlloc_v2(&pointer, (size_t)1 << 40));
    fprintf(stderr, "a line of its own\n");
    fflush(stdout);
    for (int more = count > 1 && !strcmp(words[1], "many") ? 6 : 0; more; more--) cuMemAlloc_v2(&pointer, (size_t)1 << 40);
    while (count > 1 && !strcmp(words[1], "wait") && access("go", F_OK)) usleep(1000);
    signal(SIGTERM, SIG_DFL); // Whoever started the tests may have it ignored.
    if (count > 1 && !strcmp(words[1], "signal")) syscall(SYS_kill, getpid(), SIGTERM);
    if (count > 1 && !strcmp(words[1], "raise")) raise(SIGTERM);
    return 7;
}
"#;

/// A directory with the software GPU and the program.
fn stage(test: &str) -> Stage {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("run").join(test));
    stage.compile_text("program", PROGRAM, &["-rdynamic", "-l:libcuda.so.1"]);
    stage
}

fn command(stage: &Stage, words: &[&str]) -> Command {
    let mut command = stage.command(env!("CARGO_BIN_EXE_makeroom"));
    command.args(words);
    command
}

fn makeroom(stage: &Stage, words: &[&str]) -> Output {
    command(stage, words).output().unwrap()
}

/// Waits for a file that another process creates.
fn wait_for(path: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while !path.exists() {
        assert!(Instant::now() < end, "{} never came", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_refusal_is_explained_and_the_status_is_the_programs() {
    let stage = stage("refusal");
    let output = makeroom(&stage, &["run", "-o", "run.room", "--", "./program"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert_eq!(text(&output.stdout), "refused: 2\n");
    assert!(said.contains("a line of its own\n"));
    assert!(said.contains("makeroom: allocation of 1.00 TiB failed on GPU 0\n"), "{said}");
    assert!(said.contains("REQUEST EXCEEDS THE DEVICE"), "{said}");
    assert!(said.contains("used up to 64.00 MiB of GPU memory"), "{said}");
    assert!(said.contains("1 × keep_block in program"), "{said}");
    assert!(said.contains("never destroyed: 1 context"), "{said}");
    let why = makeroom(&stage, &["why", "run.room"]);
    assert!(text(&why.stdout).contains("REQUEST EXCEEDS THE DEVICE"));
}

#[test]
fn a_limit_is_a_smaller_card() {
    let stage = stage("limit");
    // The software GPU's context takes 512 MiB.
    for (limit, refused) in [("544MiB", "64.00 MiB"), ("32MiB", "512.00 MiB")] {
        let output = makeroom(&stage, &["run", "--limit", limit, "-o", "run.room", "--", "./program"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(99), "{said}");
        assert!(said.contains(&format!("{refused} failed on GPU 0")), "{said}");
    }
}

#[test]
fn a_refused_context_is_the_verdict() {
    let stage = stage("refused-context");
    let output = makeroom(&stage, &["run", "--limit", "32MiB", "-o", "run.room", "--", "./program"]);
    let said = text(&output.stderr);
    assert!(
        said.contains("Creating a CUDA context on GPU 0 failed at main in program because memory ran out"),
        "{said}"
    );
    assert!(said.contains("ARTIFICIAL LIMIT (certain)"), "{said}");
    // The same on a GPU that is too small.
    let stage = stage.with_machine("memory=256MiB");
    let why = makeroom(&stage, &["run", "-o", "run.room", "--", "./program"]);
    let said = text(&why.stderr);
    assert!(
        said.contains("Creating a CUDA context on GPU 0 failed at main in program because memory ran out"),
        "{said}"
    );
    assert!(said.contains("OTHER PROCESSES HOLD THE MEMORY (possible)"), "{said}");
}

#[test]
fn a_program_that_a_signal_ends_is_recorded() {
    let stage = stage("signal");
    let output = makeroom(&stage, &["run", "-o", "run.room", "--", "./program", "signal"]);
    assert_eq!(output.status.signal(), Some(15));
    assert!(text(&output.stderr).contains("was killed"));
    let output = makeroom(&stage, &["run", "-o", "run.room", "--", "./program", "raise"]);
    assert_eq!(output.status.signal(), Some(15));
    assert!(
        !text(&output.stderr).contains("may be missing"),
        "a program that raises a signal is recorded whole"
    );
}

/// Under `nohup`, a program survives the loss of its terminal, also with `makeroom run`.
#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let stage = stage("ignored");
    let program = "kill -HUP $PPID; kill -INT $PPID; kill -HUP $$; kill -INT $$; echo goes on";
    let output = stage
        .command("sh")
        .args(["-c", "trap '' HUP INT; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_makeroom")])
        .args(["run", "--", "sh", "-c", program])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "goes on\n", "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn makeroom_off_and_programs_without_cuda_leave_nothing() {
    let stage = stage("nothing");
    let before = std::fs::read_dir(stage.directory()).unwrap().count();
    let output =
        makeroom(&stage, &["run", "-o", "run.room", "--", "sh", "-c", "MAKEROOM=off ./program; exit 3"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("nothing was recorded"));
    assert!(!stage.path("run.room").exists());
    // Only the recorder's own directory is new.
    assert!(std::fs::read_dir(stage.directory()).unwrap().count() <= before + 2);
}

#[test]
fn what_was_not_recorded_is_not_called_a_program_without_memory() {
    let stage = stage("off");
    let off = command(&stage, &["run", "--", "./program"]).env("MAKEROOM", "off").output().unwrap();
    let said = text(&off.stderr);
    assert_eq!(off.status.code(), Some(7), "{said}");
    assert!(
        said.contains("nothing was recorded: MAKEROOM=off turns the recorder off in ./program"),
        "{said}"
    );
    assert!(said.contains("hint: unset MAKEROOM") && !said.contains("took no GPU memory"), "{said}");
    for place in ["no-such-folder/run.room", "program.c/run.room", "no-such-folder/%p.room"] {
        let output = makeroom(&stage, &["run", "-o", place, "--", "./program"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{said}");
        let place = place.replace("%p", "PID");
        assert!(said.starts_with("error: ") && said.contains(&place) && said.contains("\nhint: "), "{said}");
    }
}

/// The directory existed when the program started.
#[test]
fn a_recorder_that_could_not_write_is_not_called_a_program_without_memory() {
    let stage = stage("gone");
    std::fs::create_dir(stage.path("below")).unwrap();
    let words = ["run", "-o", "below/%p.room", "--", "sh", "-c", "rmdir below; ./program"];
    let output = makeroom(&stage, &words);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("makeroom: nothing was recorded: ") && said.contains("No such file"), "{said}");
    assert!(said.contains("\nhint: ") && !said.contains("took no GPU memory"), "{said}");
}

#[test]
fn runs_that_name_the_same_file_do_not_take_it_from_each_other() {
    let stage = stage("same");
    let mut first = command(&stage, &["run", "-o", "run.room", "--", "./program", "wait"]);
    let first = first.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&stage.path("run.room"));
    let second = makeroom(&stage, &["run", "-o", "run.room", "--", "./program"]);
    let second = text(&second.stderr);
    assert!(second.contains("run.room; recording to "), "{second}");
    std::fs::write(stage.path("go"), "").unwrap();
    let first = text(&first.wait_with_output().unwrap().stderr);
    let process = |said: &str| {
        let (_, after) = said.split_once("program (PID ").expect(said);
        after.split_once(')').unwrap().0.to_owned()
    };
    let (of_first, of_second) = (process(&first), process(&second));
    assert_ne!(of_first, of_second);
    assert!(
        second.contains(&format!("makeroom view {}", stage.path(format!("run.{of_second}.room")).display()))
    );
    assert!(first.contains(&format!("makeroom view {}", stage.path("run.room").display())), "{first}");
    for (file, process) in [("run.room".to_owned(), &of_first), (format!("run.{of_second}.room"), &of_second)]
    {
        let why = text(&makeroom(&stage, &["why", &file]).stdout);
        assert!(why.contains(&format!("program {process}")), "{file}: {why}");
    }
    assert!(!stage.path(".run.room.lock").exists());
    // The name is free again once they have ended.
    let third = makeroom(&stage, &["run", "-o", "run.room", "--", "./program"]);
    assert!(!text(&third.stderr).contains("another run's"), "{}", text(&third.stderr));
}

/// If a run is killed and its program continues, the next run must not remove the recording.
#[test]
fn a_recording_that_is_still_written_is_left_alone() {
    let stage = stage("orphan");
    let mut first = command(&stage, &["run", "-o", "run.room", "--", "./program", "wait"]);
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for(&stage.path("run.room"));
    first.kill().unwrap();
    first.wait().unwrap();
    let second = makeroom(&stage, &["run", "-o", "run.room", "--", "./program"]);
    std::fs::write(stage.path("go"), "").unwrap();
    assert!(text(&second.stderr).contains("another run is recording to "), "{}", text(&second.stderr));
    assert!(stage.path("run.room").exists());
}

#[test]
fn refusals_that_are_not_shown_are_mentioned_once() {
    let stage = stage("many");
    let output = makeroom(&stage, &["run", "-o", "run.room", "--", "./program", "many"]);
    let said = text(&output.stderr);
    assert_eq!(said.matches("1.00 TiB failed on GPU 0\n").count(), 3, "{said}");
    assert_eq!(said.matches("later failures are not shown;").count(), 1, "{said}");
    let few = makeroom(&stage, &["run", "-o", "run.room", "--", "./program"]);
    assert!(!text(&few.stderr).contains("further failures"));
}

#[test]
fn a_program_into_which_nothing_can_be_loaded_is_named() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown};
    let stage = stage("static");
    std::fs::write(stage.path("static.c"), "int main(void) { return 5; }").unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let built = Command::new(compiler)
        .args(["-static", "-o", "static", "static.c"])
        .current_dir(stage.directory())
        .output();
    if built.unwrap().status.success() {
        let output = makeroom(&stage, &["run", "--", "./static"]);
        assert_eq!(output.status.code(), Some(5));
        assert!(text(&output.stderr).starts_with("makeroom: ./static is statically linked, "));
    } else {
        eprintln!("skipped: no static C library on this machine");
    }
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        eprintln!("skipped: only root can make a program that runs with other rights");
        return;
    }
    chown(stage.path("program"), Some(65534), None).unwrap();
    std::fs::set_permissions(stage.path("program"), PermissionsExt::from_mode(0o4755)).unwrap();
    let output = makeroom(&stage, &["run", "--", "./program"]);
    assert!(
        text(&output.stderr).starts_with("makeroom: ./program runs with privileges that you do not have")
    );
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let stage = stage("missing");
    // Not in the target directory, which may be writable by a group and would be skipped.
    let session = std::env::temp_dir().join(format!("makeroom-missing-{}", std::process::id()));
    std::fs::create_dir(&session).unwrap();
    std::fs::set_permissions(&session, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let mut run = command(&stage, &["run", "--", "./no-such-program"]);
    let output = run.env("XDG_RUNTIME_DIR", &session).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).starts_with("error: ./no-such-program: "));
    assert!(text(&output.stderr).contains("\nhint: check the name"), "{}", text(&output.stderr));
    let left = std::fs::read_dir(session.join("makeroom")).unwrap().flatten();
    let sockets: Vec<_> =
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with("socket-")).collect();
    assert!(sockets.is_empty(), "{sockets:?}");
    std::fs::remove_dir_all(&session).unwrap();
}
