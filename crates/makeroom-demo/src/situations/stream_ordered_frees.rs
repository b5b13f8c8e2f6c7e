//! Memory that was freed on a stream but is not available yet: the stream is still busy when memory is requested
//! outside of the pool.

use std::io::Write;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Launch, Module, Result, Stream, StreamKind};

use crate::card::Card;
use crate::situation::Outcome;

/// A kernel that waits for a fifth of a second, using the GPU's nanosecond clock.
const WAIT: &std::ffi::CStr = c"
.version 6.0
.target sm_50
.address_size 64
.visible .entry keep_busy()
{
    .reg .pred %done;
    .reg .u64 %start, %now, %passed;
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %passed, %now, %start;
    setp.lt.u64 %done, %passed, 200000000;
    @%done bra again;
    ret;
}
";

const STREAMS: u64 = 4;

#[inline(never)]
#[unsafe(export_name = "stream_ordered_frees::run")]
pub(crate) fn run(card: &Card, output: &mut dyn Write) -> Outcome {
    let model = weights(card)?;
    let module = Module::load_text(card.driver, WAIT)?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(Stream::create(card.driver, StreamKind::NonBlocking)?);
    }
    let each = card.percent(10);
    for stream in &streams {
        let buffer = buffer_of_a_stream(stream, each)?;
        buffer.region().part(Bytes::ZERO, Bytes::kib(4))?.fill_on(0, stream)?;
        keep_busy(&module, stream)?;
        buffer.free_on(stream)?;
    }
    let wanted = card.percent(30);
    let waiting = Bytes::new(each.get() * STREAMS);
    match large_buffer_right_afterwards(card, wanted) {
        Ok(large) => {
            writeln!(
                output,
                "allocated {wanted} while {waiting} freed on {STREAMS} streams may still be pending"
            )?;
            large.free()?;
        }
        Err(error) => {
            writeln!(output, "{error}, with {waiting} freed on {STREAMS} streams")?;
            card.driver.synchronize()?;
            writeln!(output, "after synchronizing the streams: {} free", card.driver.memory()?.free)?;
        }
    }
    model.free()?;
    Ok(())
}

#[inline(never)]
#[unsafe(export_name = "stream_ordered_frees::weights")]
fn weights(card: &Card) -> Result<DeviceMemory> {
    card.allocate(card.percent(45))
}

#[inline(never)]
#[unsafe(export_name = "stream_ordered_frees::buffer_of_a_stream")]
fn buffer_of_a_stream(stream: &Stream, bytes: Bytes) -> Result<DeviceMemory> {
    DeviceMemory::allocate_on(stream, bytes)
}

fn keep_busy(module: &Module, stream: &Stream) -> Result<()> {
    let launch = Launch { grid: [1; 3], block: [1; 3], shared_bytes: 0 };
    // SAFETY: the kernel takes no arguments and accesses no memory.
    unsafe { module.function(c"keep_busy")?.launch(launch, stream, &mut []) }
}

#[inline(never)]
#[unsafe(export_name = "stream_ordered_frees::large_buffer_right_afterwards")]
fn large_buffer_right_afterwards(card: &Card, bytes: Bytes) -> Result<DeviceMemory> {
    card.allocate(bytes)
}
