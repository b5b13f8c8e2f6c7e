//! `makeroom why`: explain why memory ran out.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use makeroom_core::DeviceIndex;
use makeroom_explain::{By, Explanation, TraceQuestion, explain_running, explain_trace, grouped};
use makeroom_job::{JobReport, answer};
use makeroom_report::{explanation_json, explanation_text, grouped_json, grouped_text};
use makeroom_text::TextReader;
use serde_json::Value;

use crate::cli::{RecordingOptions, Why};
use crate::commands::{groups, job, recording};
use crate::failure::Failure;
use crate::output;

/// The height of a screen where stdout is not one.
const ROWS: usize = 25;

/// The rows that an explanation may take; `None` for all of it.
fn rows(arguments: &Why) -> Option<usize> {
    (!arguments.verbose).then(|| output::rows().unwrap_or(ROWS))
}

/// Runs `makeroom why`.
pub(crate) fn run(arguments: &Why) -> Result<ExitCode, Failure> {
    if let Some(by) = arguments.by {
        return run_grouped(by.into(), arguments);
    }
    match &arguments.inputs[..] {
        [] if io::stdin().is_terminal() => Err(Failure::NoInput),
        [] => run_one(Path::new("-"), arguments),
        inputs if inputs.iter().any(|input| input.is_dir()) => {
            job::print(&answer(&job::rows(inputs)?), arguments.options.json, arguments.verbose)?;
            Ok(ExitCode::SUCCESS)
        }
        [input] => run_one(input, arguments),
        inputs => match ranks(inputs, &arguments.options) {
            Some(report) => {
                job::print(&report, false, arguments.verbose)?;
                Ok(ExitCode::SUCCESS)
            }
            None => run_all(inputs, arguments),
        },
    }
}

/// The answer for several files if they are different ranks of one job. With options for single recordings, and as
/// JSON, which is a list then, every file is explained by itself.
fn ranks(inputs: &[PathBuf], options: &RecordingOptions) -> Option<JobReport> {
    let is_plain =
        options.memory.is_none() && options.card.is_none() && options.device.is_none() && !options.json;
    // Standard input and pipes can be read only once.
    if !is_plain || !inputs.iter().all(|input| input.is_file()) {
        return None;
    }
    let rows = job::rows(inputs).ok()?;
    let report = answer(&rows);
    job::is_one_job(&rows, &report).then_some(report)
}

/// Shows what holds the memory of each input, in groups.
fn run_grouped(by: By, arguments: &Why) -> Result<ExitCode, Failure> {
    let standard_input = [PathBuf::from("-")];
    let inputs = match &arguments.inputs[..] {
        [] if io::stdin().is_terminal() => return Err(Failure::NoInput),
        [] => &standard_input,
        inputs if inputs.iter().any(|input| input.is_dir()) => {
            let options = groups::Options {
                by,
                device: arguments.options.device,
                is_json: arguments.options.json,
                is_verbose: arguments.verbose,
            };
            groups::of_job(inputs, &options)?;
            return Ok(ExitCode::SUCCESS);
        }
        inputs => inputs,
    };
    let mut results = Vec::new();
    for input in inputs {
        let trace = recording::read_trace(input)?;
        let device = arguments.options.device;
        if device.is_some() {
            recording::device(&trace, input, device)?;
        }
        let name = recording::name(input);
        let grouped = grouped(&trace, device.map(DeviceIndex), by)
            .ok_or_else(|| Failure::EmptyRecording { name: name.clone() })?;
        if arguments.options.json {
            results.push(with_file(&name, grouped_json(&grouped)));
        } else {
            let heading = if inputs.len() > 1 { format!("==> {name} <==\n") } else { String::new() };
            let text = grouped_text(&grouped, output::columns(), arguments.verbose);
            output::result(&format!("{heading}{text}"))?;
        }
    }
    if arguments.options.json {
        output::json(&if results.len() == 1 { results.remove(0) } else { Value::Array(results) })?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_one(input: &Path, arguments: &Why) -> Result<ExitCode, Failure> {
    let explanation = explain(input, &arguments.options)?;
    if arguments.options.json {
        output::json(&explanation_json(&explanation))?;
    } else {
        output::result(&explanation_text(&explanation, output::columns(), rows(arguments)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains several inputs. One that cannot be read is reported, and the others are explained.
fn run_all(inputs: &[PathBuf], arguments: &Why) -> Result<ExitCode, Failure> {
    let options = &arguments.options;
    let mut status = ExitCode::SUCCESS;
    let mut explained = Vec::new();
    let mut is_first = true;
    for input in inputs {
        let explanation = match explain(input, options) {
            Ok(explanation) => explanation,
            Err(failure) => {
                status = failure.report();
                continue;
            }
        };
        let name = recording::name(input);
        if options.json {
            explained.push(with_file(&name, explanation_json(&explanation)));
        } else {
            let text = explanation_text(&explanation, output::columns(), rows(arguments));
            let gap = if is_first { "" } else { "\n" };
            is_first = false;
            output::result(&format!("{gap}==> {name} <==\n{text}"))?;
        }
    }
    if options.json {
        output::json(&Value::Array(explained))?;
    }
    Ok(status)
}

/// An explanation with the name of its input as the first field.
fn with_file(name: &str, explanation: Value) -> Value {
    let file = ("file".to_owned(), Value::from(name));
    match explanation {
        Value::Object(fields) => Value::Object(std::iter::once(file).chain(fields).collect()),
        other => other,
    }
}

fn explain(input: &Path, options: &RecordingOptions) -> Result<Explanation, Failure> {
    let mut text = TextReader::new();
    let Some(trace) = recording::read_streaming(input, |bytes| text.push(bytes))? else {
        let mut explanation = text.finish();
        if options.memory.is_some() || options.card.is_some() || options.device.is_some() {
            explanation
                .notes
                .push("--memory, --card and --device apply to recordings; this input is text".to_owned());
        }
        return Ok(explanation);
    };
    if options.device.is_some() {
        recording::device(&trace, input, options.device)?;
    }
    let room = recording::room(options.memory, options.card);
    let question = TraceQuestion { room, device: options.device.map(DeviceIndex) };
    if !recording::is_running(&trace, input) {
        return Ok(explain_trace(&trace, &question));
    }
    let mut explanation = explain_running(&trace, &question);
    explanation.notes.insert(
        0,
        "the program is still running: this is its recording so far, and live memory may still be freed"
            .to_owned(),
    );
    Ok(explanation)
}
