//! The modules of the recorder form no circles: each can be read and changed knowing only those below it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules at the root of the crate that each of them imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The modules in `crate::module` and `crate::{module, module::item, …}`, without those that only tests import.
fn imported(source: &str) -> BTreeSet<String> {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let paths = code.split("crate::").skip(1).flat_map(|rest| {
        let group = rest.strip_prefix('{').map(|group| group.split(';').next().unwrap());
        let items = group.map_or_else(|| vec![rest], |group| group.split([',', '{', '}']).collect());
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        items
            .into_iter()
            .map(move |item| item.trim().split(|letter| !is_name(letter)).next().unwrap().to_owned())
    });
    paths.collect()
}

fn imports() -> Imports {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Imports::new();
    for path in sources(&root) {
        let relative = path.strip_prefix(&root).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs").to_owned();
        let imported = imported(&fs::read_to_string(&path).unwrap());
        found.entry(module.clone()).or_default().extend(imported.into_iter().filter(|name| *name != module));
    }
    found.remove("lib");
    found
}

#[test]
fn modules_form_no_circles() {
    let mut left = imports();
    assert!(left["hooks"].contains("driver") && left["driver"].contains("lookup"), "{left:#?}");
    while let Some(lowest) =
        left.iter().find(|(_, imports)| imports.iter().all(|name| !left.contains_key(name)))
    {
        let lowest = lowest.0.clone();
        left.remove(&lowest);
    }
    assert!(left.is_empty(), "these import each other: {left:#?}");
}
