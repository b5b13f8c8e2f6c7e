//! `makeroom fit`: the largest batch that fits, from a few short runs.
//!
//! `makeroom-fit` decides which batch sizes to try; this module runs, watches and stops the program.

mod course;
mod placeholder;
mod probing;
mod settings;
mod words;

use std::process::ExitCode;
use std::time::Instant;

use makeroom_fit::{Answer, Bounds, Next, Plan, RunOutcome, Stop};
use makeroom_report::{FitReport, FitRun, fit_json, fit_text};
use makeroom_sim::AllocatorSpec;

use crate::cli::{Fit, MOST_BATCH};
use crate::failure::Failure;
use crate::output;
use crate::progress::Spinner;
use course::Timeout;
use probing::{Ended, Probing};

/// Runs `makeroom fit`. The exit status is 0 when a batch was found.
pub(crate) fn run(arguments: &Fit) -> Result<ExitCode, Failure> {
    let command = placeholder::Command::new(&arguments.command)?;
    let bounds = bounds(arguments);
    if bounds.multiple > bounds.most {
        return Err(Failure::NoBatch { multiple: bounds.multiple, most: bounds.most });
    }
    let allocator = arguments.allocator.as_ref();
    let settings = settings::for_allocator(allocator, &arguments.command)?;
    for note in &settings.notes {
        output::remark(&format!("makeroom: {note}\n"));
    }
    let timeout = Timeout { steps: arguments.steps, seconds: arguments.seconds };
    let probing = Probing::new(settings.variables.clone(), arguments.memory, timeout)?;
    let mut plan = Plan::new(bounds, allocator.cloned().unwrap_or_else(AllocatorSpec::default));
    let mut runs = Vec::new();
    let spinner = Spinner::new();
    let stop = loop {
        let (batch, is_answer) = match plan.next() {
            Next::Probe(batch) => (batch, false),
            Next::Confirm(batch) => (batch, true),
            Next::Stop(stop) => break stop,
        };
        let began = Instant::now();
        let what = if is_answer { "confirming" } else { "trying" };
        let (ended, end, ranks) = probing.run(&command.with(batch), batch, |steps, live| {
            spinner.say(&format!("{what} {batch}: step {steps}, {live} live"));
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let (steps, peak_live, refusals) = (ended.steps(), ended.peak_live(), ended.refusals());
        runs.push(FitRun { batch, seconds, steps, peak_live, refusals, end, ranks });
        let outcome = match ended {
            Ended::Ran { probe, trace } => {
                if plan.probes().is_empty() {
                    plan.set_allocator(match allocator {
                        Some(allocator) => settings::predicted_by(allocator, &trace, &settings.variables),
                        None => settings::allocator_of(&trace, &settings.variables),
                    });
                }
                RunOutcome::Ran(probe)
            }
            Ended::Refused(probe) => RunOutcome::Refused(probe),
        };
        plan.ran(batch, outcome);
    };
    spinner.finish();
    let report = report(&plan, stop, runs);
    if arguments.json {
        output::json(&fit_json(&report))?;
    } else {
        output::result(&fit_text(&report, output::columns()))?;
    }
    Ok(if report.answer.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn bounds(arguments: &Fit) -> Bounds {
    Bounds {
        first: arguments.start,
        most: arguments.max.unwrap_or(MOST_BATCH),
        multiple: arguments.multiple,
        runs: arguments.runs,
        card: arguments.memory,
        margin: arguments.margin.map(|percent| percent / 100.0),
    }
}

fn report(plan: &Plan, stop: Stop, runs: Vec<FitRun>) -> FitReport {
    let batch = match stop {
        Stop::Found(batch) | Stop::Predicted(batch) | Stop::OutOfRuns { predicted: batch, .. } => Some(batch),
        Stop::NothingGrows | Stop::NoLaw | Stop::NothingFits | Stop::UnknownCard => None,
    };
    let prediction = plan.predict();
    let answer = prediction.zip(batch).map(|(prediction, batch)| Answer::new(plan, &prediction, batch));
    FitReport { answer, stop, allocator: plan.allocator().name().to_owned(), card: plan.card(), runs }
}
