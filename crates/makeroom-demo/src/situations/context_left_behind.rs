//! A context for every worker, and none is destroyed: each takes hundreds of megabytes before its first allocation.

use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{Context, DeviceMemory, Result};

use crate::card::Card;
use crate::situation::Outcome;

const WORKERS: u32 = 3;

#[inline(never)]
#[unsafe(export_name = "context_left_behind::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let input = input_of_all_workers(card)?;
    for worker in 0..WORKERS {
        if let Err(error) = work_in_a_context_of_its_own(card) {
            writeln!(output, "worker {worker}: {error}")?;
            return Ok(());
        }
        let free = card.driver.memory()?.free;
        writeln!(output, "worker {worker} finished; {free} free")?;
    }
    let wanted = card.percent(50);
    match results_of_all_workers(card, wanted) {
        Ok(results) => results.free()?,
        Err(error) => writeln!(output, "{error}, although every worker freed its memory")?,
    }
    input.free()?;
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "context_left_behind::input_of_all_workers")]
fn input_of_all_workers(card: &Card) -> Result<DeviceMemory> {
    card.allocate(Bytes::mib(64))
}

#[inline(never)]
#[unsafe(export_name = "context_left_behind::work_in_a_context_of_its_own")]
fn work_in_a_context_of_its_own(card: &Card) -> Result<()> {
    // Never destroyed: a context lives until it is destroyed explicitly or the process exits.
    let _context = context_of_a_worker(card)?;
    memory_of_a_worker(card)?.free()
}

#[inline(never)]
#[unsafe(export_name = "context_left_behind::context_of_a_worker")]
fn context_of_a_worker(card: &Card) -> Result<Context> {
    card.device.create_context()
}

#[inline(never)]
#[unsafe(export_name = "context_left_behind::memory_of_a_worker")]
fn memory_of_a_worker(card: &Card) -> Result<DeviceMemory> {
    card.allocate(Bytes::mib(16))
}

#[inline(never)]
#[unsafe(export_name = "context_left_behind::results_of_all_workers")]
fn results_of_all_workers(card: &Card, bytes: Bytes) -> Result<DeviceMemory> {
    card.allocate(bytes)
}
