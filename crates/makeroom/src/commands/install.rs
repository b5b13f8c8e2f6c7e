//! `completions` and `man`: shell completions and man pages, generated from the same definitions as `--help`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Page;

use crate::cli::{Arguments, Completions, Man};
use crate::commands::{Kind, place};
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
        .map_err(|error| Failure::Write { name: directory.display().to_string(), error })?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, directory)
}

/// The page of a command, and those of its subcommands.
fn write_pages(command: &Command, directory: &Path) -> Result<(), Failure> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, directory)?;
    }
    let page = Page::new(command.clone());
    let path = directory.join(page.get_filename());
    let failed = |error| Failure::Write { name: path.display().to_string(), error };
    let mut text = Vec::new();
    page.render(&mut text).map_err(failed)?;
    place::write(&path, Kind::ManPage, |file| file.write_all(&text).map_err(failed))
}
