//! One file per command. A command reads its input, calls the library, and prints.

mod accept;
mod companion;
mod demo;
mod diff;
mod doctor;
mod env;
mod export;
mod fit;
mod gate;
mod groups;
mod install;
mod job;
mod kind;
mod looking;
pub(crate) mod new_file;
mod place;
mod plan;
mod profile;
mod ps;
mod recording;
mod replay;
mod run;
mod serve;
mod top;
mod tune;
mod view;
mod why;

use std::process::ExitCode;

use crate::cli::Command;
use crate::failure::Failure;

pub(crate) use kind::Kind;
pub(crate) use looking::{SURVEY, survey};
pub(crate) use run::witness::{NAME as WITNESS, run as witness};

/// Runs a command and returns its exit status.
pub(crate) fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(arguments) => return run::run(&arguments),
        Command::Why(arguments) => return why::run(&arguments),
        Command::Job(arguments) => return job::run(&arguments),
        Command::Fit(arguments) => return fit::run(&arguments),
        Command::Gate(arguments) => return gate::run(&arguments),
        Command::Ps(arguments) => return ps::run(&arguments),
        Command::Top(arguments) => return top::run(&arguments),
        Command::Doctor(arguments) => return doctor::run(&arguments),
        Command::Serve(arguments) => return serve::run(&arguments),
        Command::Plan(arguments) => return plan::run(&arguments),
        Command::Index(arguments) => return companion::fleet("index", &arguments.arguments),
        Command::Fleet(arguments) => return companion::fleet("fleet", &arguments.arguments),
        Command::Mcp(arguments) => return companion::start("makeroom-mcp", &arguments.arguments),
        Command::Completions(arguments) => install::completions(&arguments),
        Command::Env(arguments) => env::run(&arguments),
        Command::Man(arguments) => install::man(&arguments),
        Command::DemoProgram(arguments) => demo::program::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::View(arguments) => view::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
    }
    .map(|()| ExitCode::SUCCESS)
}
