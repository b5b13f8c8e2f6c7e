//! Shared test support: C programs compiled against the header, run on the software GPU.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;

use makeroom_simcard::testing::{self, Stage, built};

/// The crate's directory.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The directory of one test.
pub(crate) fn stage(test: &str) -> Stage {
    Stage::new(env!("CARGO_TARGET_TMPDIR"), Path::new("pool-c").join(test))
}

/// Compiles sources in C or C++, with all warnings as errors.
pub(crate) fn compile(sources: &[&Path], output: &Path, options: &[&str]) {
    let include = format!("-I{}", here().join("include").display());
    testing::compile(sources, output, &[&["-Wall", "-Wextra", "-Werror", "-g", &include], options].concat());
}

/// Options that link the shared library in place.
pub(crate) fn link() -> [String; 2] {
    let library = built("libmakeroom_pool.so");
    let directory = library.parent().unwrap().display().to_string();
    [library.display().to_string(), format!("-Wl,-rpath,{directory}")]
}
