//! Removes inherited settings from commands under test: terminal width, colors and other variables of the developer
//! would change what they print.

use std::process::Command;

/// Variables that change what commands print or find.
const SETTINGS: [&str; 10] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "CUDA_VISIBLE_DEVICES",
    "FORCE_COLOR",
    "LD_PRELOAD",
    "LINES",
    "NO_COLOR",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
];

/// A command without these variables. A test sets its own afterward.
pub(crate) fn plain(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for name in SETTINGS {
        command.env_remove(name);
    }
    command
}
