//! Commands that are programs of their own, as with git and cargo: `makeroom mcp` starts `makeroom-mcp`; `makeroom
//! index` and `makeroom fleet` start `makeroom-fleet`.
//!
//! They have dependencies that most users do not need, so they are installed separately. A companion gets the path of this
//! command, so that its answers come from the same version.

use std::env;
use std::ffi::OsString;
use std::io;
use std::iter;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::failure::Failure;

/// Replaces this process with a command of `makeroom-fleet`.
pub(crate) fn fleet(command: &str, arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let arguments: Vec<OsString> =
        iter::once(OsString::from(command)).chain(arguments.iter().cloned()).collect();
    start("makeroom-fleet", &arguments)
}

/// Replaces this process with a companion. Returns only if it cannot be started.
pub(crate) fn start(name: &'static str, arguments: &[OsString]) -> Result<ExitCode, Failure> {
    let own = env::current_exe().ok();
    let beside = own.as_ref().map(|own| own.with_file_name(name)).filter(|path| path.exists());
    let mut command = Command::new(beside.unwrap_or_else(|| PathBuf::from(name)));
    if let Some(own) = own {
        command.arg("--command").arg(own);
    }
    let error = command.args(arguments).exec();
    Err(match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::NoCompanion { name }.with_hint(format!("install it: cargo install --path crates/{name}"))
        }
        _ => Failure::Companion { name, error },
    })
}
