//! Plans the CSV files given on the command line: `plan [--capacity BYTES|name] [--steps N] [--seed N] [--seconds N]
//! FILE...`. With `--capacity name`, the capacity is the number in the file name.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use makeroom_plan::validate::validate;
use makeroom_plan::{Budget, Outcome, Problem, csv, load, plan};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let mut budget = Budget::default();
    let mut capacity_option = None;
    let mut seconds = None;
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("`{argument}` needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("not a number: `{text}`"));
        match argument.as_str() {
            "--capacity" => capacity_option = Some(value()?),
            "--steps" => budget.steps = number(value()?)?,
            "--seed" => budget.seed = number(value()?)?,
            "--seconds" => seconds = Some(number(value()?)?),
            _ => files.push(argument),
        }
    }
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
        let table = csv::parse(&text).map_err(|error| format!("{file}: {error}"))?;
        let capacity = match capacity_option.as_deref() {
            None => None,
            Some("name") => file.rsplit('.').nth(1).and_then(|part| part.parse().ok()),
            Some(bytes) => Some(bytes.parse().map_err(|_| format!("not a number: `{bytes}`"))?),
        };
        let problem = Problem { buffers: table.buffers, capacity };
        let started = Instant::now();
        let deadline = seconds.map(|seconds| started + Duration::from_secs(seconds));
        let outcome = plan(&problem, &Budget { deadline, ..budget }).map_err(|error| error.to_string())?;
        let elapsed = started.elapsed().as_secs_f64();
        let name = file.rsplit('/').next().unwrap_or(&file);
        let peak = load::peak(&problem.buffers).map_or(0, |peak| peak.bytes);
        match outcome {
            Outcome::Planned { plan, lower_bound } => {
                validate(&problem, &plan).map_err(|violation| format!("{file}: {violation}"))?;
                let ratio = plan.height as f64 / peak as f64;
                println!("{name} planned {} bound {lower_bound} ratio {ratio:.5} {elapsed:.3}", plan.height);
            }
            Outcome::Impossible(conflict) => println!("{name} impossible: {conflict} {elapsed:.3}"),
            Outcome::GaveUp { best, stop, .. } => {
                let relaxed = Problem { capacity: None, ..problem };
                validate(&relaxed, &best).map_err(|violation| format!("{file}: {violation}"))?;
                let ratio = best.height as f64 / peak as f64;
                println!("{name} gave-up {} because {stop} ratio {ratio:.5} {elapsed:.3}", best.height);
            }
        }
    }
    Ok(())
}
