//! Plans CSV files and prints a line for each: `plan [--capacity BYTES] FILE...`. `bench/run planner` runs it.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::fs::File;
use std::io::BufReader;
use std::time::Instant;

use makeroom_plan::{Budget, Outcome, Problem, csv, plan, validate};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut capacity = None;
    if arguments.next_if(|argument| argument == "--capacity").is_some() {
        capacity = Some(arguments.next().ok_or("--capacity needs a number")?.parse()?);
    }
    for file in arguments {
        let buffers = csv::read(BufReader::new(File::open(&file)?))?.buffers;
        let problem = Problem { buffers, capacity };
        let started = Instant::now();
        let outcome = plan(&problem, &Budget::default())?;
        let seconds = started.elapsed().as_secs_f64();
        let name = file.rsplit('/').next().unwrap_or(&file);
        match outcome {
            Outcome::Planned { plan, lower_bound } => {
                validate(&problem, &plan)?;
                let ratio = plan.peak as f64 / lower_bound as f64;
                println!("{name} planned {} bound {lower_bound} ratio {ratio:.5} {seconds:.3}", plan.peak);
            }
            Outcome::Impossible(conflict) => return Err(format!("{name}: {conflict}").into()),
            Outcome::GaveUp { stop, .. } => return Err(format!("{name}: no plan found, {stop}").into()),
        }
    }
    Ok(())
}
