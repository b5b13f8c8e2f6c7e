//! `completions` and `man`: shell completions and man pages, generated from the same definitions as `--help`.

use std::fs;

use clap::CommandFactory as _;

use crate::cli::{Arguments, Completions, Man};
use crate::failure::Failure;
use crate::output;

/// The name of the command in shells.
const NAME: &str = "makeroom";

/// Prints a completion script.
pub(crate) fn completions(arguments: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), NAME, &mut script);
    output::script(&script)
}

/// Writes `makeroom.1` and one page for each command.
pub(crate) fn man(arguments: &Man) -> Result<(), Failure> {
    let directory = &arguments.directory;
    fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .map_err(|error| Failure::Write { name: directory.display().to_string(), error })
}
