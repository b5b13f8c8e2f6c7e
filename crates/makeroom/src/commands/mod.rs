//! One file per command. A command reads its input, calls the library, and prints.

mod recording;
mod replay;
mod tune;
mod why;

use crate::cli::Command;
use crate::failure::Failure;

/// Runs a command.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Why(arguments) => why::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
    }
}
