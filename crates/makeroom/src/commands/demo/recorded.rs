//! Runs one situation as `makeroom run` runs a program, and explains its recording.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use makeroom_demo::Situation;
use makeroom_explain::{Explanation, TraceQuestion, explain_trace};

use super::gpu::Machine;
use crate::commands::run::{self, library};
use crate::commands::{new_file, recording};
use crate::failure::Failure;

/// The result of a situation.
pub(crate) struct Shown {
    pub(crate) situation: &'static Situation,
    /// The recording, or why the situation was not run.
    pub(crate) recorded: Result<Recorded, &'static str>,
}

/// A situation that ran.
pub(crate) struct Recorded {
    /// Its program's output.
    pub(crate) said: String,
    pub(crate) file: PathBuf,
    pub(crate) explanation: Explanation,
}

/// Runs a situation.
pub(crate) fn run(situation: &'static Situation, machine: &Machine, folder: &Path) -> Result<Shown, Failure> {
    // Each situation gets a software GPU of its own, so that none sees memory left over from another.
    let shared = folder.join(format!(".makeroom-{}", new_file::random()));
    let environment = match machine.environment(situation, &shared) {
        Ok(environment) => environment,
        Err(reason) => return Ok(Shown { situation, recorded: Err(reason) }),
    };
    std::fs::create_dir_all(&shared)?;
    let file = folder.join(format!("{}.room", situation.name));
    // The recorder only creates new files.
    run::make_way(&file)?;
    let other =
        if situation.held_by_other_percent > 0 { Some(Other::start(situation, &environment)?) } else { None };
    let output = program(situation, &environment)?
        .env("LD_PRELOAD", run::preload(&library::place().map_err(Failure::Library)?))
        .env("MAKEROOM_FILE", &file)
        .env("MAKEROOM_RUN_ID", run::run_id())
        // These are not Python programs: record native stacks for tensors.
        .env("MAKEROOM_STACKS", "native")
        .output()?;
    drop(other);
    std::fs::remove_dir_all(&shared)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !file.exists() {
        let said = said + &String::from_utf8_lossy(&output.stderr);
        return Err(Failure::NoRecording { name: situation.name, said });
    }
    let trace = recording::read_trace(&file)?;
    let explanation = explain_trace(&trace, &TraceQuestion::default());
    Ok(Shown { situation, recorded: Ok(Recorded { said, file, explanation }) })
}

/// The command that runs a situation's program, without variables that the user set for other programs.
fn program(situation: &Situation, environment: &[(&'static str, OsString)]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["demo-program", situation.name]);
    for name in ["MAKEROOM", "MAKEROOM_SOCKET", "MAKEROOM_LIMIT", "MAKEROOM_SIMGPU"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Ok(command)
}

/// The second process of a situation. It holds its memory until this is dropped.
struct Other(Child);

impl Other {
    fn start(situation: &Situation, environment: &[(&'static str, OsString)]) -> Result<Self, Failure> {
        let mut command = program(situation, environment)?;
        let mut child =
            command.arg("--other").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map(Self)?;
        let mut told = String::new();
        if let Some(output) = child.0.stdout.take() {
            BufReader::new(output).read_line(&mut told)?;
        }
        if told.is_empty() {
            return Err(Failure::NoRecording {
                name: situation.name,
                said: "its other process failed".into(),
            });
        }
        Ok(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // The process exits at the end of its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
