//! `makeroom why`: say why memory ran out.

use makeroom_core::DeviceIndex;
use makeroom_explain::{Explanation, TraceQuestion, explain_running, explain_text, explain_trace};
use makeroom_report::{explanation_json, explanation_text};
use makeroom_trace::Input;

use crate::cli::Why;
use crate::commands::recording;
use crate::failure::Failure;
use crate::output;

/// Runs `makeroom why`.
pub(crate) fn run(arguments: &Why) -> Result<(), Failure> {
    let explanation = explain(arguments)?;
    if arguments.recording.json {
        output::json(&explanation_json(&explanation))
    } else {
        output::result(&explanation_text(&explanation, output::columns(), output::rows()))
    }
}

fn explain(arguments: &Why) -> Result<Explanation, Failure> {
    let trace = match recording::read(&arguments.recording.input)? {
        Input::Text(bytes) => {
            let mut explanation = explain_text(&String::from_utf8_lossy(&bytes));
            if arguments.recording.memory.is_some()
                || arguments.recording.card.is_some()
                || arguments.recording.device.is_some()
            {
                explanation.notes.push(
                    "--memory, --card and --device are about recordings; a text speaks for itself".to_owned(),
                );
            }
            return Ok(explanation);
        }
        Input::Trace(trace) => trace,
    };
    if arguments.recording.device.is_some() {
        recording::device(&trace, &arguments.recording.input, arguments.recording.device)?;
    }
    let room = recording::room(arguments.recording.memory, arguments.recording.card);
    let question = TraceQuestion { room, device: arguments.recording.device.map(DeviceIndex) };
    if !recording::is_running(&trace, &arguments.recording.input) {
        return Ok(explain_trace(&trace, &question));
    }
    let mut explanation = explain_running(&trace, &question);
    explanation.notes.insert(
        0,
        "the program still runs: this is what its recording holds so far, and what is live may still be freed".to_owned(),
    );
    Ok(explanation)
}
