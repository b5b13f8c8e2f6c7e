//! What is said about a recording when its program has ended, or was refused memory: read it, have it explained, have it
//! rendered.

use std::path::Path;

use makeroom_core::{Bytes, ProcessEnd, Trace};
use makeroom_explain::{Cause, Explanation, TraceQuestion, explain_running, explain_trace};
use makeroom_report::{
    explanation_json, explanation_text, nothing_recorded_text, others_text, refused_text, run_summary_text,
    sanitized_child_text, stepped_aside_text, switched_off_text, unreadable_text, unrecorded_text,
};
use serde_json::{Value, json};

use super::lines;
use super::listener::Heard;
use crate::commands::{looking, recording};
use crate::failure::Failure;
use crate::output;

/// The line for a program in which nothing was seen, from which the recorder was kept out, or where it could not write.
pub(crate) fn nothing(program: &str, is_off: bool, heard: &Heard) -> String {
    match (&heard.unrecorded, &heard.sanitizer) {
        (Some(reason), _) => unrecorded_text(reason),
        (None, Some(name)) => sanitized_child_text(program, name),
        (None, None) if is_off => switched_off_text(program),
        (None, None) => nothing_recorded_text(program),
    }
}

/// The line for a run whose file another run has.
pub(crate) fn stepped_aside(taken: &Path, pattern: &Path) -> String {
    stepped_aside_text(&taken.display().to_string(), &pattern.display().to_string().replace("%p", "PID"))
}

/// What to say when an allocation was refused. The first time it is the whole verdict, where that can be had.
pub(crate) fn refusal(bytes: Bytes, device: Option<u32>, file: &Path, is_first: bool) -> String {
    let mut text = refused_text(bytes, device);
    if is_first && let Ok(trace) = recording::read_reported(file) {
        let explanation = explain_running(&trace, &TraceQuestion::default());
        text.push_str(&explanation_text(&explanation, output::remark_columns(), None));
        if explanation.causes.iter().any(|finding| finding.cause == Cause::OtherProcesses) {
            text.push_str(&others(&trace, device));
        }
    }
    text
}

/// Who else holds the device now, where the driver says it.
fn others(trace: &Trace, device: Option<u32>) -> String {
    let process = trace.process.as_ref();
    let known = process.iter().flat_map(|process| &process.devices);
    let Some(known) = known.into_iter().find(|known| Some(known.device.0) == device) else {
        return String::new();
    };
    let own = process.map_or(0, |process| process.identity.pid);
    looking::shortly().map_or(String::new(), |mut watcher| {
        others_text(&watcher.look(), &known.uuid, own, output::remark_columns())
    })
}

/// A recording at its end.
pub(crate) struct Ended {
    file: String,
    explanation: Result<Explanation, Failure>,
}

impl Ended {
    /// Reads and explains a recording.
    pub(crate) fn read(path: &Path) -> Self {
        let explanation = recording::read_reported(path).map(|trace| {
            let has_exited = trace
                .process
                .as_ref()
                .is_some_and(|process| matches!(process.end, Some(ProcessEnd::Exited(_))));
            // Without them the recording is as good as before, here at least.
            if has_exited {
                let _ = lines::keep(path);
            }
            explain_trace(&trace, &TraceQuestion::default())
        });
        Self { file: path.display().to_string(), explanation }
    }

    /// For a person.
    pub(crate) fn text(&self) -> String {
        match &self.explanation {
            Ok(explanation) => run_summary_text(explanation, &self.file, output::remark_columns()),
            Err(failure) => unreadable_text(&self.file, failure),
        }
    }

    /// For a program.
    pub(crate) fn json(&self) -> Value {
        match &self.explanation {
            Ok(explanation) => json!({ "file": self.file, "explanation": explanation_json(explanation) }),
            Err(failure) => json!({ "file": self.file, "error": failure.to_string() }),
        }
    }
}
