//! Python stacks, with every interpreter on this machine: the recorder supports 3.9 to 3.15.

use std::path::PathBuf;
use std::process::Command;

use crate::support::{Program, text};
use makeroom_trace::room::EventKind;

/// The interpreters on this machine: supported versions in `PATH`, and those installed by pyenv.
fn interpreters() -> Vec<(PathBuf, String)> {
    let installed = std::env::var("HOME")
        .ok()
        .and_then(|home| std::fs::read_dir(PathBuf::from(home).join(".pyenv/versions")).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin/python3")));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let searched: Vec<PathBuf> = std::env::split_paths(&paths)
        // pyenv's shims only start the versions that it installed.
        .filter(|directory| !directory.ends_with("shims"))
        .flat_map(|directory| (9..=20).map(move |minor| directory.join(format!("python3.{minor}"))))
        .filter(|path| path.exists())
        .collect();
    let mut found: Vec<(PathBuf, String)> = [PathBuf::from("/usr/bin/python3")]
        .into_iter()
        .chain(searched)
        .chain(installed)
        .filter_map(|path| {
            let program = "import sys; print('%d.%d' % sys.version_info[:2])";
            let output = Command::new(&path).args(["-c", program]).output().ok()?;
            output.status.success().then(|| (path, text(&output.stdout).trim().to_owned()))
        })
        .collect();
    found.sort_by(|left, right| left.1.cmp(&right.1));
    found.dedup_by_key(|(path, _)| path.canonicalize().ok());
    found
}

fn script() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/allocate.py").to_owned()
}

const KNOWN: [&str; 7] = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"];

#[test]
fn functions_files_and_lines_of_every_known_interpreter() {
    let mut tested = Vec::new();
    for (path, version) in interpreters() {
        if !KNOWN.contains(&version.as_str()) {
            continue;
        }
        let recording = Program::other(&path, "python").argument(&script()).check_one();
        recording.assert_complete();
        let allocations = recording.events_of(EventKind::DeviceAlloc);
        assert_eq!(allocations.len(), 201, "{version}");
        for event in &allocations {
            let stack = recording.stack(event);
            let python: Vec<&str> = stack
                .iter()
                .filter(|frame| frame.contains(".py:") || frame.contains("<made>:"))
                .map(String::as_str)
                .collect();
            check_frames(&version, event.size.get() >> 10, &python);
        }
        tested.push(version);
    }
    if tested.is_empty() {
        eprintln!("skipped: no known Python on this machine");
    } else {
        println!("tested: {}", tested.join(", "));
    }
}

/// Compares the Python frames of one allocation with the program's source.
fn check_frames(version: &str, size: u64, frames: &[&str]) {
    let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    // Since 3.11 functions have qualified names.
    let qualified = |long: &'static str, short: &'static str| if minor >= 11 { long } else { short };
    let comprehension = qualified("Model.forward.<locals>.<listcomp>", "<listcomp>");
    let forward = qualified("Model.forward", "forward");
    let inner = "allocate allocate.py:11".to_owned();
    let outer = |line: u32| format!("<module> allocate.py:{line}");
    let expected: Vec<String> = match size {
        // Since 3.12 a comprehension has no frame of its own.
        1 if minor >= 12 => vec![inner, format!("{forward} allocate.py:20"), outer(37)],
        1 => vec![
            inner,
            format!("{comprehension} allocate.py:20"),
            format!("{forward} allocate.py:20"),
            outer(37),
        ],
        2 => vec![inner, "made <made>:3".to_owned(), "généré allocate.py:26".to_owned(), outer(38)],
        _ => {
            let run = qualified("Thread.run", "run");
            let bootstrap = qualified("Thread._bootstrap_inner", "_bootstrap_inner");
            let outermost = qualified("Thread._bootstrap", "_bootstrap");
            assert_eq!(frames[..2], [inner.as_str(), "work allocate.py:31"], "{version}");
            for (frame, function) in frames[2..].iter().zip([run, bootstrap, outermost]) {
                assert!(frame.starts_with(&format!("{function} threading.py:")), "{version}: {frame}");
            }
            return;
        }
    };
    assert_eq!(frames, expected, "{version}");
}

#[test]
fn an_unknown_interpreter_gets_native_stacks_and_says_so_once() {
    for (path, version) in interpreters() {
        if KNOWN.contains(&version.as_str()) || !version.starts_with('3') {
            continue;
        }
        let program = Program::other(&path, "python").argument(&script());
        let output = program.recorded();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).lines().count(), 1);
        assert!(text(&output.stderr).contains("native stacks only"));
        let recording = program.recordings().remove(0);
        assert!(!recording.stack(&recording.events_of(EventKind::DeviceAlloc)[0]).is_empty());
    }
}
