//! `makeroom doctor`: what can go wrong here before anything runs.

use std::io;
use std::process::{Command, ExitCode};

use makeroom_holders::doctor::{Check, Surroundings, Verdict, examine};
use makeroom_report::{doctor_json, doctor_text};

use crate::cli::Doctor;
use crate::commands::looking;
use crate::commands::run::library;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom doctor`.
pub(crate) fn run(arguments: &Doctor) -> Result<ExitCode, Failure> {
    let survey = looking::once(&arguments.looking)?.survey();
    let mut checks = examine(&survey, &Surroundings::own());
    checks.push(injection());
    checks.sort_by_key(|check| check.verdict);
    if arguments.json {
        output::json(&doctor_json(&checks))?;
    } else {
        output::result(&doctor_text(&checks, output::columns()))?;
    }
    let has_problem = checks.iter().any(|check| check.verdict == Verdict::Problem);
    Ok(if has_problem { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether the recorder of `makeroom run` gets into programs: it is put into one that shows what it has loaded.
fn injection() -> Check {
    match injected() {
        Ok(true) => Check::new("injection", Verdict::Good, "makeroom run can record programs here"),
        Ok(false) => Check::new("injection", Verdict::Warning, "the recorder of makeroom run is not loaded into programs")
            .fix("programs must be linked dynamically against glibc, and LD_PRELOAD must not be cleared on the way"),
        Err(error) => {
            Check::new("injection", Verdict::Warning, format!("the recorder of makeroom run could not be tried: {error}"))
                .fix("export XDG_RUNTIME_DIR=FOLDER: a folder of your own in which files may be executed")
        }
    }
}

fn injected() -> io::Result<bool> {
    let path = library::place()?;
    let output = Command::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", &path).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(path.to_string_lossy().as_ref()))
}
