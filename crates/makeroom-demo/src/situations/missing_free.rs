//! A missing free on an error path: every third request is invalid, and its function returns before the free.

use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Result};

use crate::card::Card;
use crate::situation::Outcome;

/// More requests than fit.
const REQUESTS: u64 = 10_000;

/// A request that the program cannot process.
struct Invalid;

#[inline(never)]
#[unsafe(export_name = "missing_free::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let (mut answered, mut failed) = (0_u64, 0_u64);
    for number in 0..REQUESTS {
        match answer_request(card, number) {
            Ok(Ok(())) => answered += 1,
            Ok(Err(Invalid)) => failed += 1,
            Err(error) => {
                writeln!(
                    output,
                    "request {number}: {error}; before that, {answered} succeeded and {failed} were invalid"
                )?;
                break;
            }
        }
    }
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "missing_free::answer_request")]
fn answer_request(card: &Card, number: u64) -> Result<std::result::Result<(), Invalid>> {
    let input = input_of_a_request(card)?;
    let output = output_of_a_request(card)?;
    if number % 3 == 2 {
        output.free()?;
        // `return -1` in the C program: the input's free is below it.
        std::mem::forget(input);
        return Ok(Err(Invalid));
    }
    output.free()?;
    input.free()?;
    Ok(Ok(()))
}

#[inline(never)]
#[unsafe(export_name = "missing_free::input_of_a_request")]
fn input_of_a_request(card: &Card) -> Result<DeviceMemory> {
    card.allocate(Bytes::mib(8))
}

#[inline(never)]
#[unsafe(export_name = "missing_free::output_of_a_request")]
fn output_of_a_request(card: &Card) -> Result<DeviceMemory> {
    card.allocate(Bytes::mib(2))
}
