//! `makeroom why`: say why memory ran out.

use makeroom_core::DeviceIndex;
use makeroom_explain::{Explanation, TraceQuestion, explain_text, explain_trace};
use makeroom_report::{explanation_json, explanation_text};
use makeroom_trace::Input;

use crate::cli::Why;
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom why`.
pub(crate) fn run(arguments: &Why) -> Result<(), Failure> {
    let explanation = explain(arguments)?;
    if arguments.json {
        output::json(&explanation_json(&explanation))
    } else {
        Ok(output::result(&explanation_text(&explanation, output::columns()))?)
    }
}

fn explain(arguments: &Why) -> Result<Explanation, Failure> {
    let trace = match recording::read(&arguments.input)? {
        Input::Text(bytes) => return Ok(explain_text(&String::from_utf8_lossy(&bytes))),
        Input::Trace(trace) => trace,
    };
    if arguments.device.is_some() {
        recording::device(&trace, &arguments.input, arguments.device)?;
    }
    let room = recording::room(arguments.memory, arguments.card);
    Ok(explain_trace(&trace, &TraceQuestion { room, device: arguments.device.map(DeviceIndex) }))
}
