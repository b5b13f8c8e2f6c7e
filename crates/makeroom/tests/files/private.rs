//! Other users cannot read a recording, and it contains no secrets from the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::stage::{Stage, text};

#[test]
fn recordings_are_the_users_alone() {
    let stage = Stage::new("mode");
    let words = [
        "run",
        "--no-status",
        "-o",
        "run.room",
        "--",
        "sh",
        "-c",
        "umask 0; ./steps alloc 10; ./steps alloc 10",
    ];
    let output = stage.command(&words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let mut recordings = 0;
    for entry in fs::read_dir(stage.path("")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "room") {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
            recordings += 1;
        }
    }
    assert_eq!(recordings, 2);
}

fn holds(stage: &Stage, file: &str, text: &str) -> bool {
    fs::read(stage.path(file)).unwrap().windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn secrets_of_the_command_line_are_not_recorded() {
    let stage = Stage::new("secrets");
    let secrets = [
        "--api-key=SECRET123",
        "HF_TOKEN=hf_SECRET123",
        "https://me:SECRET123@example.org/model",
        "--config={\"password\": \"SECRET123\"}",
    ];
    for (index, secret) in secrets.iter().enumerate() {
        let file = format!("{index}.room");
        let words = ["run", "--no-status", "-o", &file, "--", "./steps", "ignored", secret, "alloc", "1"];
        let output = stage.command(&words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!holds(&stage, &file, "SECRET123"), "{secret}");
        assert!(holds(&stage, &file, "alloc") && holds(&stage, &file, "ignored"), "the rest stays: {secret}");
    }
}

#[test]
fn the_command_line_can_be_left_out() {
    let stage = Stage::new("left-out");
    let words = [
        "run",
        "--no-status",
        "--no-command-line",
        "-o",
        "run.room",
        "--",
        "./steps",
        "ignored",
        "my-dataset",
    ];
    let output = stage.command(&words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!holds(&stage, "run.room", "my-dataset") && holds(&stage, "run.room", "steps"));
    assert!(text(&output.stderr).contains("steps (PID"), "{}", text(&output.stderr));
}
