//! Compresses the debug sections of the command, and finds the commit of an optimized build, for `makeroom --version`.
//!
//! In a package, the commit comes from the file that cargo adds. Builds that are not optimized have none, so that a commit
//! does not compile the command again.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // `makeroom why` reads the line tables of the demonstrations from this binary, so debug sections stay, but
        // compressed: the standard library adds its own.
        println!("cargo::rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
    }
    let is_optimized = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = packaged().or_else(|| is_optimized.then(checked_out).flatten());
    println!("cargo::rustc-env=BUILT_FROM_COMMIT={}", commit.unwrap_or_default());
}

/// The commit of a package, from `{"git": {"sha1": "…"}}`.
fn packaged() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\"")?;
    let commit: String = rest.chars().skip_while(|letter| !letter.is_ascii_hexdigit()).collect();
    shortened(&commit)
}

/// The commit of a clone.
fn checked_out() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // A clone may be inside of another repository; then its commit is not ours.
    let root = git(&["rev-parse", "--show-toplevel"])?;
    if !Path::new(&root).join("crates/makeroom/build.rs").exists() {
        return None;
    }
    let folder = git(&["rev-parse", "--absolute-git-dir"])?;
    for file in ["HEAD", "logs/HEAD"] {
        println!("cargo::rerun-if-changed={folder}/{file}");
    }
    shortened(&git(&["rev-parse", "HEAD"])?)
}

fn shortened(commit: &str) -> Option<String> {
    let hash: String = commit.chars().take_while(char::is_ascii_hexdigit).take(10).collect();
    (hash.len() == 10).then_some(hash)
}
