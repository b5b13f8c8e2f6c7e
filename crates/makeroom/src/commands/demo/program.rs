//! `makeroom demo-program`: runs one situation inside the recorded process.

use std::io;

use makeroom_demo::{Ending, Situation};

use crate::cli::DemoProgram;
use crate::failure::Failure;

/// Runs a situation's program, or its second process.
pub(crate) fn run(arguments: &DemoProgram) -> Result<(), Failure> {
    let situation = makeroom_demo::find(&arguments.name)
        .ok_or_else(|| Failure::NoSuchSituation { name: arguments.name.clone() })?;
    let mut output = io::stdout().lock();
    let ending = if arguments.other {
        Situation::hold(situation.held_by_other_percent, &mut output, &mut io::stdin().lock())
    } else {
        situation.run(&mut output)
    };
    ending.map_err(|ending| match ending {
        Ending::Refused(error) => Failure::Gpu(error),
        Ending::Unheard(error) => Failure::Output(error),
    })
}
