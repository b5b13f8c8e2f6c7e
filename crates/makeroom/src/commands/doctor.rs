//! `makeroom doctor`: checks this machine for GPU memory problems.

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
    let mut checks = examine(&survey, &Surroundings::own(arguments.looking.proc.clone()));
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

/// Whether programs load the recorder of `makeroom run`: tested with one that prints its own mappings.
fn injection() -> Check {
    match injected() {
        Ok(true) => Check::new("injection", Verdict::Good, "makeroom run can record programs here"),
        Ok(false) => Check::new(
            "injection",
            Verdict::Warning,
            "programs do not load the recorder of makeroom run",
        )
        .fix("check that programs are linked dynamically against glibc and that nothing clears LD_PRELOAD"),
        Err(error) => Check::new(
            "injection",
            Verdict::Warning,
            format!("could not test the recorder of makeroom run: {error}"),
        )
        .fix("export XDG_RUNTIME_DIR=DIR, with a directory that you own and that is not mounted noexec"),
    }
}

fn injected() -> io::Result<bool> {
    let path = library::place()?;
    let output = Command::new("cat").arg("/proc/self/maps").env("LD_PRELOAD", &path).output()?;
    // Mappings have the name of the file, without links.
    let file = path.canonicalize()?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(file.to_string_lossy().as_ref()))
}
