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
use commands::{SURVEY, WITNESS};

fn main() -> ExitCode {
    // Children of this program live long: without clap they stay small.
    let mut words = std::env::args_os();
    let (name, first) = (words.next(), words.next());
    if name.is_some_and(|name| name == WITNESS) {
        return if commands::witness().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let result = if first.is_some_and(|first| first == SURVEY) {
        commands::survey()
    } else {
        commands::run(cli::Arguments::parse().command)
    };
    match result {
        Ok(status) => status,
        Err(failure) => failure.report(),
    }
}
