//! Explains a recording: its memory (`trace`), and what its process left or missed (`run`).
//!
//! `trace` knows nothing of `run`; this is where both meet.

use makeroom_core::Trace;

use crate::Explanation;
use crate::run;
use crate::trace::{TraceQuestion, explain_memory};

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

/// Explains a recording whose process still runs: what it holds now, it may still free.
pub fn explain_running(trace: &Trace, question: &TraceQuestion) -> Explanation {
    let mut explanation = explain_memory(trace, question);
    if let Some(summary) = run::summarise(trace) {
        run::judge_failures(&mut explanation, &summary);
    }
    explanation
}
