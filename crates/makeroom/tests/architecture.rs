//! The table of crates in `ARCHITECTURE.md` is what the `Cargo.toml` files say: every crate has a row, and each row lists
//! exactly the crates it depends on, all of them in rows above it.
//!
//! A row reads `| crate, … | dependency (remark), … | … |`. Names are written without `makeroom-`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates that each crate depends on, in the order of the table's rows.
fn documented() -> Vec<(String, BTreeSet<String>)> {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let table = page.lines().skip_while(|line| !line.starts_with("| crate | depends on |")).skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).flat_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let names: Vec<String> = cells[1].split(", ").map(|name| name.trim_matches('`').to_owned()).collect();
        let dependencies: BTreeSet<String> = without_remarks(cells[2])
            .split(',')
            .map(str::trim)
            .filter(|name| *name != "nothing")
            .map(|name| format!("makeroom-{name}"))
            .collect();
        names.into_iter().map(move |name| (name, dependencies.clone())).collect::<Vec<_>>()
    });
    rows.collect()
}

/// The text without what is in parentheses.
fn without_remarks(text: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::new();
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept
}

/// The crates of this workspace that each crate's `Cargo.toml` depends on.
fn declared() -> BTreeMap<String, BTreeSet<String>> {
    fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
            let sections = manifest.split("\n[").filter_map(|section| section.split_once("]\n"));
            let normal = sections.filter(|(title, _)| {
                *title == "dependencies" || title.starts_with("target.") && title.ends_with("'.dependencies")
            });
            let lines = normal.flat_map(|(_, lines)| lines.lines());
            let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
            let ours = names.filter(|name| name.starts_with("makeroom")).map(str::to_owned).collect();
            (entry.file_name().into_string().unwrap(), ours)
        })
        .collect()
}

#[test]
fn the_table_lists_what_each_crate_depends_on() {
    let documented: BTreeMap<String, BTreeSet<String>> = documented().into_iter().collect();
    let declared = declared();
    assert_eq!(
        documented.keys().collect::<Vec<_>>(),
        declared.keys().collect::<Vec<_>>(),
        "left: rows of ARCHITECTURE.md; right: crates"
    );
    for (name, dependencies) in &declared {
        assert_eq!(&documented[name], dependencies, "{name}; left: ARCHITECTURE.md; right: its Cargo.toml");
    }
}

#[test]
fn crates_depend_only_on_rows_above() {
    let mut above = BTreeSet::new();
    for (name, dependencies) in documented() {
        let missing: Vec<&String> = dependencies.difference(&above).collect();
        assert!(missing.is_empty(), "{name} depends on {missing:?}, which are not above it");
        above.insert(name);
    }
}

/// The embedded libraries export functions of the C library, of CUDA and of NVML. A command that linked one of them
/// would call these instead of the real ones.
#[cfg(target_os = "linux")]
#[test]
fn the_command_links_no_library_that_it_embeds() {
    let embedded = [
        (makeroom_embed::path!(makeroom_preload), "dlsym"),
        (makeroom_embed::path!(makeroom_simgpu), "cuMemAlloc_v2"),
        (makeroom_embed::path!(makeroom_simnvml), "nvmlInit_v2"),
    ];
    for (library, function) in embedded {
        assert!(defines(library, function), "{library} does not export {function}");
        assert!(!defines(env!("CARGO_BIN_EXE_makeroom"), function), "the command contains {function}");
    }
}

/// Whether a program or a library contains a function of this name.
fn defines(path: &str, function: &str) -> bool {
    use object::{Object as _, ObjectSymbol as _};
    let content = fs::read(path).unwrap();
    let file = object::File::parse(&*content).unwrap();
    let symbols = file.symbols().chain(file.dynamic_symbols());
    symbols.filter(object::ObjectSymbol::is_definition).any(|symbol| symbol.name() == Ok(function))
}

/// A new cause of failure must not break the programs that use these crates.
#[test]
fn public_errors_can_grow() {
    let mut closed = Vec::new();
    let mut errors = 0;
    for folder in fs::read_dir(root().join("crates")).unwrap() {
        for file in sources(&folder.unwrap().path().join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            // An item with its attributes, from one empty line to the next.
            for item in text.split("\n\n") {
                let Some(name) = item.lines().find_map(|line| line.strip_prefix("pub enum ")) else {
                    continue;
                };
                let before = item.split("pub enum ").next().unwrap();
                if before.contains("thiserror::Error") {
                    errors += 1;
                    if !before.contains("#[non_exhaustive]") {
                        closed.push(format!("{}: {name}", file.display()));
                    }
                }
            }
        }
    }
    assert!(errors > 8, "only {errors} public errors were found");
    assert!(closed.is_empty(), "without #[non_exhaustive]: {closed:#?}");
}

/// The source files in a folder and below.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Every file and directory in a crate's `tests` must belong to one of its test programs; cargo does not report unused ones.
#[test]
fn every_test_file_is_compiled() {
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let directory = entry.unwrap().path();
        let tests = directory.join("tests");
        let Ok(main) = fs::read_to_string(tests.join("main.rs")) else { continue };
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        for file in fs::read_dir(&tests).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let is_module =
                path.extension().is_some_and(|extension| extension == "rs") || path.join("mod.rs").exists();
            let is_declared = main.contains(&format!("mod {name};"))
                || manifest.contains(&format!("[[test]]\nname = \"{name}\""))
                || name == "main";
            assert!(is_declared || !is_module, "{} is not in {}/main.rs", path.display(), tests.display());
            // With a main.rs, proptest reads its seeds from the crate's proptest-regressions instead.
            let is_seed = path.extension().is_some_and(|extension| extension == "proptest-regressions");
            assert!(!is_seed, "{} is not read", path.display());
        }
    }
}
