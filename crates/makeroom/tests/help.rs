//! The help of every command, short and long, as snapshots; short help fits one screen. Completions and man pages are
//! generated from the same definitions.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

const COMMANDS: [&str; 18] = [
    "why",
    "job",
    "run",
    "env",
    "view",
    "diff",
    "gate",
    "ps",
    "top",
    "doctor",
    "fit",
    "tune",
    "replay",
    "plan",
    "export",
    "serve",
    "demo",
    "completions",
];

/// Commands that a newcomer tries first.
const FIRST: [&str; 4] = ["why", "run", "ps", "demo"];

/// Rows of a small terminal, without the one for the prompt.
const SMALL_SCREEN: usize = 23;

/// Short help lists every option on one screen.
const MOST_ROWS: usize = 36;

fn makeroom(arguments: &[&str]) -> String {
    on_columns(arguments, "100")
}

fn on_columns(arguments: &[&str], columns: &str) -> String {
    let makeroom =
        Command::new(env!("CARGO_BIN_EXE_makeroom")).args(arguments).env("COLUMNS", columns).output();
    let output = makeroom.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn help_of_every_command_is_as_reviewed() {
    insta::assert_snapshot!("makeroom", makeroom(&["--help"]));
    for command in COMMANDS {
        insta::assert_snapshot!(format!("{command}-short"), makeroom(&[command, "-h"]));
        insta::assert_snapshot!(format!("{command}-long"), makeroom(&[command, "--help"]));
    }
}

#[test]
fn short_help_fits_one_screen() {
    let rows = on_columns(&["--help"], "80").lines().count();
    assert!(rows <= SMALL_SCREEN, "makeroom --help prints {rows} rows");
    for command in COMMANDS {
        let rows = on_columns(&[command, "-h"], "80").lines().count();
        let most = if FIRST.contains(&command) { SMALL_SCREEN } else { MOST_ROWS };
        assert!(rows <= most, "makeroom {command} -h prints {rows} rows");
    }
}

#[test]
fn long_help_says_more_than_short_help() {
    for command in COMMANDS.iter().filter(|command| **command != "completions") {
        let [short, long] = ["-h", "--help"].map(|flag| makeroom(&[command, flag]).lines().count());
        assert!(long > short, "makeroom {command} --help has {long} rows, -h has {short}");
    }
}

#[test]
fn every_command_is_in_the_completions_and_has_a_man_page() {
    let pages = std::env::temp_dir().join(format!("makeroom-man-{}", std::process::id()));
    makeroom(&["man", pages.to_str().unwrap()]);
    let bash = makeroom(&["completions", "bash"]);
    for command in COMMANDS {
        assert!(
            bash.contains(&format!("makeroom__subcmd__{command}"))
                || bash.contains(&format!("makeroom__{command}"))
        );
        if command == "completions" {
            // Not on the first screen, and without a page: its help says all.
            continue;
        }
        let page = std::fs::read_to_string(pages.join(format!("makeroom-{command}.1"))).unwrap();
        assert!(page.contains(".SH OPTIONS") || page.contains(".SH SYNOPSIS"), "{page}");
    }
    std::fs::remove_dir_all(pages).unwrap();
}
