//! Pinned host memory: a loader that pins a buffer for every batch and never frees it.

use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, PinnedKind, PinnedMemory, Result};

use crate::card::Card;
use crate::situation::Outcome;

const BATCHES: u64 = 12;

#[inline(never)]
#[unsafe(export_name = "pinned_memory::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let staging = staging_buffer(card)?;
    for batch in 0..BATCHES {
        match buffer_of_a_batch(card) {
            Ok(buffer) => {
                staging.region().write(&buffer)?;
                // The next batch allocates its own.
                std::mem::forget(buffer);
            }
            Err(error) => {
                writeln!(
                    output,
                    "batch {batch}: {error}, while the GPU has {} free",
                    card.driver.memory()?.free
                )?;
                break;
            }
        }
    }
    staging.free()?;
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "pinned_memory::staging_buffer")]
fn staging_buffer(card: &Card) -> Result<DeviceMemory> {
    card.allocate(Bytes::mib(16))
}

#[inline(never)]
#[unsafe(export_name = "pinned_memory::buffer_of_a_batch")]
fn buffer_of_a_batch(card: &Card) -> Result<PinnedMemory> {
    PinnedMemory::allocate(card.driver, Bytes::mib(16), PinnedKind::Portable)
}
