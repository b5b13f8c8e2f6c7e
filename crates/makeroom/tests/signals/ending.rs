//! How the command ends: with the program's status, and immediately on a signal.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::stage::{Stage, send, state};

#[test]
fn the_end_is_the_programs() {
    let stage = Stage::new("end");
    let end = |script: &str| stage.run(&["sh", "-c", script]).status().unwrap();
    for code in [0, 1, 7, 126, 139, 255] {
        assert_eq!(end(&format!("exit {code}")).code(), Some(code));
    }
    // Default actions that end a process, with and without a core dump; 34 and 64 are real-time signals.
    for signal in [1, 2, 3, 6, 8, 9, 11, 13, 15, 16, 24, 30, 31, 34, 64] {
        let status = end(&format!("ulimit -c unlimited; kill -{signal} $$"));
        assert_eq!(status.signal(), Some(signal), "{status:?}");
        assert!(!status.core_dumped(), "a second core dump for {signal}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_told_as_by_a_shell() {
    let stage = Stage::new("start");
    std::fs::write(stage.folder.join("plain"), "text").unwrap();
    std::fs::write(stage.folder.join("binary"), b"\x7fELF no program").unwrap();
    std::fs::set_permissions(stage.folder.join("binary"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(stage.folder.join("script"), "exit 5\n").unwrap();
    std::fs::set_permissions(stage.folder.join("script"), PermissionsExt::from_mode(0o755)).unwrap();
    let cases = [
        ("./missing", 127),
        ("no-such-program-anywhere", 127),
        ("./plain/below", 126),
        ("./plain", 126),
        (".", 126),
        // The C library runs it with a shell.
        ("./binary", 127),
        ("./script", 5),
    ];
    for (program, expected) in cases {
        let bare = Command::new("env").arg(program).current_dir(&stage.folder).stderr(Stdio::null()).status();
        assert_eq!(bare.unwrap().code(), Some(expected), "env {program}");
        assert_eq!(stage.run(&[program]).status().unwrap().code(), Some(expected), "{program}");
    }
}

/// Signals that arrive while the program runs do not end the command, even if it looks at them after the program's end.
#[test]
fn a_signal_just_before_the_end_leaves_the_status_to_the_program() {
    let stage = Stage::new("just-before");
    for signal in ["USR1", "TERM", "WINCH"] {
        for _ in 0..5 {
            let script = format!("trap '' {signal}; (kill -{signal} $PPID); exit 3");
            assert_eq!(stage.run(&["sh", "-c", &script]).status().unwrap().code(), Some(3), "{signal}");
        }
    }
}

/// The command blocks because its messages are not read.
#[test]
fn after_the_program_a_signal_ends_the_command_at_once() {
    for signal in [2, 15, 1, 10, 34] {
        let stage = Stage::new(&format!("after-{signal}"));
        stage.compile(
            "fill",
            "#include <fcntl.h>\n#include <unistd.h>\nint main(void) { fcntl(2, F_SETFL, O_NONBLOCK); char text[4096] = {0};\
             while (write(2, text, sizeof text) > 0); while (write(2, text, 1) > 0); fcntl(2, F_SETFL, 0);\
             creat(\"filled\", 0600); return 3; }",
        );
        let mut command = stage.run(&["./fill"]);
        let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
        let own = i32::try_from(run.id()).unwrap();
        // The program has ended when the pipe is full and the command has no children.
        let begin = Instant::now();
        let children = format!("/proc/{own}/task/{own}/children");
        let has_children = || std::fs::read_to_string(&children).is_ok_and(|text| !text.trim().is_empty());
        while !stage.folder.join("filled").exists() || has_children() {
            assert!(begin.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        let begin = Instant::now();
        while !is_writing(own) {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never waits for its reader");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(run.try_wait().unwrap(), None, "it waits for its reader");
        send(own, signal);
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = run.try_wait().unwrap() {
                break Some(status);
            }
            if begin.elapsed() > Duration::from_secs(2) {
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let _ = run.kill();
        assert_eq!(status.and_then(|status| status.signal()), Some(signal));
    }
}

/// Whether a thread of a process waits for the reader of a pipe; where the kernel does not tell what it waits for, whether
/// all of them wait.
fn is_writing(process: i32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let waits: Vec<String> =
        tasks.filter_map(|task| std::fs::read_to_string(task.path().join("wchan")).ok()).collect();
    let is_unknown = waits.iter().all(|wait| wait == "0");
    waits.iter().any(|wait| wait.contains("pipe")) || is_unknown && state(process) == Some('S')
}

/// Only regular files are read, whatever the program's processes report.
#[test]
fn nothing_but_a_plain_file_is_read_as_a_recording() {
    let stage = Stage::new("named");
    stage.compile(
        "name",
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/socket.h>\n#include <sys/un.h>\n\
         int main(int argc, char **argv) { struct sockaddr_un to = {.sun_family = AF_UNIX}; char text[4096];\
         strcpy(to.sun_path, getenv(\"MAKEROOM_SOCKET\")); int own = socket(AF_UNIX, SOCK_DGRAM, 0);\
         for (int i = 0; i < 2; i++) { int length = sprintf(text, i ? \"recording 1 %s\" : \"refused 1 99 0 %s\", argv[1]);\
         sendto(own, text, length, 0, (void *)&to, sizeof to); } return 4; }",
    );
    let made = Command::new("sh")
        .args(["-c", "mkfifo fifo && ln -s fifo link && mkdir folder"])
        .current_dir(&stage.folder)
        .status();
    assert!(made.unwrap().success());
    let absolute = |name: &str| stage.folder.join(name).display().to_string();
    for place in
        [absolute("fifo"), absolute("link"), absolute("folder"), "/dev/zero".into(), "/dev/ptmx".into()]
    {
        let mut run = stage.run(&["./name", &place]).stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        while run.try_wait().unwrap().is_none() {
            if begin.elapsed() > Duration::from_secs(10) {
                run.kill().unwrap();
                run.wait().unwrap();
                panic!("{place} was waited for");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(run.wait().unwrap().code(), Some(4), "{place}: {said}");
        assert!(said.contains("not a regular file"), "{place}: {said}");
    }
}
