//! Layers over a pool: a limit of 64 MiB, overflow spilled to the host, and live memory tracked by site.
//!
//! ```sh
//! cargo run -p makeroom-pool --example layers
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use makeroom_core::Bytes;
use makeroom_cuda::Driver;
use makeroom_pool::layers::{Checked, Spill, SpillOptions, Track};
use makeroom_pool::{DeviceBuffer, Options, Pool, PoolStream};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(Driver::load()?, 0, Options { limit: Some(Bytes::mib(64)), ..Options::default() })?;
    pool.make_current()?;
    let spill = Arc::new(Spill::new(pool, 0, SpillOptions::with_quota(Bytes::mib(96)))?);
    let checked = Checked::in_debug_builds(spill.clone(), Bytes::mib(4), |found| println!("{found}"));
    let track = Arc::new(Track::new(checked));
    let stream = PoolStream::new(track.clone())?;

    let weights = DeviceBuffer::<f32>::zeroed(&stream, 10 << 20)?;
    for step in 1..=3 {
        let activations: Result<Vec<_>, _> =
            (0..4).map(|layer| DeviceBuffer::<f32>::zeroed(&stream, (layer + step) << 20)).collect();
        drop(activations?);
    }
    let _forgotten = std::mem::ManuallyDrop::new(DeviceBuffer::<u8>::zeroed(&stream, 5 << 20)?);
    if let Err(error) = DeviceBuffer::<u8>::zeroed(&stream, 120 << 20) {
        println!("{error}\nhint: {}\n", error.hint().unwrap_or("none"));
    }
    drop(weights);

    println!("{}", track.report());
    println!("{}", spill.spilled());
    for leak in track.leaks() {
        let plural = if leak.blocks == 1 { "" } else { "s" };
        println!("never freed: {} ({} block{plural}), allocated at {}", leak.live, leak.blocks, leak.site);
    }
    Ok(())
}
