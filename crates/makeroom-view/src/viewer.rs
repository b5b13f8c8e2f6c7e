//! All inputs of one view, and who keeps them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::input::{Input, Opened};
use crate::resources::Refusal;
use crate::whatif::WhatIf;

/// Everything that a page can ask about.
#[derive(Debug)]
pub struct Viewer {
    pub(crate) inputs: Vec<Input>,
    /// Tells this reading of the inputs from every other one, of this server and of the next at the same address.
    pub(crate) reading: String,
}

/// What became of an input's file since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is as it was.
    Same,
    /// It was written to.
    Changed,
    /// It is not there any more.
    Vanished,
}

/// Whoever read the inputs and can do it again.
pub trait Host: Send + Sync {
    /// What was read last.
    fn viewer(&self) -> Arc<Viewer>;
    /// What became of each input's file since.
    fn changes(&self) -> Vec<Change>;
    /// Whether the inputs can be read again.
    fn can_reload(&self) -> bool;
    /// Reads them again. What was read before stays where that fails.
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

    /// Runs a device under other allocators, to the end.
    pub(crate) fn run_what_if(&self, input: usize, device: usize) {
        if let (Some(what_if), Some(input)) = (self.what_if(input, device), self.inputs.get(input)) {
            what_if.run(input, device);
        }
    }

    /// The verdict on each input in one line, with its name.
    pub fn verdicts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.inputs.iter().map(|input| (input.name.as_str(), input.headline.as_str()))
    }
}
