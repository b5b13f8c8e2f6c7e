//! Programs built with sanitizers under `makeroom run`: they behave as without it, and one line reports that they are
//! not recorded. Sanitizers that the C compiler lacks are skipped.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic, and reports what it skips")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use makeroom_simcard::testing::{Stage, text};

/// Allocates memory, then ends or triggers a report of its sanitizer.
const PROGRAM: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(unsigned long *, size_t);
static int shared;
static void *race(void *nothing) { for (int i = 0; i < 100000; i++) shared++; return nothing; }
int main(int count, char **words) {
    void *context = 0;
    unsigned long pointer = 0;
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0) || cuMemAlloc_v2(&pointer, 1 << 20)) return 99;
    printf("took it\n");
    fflush(stdout);
    const char *what = count > 1 ? words[1] : "";
    if (!strcmp(what, "address")) { volatile char *block = malloc(8); block[count + 7] = 1; }
    if (!strcmp(what, "hwaddress")) { volatile char *block = malloc(8); block[count + 30] = 1; }
    if (!strcmp(what, "memory")) { volatile int *block = malloc(8); if (block[1]) puts("set"); }
    if (!strncmp(what, "thread", 6)) {
        pthread_t other;
        pthread_create(&other, 0, race, 0);
        race(0);
        pthread_join(other, 0);
        if (!strcmp(what, "thread_exit")) _exit(5);
    }
    return 4;
}
"#;

/// Compiler, sanitizer option, further option, and the sanitizer's name.
const BUILDS: [(&str, &str, &str, &str); 11] = [
    ("gcc", "address", "-shared-libgcc", "AddressSanitizer"),
    ("gcc", "address", "-static-libasan", "AddressSanitizer"),
    ("gcc", "thread", "-shared-libgcc", "ThreadSanitizer"),
    ("gcc", "thread", "-static-libtsan", "ThreadSanitizer"),
    ("gcc", "hwaddress", "-shared-libgcc", "HWAddressSanitizer"),
    ("clang", "address", "-w", "AddressSanitizer"),
    ("clang", "address", "-s", "AddressSanitizer"),
    ("clang", "address", "-shared-libasan", "AddressSanitizer"),
    ("clang", "thread", "-w", "ThreadSanitizer"),
    ("clang", "memory", "-w", "MemorySanitizer"),
    ("clang", "hwaddress", "-w", "HWAddressSanitizer"),
];

fn stage(test: &str) -> Stage {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("sanitizers").join(test));
    std::fs::write(stage.path("program.c"), PROGRAM).unwrap();
    stage
}

/// Compiles the program; `false` if this machine cannot build or run it.
fn is_built(stage: &Stage, compiler: &str, sanitizer: &str, option: &str) -> bool {
    let built = Command::new(compiler)
        .args(["-w", "-g", option, &format!("-fsanitize={sanitizer}"), "-o", "program", "program.c"])
        .args(["-L.", "-l:libcuda.so.1", "-lpthread", &format!("-Wl,-rpath,{}", runtimes(compiler))])
        .current_dir(stage.directory())
        .output();
    let runs =
        |stage: &Stage| stage.command("./program").output().is_ok_and(|run| run.status.code() == Some(4));
    let is_built = built.is_ok_and(|built| built.status.success()) && runs(stage);
    if !is_built {
        eprintln!("skipped: no {compiler} with {sanitizer} and {option} on this machine");
    }
    is_built
}

/// The directory of a compiler's shared runtimes, which the dynamic linker does not search by itself.
fn runtimes(compiler: &str) -> String {
    let name = "-print-file-name=libclang_rt.asan-x86_64.so";
    let printed = Command::new(compiler).arg(name).output().map(|output| text(&output.stdout));
    let path = PathBuf::from(printed.unwrap_or_default());
    path.parent().map_or_else(String::new, |directory| directory.display().to_string())
}

fn script(stage: &Stage, name: &str, lines: &str) {
    std::fs::write(stage.path(name), format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(stage.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

fn run(stage: &Stage, options: &[&str], program: &[&str], preload: Option<&str>) -> (Output, Output) {
    let mut makeroom = stage.command(env!("CARGO_BIN_EXE_makeroom"));
    makeroom.args(["run", "--no-status", "-o", "run.room"]).args(options).arg("--").args(program);
    let mut bare = stage.command(program[0]);
    bare.args(&program[1..]);
    if let Some(preload) = preload {
        makeroom.env("LD_PRELOAD", preload);
        bare.env("LD_PRELOAD", preload);
    }
    (bare.output().unwrap(), makeroom.output().unwrap())
}

/// The program's action and the options of `run`. Reports take seconds, so not all combinations are tested.
fn cases(sanitizer: &str) -> [(&str, &'static [&'static str]); 5] {
    [("", &[]), ("", &["--limit", "4GiB"]), ("", &["--pool"]), (sanitizer, &[]), ("thread_exit", &[])]
}

/// The lines that makeroom printed, without its hints.
fn lines(output: &Output) -> Vec<String> {
    text(&output.stderr).lines().filter(|line| line.contains("makeroom: ")).map(str::to_owned).collect()
}

#[test]
fn a_sanitized_program_runs_unharmed_and_one_line_says_that_it_is_not_recorded() {
    let stage = stage("direct");
    for (compiler, sanitizer, option, name) in BUILDS {
        if !is_built(&stage, compiler, sanitizer, option) {
            continue;
        }
        for (what, options) in cases(sanitizer) {
            let (bare, recorded) = run(&stage, options, &["./program", what], None);
            let case = format!("{compiler} {sanitizer} {option} {what}: {}", text(&recorded.stderr));
            assert_eq!(recorded.status, bare.status, "{case}");
            assert_eq!(text(&recorded.stdout), text(&bare.stdout), "{case}");
            let lines = lines(&recorded);
            assert_eq!(lines.len(), 1, "{case}");
            assert!(lines[0].contains(name) && lines[0].ends_with("it runs without recording"), "{case}");
        }
    }
}

/// Started by a shell, a script or a test runner, when the recorder is already in the environment.
#[test]
fn a_sanitized_child_runs_unharmed() {
    let stage = stage("child");
    script(&stage, "script", "./program \"$@\"");
    for (compiler, sanitizer, option, name) in BUILDS {
        if !is_built(&stage, compiler, sanitizer, option) {
            continue;
        }
        for (what, options) in cases(sanitizer) {
            let (bare, recorded) = run(&stage, options, &["./script", what], None);
            let case = format!("{compiler} {sanitizer} {option} {what}: {}", text(&recorded.stderr));
            assert_eq!(recorded.status, bare.status, "{case}");
            assert_eq!(text(&recorded.stdout), text(&bare.stdout), "{case}");
            let lines = lines(&recorded);
            assert!(lines.len() == 1 && lines[0].ends_with("nothing was recorded"), "{case}");
            assert!(lines[0].contains(name) || lines[0].contains("uses a sanitizer"), "{case}");
        }
    }
}

/// The options of a sanitizer belong to whoever starts the program: a script, a test runner, `env`. None of these
/// repeat what `run` put into the environment.
#[test]
fn a_child_with_options_of_its_own_runs_unharmed() {
    let stage = stage("options");
    let own = "ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=halt_on_error=0";
    script(&stage, "own", &format!("{own} ./program \"$@\""));
    script(&stage, "checked", "exec env ASAN_OPTIONS=verify_asan_link_order=1 ./program \"$@\"");
    script(&stage, "none", "unset ASAN_OPTIONS TSAN_OPTIONS; ./program \"$@\"");
    script(&stage, "outer", "./middle \"$@\"; exit $?");
    script(&stage, "middle", &format!("export {own}; sh -c './program \"$@\"; exit $?' middle \"$@\""));
    script(
        &stage,
        "few",
        "exec env -i LD_PRELOAD=\"$LD_PRELOAD\" LD_LIBRARY_PATH=. MAKEROOM_SIMGPU_DIR=. ./program \"$@\"",
    );
    for (compiler, sanitizer, option, name) in BUILDS {
        if !is_built(&stage, compiler, sanitizer, option) {
            continue;
        }
        for start in ["./own", "./checked", "./none", "./outer", "./few"] {
            let (bare, recorded) = run(&stage, &[], &[start, ""], None);
            let case = format!("{compiler} {sanitizer} {option} {start}: {}", text(&recorded.stderr));
            assert_eq!(recorded.status, bare.status, "{case}");
            assert_eq!(text(&recorded.stdout), text(&bare.stdout), "{case}");
            let lines = lines(&recorded);
            assert!(lines.len() == 1 && lines[0].ends_with("nothing was recorded"), "{case}");
            // Without the environment of `run`, a process cannot report why it is not recorded.
            let is_named = lines[0].contains(name) || lines[0].contains("uses a sanitizer");
            assert!(is_named || start == "./few", "{case}");
        }
    }
}

/// One child is recorded and the other is not, which must not go unnoticed.
#[test]
fn a_sanitized_child_beside_a_recorded_one_is_named() {
    let stage = stage("beside");
    if !is_built(&stage, "gcc", "undefined", "-w") {
        return;
    }
    std::fs::rename(stage.path("program"), stage.path("recorded")).unwrap();
    for (compiler, sanitizer, option, name) in BUILDS {
        if is_built(&stage, compiler, sanitizer, option) {
            let (_, both) = run(&stage, &[], &["sh", "-c", "./recorded; ./program"], None);
            let said = text(&both.stderr);
            assert_eq!(both.status.code(), Some(4), "{said}");
            let lines = lines(&both);
            let is_told = |line: &&String| line.ends_with("that program was not recorded");
            let told: Vec<&String> = lines.iter().filter(is_told).collect();
            assert!(told.len() == 1 && said.contains("used up to 1.00 MiB"), "{name} {option}: {said}");
        }
    }
}

/// The environment of a recorded program has no options that its user did not set.
#[test]
fn the_options_of_sanitizers_are_not_changed() {
    let stage = stage("environment");
    let command = ["sh", "-c", "env | grep SAN_OPTIONS; exit 4"];
    let (bare, recorded) = run(&stage, &[], &command, None);
    assert_eq!(recorded.status, bare.status);
    assert_eq!(text(&recorded.stdout), text(&bare.stdout));
}

/// As for an instrumented extension module in an interpreter without instrumentation.
#[test]
fn a_preloaded_runtime_stays_first() {
    let stage = stage("preloaded");
    let built = Command::new("gcc")
        .args(["-w", "-o", "program", "program.c", "-L.", "-l:libcuda.so.1", "-lpthread"])
        .current_dir(stage.directory())
        .status();
    let runtime = Command::new("gcc").arg("-print-file-name=libasan.so").output();
    let Ok(runtime) = runtime.map(|output| text(&output.stdout).trim().to_owned()) else { return };
    if !built.is_ok_and(|built| built.success()) || !Path::new(&runtime).is_absolute() {
        eprintln!("skipped: no libasan on this machine");
        return;
    }
    for preload in [runtime.clone(), format!("{runtime}:/no-such-library.so"), format!(" {runtime} ")] {
        let (bare, recorded) = run(&stage, &[], &["./program"], Some(&preload));
        assert_eq!(
            (recorded.status, text(&recorded.stdout)),
            (bare.status, text(&bare.stdout)),
            "{recorded:?}"
        );
        let lines = lines(&recorded);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("AddressSanitizer") && lines[0].ends_with("it runs without recording"),
            "{lines:?}"
        );
    }
}

/// The runtimes of these are not affected by the recorder.
#[test]
fn other_sanitizers_are_recorded() {
    let stage = stage("recorded");
    for (compiler, sanitizer) in [("gcc", "undefined"), ("gcc", "leak"), ("clang", "undefined")] {
        if is_built(&stage, compiler, sanitizer, "-w") {
            let (bare, recorded) = run(&stage, &[], &["./program"], None);
            assert_eq!(
                (recorded.status, text(&recorded.stdout)),
                (bare.status, text(&bare.stdout)),
                "{recorded:?}"
            );
            assert!(text(&recorded.stderr).contains("used up to 1.00 MiB"), "{recorded:?}");
        }
    }
}
