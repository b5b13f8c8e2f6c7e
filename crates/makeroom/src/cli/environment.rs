//! The arguments of `makeroom env`, and those that it shares with `run`.

use std::path::PathBuf;

use clap::Args;
use makeroom_core::Bytes;

/// The smallest ring: below this, the live memory of most programs does not fit.
const LEAST_RING: Bytes = Bytes::mib(1);

/// Print variables that turn on recording in every program
///
/// For clusters where the launch command cannot be changed. Prints export lines for sh; every program that uses CUDA
/// and is started with these variables writes a recording to DIR, with its rank and job. The recorder is copied to DIR,
/// which must be visible on all nodes.
///
/// In DIR, %j stands for the job ID, %r for the rank, %a for the attempt, %h for the host and %p for the PID.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  eval \"$(makeroom env --to /shared/oom/%j --keep failed)\"; srun python train.py
  eval \"$(makeroom env --to oom --ring 200MB)\"; torchrun train.py
  makeroom job oom                                  one answer for all ranks")]
pub(crate) struct Env {
    /// Directory for the recordings
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,

    /// Recordings to keep: all, failed, or last=N
    ///
    /// failed removes the recording of a process that exits with status 0 and had no failed allocation; the recording
    /// of a killed process is kept. last=N keeps the newest N recordings in the directory.
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = keep)]
    pub(crate) keep: String,

    /// Limit each recording to SIZE
    ///
    /// Drops the oldest events; the live memory stays exact.
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub(crate) ring: Option<Bytes>,

    /// Do not record call stacks
    #[arg(long)]
    pub(crate) no_stacks: bool,

    /// Do not record the programs' arguments
    #[arg(long)]
    pub(crate) no_command_line: bool,
}

fn keep(text: &str) -> Result<String, String> {
    let is_count = |digits: &str| digits.parse::<u32>().is_ok_and(|count| count > 0);
    if matches!(text, "all" | "failed") || text.strip_prefix("last=").is_some_and(is_count) {
        return Ok(text.to_owned());
    }
    Err("expected all, failed or last=N".to_owned())
}

/// Parses the size of a ring.
pub(crate) fn ring_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error| format!("{error}"))?;
    if size < LEAST_RING {
        return Err(format!("a recording needs at least {LEAST_RING}; for example 200MB"));
    }
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_choices_are_checked() {
        assert!(ring_size("200MB").is_ok());
        assert!(ring_size("200").is_err_and(|error| error.contains("at least")));
        assert!(["all", "failed", "last=3"].iter().all(|text| keep(text).is_ok()));
        assert!(["", "some", "last=0", "last=", "last=-1"].iter().all(|text| keep(text).is_err()));
    }
}
