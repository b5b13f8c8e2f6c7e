//! README and docs show actual output of the program; `tests/cli/` holds the error cases.
//!
//! Commands run in the project root, as readers run them. To accept a change:
//! `TRYCMD=overwrite cargo test -p makeroom --test documents`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::env;
use std::path::Path;

#[test]
fn documents_show_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    env::set_current_dir(&root).unwrap();
    trycmd::TestCases::new()
        .case("README.md")
        .case("docs/*.md")
        .case("docs/errors/*.md")
        .case("crates/makeroom/tests/cli/*.md");
}
