//! The `makeroom` program: parses arguments, runs one command, turns its result into an exit status.

mod cli;
mod commands;
mod failure;
mod output;
mod progress;
mod signals;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = cli::Arguments::parse();
    match commands::run(arguments.command) {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}
