//! What the commands about this machine's devices share: the watcher, and the process that asks the driver.

use std::io;
use std::process::Command;
use std::time::Duration;

use makeroom_holders::{Watcher, WatcherOptions};

use crate::cli::Looking;
use crate::failure::Failure;

/// The hidden command of the process that asks the driver.
pub(crate) const SURVEY: &str = "__survey";

/// A watcher as the arguments ask for.
pub(crate) fn watcher(looking: &Looking) -> Result<Watcher, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SURVEY);
    let deadline = Duration::from_secs_f64(looking.deadline);
    Ok(Watcher::new(command, WatcherOptions { processes: looking.proc.clone(), deadline }))
}

/// Asks the driver for every line on stdin; runs in a process of its own.
pub(crate) fn survey() -> Result<(), Failure> {
    Ok(makeroom_holders::answer(io::stdin().lock(), io::stdout().lock())?)
}
