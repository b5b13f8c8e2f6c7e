//! Another process on the GPU: a program requests less than the GPU has, and the allocation fails.

use std::io::{Read, Write};

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Result};

use crate::card::Card;
use crate::situation::Outcome;

#[inline(never)]
#[unsafe(export_name = "other_process::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let total = card.driver.memory()?.total;
    let wanted = Bytes::new(total.get() / 4);
    match buffer_of_a_quarter_card(card, wanted) {
        Ok(buffer) => buffer.free()?,
        Err(error) => writeln!(output, "{error}")?,
    }
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "other_process::buffer_of_a_quarter_card")]
fn buffer_of_a_quarter_card(card: &Card, bytes: Bytes) -> Result<DeviceMemory> {
    card.allocate(bytes)
}

/// The other process: allocates its share, reports that, and keeps it until its input ends.
pub(crate) fn hold(card: &Card, percent: u64, told: &mut dyn Write, until: &mut dyn Read) -> Outcome {
    let held = memory_of_the_other_process(card, card.percent(percent))?;
    writeln!(told, "holds {}", held.bytes())?;
    told.flush()?;
    // Wait for the end of the input: the parent closes it, also by exiting.
    std::io::copy(until, &mut std::io::sink())?;
    held.free()?;
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "other_process::memory_of_the_other_process")]
fn memory_of_the_other_process(card: &Card, bytes: Bytes) -> Result<DeviceMemory> {
    card.allocate(bytes)
}
