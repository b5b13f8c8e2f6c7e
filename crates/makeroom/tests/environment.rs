//! `docs/environment.md` lists every `MAKEROOM*` variable that the code reads, and no other, and every variable from which
//! a process's place in a job is read.
//!
//! A variable is a string literal that is nothing but its name. Tests and examples are left out, and so are the few
//! variables that only tests read.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories whose files run inside a user's programs or commands.
const SOURCES: [&str; 2] = ["crates", "python/src"];

/// Path components that mark a file as a test or an example.
const NOT_SHIPPED: [&str; 5] = ["tests", "examples", "benches", "target", "tests.rs"];

#[test]
fn the_page_lists_the_variables_that_the_code_reads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut read = BTreeSet::new();
    for source in SOURCES {
        for file in shipped_files(&root.join(source)) {
            let text = fs::read_to_string(&file).unwrap();
            read.extend(quoted_variables(&text));
        }
    }
    let page = fs::read_to_string(root.join("docs/environment.md")).unwrap();
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.into())
        .collect();
    assert!(read.contains("MAKEROOM_FILE"), "the scan finds nothing: {read:?}");
    assert_eq!(listed, read, "left: listed in docs/environment.md; right: read by the code");
}

#[test]
fn the_page_lists_the_variables_of_launchers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/environment.md")).unwrap();
    let (_, section) = page.split_once("## Launchers and schedulers").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    // Every second piece is between backticks.
    let listed: BTreeSet<&str> =
        section.split('`').skip(1).step_by(2).filter(|name| is_upper_case(name)).collect();
    let read: BTreeSet<&str> = makeroom_core::identity::VARIABLES.iter().copied().collect();
    assert_eq!(listed, read, "left: listed in docs/environment.md; right: read by the code");
}

fn is_upper_case(name: &str) -> bool {
    name.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Rust and Python files below `folder` that are neither tests nor examples.
fn shipped_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if NOT_SHIPPED.iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if path.is_dir() {
            files.extend(shipped_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
            files.push(path);
        }
    }
    files
}

/// `MAKEROOM` and `MAKEROOM_…` where they are a whole string literal.
fn quoted_variables(text: &str) -> impl Iterator<Item = String> {
    text.split('"').filter(|piece| is_variable(piece)).map(str::to_owned)
}

fn is_variable(name: &str) -> bool {
    name.strip_prefix("MAKEROOM").is_some_and(|rest| {
        rest.is_empty()
            || rest.starts_with('_') && rest.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase())
    })
}
