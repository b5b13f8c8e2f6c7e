//! The arguments of the commands that look at this machine's devices.

use std::path::PathBuf;

use clap::Args;
use makeroom_core::Bytes;

/// How to look at the machine.
#[derive(Debug, Args)]
pub(crate) struct Looking {
    /// Where processes are; a container may have the host's mounted elsewhere
    #[arg(long, value_name = "FOLDER", default_value = "/proc")]
    pub(crate) proc: PathBuf,

    /// How many seconds the driver may take to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) deadline: f64,
}

/// Say who holds the memory of each GPU, and why some is held by nobody
///
/// One table per device, the fullest first: every process the driver lists, with its user, container, pod or job, what
/// is odd about it, and what is used without a listed owner, with the most probable cause and the evidence. It ends
/// nothing: it prints the command that would, and what would be lost.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  makeroom ps                                  who holds what
  makeroom ps --require 20GiB && ./train       start only if 20 GiB can be had; else say who would have to go
  sudo makeroom ps                             see other users' processes too
  makeroom ps --proc /host/proc                from a container that has the host's processes there

Exit status: 0 told (with --require: and it can be had), 1 the driver could not be asked, or it cannot be had.")]
pub(crate) struct Ps {
    /// Fail unless this much is free on one device, and say who would have to go
    #[arg(long, value_name = "SIZE")]
    pub(crate) require: Option<Bytes>,

    /// With --require: on this device only
    #[arg(long, value_name = "INDEX")]
    pub(crate) device: Option<u32>,

    /// List every process
    #[arg(long)]
    pub(crate) all: bool,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) looking: Looking,
}

/// Reads a positive number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    if (0.01..=86_400.0).contains(&number) {
        Ok(number)
    } else {
        Err(format!("`{text}` is not between 0.01 and 86400 seconds"))
    }
}
