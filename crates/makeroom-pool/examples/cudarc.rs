//! cudarc on the pool: its streams, copies and views, with memory that does not fragment.
//!
//! ```sh
//! cargo run --release -p makeroom-pool --features cudarc --example cudarc
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]

use cudarc::driver::CudaContext;
use makeroom_core::Bytes;
use makeroom_cuda::Driver;
use makeroom_pool::{Allocator as _, CudarcBuffer, CudarcStream, Options, Pool};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = CudaContext::new(0)?;
    let (stream, other) = (context.new_stream()?, context.new_stream()?);
    let pool = Pool::new(Driver::load()?, 0, Options::default())?;
    let memory = CudarcStream::new(&pool, &stream)?;

    for step in 1..=20_u32 {
        let values: Vec<u32> = (0..step * 100_000).collect();
        let mut buffer = CudarcBuffer::<u32>::zeroed(&memory, values.len())?;
        // cudarc's own copies; its events keep the order across streams.
        stream.memcpy_htod(&values, &mut buffer.view_mut())?;
        let mut half = CudarcBuffer::<u32>::uninitialized(&memory, values.len() / 2)?;
        other.memcpy_dtod(&buffer.slice(..values.len() / 2), &mut half.view_mut())?;
        let returned = other.clone_dtoh(&*half)?;
        other.synchronize()?;
        if returned != values[..values.len() / 2] {
            return Err(format!("step {step}: what was copied in did not come out").into());
        }
    }

    let stats = pool.stats();
    let (live, reserved) = (Bytes::new(stats.peak_live), Bytes::new(stats.peak_reserved));
    println!("{} allocations, at most {live} live and {reserved} reserved", stats.done.allocations);
    Ok(())
}
