//! What the commands about this machine's devices share: the watcher, and the process that asks the driver.

use std::io;
use std::process::Command;
use std::time::Duration;

use makeroom_holders::{Watcher, WatcherOptions};

use crate::cli::Looking;
use crate::failure::Failure;

/// The hidden command of the process that asks the driver.
pub(crate) const SURVEY: &str = "__survey";

/// A watcher that looks once.
pub(crate) fn once(looking: &Looking) -> Result<Watcher, Failure> {
    watcher(WatcherOptions::once(looking.proc.clone(), Duration::from_secs_f64(looking.deadline)))
}

/// A watcher that looks again and again.
pub(crate) fn often(looking: &Looking) -> Result<Watcher, Failure> {
    watcher(WatcherOptions::often(looking.proc.clone(), Duration::from_secs_f64(looking.deadline)))
}

/// A watcher for somebody who cannot wait: it looks once, reads no recordings and gives the driver up soon.
pub(crate) fn shortly() -> Result<Watcher, Failure> {
    watcher(WatcherOptions::often("/proc".into(), Duration::from_secs(2)))
}

fn watcher(options: WatcherOptions) -> Result<Watcher, Failure> {
    // Whatever it hides, it has this file.
    if !options.processes.join("uptime").exists() {
        return Err(Failure::NoProcesses { folder: options.processes });
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SURVEY);
    Ok(Watcher::new(command, options))
}

/// Asks the driver for every line on stdin; runs in a process of its own.
pub(crate) fn survey() -> Result<(), Failure> {
    Ok(makeroom_holders::answer(io::stdin().lock(), io::stdout().lock())?)
}
