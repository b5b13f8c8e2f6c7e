//! A batch that is too large: weights, optimizer and activations are all needed, and together they do not fit.

use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Result};

use crate::card::Card;
use crate::situation::Outcome;

const LAYERS: u64 = 12;

#[inline(never)]
#[unsafe(export_name = "large_batch::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let weights = weights(card)?;
    let optimizer = optimizer_state(card)?;
    let mut batch = 8;
    loop {
        match forward(card, batch) {
            Ok(activations) => {
                writeln!(output, "batch size {batch} fits")?;
                for layer in activations {
                    layer.free()?;
                }
            }
            Err(error) => {
                writeln!(output, "batch size {batch} does not fit: {error}")?;
                break;
            }
        }
        batch *= 2;
    }
    optimizer.free()?;
    weights.free()?;
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "large_batch::weights")]
fn weights(card: &Card) -> Result<DeviceMemory> {
    card.allocate(card.percent(15))
}

#[inline(never)]
#[unsafe(export_name = "large_batch::optimizer_state")]
fn optimizer_state(card: &Card) -> Result<DeviceMemory> {
    card.allocate(card.percent(30))
}

#[inline(never)]
#[unsafe(export_name = "large_batch::forward")]
fn forward(card: &Card, batch: u64) -> Result<Vec<DeviceMemory>> {
    let mut kept = Vec::new();
    for _ in 0..LAYERS {
        kept.push(activations_of_a_layer(card, batch)?);
    }
    Ok(kept)
}

#[inline(never)]
#[unsafe(export_name = "large_batch::activations_of_a_layer")]
fn activations_of_a_layer(card: &Card, batch: u64) -> Result<DeviceMemory> {
    card.allocate(Bytes::mib(batch))
}
