//! One input of the page: its explanation, and the history of each of its devices.

use std::sync::OnceLock;

use makeroom_core::{Bytes, DeviceTrace, Trace, TraceKind};
use makeroom_explain::{Explanation, Room, TraceQuestion, explain_trace};
use makeroom_report::{explanation_json, explanation_text};
use makeroom_text::explain_text;
use serde_json::Value;

use crate::alternative::Alternative;
use crate::capacity::Capacity;
use crate::stacks::Trie;
use crate::timeline::Timeline;
use crate::whatif::WhatIf;

/// Width of an explanation as text.
const TEXT_COLUMNS: usize = 110;

/// The content of a file.
#[derive(Debug)]
pub enum OpenedInput {
    /// A recording.
    Trace(Box<Trace>),
    /// Text with an error message in it.
    Text(String),
}

/// A file that was read.
#[derive(Debug)]
pub struct Opened {
    /// Its name.
    pub name: String,
    /// Size of the file in bytes, if known.
    pub bytes: Option<u64>,
    /// Its content.
    pub input: OpenedInput,
    /// The available memory, as given by the user.
    pub question: TraceQuestion,
}

/// One input, ready for requests.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) bytes: Option<u64>,
    pub(crate) kind: &'static str,
    pub(crate) why: Value,
    pub(crate) text: String,
    pub(crate) headline: String,
    /// Whether the verdict is about host memory.
    pub(crate) is_about_host: bool,
    pub(crate) room: Room,
    pub(crate) trace: Option<Recording>,
}

/// A recording and its derived data.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) trace: Trace,
    pub(crate) devices: Vec<Timeline>,
    pub(crate) what_if: Vec<WhatIf>,
    pub(crate) capacities: Vec<Capacity>,
    pub(crate) alternatives: Vec<Alternative>,
    trie: OnceLock<Trie>,
}

impl Input {
    pub(crate) fn new(opened: Opened) -> Self {
        let Opened { name, bytes, input, question } = opened;
        let (kind, explanation, trace) = match input {
            OpenedInput::Text(text) => ("text", explain_text(&text), None),
            OpenedInput::Trace(trace) => {
                let kind = match trace.kind {
                    TraceKind::TorchSnapshot => "pytorch_snapshot",
                    TraceKind::RmmLog => "rmm_log",
                    TraceKind::Room => "room",
                    TraceKind::JaxProfile => "jax_profile",
                };
                let (explanation, recording) = Recording::explained(*trace, &question);
                (kind, explanation, Some(recording))
            }
        };
        let styled = explanation_text(&explanation, TEXT_COLUMNS, None);
        let verdict = &explanation.verdict;
        Self {
            name,
            bytes,
            kind,
            why: explanation_json(&explanation),
            text: anstream::adapter::strip_str(&styled).to_string(),
            is_about_host: verdict.cause == makeroom_explain::Cause::HostMemory,
            headline: format!("{}: {}", verdict.title(), verdict.summary),
            room: question.room,
            trace,
        }
    }
}

impl Recording {
    /// Explains a recording while its histories are read on another thread: both need a pass over all events.
    fn explained(trace: Trace, question: &TraceQuestion) -> (Explanation, Self) {
        let (explanation, devices) = std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                // Pinned host memory follows the devices.
                (0..=trace.devices.len()).filter_map(|index| Timeline::new(&trace, index)).collect::<Vec<_>>()
            });
            let explanation = explain_trace(&trace, question);
            // Pass on a panic of the other thread.
            let devices = reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (explanation, devices)
        });
        let what_if = devices.iter().map(|_| WhatIf::default()).collect();
        let capacities: Vec<Capacity> = devices
            .iter()
            .map(|timeline| Capacity::new(&explanation, &trace, timeline, total_of(&trace, timeline)))
            .collect();
        let alternatives = devices.iter().zip(&capacities).map(|(timeline, capacity)| {
            let is_explained = explanation.ledger.as_ref().and_then(makeroom_explain::Ledger::device)
                == Some(timeline.device(&trace).device);
            let hidden_limit = explanation.hidden_limit.filter(|_| is_explained);
            Alternative::new(&trace, capacity, hidden_limit, timeline.interest(), timeline.is_pinned(&trace))
        });
        let alternatives = alternatives.collect();
        let trie = OnceLock::new();
        (explanation, Self { trace, devices, what_if, capacities, alternatives, trie })
    }

    /// All stacks of the recording as a trie.
    pub(crate) fn trie(&self) -> &Trie {
        self.trie.get_or_init(|| Trie::new(&self.trace, &self.devices))
    }

    /// A device of the trace with its history; not pinned memory.
    pub(crate) fn device(&self, index: usize) -> Option<(&DeviceTrace, &Timeline)> {
        Some((self.trace.devices.get(index)?, self.devices.get(index)?))
    }
}

/// The size of the GPU of a history, if it was recorded.
fn total_of(trace: &Trace, timeline: &Timeline) -> Option<Bytes> {
    let device = timeline.device(trace).device;
    let process = trace.process.as_ref()?;
    let identity = process.devices.iter().find(|identity| identity.device == device)?;
    Some(identity.total).filter(|total| !total.is_zero())
}
