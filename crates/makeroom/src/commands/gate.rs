//! `makeroom gate`: fail if a run needs more memory than its baseline allows.

use std::io::Write as _;
use std::process::ExitCode;

use makeroom_diff::gate;
use makeroom_report::{gate_annotation, gate_json, gate_junit, gate_text};

use crate::cli::Gate;
use crate::commands::{Kind, place, profile, recording};
use crate::failure::Failure;
use crate::output;

/// The exit status of a run that exceeds its allowance. 1 is an error, and 2 wrong usage.
const EXCEEDED: u8 = 3;

/// Runs `makeroom gate`.
pub(crate) fn run(arguments: &Gate) -> Result<ExitCode, Failure> {
    let inputs = [arguments.run.clone()];
    if arguments.write {
        place::check(&arguments.against, Kind::Baseline, &inputs)?;
        return write(arguments);
    }
    if let Some(junit) = &arguments.junit {
        place::check(junit, Kind::GateReport, &[arguments.run.clone(), arguments.against.clone()])?;
    }
    let run = profile::read(&arguments.run, arguments.device)?;
    let baseline = profile::read(&arguments.against, arguments.device)?;
    let result = gate(&baseline, &run, arguments.allow);
    let name = recording::name(&arguments.run);
    if let Some(junit) = &arguments.junit {
        let report = gate_junit(&result, &name);
        write_text(junit, Kind::GateReport, &report)?;
    }
    if arguments.json {
        output::json(&gate_json(&result, &name))?;
    } else if arguments.github {
        output::result(&gate_annotation(&result, &name))?;
    } else {
        output::result(&gate_text(&result, &name))?;
    }
    Ok(if result.is_within() { ExitCode::SUCCESS } else { ExitCode::from(EXCEEDED) })
}

/// Writes the run as the new baseline.
fn write(arguments: &Gate) -> Result<ExitCode, Failure> {
    let run = profile::read(&arguments.run, arguments.device)?;
    let mut text = serde_json::to_string_pretty(&run)?;
    text.push('\n');
    write_text(&arguments.against, Kind::Baseline, &text)?;
    let peak = makeroom_core::Bytes::new(run.peak_bytes);
    output::remark(&format!("makeroom: wrote {}: peak {peak}\n", recording::name(&arguments.against)));
    Ok(ExitCode::SUCCESS)
}

fn write_text(path: &std::path::Path, kind: Kind, text: &str) -> Result<(), Failure> {
    let failed = |error| Failure::Write { name: path.display().to_string(), error };
    place::write(path, kind, |to| to.write_all(text.as_bytes()).map_err(failed))
}
