//! Shared by the commands about this machine's GPUs: the watcher, and the child process that queries the driver.

use std::io;
use std::process::{Command, ExitCode};
use std::time::Duration;

use makeroom_holders::{Watcher, WatcherOptions};

use crate::cli::Looking;
use crate::failure::Failure;

/// The only argument of the child process that queries the driver.
pub(crate) const SURVEY: &str = "__survey";

/// A watcher for a single look.
pub(crate) fn once(looking: &Looking) -> Result<Watcher, Failure> {
    watcher(WatcherOptions::once(looking.proc.clone(), Duration::from_secs_f64(looking.deadline)))
}

/// A watcher for periodic looks.
pub(crate) fn often(looking: &Looking) -> Result<Watcher, Failure> {
    watcher(WatcherOptions::often(looking.proc.clone(), Duration::from_secs_f64(looking.deadline)))
}

/// A watcher for code that must return soon: it reads no recordings, and its timeout for the driver is short.
pub(crate) fn shortly() -> Result<Watcher, Failure> {
    watcher(WatcherOptions::often("/proc".into(), Duration::from_secs(2)))
}

fn watcher(options: WatcherOptions) -> Result<Watcher, Failure> {
    // Every /proc has this file, even with `hidepid` or in a container.
    if !options.processes.join("uptime").exists() {
        return Err(Failure::NoProcesses { folder: options.processes });
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(SURVEY);
    Ok(Watcher::new(command, options))
}

/// Queries the driver once per line on stdin. Runs in the child process.
pub(crate) fn survey() -> Result<ExitCode, Failure> {
    makeroom_holders::answer(io::stdin().lock(), io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}
