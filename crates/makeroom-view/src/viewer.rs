//! All inputs of a view, and the host that reads them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::input::{Input, Opened};
use crate::resources::Refusal;
use crate::whatif::WhatIf;

/// All data that a page can request.
#[derive(Debug)]
pub struct Viewer {
    pub(crate) inputs: Vec<Input>,
    /// ID of this version of the inputs: unique for this server, and for the next one at the same address.
    pub(crate) reading: String,
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
            reading: format!("{:x}", now.as_nanos()),
        }
    }

    pub(crate) fn what_if(&self, input: usize, device: usize) -> Option<&WhatIf> {
        self.inputs.get(input)?.trace.as_ref()?.what_if.get(device)
    }

    /// Replays a device under other allocators and waits for the result.
    pub(crate) fn run_what_if(&self, input: usize, device: usize) {
        if let (Some(what_if), Some(input)) = (self.what_if(input, device), self.inputs.get(input)) {
            what_if.run(input, device);
        }
    }

    /// The name of each input and its verdict in one line.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inputs.iter().map(|input| (input.name.as_str(), input.headline.as_str()))
    }
}
