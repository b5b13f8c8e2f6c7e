//! Results of commands, as the text and the JSON that the command prints.

use makeroom_core::Bytes;
use makeroom_explain::{Explanation, Grouped};
use makeroom_job::JobReport;
use makeroom_report::{
    explanation_json, explanation_text, grouped_json, grouped_text, job_json, job_text, replay_json,
    replay_text, sanitize, tune_json, tune_text,
};
use makeroom_sim::{Comparison, Tuning};
use pyo3::prelude::*;
use serde_json::Value;

/// The result of one command.
#[derive(Debug)]
enum Content {
    Explanation(Box<Explanation>),
    Grouped(Box<Grouped>),
    Job(Box<JobReport>),
    Replay { comparison: Box<Comparison>, memory: Option<Bytes> },
    Tuning { tuning: Box<Tuning>, memory: Option<Bytes>, notes: Vec<String> },
}

/// Result of `why`, `why --by`, `job`, `replay` or `tune`.
#[pyclass(frozen, module = "makeroom._impl._native")]
#[derive(Debug)]
pub(crate) struct Answer {
    content: Content,
}

impl Answer {
    pub(crate) fn explanation(explanation: Explanation) -> Self {
        Self { content: Content::Explanation(Box::new(explanation)) }
    }

    pub(crate) fn grouped(grouped: Grouped) -> Self {
        Self { content: Content::Grouped(Box::new(grouped)) }
    }

    pub(crate) fn job(report: JobReport) -> Self {
        Self { content: Content::Job(Box::new(report)) }
    }

    pub(crate) fn replay(comparison: Comparison, memory: Option<Bytes>) -> Self {
        Self { content: Content::Replay { comparison: Box::new(comparison), memory } }
    }

    pub(crate) fn tuning(tuning: Tuning, memory: Option<Bytes>, notes: Vec<String>) -> Self {
        Self { content: Content::Tuning { tuning: Box::new(tuning), memory, notes } }
    }

    fn value(&self) -> Value {
        match &self.content {
            Content::Explanation(explanation) => explanation_json(explanation),
            Content::Grouped(grouped) => grouped_json(grouped),
            // The report has no maps with keys that JSON lacks, so this cannot fail.
            Content::Job(report) => job_json(report).unwrap_or(Value::Null),
            Content::Replay { comparison, memory } => replay_json(comparison, *memory),
            Content::Tuning { tuning, memory, notes } => tune_json(tuning, *memory, notes),
        }
    }
}

#[pymethods]
impl Answer {
    /// The output of the command with `--json`.
    fn json(&self) -> String {
        self.value().to_string()
    }

    /// The output of the command on a terminal of this width; with `styled`, in color.
    #[pyo3(signature = (columns, styled = false))]
    fn text(&self, columns: usize, styled: bool) -> String {
        let text = match &self.content {
            Content::Explanation(explanation) => explanation_text(explanation, columns, None),
            Content::Grouped(grouped) => grouped_text(grouped, columns, true),
            Content::Job(report) => job_text(report, columns, None),
            Content::Replay { comparison, memory } => replay_text(comparison, *memory, columns),
            Content::Tuning { tuning, memory, notes } => tune_text(tuning, *memory, notes, columns),
        };
        let text = sanitize(&text);
        if styled { text } else { anstream::adapter::strip_str(&text).to_string() }
    }
}
