//! Fragmentation: a loop whose requests grow a little each time, and that keeps a part of each.
//!
//! The kept part is split off the block that the step has just freed. The rest of that block is too small for the next
//! step, and cannot be returned to the driver because the kept part is in the same segment.

use std::io::Write;

use makeroom_core::Bytes;

use crate::card::Card;
use crate::framework::{Framework, OutOfMemory, Tensor};
use crate::situation::Outcome;

/// More steps than fit.
const STEPS: u64 = 64;

#[inline(never)]
#[unsafe(export_name = "fragmentation::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let mut framework = Framework::new(card);
    let mut results = Vec::new();
    for step in 0..STEPS {
        match train_step(card, &mut framework, step) {
            Ok(result) => results.push(result),
            Err(OutOfMemory { requested, reserved, live }) => {
                writeln!(
                    output,
                    "step {step}: allocating {requested} failed; {live} of tensors in {reserved} reserved by the framework"
                )?;
                break;
            }
        }
    }
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "fragmentation::train_step")]
fn train_step(card: &Card, framework: &mut Framework<'_>, step: u64) -> Result<Tensor, OutOfMemory> {
    let size = card.percent(6) + Bytes::mib(4 * step);
    let activations = activations_of_a_longer_batch(framework, size)?;
    framework.delete(activations);
    results_that_are_kept(framework, size)
}

#[inline(never)]
#[unsafe(export_name = "fragmentation::activations_of_a_longer_batch")]
fn activations_of_a_longer_batch(framework: &mut Framework<'_>, size: Bytes) -> Result<Tensor, OutOfMemory> {
    framework.tensor(size)
}

#[inline(never)]
#[unsafe(export_name = "fragmentation::results_that_are_kept")]
fn results_that_are_kept(framework: &mut Framework<'_>, size: Bytes) -> Result<Tensor, OutOfMemory> {
    framework.tensor(Bytes::mib((size.get() >> 20) * 11 / 20))
}
