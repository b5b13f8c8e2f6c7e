//! All inputs of a view, and the host that reads them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::alternative::Alternative;
use crate::input::{Input, Opened, Recording};
use crate::resources::Refusal;
use crate::timeline::By;
use crate::whatif::WhatIf;

/// All data that a page can request.
#[derive(Debug)]
pub struct Viewer {
    pub(crate) inputs: Vec<Input>,
    /// What the layers of the chart stand for at first.
    pub(crate) layers: By,
    /// ID of this version of the inputs: unique for this server, and for the next one at the same address.
    pub(crate) reading: String,
}

/// Something that is computed in the background when the page requests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Computation {
    /// The table of other allocators.
    WhatIf,
    /// The line of the recommended setting.
    Alternative,
}

/// Whether an input's file has changed since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Unchanged.
    Same,
    /// Changed.
    Changed,
    /// Deleted.
    Vanished,
}

/// Reads the inputs, and can read them again.
pub trait Host: Send + Sync {
    /// The inputs as last read.
    fn viewer(&self) -> Arc<Viewer>;
    /// Whether each input's file has changed since then.
    fn changes(&self) -> Vec<Change>;
    /// Whether the inputs can be read again.
    fn can_reload(&self) -> bool;
    /// Reads them again. If that fails, the previous inputs stay.
    fn reload(&self) -> Result<(), Refusal>;
}

impl Viewer {
    /// Explains the inputs and reads their histories.
    pub fn new(opened: Vec<Opened>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            inputs: opened.into_iter().map(Input::new).collect(),
            layers: By::Line,
            reading: format!("{:x}", now.as_nanos()),
        }
    }

    /// Chooses what the layers of the chart stand for at first.
    #[must_use]
    pub fn with_layers(self, layers: By) -> Self {
        Self { layers, ..self }
    }

    fn recording(&self, input: usize) -> Option<(&Input, &Recording)> {
        let input = self.inputs.get(input)?;
        Some((input, input.trace.as_ref()?))
    }

    /// Marks a computation as running; false if it is already running or done, or does not exist.
    pub(crate) fn begin(&self, computation: Computation, input: usize, device: usize) -> bool {
        let Some((_, recording)) = self.recording(input) else { return false };
        match computation {
            Computation::WhatIf => recording.what_if.get(device).is_some_and(WhatIf::begin),
            Computation::Alternative => recording.alternatives.get(device).is_some_and(Alternative::begin),
        }
    }

    /// Computes it and waits for the result. Called once after `begin`.
    pub(crate) fn compute(&self, computation: Computation, input: usize, device: usize) {
        let Some((input, recording)) = self.recording(input) else { return };
        match computation {
            Computation::WhatIf => {
                if let Some(what_if) = recording.what_if.get(device) {
                    what_if.run(input, device);
                }
            }
            Computation::Alternative => {
                if let Some(alternative) = recording.alternatives.get(device) {
                    alternative.run(recording, device);
                }
            }
        }
    }

    /// Marks it as failed.
    pub(crate) fn give_up(&self, computation: Computation, input: usize, device: usize) {
        let Some((_, recording)) = self.recording(input) else { return };
        match computation {
            Computation::WhatIf => recording.what_if.get(device).map(WhatIf::give_up),
            Computation::Alternative => recording.alternatives.get(device).map(Alternative::give_up),
        };
    }

    /// The name of each input and its verdict in one line.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inputs.iter().map(|input| (input.name.as_str(), input.headline.as_str()))
    }
}
