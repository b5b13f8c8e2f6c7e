//! `makeroom run`: record a program, explain it the moment it fails.
//!
//! The program gets the recorder by `LD_PRELOAD` and is otherwise left alone: its terminal, its signals and its exit
//! status are its own. What this command has to say goes to stderr, and what the program's processes report arrives
//! over a socket.

mod child;
mod destination;
mod forward;
pub(crate) mod library;
mod lines;
mod listener;
mod obstacle;
pub(crate) mod pool;
mod sanitizer;
mod status;
mod summary;
pub(crate) mod witness;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};

use makeroom_report::sanitized_text;

use crate::cli::Run;
use crate::failure::Failure;
use crate::output;
use destination::Destination;
use listener::Listener;
use status::{Screen, Status};
use summary::Ended;

/// The name of a recording that nobody gave one.
const USUAL_NAME: &str = "makeroom.%p.room";
/// The exit statuses of a program that is not there, and of one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Runs `makeroom run`.
pub(crate) fn run(arguments: &Run) -> Result<ExitCode, Failure> {
    let (program, words) = arguments.command.split_first().ok_or(Failure::NoProgram)?;
    let library = library::place().map_err(Failure::Library)?;
    // Kept to the end: the name is this run's until its recording has been read.
    let destination = Destination::take(arguments.output.as_deref().unwrap_or(Path::new(USUAL_NAME)))?;
    if let Some(taken) = &destination.taken {
        output::remark(&summary::stepped_aside(taken, &destination.pattern));
    }
    let switches = switches(arguments);
    for note in &switches.notes {
        output::remark(&format!("makeroom: {note}\n"));
    }
    let sanitizer = sanitizer::find(program);
    if let Some(name) = sanitizer {
        output::remark(&sanitized_text(&program.to_string_lossy(), name));
    } else if let Some(obstacle) = obstacle::find(program) {
        output::remark(&format!("makeroom: {} {obstacle}\n", program.to_string_lossy()));
    }
    let is_watched = !arguments.no_status && status::is_possible();
    let screen = Screen::default();
    let listener = Listener::start(Status::new(is_watched, screen.clone())).map_err(Failure::Library)?;
    let mut command = Command::new(program);
    command.args(words);
    if sanitizer.is_none() {
        command.envs(switches.variables).env("LD_PRELOAD", preload(&library)).envs(environment(
            arguments,
            &destination,
            &listener,
        ));
        if is_watched {
            command.env("MAKEROOM_STATUS", "on");
        }
    }
    let end = match child::run(&mut command, &screen) {
        Ok(end) => end,
        Err(error) => return Ok(not_started(program, error)),
    };
    let heard = listener.finish();
    let recordings: Vec<Ended> = heard.recordings.iter().map(|path| Ended::read(path)).collect();
    if recordings.is_empty() && sanitizer.is_none() {
        let is_off = std::env::var_os("MAKEROOM").is_some_and(|value| value == "off");
        let program = program.to_string_lossy();
        output::remark(&summary::nothing(&program, is_off, &heard));
    }
    for recording in &recordings {
        output::remark(&recording.text());
    }
    if let Some(path) = &arguments.summary
        && let Err(error) = write_summary(path, &recordings)
    {
        // The status is the program's, whatever becomes of what is said about it.
        output::error(&format!("{}: {error}", path.display()), None);
    }
    // A signal ends the process here: nothing may be left behind.
    drop(destination);
    Ok(end.repeat())
}

/// Reports a program that could not be started; gives the status that a shell, `env` and `nohup` have for it.
fn not_started(program: &OsStr, error: io::Error) -> ExitCode {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Failure::Program { name: program.to_string_lossy().into_owned(), error }.report();
    ExitCode::from(code)
}

fn write_summary(path: &Path, recordings: &[Ended]) -> io::Result<()> {
    let all: Vec<_> = recordings.iter().map(Ended::json).collect();
    std::fs::write(path, serde_json::to_vec_pretty(&all)?)
}

/// What the pool needs, if it was asked for.
fn switches(arguments: &Run) -> pool::Switches {
    if !arguments.pool {
        return pool::Switches::default();
    }
    pool::switches(&arguments.command, arguments.spill, |name| std::env::var(name).ok())
}

/// What the recorder is told; its own documentation has the list.
fn environment(
    arguments: &Run,
    destination: &Destination,
    listener: &Listener,
) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        ("MAKEROOM_FILE", destination.pattern.clone().into()),
        ("MAKEROOM_SOCKET", listener.path().into()),
        ("MAKEROOM_RUN_ID", run_id().into()),
        ("ASAN_OPTIONS", sanitizer::options_of_children()),
    ];
    if let Some(limit) = arguments.limit {
        variables.push(("MAKEROOM_LIMIT", limit.get().to_string().into()));
    }
    if arguments.no_stacks {
        variables.push(("MAKEROOM_STACKS", "none".into()));
    }
    variables
}

/// The recorder first, then what the user preloads already.
pub(crate) fn preload(library: &Path) -> OsString {
    let mut preloads = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloads.push(":");
        preloads.push(others);
    }
    preloads
}

/// 32 hexadecimal digits that no other run has.
pub(crate) fn run_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}
