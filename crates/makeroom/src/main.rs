//! The `makeroom` program: parses arguments, runs one command, turns its result into an exit status.

mod cli;
mod commands;
mod failure;
mod output;
mod progress;
mod signals;
mod version;

use std::process::ExitCode;

use clap::Parser;
use commands::WITNESS;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == WITNESS) {
        return if commands::witness().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let arguments = cli::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}
