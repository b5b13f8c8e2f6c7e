//! Imports go downward only: every crate's `Cargo.toml` against the layers of `ARCHITECTURE.md`.
#![allow(clippy::unwrap_used, reason = "what a test cannot read has failed it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Crates from the bottom up. A crate may depend on those before it.
const LAYERS: [&str; 21] = [
    "makeroom-core",
    "makeroom-pickle",
    "makeroom-cuda",
    "makeroom-trace",
    "makeroom-place",
    "makeroom-pool",
    "makeroom-pool-c",
    "makeroom-preload",
    "makeroom-sim",
    "makeroom-demo",
    "makeroom-simcard",
    "makeroom-simnvml",
    "makeroom-simgpu",
    "makeroom-explain",
    "makeroom-fit",
    "makeroom-holders",
    "makeroom-export",
    "makeroom-report",
    "makeroom-view",
    "makeroom-python",
    "makeroom",
];

/// Below these crates nothing may be reached although it lies lower: readers conclude nothing, explainers and
/// simulators read no files.
const FORBIDDEN: [(&str, &str); 7] = [
    ("makeroom-export", "makeroom-trace"),
    ("makeroom-view", "makeroom-trace"),
    ("makeroom-holders", "makeroom-explain"),
    ("makeroom-explain", "makeroom-trace"),
    ("makeroom-fit", "makeroom-trace"),
    ("makeroom-sim", "makeroom-trace"),
    ("makeroom-place", "makeroom-trace"),
];

fn dependencies() -> BTreeMap<String, Vec<String>> {
    let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_dir(crates)
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
fn every_crate_has_its_layer_and_imports_downward() {
    let layer = |name: &str| LAYERS.iter().position(|known| *known == name);
    for (name, dependencies) in dependencies() {
        let own =
            layer(&name).unwrap_or_else(|| panic!("{name} has no layer: add it here and to ARCHITECTURE.md"));
        for dependency in dependencies {
            assert!(
                layer(&dependency).is_some_and(|below| below < own),
                "{name} must not import {dependency}"
            );
            assert!(!FORBIDDEN.contains(&(&name, &dependency)), "{name} must not import {dependency}");
        }
    }
}
