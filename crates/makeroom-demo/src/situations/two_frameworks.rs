//! Two frameworks in one process: the first has freed its tensors into its own cache, so the GPU is full for the
//! second.

use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Result};

use crate::card::Card;
use crate::framework::{Framework, OutOfMemory, Tensor};
use crate::situation::Outcome;

const TENSORS: u64 = 14;

#[inline(never)]
#[unsafe(export_name = "two_frameworks::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let mut first = Framework::new(card);
    let weights = match weights_of_the_first(card, &mut first).and_then(|weights| {
        preprocess_with_the_first(card, &mut first)?;
        Ok(weights)
    }) {
        Ok(weights) => weights,
        Err(OutOfMemory { requested, .. }) => {
            writeln!(output, "the first framework failed to allocate {requested}")?;
            return Ok(());
        }
    };
    writeln!(output, "the first framework finished but still caches {}", first.reserved())?;
    match workspace_of_the_second(card, card.percent(40)) {
        Ok(workspace) => workspace.free()?,
        Err(error) => writeln!(output, "the second framework: {error}")?,
    }
    first.delete(weights);
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "two_frameworks::weights_of_the_first")]
fn weights_of_the_first(
    card: &Card,
    framework: &mut Framework<'_>,
) -> std::result::Result<Tensor, OutOfMemory> {
    framework.tensor(card.percent(5))
}

#[inline(never)]
#[unsafe(export_name = "two_frameworks::preprocess_with_the_first")]
fn preprocess_with_the_first(
    card: &Card,
    framework: &mut Framework<'_>,
) -> std::result::Result<(), OutOfMemory> {
    let mut batch = Vec::new();
    for _ in 0..TENSORS {
        batch.push(framework.tensor(card.percent(6))?);
    }
    for tensor in batch {
        framework.delete(tensor);
    }
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "two_frameworks::workspace_of_the_second")]
fn workspace_of_the_second(card: &Card, bytes: Bytes) -> Result<DeviceMemory> {
    card.allocate(bytes)
}
