//! Compresses the debug sections of the command, and finds the commit of an optimized build, for `makeroom --version`.
//!
//! In a package, the commit comes from the file that cargo adds. Builds that are not optimized have none, so that a commit
//! does not compile the command again.

use std::path::Path;
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

/// The commit of a clone, from its files: a machine that builds the command may not have git, and git does not read a clone
/// that belongs to another user.
fn checked_out() -> Option<String> {
    // Not the repository of a folder further up: a clone without its `.git` may be inside of another repository.
    let root = Path::new(&env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    let mut folder = root.join(".git");
    if folder.is_file() {
        // A worktree, or a submodule.
        folder = root.join(fs::read_to_string(&folder).ok()?.strip_prefix("gitdir: ")?.trim_end());
    }
    let head = fs::read_to_string(folder.join("HEAD")).ok()?;
    // Files that do not exist would run this script in every build.
    for file in ["HEAD", "logs/HEAD"].map(|name| folder.join(name)).iter().filter(|file| file.exists()) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let Some(branch) = head.strip_prefix("ref: ") else { return shortened(&head) };
    // A worktree shares its branches with the clone that it belongs to.
    let shared = fs::read_to_string(folder.join("commondir"))
        .map_or_else(|_| folder.clone(), |common| folder.join(common.trim_end()));
    if let Ok(commit) = fs::read_to_string(shared.join(branch.trim_end())) {
        return shortened(&commit);
    }
    let packed = fs::read_to_string(shared.join("packed-refs")).ok()?;
    let line = packed
        .lines()
        .find(|line| line.split_once(' ').is_some_and(|(_, name)| name == branch.trim_end()))?;
    shortened(line)
}

fn shortened(commit: &str) -> Option<String> {
    let hash: String = commit.chars().take_while(char::is_ascii_hexdigit).take(10).collect();
    (hash.len() == 10).then_some(hash)
}
