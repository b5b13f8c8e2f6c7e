//! Data in pieces, compared with a plain copy from pinned memory: the speed of each. Run by `bench/run chunked`.
//!
//! ```sh
//! cargo run --release -p makeroom-pool --example chunked [SIZE, 4GiB]
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::time::Instant;

use makeroom_core::Bytes;
use makeroom_cuda::{DeviceMemory, Driver, PinnedKind, PinnedMemory};
use makeroom_pool::{ChunkedMap, ChunkedUpload, Options, Pool, PoolError};

type Failure = Box<dyn std::error::Error>;

/// The best of three times, after a warm-up.
fn seconds(mut what: impl FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    what()?;
    let mut least = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        what()?;
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}

fn main() -> Result<(), Failure> {
    let size: Bytes = std::env::args().nth(1).unwrap_or_else(|| "4GiB".to_owned()).parse()?;
    let driver = Driver::load()?;
    let pool = Pool::new(driver, 0, Options::default())?;
    pool.make_current()?;
    let input: Vec<u64> = (0..size.get() / 8).collect();
    let mut output = vec![0_u64; input.len()];
    let gigabytes = size.get() as f64 / 1e9;

    // The baseline: the same bytes from memory that is already pinned, one call per piece.
    let piece = size.min(Bytes::mib(512));
    let plain = {
        let pinned = PinnedMemory::allocate(driver, piece, PinnedKind::Portable)?;
        let target = DeviceMemory::allocate(driver, piece)?;
        let pieces = size.get().div_ceil(piece.get());
        seconds(|| (0..pieces).try_for_each(|_| Ok(target.region().write(&pinned)?)))?
    };
    let target = DeviceMemory::allocate(driver, piece)?;
    let pageable = seconds(|| {
        bytemuck::cast_slice::<u64, u8>(&input)
            .chunks(piece.get() as usize)
            .try_for_each(|part| Ok(target.region().write(part)?))
    })?;
    target.free()?;

    let map = ChunkedMap::new(&pool)?;
    let mut used = Bytes::ZERO;
    let for_each = seconds(|| {
        used = map.for_each(&input, |_| Ok(()))?.piece;
        Ok(())
    })?;
    let both_ways = seconds(|| {
        let pass_on = |mut chunk: makeroom_pool::Chunk<'_, u64, u64>| chunk.output.copy_from(&chunk.input);
        map.map(&input, &mut output, pass_on)?;
        Ok(())
    })?;
    if output != input {
        return Err("what went through did not come out".into());
    }
    let stream = pool.stream()?;
    let upload = ChunkedUpload::new(&pool)?;
    let uploaded = seconds(|| {
        match upload.from_slice(&stream, &input) {
            Ok(_buffer) => stream.synchronize()?,
            // Data larger than the device is the others' use case.
            Err(PoolError::OutOfMemory(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    })?;

    println!("{size} in pieces of {used}");
    println!("{:<44} {:>8} {:>8}", "", "GB/s", "ratio");
    let rows = [
        ("plain copy, pinned memory", plain),
        ("plain copy, the program's own memory", pageable),
        ("ChunkedMap::for_each", for_each),
        ("ChunkedMap::map, there and back", both_ways),
        ("ChunkedUpload::from_slice", uploaded),
    ];
    for (name, seconds) in rows {
        println!("{name:<44} {:>8.1} {:>8.2}", gigabytes / seconds, plain / seconds);
    }
    Ok(())
}
