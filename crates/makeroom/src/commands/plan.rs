//! `makeroom plan`: finds offsets for buffers with known lifetimes.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use makeroom_core::Bytes;
use makeroom_plan::csv::{self, Table};
use makeroom_plan::{Budget, Outcome, Phase, Problem, Progress, plan_with, validate};
use makeroom_report::{PlanReport, plan_json, plan_text};

use crate::cli::Plan;
use crate::commands::{Kind, place, recording};
use crate::failure::Failure;
use crate::output;
use crate::progress::Spinner;

/// Runs `makeroom plan`.
pub(crate) fn run(arguments: &Plan) -> Result<ExitCode, Failure> {
    let input = match &arguments.input {
        Some(input) => input.clone(),
        None if io::stdin().is_terminal() => return Err(Failure::NoBuffers),
        None => PathBuf::from("-"),
    };
    let to_stdout = arguments.output.as_deref() == Some(Path::new("-"));
    if to_stdout && arguments.json {
        return Err(Failure::TwoOutputs);
    }
    let file = arguments.output.as_deref().filter(|_| !to_stdout);
    if let Some(file) = file {
        place::check(file, Kind::Plan, std::slice::from_ref(&input))?;
    }
    let table = read(&input)?;
    let capacity = arguments.capacity.map(Bytes::get);
    let problem = Problem { buffers: table.buffers.clone(), capacity };
    let started = Instant::now();
    let outcome = search(&problem, &budget(arguments.seconds, started))
        .map_err(|error| Failure::Buffers { name: recording::name(&input), error })?;
    let seconds = started.elapsed().as_secs_f64();
    let plan = match &outcome {
        Outcome::Planned { plan, .. } => Some(plan),
        Outcome::Impossible(_) | Outcome::GaveUp { .. } => None,
    };
    if let Some(plan) = plan {
        validate(&problem, plan).map_err(Failure::InvalidPlan)?;
        if let Some(file) = file {
            let failed = |error| Failure::Write { name: file.display().to_string(), error };
            place::write(file, Kind::Plan, |to| table.write(&plan.offsets, to).map_err(failed))?;
        } else if to_stdout {
            write_to_stdout(&table, &plan.offsets)?;
        }
    }
    let written = plan.and(file).map(|file| file.display().to_string());
    let report = PlanReport { names: &table.names, problem: &problem, outcome: &outcome, seconds, written };
    print(&report, arguments.json, to_stdout)?;
    if table.offsets.is_some() {
        output::remark("makeroom: the column `offset` of the input was ignored\n");
    }
    Ok(if plan.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(input: &Path) -> Result<Table, Failure> {
    let table = if input == Path::new("-") {
        csv::read(io::stdin().lock())
    } else {
        let opened = File::open(input).and_then(|file| Ok((file.metadata()?.is_dir(), file)));
        let path = input.to_owned();
        match opened {
            Ok((false, file)) => csv::read(BufReader::new(file)),
            Ok((true, _)) => return Err(Failure::Open(makeroom_trace::Error::Directory { path })),
            Err(cause) => return Err(Failure::Open(makeroom_trace::Error::Open { path, cause })),
        }
    };
    table.map_err(|error| Failure::Csv { name: recording::name(input), error })
}

/// Without a time limit, effort is counted in steps, so that results do not depend on the machine.
fn budget(seconds: Option<u64>, started: Instant) -> Budget {
    let deadline = seconds.map(|seconds| started + Duration::from_secs(seconds));
    let default = Budget::default();
    Budget { steps: if deadline.is_some() { u64::MAX } else { default.steps }, deadline, ..default }
}

/// Plans with a spinner, for problems that take a while.
fn search(problem: &Problem, budget: &Budget) -> Result<Outcome, makeroom_plan::ProblemError> {
    let spinner = Spinner::new();
    let outcome = plan_with(problem, budget, &mut |progress| {
        spinner.say(&describe(progress));
        ControlFlow::Continue(())
    });
    spinner.finish();
    outcome
}

fn describe(progress: &Progress) -> String {
    let phase = match progress.phase {
        Phase::Greedy => "greedy plans",
        Phase::Search => "exact search",
    };
    let bound = Bytes::new(progress.lower_bound);
    progress.best_peak.map_or_else(
        || phase.to_owned(),
        |peak| format!("{phase}; best peak {}, lower bound {bound}", Bytes::new(peak)),
    )
}

fn write_to_stdout(table: &Table, offsets: &[u64]) -> Result<(), Failure> {
    let written = if io::stdout().is_terminal() {
        let mut to = output::ToTerminal::new();
        table.write(offsets, &mut to).and_then(|()| to.flush())
    } else {
        let mut to = BufWriter::new(io::stdout().lock());
        table.write(offsets, &mut to).and_then(|()| to.flush())
    };
    written.map_err(Failure::Output)
}

/// The summary goes to stderr if the plan is on stdout.
fn print(report: &PlanReport, json: bool, stdout_is_taken: bool) -> Result<(), Failure> {
    if stdout_is_taken {
        output::remark(&plan_text(report, output::remark_columns()));
        Ok(())
    } else if json {
        output::json(&plan_json(report))
    } else {
        output::result(&plan_text(report, output::columns()))
    }
}
