//! `makeroom mcp`: makeroom's answers as tools for assistants, over the Model Context Protocol (MCP) on stdio.
//!
//! A program of its own, which `makeroom mcp` starts: the main command stays free of the protocol's dependencies. Every
//! call of a tool runs `makeroom COMMAND --json` in a child process, so answers are those of the command, and a file that
//! ends the child does not end the server.

mod call;
mod folders;
mod server;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use folders::Folders;
use rmcp::ServiceExt as _;
use server::Server;

/// Run an MCP server that lets AI assistants use makeroom
///
/// The assistant starts the server and communicates with it over stdin and stdout. The tools can read only files in the
/// given directories.
#[derive(Debug, Parser)]
#[command(name = "makeroom mcp", bin_name = "makeroom mcp", version, max_term_width = 100)]
#[command(after_help = "\
Examples:
  makeroom mcp .                      files in the current directory
  makeroom mcp ~/runs /shared/dumps   several directories")]
struct Arguments {
    /// Directories the server may read
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// The makeroom command to run
    #[arg(long, value_name = "FILE", default_value = "makeroom", hide = true)]
    command: PathBuf,
}

#[allow(clippy::print_stderr, reason = "stdout belongs to the protocol")]
fn main() -> ExitCode {
    match serve(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::new(Folders::new(&arguments.folders)?, arguments.command);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let running = server.serve(rmcp::transport::stdio()).await?;
        running.waiting().await?;
        Ok(())
    })
}
