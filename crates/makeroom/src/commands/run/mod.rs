//! `makeroom run`: record a program, and explain a failure the moment it happens.
//!
//! The program gets the recorder through `LD_PRELOAD` and is otherwise unaffected: its terminal, signals and exit
//! status are its own. This command prints to stderr, and the program's processes report to it over a socket.

mod child;
mod destination;
mod embedded;
mod folders;
mod forward;
mod job;
pub(crate) mod library;
mod lines;
mod listener;
mod obstacle;
pub(crate) mod pool;
mod ranks;
mod sanitizer;
mod status;
mod summary;
pub(crate) mod witness;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use makeroom_core::identity::JobIdentity;
use makeroom_explain::{By, across};
use makeroom_report::{
    across_text, process_unrecorded_text, sanitized_child_text, sanitized_text, unprepared_text,
};

use crate::cli::Run;
use crate::commands::{Kind, place};
use crate::failure::Failure;
use crate::{output, signals};
use destination::Destination;
pub(crate) use destination::make_way;
use listener::Listener;
use status::{Screen, Status};
use summary::Ended;

/// The exit statuses for a program that was not found, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Printed because such a program runs as it does without `--pool`, and the user would not learn why it saved nothing.
const CHANGED_SETTINGS: &str = "makeroom: --pool turned on expandable segments, but PyTorch did not use them: the program changed \
     PyTorch's allocator settings (often in os.environ before it imports torch), or this build of PyTorch does not support them\n";
/// Follows the line about the settings.
const NOT_SPILLED: &str =
    "makeroom: without expandable segments, PyTorch's memory is not paged, and none of it could be spilled\n";

/// Everything needed to record the program.
struct Recorder {
    run: String,
    library: PathBuf,
    /// Held until the end: it reserves the file name until the recording has been read.
    destination: Destination,
    listener: Listener,
}

/// What to do when the program has ended.
struct Ending {
    /// Whether the program itself was not recorded because of a sanitizer.
    is_sanitized: bool,
    /// Whether the caller needs all recordings.
    needs_all: bool,
    /// How to group live memory.
    by: Option<By>,
}

/// Runs `makeroom run`.
pub(crate) fn run(arguments: &Run) -> Result<ExitCode, Failure> {
    let (program, words) = arguments.command.split_first().ok_or(Failure::NoProgram)?;
    signals::outlive_file_limit();
    if let Some(path) = &arguments.summary {
        let program = obstacle::search(program);
        let files: Vec<PathBuf> = program.into_iter().chain(words.iter().map(PathBuf::from)).collect();
        spare(path, &files)?;
        Kind::Summary.check(path)?;
    }
    // The program itself is not a recording, so `-o` does not replace it.
    if let Some(path) = &arguments.output {
        let files: Vec<PathBuf> = words.iter().map(PathBuf::from).collect();
        spare(path, &files)?;
    }
    let is_watched = !arguments.no_status && status::is_possible();
    let screen = Screen::default();
    let name = program.to_string_lossy();
    let recorder = Recorder::prepare(arguments, &name, Status::new(is_watched, screen.clone()))?;
    let switches = switches(arguments);
    for note in &switches.notes {
        output::remark(&format!("makeroom: {note}\n"));
    }
    let sanitizer = sanitizer::find(program);
    if let Some(runtime) = sanitizer {
        output::remark(&sanitized_text(&name, runtime));
    } else if let Some(obstacle) = obstacle::find(program) {
        output::remark(&format!("makeroom: {name} {obstacle}\n"));
    }
    let mut command = Command::new(program);
    command.args(words);
    if let Some(recorder) = recorder.as_ref().filter(|_| sanitizer.is_none()) {
        command.envs(switches.variables);
        command.env("LD_PRELOAD", preload(&recorder.library)).envs(environment(arguments, recorder));
        if is_watched {
            command.env("MAKEROOM_STATUS", "on");
        }
    }
    let end = match child::run(&mut command, &screen) {
        Ok(end) => end,
        Err(error) => return Ok(not_started(program, error)),
    };
    let ending = Ending {
        is_sanitized: sanitizer.is_some(),
        needs_all: arguments.summary.is_some() || switches.expands_torch,
        by: arguments.by.map(By::from),
    };
    let recordings = recorder.map_or(Vec::new(), |recorder| recorder.finish(&name, &ending));
    if switches.expands_torch && recordings.iter().any(Ended::lacks_expandable_segments) {
        output::remark(CHANGED_SETTINGS);
        if arguments.spill.is_some() {
            output::remark(NOT_SPILLED);
        }
    }
    if let Some(path) = &arguments.summary
        && let Err(failure) = write_summary(path, &recordings)
    {
        // The status is the program's, even if the summary fails.
        failure.report();
    }
    Ok(end.repeat())
}

/// Reports a program that could not be started, and returns the status that a shell, `env` and `nohup` use for it.
fn not_started(program: &OsStr, error: io::Error) -> ExitCode {
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    Failure::Program { name: program.to_string_lossy().into_owned(), error }.report();
    ExitCode::from(code)
}

impl Recorder {
    /// Prepares the recorder. If that fails, prints why, and the program runs without recording; unless the user
    /// requested a limit or a pool, which need the recorder.
    fn prepare(arguments: &Run, program: &str, status: Status) -> Result<Option<Self>, Failure> {
        let run = run_id();
        let ready = is_proc_mounted().and_then(|()| Ok((library::place()?, Listener::start(&run, status)?)));
        match ready {
            Ok((library, listener)) => {
                let own = JobIdentity::from_environment(|name| std::env::var(name).ok());
                let destination = Destination::choose(arguments.output.as_deref(), &own)?;
                if let Some(taken) = destination.taken.as_ref().filter(|_| own.rank.is_none()) {
                    output::remark(&summary::stepped_aside(taken, &destination.pattern));
                }
                Ok(Some(Self { run, library, destination, listener }))
            }
            Err(error) if arguments.limit.is_some() || arguments.pool.is_some() => {
                Err(Failure::Library(error))
            }
            Err(error) => {
                output::remark(&unprepared_text(program, &error.to_string()));
                Ok(None)
            }
        }
    }

    /// Prints what was recorded. Returns the recordings, those of a job only if they are needed, because each is
    /// explained. Cleans up everything, because a signal may end this process next.
    fn finish(self, program: &str, ending: &Ending) -> Vec<Ended> {
        let heard = self.listener.finish();
        let job = job::text(program, &heard, &self.run);
        let read = |recorded| Ended::read(recorded, &self.run, ending.by);
        let needs_all = ending.needs_all || ending.by.is_some();
        let recordings: Vec<Ended> =
            if job.is_none() || needs_all { heard.recordings.iter().map(read).collect() } else { Vec::new() };
        if heard.recordings.is_empty() && !ending.is_sanitized {
            let is_off = std::env::var_os("MAKEROOM").is_some_and(|value| value == "off");
            output::remark(&summary::nothing(program, is_off, &heard));
        } else {
            for (process, reason) in &heard.unrecorded {
                output::remark(&process_unrecorded_text(*process, reason));
            }
            if let Some(name) = &heard.sanitizer {
                output::remark(&sanitized_child_text(program, name, false));
            }
        }
        if let Some(job) = job {
            output::remark(&job);
            let groups: Vec<_> = recordings.iter().filter_map(Ended::grouped).collect();
            if let Some(across) = across(&groups) {
                output::remark(&across_text(&across, output::remark_columns(), false));
            }
            return recordings;
        }
        // Helper processes that loaded CUDA without using the GPU get a summary only if there is no other.
        let has_used = recordings.iter().any(|recording| !recording.is_idle());
        for recording in recordings.iter().filter(|recording| !has_used || !recording.is_idle()) {
            output::remark(&recording.text());
        }
        recordings
    }
}

/// Without /proc, the program's files and code cannot be named.
fn is_proc_mounted() -> io::Result<()> {
    if Path::new("/proc/self/maps").exists() {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::NotFound, "/proc is not mounted"))
}

/// Returns an error if an output would overwrite one of these files of the program.
fn spare(output: &Path, files: &[PathBuf]) -> Result<(), Failure> {
    let failure = |_| Failure::OverProgram { name: output.display().to_string() };
    place::beside(output, files).map_err(failure)
}

fn write_summary(path: &Path, recordings: &[Ended]) -> Result<(), Failure> {
    let all: Vec<_> = recordings.iter().map(Ended::json).collect();
    let text = serde_json::to_vec_pretty(&all)?;
    let failed = |error| Failure::Write { name: path.display().to_string(), error };
    place::write(path, Kind::Summary, |file| io::Write::write_all(file, &text).map_err(failed))
}

/// The environment variables that the pool needs, if `--pool` is given.
fn switches(arguments: &Run) -> pool::Switches {
    let Some(kind) = arguments.pool else { return pool::Switches::default() };
    pool::switches(&arguments.command, kind, arguments.spill, |name| std::env::var(name).ok())
}

/// The recorder's environment variables; its own documentation lists them.
fn environment(arguments: &Run, recorder: &Recorder) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        ("MAKEROOM_FILE", recorder.destination.pattern.clone().into()),
        ("MAKEROOM_RANK_FILE", recorder.destination.ranks.clone().unwrap_or_default().into()),
        ("MAKEROOM_SOCKET", recorder.listener.path().into()),
        ("MAKEROOM_RUN_ID", recorder.run.clone().into()),
        // Not those of `makeroom env`: the summary needs the recordings.
        ("MAKEROOM_KEEP", "all".into()),
        ("MAKEROOM_RING", arguments.ring.map_or(String::new(), |ring| ring.get().to_string()).into()),
    ];
    if let Some(limit) = arguments.limit {
        variables.push(("MAKEROOM_LIMIT", limit.get().to_string().into()));
    }
    if arguments.no_stacks {
        variables.push(("MAKEROOM_STACKS", "none".into()));
    }
    if arguments.no_command_line {
        variables.push(("MAKEROOM_COMMAND_LINE", "off".into()));
    }
    variables
}

/// The recorder first, then the libraries that the user preloads.
pub(crate) fn preload(library: &Path) -> OsString {
    let mut preloads = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preloads.push(":");
        preloads.push(others);
    }
    preloads
}

/// A unique id: 32 hexadecimal digits.
pub(crate) fn run_id() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    format!("{:016x}{:016x}", RandomState::new().hash_one(0), RandomState::new().hash_one(1))
}
