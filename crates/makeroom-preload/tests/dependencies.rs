//! The allowlist of crates that are injected into other people's programs.
//!
//! The recorder runs inside every recorded process, so a new dependency is a decision, never a side effect of an
//! update. Before you add a name here, read the crate's code, especially its unsafe code, its constructors and its
//! locks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::process::Command;

/// Linked into the library.
const LINKED: &[&str] = &[
    // The recorder itself.
    "makeroom-core",
    "makeroom-cuda",
    "makeroom-ordered",
    "makeroom-pickle",
    "makeroom-place",
    "makeroom-pool",
    "makeroom-preload",
    "makeroom-trace",
    // The system and the driver.
    "cfg-if",
    "libc",
    "libloading",
    // Symbolizing stacks.
    "addr2line",
    "gimli",
    "memchr",
    "memmap2",
    "object",
    "typed-arena",
    // Compressed debug information.
    "adler2",
    "crc32fast",
    "flate2",
    "miniz_oxide",
    "ruzstd",
    "simd-adler32",
    "twox-hash",
    "zlib-rs",
    // The table behind the standard library's hash map, for tables of addresses.
    "hashbrown",
    // Casting memory to values, in the pool.
    "bytemuck",
    // Error messages.
    "thiserror",
];

/// Run by the compiler only (procedural macros).
const COMPILING: &[&str] = &["proc-macro2", "quote", "syn", "thiserror-impl", "unicode-ident"];

#[test]
fn only_reviewed_crates_are_injected() {
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let tree = Command::new(env!("CARGO"))
            .args([
                "tree",
                "--locked",
                "--offline",
                "--package",
                "makeroom-preload",
                "--edges",
                "normal,build",
            ])
            .args(["--prefix", "none", "--format", "{p}", "--target", target])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        let listed = String::from_utf8(tree.stdout).unwrap();
        assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
        let found: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
        let allowed: BTreeSet<&str> = LINKED.iter().chain(COMPILING).copied().collect();
        let (new, gone): (Vec<_>, Vec<_>) = (
            found.difference(&allowed).filter(|name| !name.is_empty()).collect(),
            allowed.difference(&found).collect(),
        );
        assert!(new.is_empty(), "{target}: not reviewed: {new:?}");
        assert!(gone.is_empty(), "{target}: no longer a dependency: {gone:?}");
    }
}
