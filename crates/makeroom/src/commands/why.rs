//! `makeroom why`: say why memory ran out.

use std::io;
use std::path::Path;

use makeroom_core::DeviceIndex;
use makeroom_explain::{Explanation, Room, TraceQuestion, explain_text, explain_trace};
use makeroom_report::{explanation_json, explanation_text};
use makeroom_trace::Input;

use crate::cli::Why;
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
    let name = display_name(&arguments.input);
    let input = read(&arguments.input).map_err(|error| Failure::input(&name, error))?;
    let trace = match input {
        Input::Text(bytes) => return Ok(explain_text(&String::from_utf8_lossy(&bytes))),
        Input::Trace(trace) => trace,
    };
    if let Some(asked) = arguments.device
        && trace.devices.iter().all(|device| device.device != DeviceIndex(asked))
    {
        let present: Vec<String> = trace.devices.iter().map(|device| device.device.to_string()).collect();
        return Err(Failure::NoSuchDevice { name, asked, present: present.join(", ") });
    }
    let room = match (arguments.memory, arguments.card) {
        (Some(limit), _) => Room::Limit(limit),
        (None, Some(card)) => Room::Card(card),
        (None, None) => Room::Unknown,
    };
    Ok(explain_trace(&trace, &TraceQuestion { room, device: arguments.device.map(DeviceIndex) }))
}

fn read(path: &Path) -> Result<Input, makeroom_trace::Error> {
    if path == Path::new("-") { makeroom_trace::read(io::stdin().lock()) } else { makeroom_trace::open(path) }
}

fn display_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}
