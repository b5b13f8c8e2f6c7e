//! `makeroom gate`: fail if a run needs more memory than its baseline allows.
//!
//! ```text
//! gate/checkout.rs   the path of a source file, for annotations
//! ```

mod checkout;

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;

use makeroom_core::{Bytes, shell_word};
use makeroom_diff::{Moment, Verdict, gate};
use makeroom_report::{
    diff_notes, gate_annotation, gate_json, gate_junit, gate_text, leak_sentence, profile_notes,
};

use crate::cli::Gate;
use crate::commands::diff::source::{self, Source};
use crate::commands::{Kind, place, recording};
use crate::failure::Failure;
use crate::output;

/// The exit status of a run that exceeds its allowance. 1 is an error, and 2 wrong usage.
const EXCEEDED: u8 = 3;

/// Runs `makeroom gate`.
pub(crate) fn run(arguments: &Gate) -> Result<ExitCode, Failure> {
    let mut run = source::read(&arguments.run, arguments.device, Moment::Peak)?;
    if arguments.write {
        return write(arguments, &run);
    }
    let mut baseline = source::read(&arguments.against, arguments.device, Moment::Peak)
        .map_err(|failure| not_a_baseline(failure, arguments))?;
    source::narrow([&mut baseline, &mut run], arguments.device, Moment::Peak);
    if baseline.is_chosen {
        output::remark(&format!(
            "note: the baseline is {}, which has the highest peak there\n",
            baseline.name
        ));
    }
    let result = gate(&baseline.profile, &run.profile, arguments.allow);
    for note in diff_notes(&result.difference, [&baseline.name, &run.name]) {
        output::remark(&format!("warning: {note}\n"));
    }
    if arguments.json {
        output::json(&gate_json(&result, &run.name))?;
    } else if arguments.github {
        let root = std::env::current_dir().unwrap_or_default();
        output::result(&gate_annotation(&result, &run.name, |file| checkout::path_in(&root, file)))?;
    } else {
        output::result(&gate_text(&result, &run.name))?;
    }
    if result.is_far_below() {
        // A recording is not replaced by a baseline.
        let update = if baseline.is_recording() {
            "compare with a newer run".to_owned()
        } else {
            format!("update the baseline: {}", to_write(arguments))
        };
        output::remark(&format!(
            "note: the peak is more than 20 % below the baseline; check that it is the same program, then {update}\n"
        ));
    }
    if let (true, Verdict::Leak(growth)) = (result.is_within(), &result.difference.verdict) {
        output::remark(&format!("warning: {}: the run leaks. {}\n", run.name, leak_sentence(growth)));
    }
    // The result is known: a report that cannot be written must not hide it.
    let report = arguments.junit.as_ref().map_or(Ok(()), |junit| {
        place::beside(junit, &[arguments.run.clone(), arguments.against.clone()])
            .and_then(|()| write_text(junit, Kind::GateReport, &gate_junit(&result, &run.name)))
            .map_err(|failure| not_written(failure, junit, "--junit"))
    });
    match (result.is_within(), report) {
        (true, report) => report.map(|()| ExitCode::SUCCESS),
        (false, report) => {
            if let Err(failure) = report {
                failure.report();
            }
            Ok(ExitCode::from(EXCEEDED))
        }
    }
}

/// Writes the run as the new baseline.
fn write(arguments: &Gate, run: &Source) -> Result<ExitCode, Failure> {
    if run.profile.is_incomplete && !arguments.force {
        return Err(Failure::IncompletePeak { name: run.name.clone() });
    }
    let mut text = serde_json::to_string_pretty(&run.profile)?;
    text.push('\n');
    place::check(&arguments.against, Kind::Baseline, std::slice::from_ref(&arguments.run))
        .and_then(|()| write_text(&arguments.against, Kind::Baseline, &text))
        .map_err(|failure| not_written(failure, &arguments.against, "--against"))?;
    let peak = Bytes::new(run.profile.peak_bytes);
    let of = if run.is_chosen { format!(" of {}", run.name) } else { String::new() };
    output::remark(&format!("makeroom: wrote {}: peak {peak}{of}\n", recording::name(&arguments.against)));
    for note in profile_notes(&run.profile, &run.name) {
        output::remark(&format!("warning: {note}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

fn write_text(path: &Path, kind: Kind, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::Write { name: path.display().to_string(), error };
    place::write(path, kind, |to| to.write_all(text.as_bytes()).map_err(failed))
}

/// The command that writes the baseline.
fn to_write(arguments: &Gate) -> String {
    let word = |path: &Path| shell_word(&path.display().to_string());
    format!("makeroom gate {} --against {} --write", word(&arguments.run), word(&arguments.against))
}

/// The baseline could not be read.
fn not_a_baseline(failure: Failure, arguments: &Gate) -> Failure {
    use makeroom_trace::Error;
    let name = recording::name(&arguments.against);
    let is_missing =
        matches!(&failure, Failure::Open(Error::Open { cause, .. }) if cause.kind() == ErrorKind::NotFound);
    let failure = match failure {
        Failure::NotARecording { .. } => {
            Failure::Baseline { name, problem: "it contains other text".to_owned() }
        }
        Failure::Input { error: Error::Empty, .. } => {
            Failure::Baseline { name, problem: "the file is empty".to_owned() }
        }
        failure => failure,
    };
    let is_other = matches!(failure, Failure::Baseline { .. });
    // `--write` does not replace a file of another kind.
    let hint = match (is_missing, is_other) {
        (true, _) => format!("create it with: {}", to_write(arguments)),
        (_, true) => "create one in another file: makeroom gate RUN --against FILE --write".to_owned(),
        _ => return failure,
    };
    failure.with_hint(hint)
}

/// A file could not be written; `option` names it.
fn not_written(failure: Failure, path: &Path, option: &str) -> Failure {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    let hint = match (&failure, folder) {
        (Failure::Write { .. }, Some(folder)) => {
            format!("create the directory: mkdir -p {}", shell_word(&folder.display().to_string()))
        }
        (Failure::Write { .. } | Failure::OverInput { .. }, _) => {
            format!("write to another file: {option} FILE")
        }
        _ => return failure,
    };
    failure.with_hint(hint)
}
