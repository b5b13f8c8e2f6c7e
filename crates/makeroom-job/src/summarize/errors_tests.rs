//! Tests of `errors.rs`: which error ended a process, and which were handled or only followed from another one.

use super::super::phrases;
use super::*;

const TRACEBACK: &str =
    "Traceback (most recent call last):\n  File \"t.py\", line 3\n    raise ValueError(x)\n";
const CHAINED: &str = "During handling of the above exception, another exception occurred:\n\n";
const LOST: &str = "[E] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9)\n";

fn read(finder: &mut ErrorFinder, line: &str) -> Line {
    finder.read(line, !phrases::kinds(line.as_bytes()).is_empty())
}

fn found(text: &str) -> Option<String> {
    let mut finder = ErrorFinder::default();
    text.lines().for_each(|line| _ = read(&mut finder, line));
    finder.finish().map(|(_, error)| error)
}

#[test]
fn the_exception_of_a_traceback_is_found() {
    for (text, error) in [
        (format!("{TRACEBACK}ValueError: bad shape\n"), "ValueError: bad shape"),
        (format!("ERROR 10:00:00 {TRACEBACK}ERROR 10:00:09 a.b.MyError: x\n"), "a.b.MyError: x"),
        (format!("{TRACEBACK}queue.Empty\n"), "queue.Empty"),
        ("*** Signal: Segmentation fault (11)".to_owned(), "Segmentation fault (11)"),
        (
            "terminate called after throwing an instance of 'c10::Error'\n  what():  bad stream\n".to_owned(),
            "bad stream",
        ),
        (
            "[E1] watchdog thread terminated with exception: CUDA error: an illegal memory access\n"
                .to_owned(),
            "CUDA error: an illegal memory access",
        ),
    ] {
        assert_eq!(found(&text).as_deref(), Some(error), "{text}");
    }
    assert_eq!(found("WARNING: ValueError: retrying\n"), None, "no traceback");
    assert_eq!(found(&format!("{TRACEBACK}ValueError: x\n{}", "done\n".repeat(100))), None, "handled");
    let long = found(&format!("{TRACEBACK}ValueError: {}\n", "é".repeat(1000)));
    assert_eq!(long.map(|error| error.chars().count()), Some(LONGEST + 1));
}

#[test]
fn a_handled_error_does_not_hide_the_last_one() {
    let steps = |from: u32| {
        format!(
            "step {from}: loss 2.{from}
"
        )
        .repeat(4)
    };
    let handled = format!("{}{TRACEBACK}KeyError: 'a'\nskipped\n{}", steps(1), steps(5));
    assert_eq!(found(&handled), None);
    let fatal = format!("{handled}{TRACEBACK}ValueError: bad shape\n");
    assert_eq!(found(&fatal).as_deref(), Some("ValueError: bad shape"));
    // Nothing between them: the last traceback is that of the exception that was not caught.
    let close = format!("{TRACEBACK}KeyError: 'a'\nskipped\n{TRACEBACK}ValueError: bad shape\n");
    assert_eq!(found(&close).as_deref(), Some("ValueError: bad shape"));
    let ignored = format!("{fatal}Exception ignored in: <function f>\n{TRACEBACK}TypeError: x\n");
    assert_eq!(found(&ignored).as_deref(), Some("ValueError: bad shape"));
    // A line in between: the next traceback is not that of the destructor.
    let expired = format!("Exception ignored in: <function f>\n\nstep 7\n{TRACEBACK}TypeError: x\n");
    assert_eq!(found(&expired).as_deref(), Some("TypeError: x"));
    let blank = format!("Exception ignored in: <function f>\n\n{TRACEBACK}TypeError: x\n");
    assert_eq!(found(&blank), None);
    let chained = format!("{TRACEBACK}KeyError: 'a'\n\n{CHAINED}{TRACEBACK}ValueError: no a\n");
    assert_eq!(found(&chained).as_deref(), Some("ValueError: no a"));
}

#[test]
fn the_last_dropped_error_can_be_restored() {
    let step = "step 1: loss 2.7\n";
    let dropped = |error: &str| format!("{step}{TRACEBACK}{error}\n{}", step.repeat(4));
    let restored = |text: &str| {
        let mut finder = ErrorFinder::default();
        text.lines().for_each(|line| _ = read(&mut finder, line));
        finder.restore();
        finder.finish().map(|(_, error)| error)
    };
    let both = dropped("KeyError: 'a'") + &dropped("ValueError: b");
    assert_eq!((found(&both), restored(&both).as_deref()), (None, Some("ValueError: b")));
    // A lost connection after it does not replace it; an error that was not dropped does.
    assert_eq!(restored(&format!("{both}{LOST}{}", step.repeat(4))).as_deref(), Some("ValueError: b"));
    let fatal = format!("{both}{TRACEBACK}TypeError: c\n");
    assert_eq!(restored(&fatal).as_deref(), Some("TypeError: c"));
    assert_eq!(restored(step), None);
}

#[test]
fn a_long_text_in_front_of_a_traceback_is_not_kept() {
    for (length, kept) in [(LONGEST_PREFIX, LONGEST_PREFIX), (LONGEST_PREFIX + 1, 0), (1 << 14, 0)] {
        let mut finder = ErrorFinder::default();
        read(&mut finder, &format!("{}{TRACEBACK}", "x".repeat(length)));
        assert_eq!(finder.traceback.map(|traceback| traceback.prefix.len()), Some(kept));
    }
}

#[test]
fn source_lines_are_not_errors() {
    let source = "Traceback (most recent call last):\n  File \"t.py\", line 3, in f\n    except KeyError: pass\n  \
        File \"t.py\", line 9, in g\n    raise RuntimeError(\"Connection closed by peer\")  # Segmentation fault\n";
    let mut finder = ErrorFinder::default();
    let lines: Vec<Line> = source.lines().skip(1).map(|line| read(&mut finder, line)).collect();
    assert_eq!(lines, [Line::Text; 4], "outside of a traceback");
    let lines: Vec<Line> = source.lines().map(|line| read(&mut finder, line)).collect();
    assert_eq!(lines[1..], [Line::Source; 4]);
    assert_eq!(found(source), None, "the exception is missing");
    assert_eq!(found(&format!("{source}ValueError: x\n")).as_deref(), Some("ValueError: x"));
    let logged = format!("ERROR 10:00:07 {}", source.trim_end().replace('\n', "\nERROR 10:00:07 ")) + "\n";
    assert_eq!(found(&format!("{logged}ERROR 10:00:07 ValueError: x\n")).as_deref(), Some("ValueError: x"));
}

#[test]
fn consequences_of_other_processes_are_not_errors() {
    for error in [
        "RuntimeError: Connection closed by peer [10.0.0.8]:9123",
        "torch.distributed.DistBackendError: NCCL error in: a.cpp:1, unhandled system error",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "KeyboardInterrupt",
    ] {
        assert_eq!(found(&format!("{TRACEBACK}{error}\n")), None, "{error}");
        let cleanup = format!("{TRACEBACK}{error}\n\n{CHAINED}{TRACEBACK}RuntimeError: x\n");
        assert_eq!(found(&cleanup), None, "{error}");
    }
    assert_eq!(found(&format!("{LOST}{TRACEBACK}RuntimeError: aborted\n")), None);
    assert_eq!(
        found(&format!("{TRACEBACK}KeyError: 'x'\n{LOST}")).as_deref(),
        Some("KeyError: 'x'"),
        "the error came first"
    );
}

#[test]
fn a_connection_that_was_lost_long_before_does_not_explain_an_error() {
    let pipe = "[W socket.cpp] sendBytes failed: Broken pipe (errno: 32)\n";
    let failed = format!("{TRACEBACK}ValueError: bad shape\n");
    let step = "step 1: loss 2.7\n";
    let early = format!("{step}{pipe}{}{failed}", step.repeat(4));
    assert_eq!(found(&early).as_deref(), Some("ValueError: bad shape"));
    assert_eq!(
        found(&format!("{pipe}{}{failed}", "other\n".repeat(100))).as_deref(),
        Some("ValueError: bad shape")
    );
    assert_eq!(found(&format!("{step}{pipe}{failed}")), None, "right after it");
}

#[test]
fn a_program_that_continues_has_handled_an_exit_code() {
    let status = "Command '['git', 'rev-parse', 'HEAD']' returned non-zero exit status 128.\n";
    assert_eq!(found(status).as_deref(), Some(status.trim_end()));
    assert_eq!(found(&format!("{status}{}", "other\n".repeat(50))).as_deref(), Some(status.trim_end()));
    assert_eq!(found(&format!("{status}{}", "other\n".repeat(100))), None);
    let step = "step 1: loss 2.7\n";
    assert_eq!(found(&format!("{step}{status}{}", step.repeat(4))), None);
    let later = format!("{status}{}{TRACEBACK}ValueError: x\n", "other\n".repeat(100));
    assert_eq!(found(&later).as_deref(), Some("ValueError: x"));
}
