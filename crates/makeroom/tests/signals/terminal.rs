//! Keys, and signals while the program is on a terminal.

use super::stage::{Stage, child_called, send, state, wait_until_stopped};

#[test]
fn a_key_of_the_terminal_arrives_once() {
    for input in ["terminal", "null"] {
        for place in ["leader", "shell"] {
            let stage = Stage::new(&format!("key-{place}-{input}"));
            for round in 0..4 {
                for name in ["ready", "go", "got", "heard"] {
                    let _ = std::fs::remove_file(stage.folder.join(name));
                }
                let mut run = stage.on_terminal(place, input, &["./ears"]).spawn().unwrap();
                let (parent, _) = stage.ready();
                // Ctrl-C, Ctrl-\, Ctrl-Z.
                for (count, key) in [(1, b"\x03"), (2, b"\x1c"), (3, b"\x1a")] {
                    stage.write("type", key);
                    stage.hears(count);
                }
                let got = stage.counts(parent, 3);
                assert!(run.wait().unwrap().success());
                assert_eq!(got, ["2:1", "3:1", "20:1"], "{place}, {input}, round {round}");
            }
        }
    }
}

#[test]
fn a_signal_from_kill_arrives_on_a_terminal_too() {
    for input in ["terminal", "null"] {
        let stage = Stage::new(&format!("kill-{input}"));
        let mut run = stage.on_terminal("shell", input, &["./ears"]).spawn().unwrap();
        let (parent, _) = stage.ready();
        for (count, signal) in (1..).zip([2, 3, 28, 15, 20]) {
            send(parent, signal);
            stage.hears(count);
        }
        let got = stage.counts(parent, 5);
        assert!(run.wait().unwrap().success());
        assert_eq!(got, ["2:1", "3:1", "15:1", "20:1", "28:1"], "{input}");
    }
}

/// When a terminal is lost, the kernel signals only the session leader.
#[test]
fn a_lost_terminal_is_passed_on() {
    let stage = Stage::new("hangup");
    let mut run = stage.on_terminal("leader", "terminal", &["./ears"]).spawn().unwrap();
    stage.ready();
    run.kill().unwrap();
    run.wait().unwrap();
    stage.hears_signal(1);
    let got = stage.end();
    assert_eq!(got.first().map(String::as_str), Some("1:1"), "{got:?}");
}

#[test]
fn a_stopped_program_stops_the_job_and_goes_on_with_it() {
    let stage = Stage::new("job");
    let mut run = stage.on_terminal("shell", "terminal", &["./ears", "stop"]).spawn().unwrap();
    let (parent, own) = stage.ready();
    let leader: i32 = stage.wait_for("leader").parse().unwrap();
    for round in 0..3 {
        match round {
            // Ctrl-Z, a signal to this command only, and one from the program itself.
            0 => stage.write("type", b"\x1a"),
            1 => send(parent, 20),
            _ => send(own, 19),
        }
        stage.wait_for("stopped");
        wait_until_stopped(own, true);
        wait_until_stopped(parent, true);
        std::fs::remove_file(stage.folder.join("stopped")).unwrap();
        // Like `fg`.
        send(leader, 10);
        wait_until_stopped(own, false);
        wait_until_stopped(parent, false);
        // SIGCONT, and another signal that only a running command forwards to a running program.
        stage.hears(2 * round + 1);
        send(parent, 10);
        stage.hears(2 * round + 2);
        assert_ne!((state(parent), state(own)), (Some('T'), Some('T')), "round {round}: stopped again");
    }
    let got = stage.counts(parent, 6);
    assert!(run.wait().unwrap().success());
    assert_eq!(got, ["10:3", "18:3"]);
}

/// A witness that did not run between Ctrl-Z and `fg` never sees the key: SIGCONT discards it.
#[test]
fn a_stop_key_is_not_repeated_when_the_job_resumes() {
    let stage = Stage::new("late-witness");
    let mut run = stage.on_terminal("shell", "terminal", &["./ears", "stop"]).spawn().unwrap();
    let (parent, own) = stage.ready();
    let leader: i32 = stage.wait_for("leader").parse().unwrap();
    let witness = child_called(parent, "signal-witness");
    send(witness, 19);
    wait_until_stopped(witness, true);
    stage.write("type", b"\x1a");
    stage.wait_for("stopped");
    wait_until_stopped(own, true);
    wait_until_stopped(parent, true);
    send(leader, 10);
    stage.hears(1);
    send(parent, 10);
    let got = stage.counts(parent, 2);
    assert!(run.wait().unwrap().success());
    assert_eq!(got, ["10:1", "18:1"]);
}

/// A program that ignores Ctrl-Z keeps its terminal.
#[test]
fn a_program_that_does_not_stop_does_not_stop_the_job() {
    let stage = Stage::new("no-stop");
    let mut run = stage.on_terminal("shell", "terminal", &["./ears"]).spawn().unwrap();
    let (parent, _) = stage.ready();
    stage.write("type", b"\x1a");
    stage.hears(1);
    assert_ne!(state(parent), Some('T'));
    // A stopped command would not forward the last signal.
    stage.counts(parent, 1);
    assert!(run.wait().unwrap().success());
    assert!(!stage.folder.join("stopped").exists());
}
