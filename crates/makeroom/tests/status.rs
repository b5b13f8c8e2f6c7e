//! The status line of `makeroom run` on a terminal: it appears, it is removed, and the program's output is unchanged.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Stdio;

use makeroom_simcard::testing::{Stage, text};

/// Allocates memory and prints a hundred lines, some in two parts, for about three seconds. With "raw", it turns line
/// mode off.
const PROGRAM: &str = r#"
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
int cuInit(unsigned), cuCtxCreate_v2(void **, unsigned, int), cuMemAlloc_v2(unsigned long *, size_t);
int main(int count, char **words) {
    void *context;
    unsigned long block;
    struct termios modes;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (cuInit(0) || cuCtxCreate_v2(&context, 0, 0)) return 99;
    if (count > 1 && !strcmp(words[1], "raw")) {
        tcgetattr(0, &modes);
        modes.c_lflag &= ~(ICANON | ECHO);
        tcsetattr(0, TCSANOW, &modes);
    }
    for (int i = 0; i < 100; i++) {
        if (i < 64 && cuMemAlloc_v2(&block, 16 << 20)) return 98;
        printf("line %d ", i);
        usleep(15000);
        printf("is whole\n");
        usleep(15000);
    }
    return 7;
}
"#;

fn stage(test: &str) -> Stage {
    let stage = Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("status").join(test));
    stage.compile_text("program", PROGRAM, &["-l:libcuda.so.1"]);
    stage.compile(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pty.c"), &[]);
    stage
}

/// The bytes that the terminal received, and the exit status.
fn on_terminal(stage: &Stage, words: &[&str], variables: &[(&str, &str)]) -> (Vec<u8>, Option<i32>) {
    let mut command = stage.command(stage.path("pty"));
    command.arg(env!("CARGO_BIN_EXE_makeroom")).args(["run", "-o", "run.room"]).args(words);
    command
        .stdin(Stdio::null())
        .env("TERM", "xterm-256color")
        .env_remove("CI")
        .envs(variables.iter().copied());
    let output = command.output().unwrap();
    (output.stdout, output.status.code())
}

/// The rows of a terminal after these bytes.
fn rows(bytes: &[u8]) -> Vec<String> {
    let mut terminal = vt100::Parser::new(24, 80, 200);
    terminal.process(bytes);
    terminal.screen().rows(0, 80).map(|row| row.trim_end().to_owned()).collect()
}

fn is_status(row: &str) -> bool {
    row.starts_with("makeroom  GPU ")
}

const SET_APART: &[u8] = b"\x1b[1;23r";

#[test]
fn the_line_is_seen_and_goes_and_the_output_stays_whole() {
    let stage = stage("seen");
    let (bytes, status) = on_terminal(&stage, &["--", "./program"], &[]);
    assert_eq!(status, Some(7), "{}", text(&bytes));

    // At any time: at most one status line, in the last row, and the program's lines above it in order.
    let mut terminal = vt100::Parser::new(24, 80, 0);
    let mut seen = Vec::new();
    for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
        terminal.process(piece);
        let rows: Vec<String> = terminal.screen().rows(0, 80).map(|row| row.trim_end().to_owned()).collect();
        let drawn: Vec<usize> = (0..24).filter(|&row| is_status(&rows[row])).collect();
        assert!(drawn.is_empty() || drawn == [23], "{rows:#?}");
        if let Some(&row) = drawn.first() {
            seen.push(rows[row].clone());
        }
        let numbers: Vec<u32> = rows
            .iter()
            .filter_map(|row| row.strip_prefix("line ")?.strip_suffix(" is whole")?.parse().ok())
            .collect();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rows:#?}");
    }
    assert!(seen.len() >= 2, "{}", text(&bytes));
    assert!(seen.last().unwrap().contains("1.00 GiB now, 1.00 GiB peak · 64 allocations"), "{seen:#?}");

    // At the end: the program's last lines, then the summary, no status line, and all rows scroll.
    let last = rows(&bytes);
    assert!(!last.iter().any(|row| is_status(row)), "{last:#?}");
    let end = last.iter().position(|row| row == "line 99 is whole").unwrap();
    assert!(last[end + 1].starts_with("makeroom: program (PID "), "{last:#?}");
    assert!(last[end - 1] == "line 98 is whole", "{last:#?}");
    terminal.process(&b"below\r\n".repeat(30));
    assert_eq!(terminal.screen().rows(0, 80).filter(|row| row.trim_end() == "below").count(), 23);
}

#[test]
fn nothing_is_drawn_where_it_must_not_be() {
    let cases = [
        ("--no-status -- ./program", ("TERM", "xterm")),
        ("-- ./program", ("TERM", "dumb")),
        ("-- ./program", ("CI", "true")),
        ("-- ./program raw", ("TERM", "xterm")),
    ];
    // The programs mostly sleep: they run at the same time.
    std::thread::scope(|scope| {
        for (number, (words, variable)) in cases.into_iter().enumerate() {
            scope.spawn(move || {
                let stage = stage(&format!("unseen-{number}"));
                let words: Vec<&str> = words.split(' ').collect();
                let (bytes, status) = on_terminal(&stage, &words, &[variable]);
                assert_eq!(status, Some(7), "{}", text(&bytes));
                let is_drawn = bytes.windows(SET_APART.len()).any(|window| window == SET_APART);
                assert!(!is_drawn, "{words:?} {variable:?}: {}", text(&bytes));
                assert!(text(&bytes).contains("line 99 is whole"));
            });
        }
    });
}
