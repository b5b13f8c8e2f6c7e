//! Explains a recording: its memory (`trace`), and what its process left or missed (`run`).
//!
//! `trace` knows nothing of `run`; this is where both meet.

use makeroom_core::Trace;

use crate::run;
use crate::trace::{TraceQuestion, explain_memory};
use crate::{Explanation, Room, explain_text};

/// Explains a recording.
pub fn explain_trace(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let mut explanation = explain_memory(trace, question);
    if let Some(summary) = run::summarise(trace) {
        run::judge(&mut explanation, &summary);
        run::judge_missing(&mut explanation, &summary);
        explanation.run = Some(summary);
    }
    explanation
}

/// Explains an error message together with the memory that was live when it was raised, such as JAX's memory profile: the
/// text has the cause, the profile has the lines.
pub fn explain_text_with(text: &str, live: &Trace) -> Explanation {
    let mut explanation = explain_text(text);
    let device = explanation.request.as_ref().and_then(|request| request.device);
    let device = device.filter(|device| live.devices.iter().any(|known| known.device == *device));
    let held = explain_memory(live, &TraceQuestion { room: Room::Unknown, device });
    if explanation.sites.is_empty() {
        explanation.sites = held.sites;
        explanation.other_sites = held.other_sites;
    }
    explanation.notes.extend(held.notes);
    explanation
}

/// Explains a recording whose process still runs: what it holds now, it may still free.
pub fn explain_running(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let mut explanation = explain_memory(trace, question);
    if let Some(summary) = run::summarise(trace) {
        run::judge_failures(&mut explanation, &summary);
    }
    explanation
}
