//! `makeroom index` and `makeroom fleet`: an index of the recordings in a folder or bucket, and answers about all of them.
//!
//! A program of its own, which `makeroom` starts: object stores have dependencies that most users do not need.
//!
//! ```text
//! cli.rs       arguments;  failure.rs  errors;  output.rs  printing
//! store.rs     folders and buckets;  layout.rs  the files of an index
//! indexing.rs  objects to index files;  compact.rs  many index files to few
//! rows.rs      the columns that answers need;  answer.rs  the answer;  since.rs  times
//! text.rs      the answer as text;  page.rs  as a page
//! job.rs       one job of an index, as `makeroom job` shows it
//! ```
#![forbid(unsafe_code)]

mod answer;
mod cli;
mod compact;
mod failure;
mod indexing;
mod job;
mod layout;
mod output;
mod page;
mod rows;
mod since;
mod store;
mod text;

use std::process::ExitCode;

use clap::Parser as _;
use cli::{Arguments, Command};
use failure::Failure;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(code) => code,
        Err(failure) => {
            output::error(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    // Fails only if another provider is installed already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::Runtime)?;
    match &arguments.command {
        Command::Index(arguments) => runtime.block_on(indexing::run(arguments)),
        Command::Fleet(arguments) => runtime.block_on(answer::run(arguments)),
        Command::Job(arguments) => runtime.block_on(job::run(arguments)),
    }
}
