//! The pool from Rust: buffers of changing sizes on two streams, an error with its account, a snapshot for viewers.
//!
//! ```sh
//! cargo run --release -p makeroom-pool --example pool [SNAPSHOT]
//! ```
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use makeroom_core::Bytes;
use makeroom_cuda::Driver;
use makeroom_pool::layers::{History, Recorded};
use makeroom_pool::{
    Allocator as _, DeviceBuffer, Options, Pool, PoolStream, SnapshotOf, write_torch_snapshot,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let history = History::new(10_000);
    let options =
        Options { limit: Some(Bytes::mib(512)), watcher: Some(history.clone()), ..Options::default() };
    let pool = Pool::new(Driver::load()?, 0, options)?;
    pool.make_current()?;
    let recorded = Arc::new(Recorded::new(pool.clone(), history.clone()));
    let (first, second) = (PoolStream::new(recorded.clone())?, PoolStream::new(recorded)?);

    for step in 0..50 {
        let values: Vec<u64> = (0..(1 + step * 7 % 40) << 17).collect();
        let buffer = DeviceBuffer::from_host(&first, &values)?;
        // The copy is on the second stream, which waits for the first and makes the first wait for it.
        let mut copy = DeviceBuffer::<u64>::uninitialized(&second, values.len())?;
        copy.as_mut_slice().copy_from(&buffer.as_slice())?;
        // Freed here, while the copy may still be running: its memory is reused when that is safe.
        drop(buffer);
        if copy.to_host()? != values {
            return Err(format!("step {step}: what was copied in did not come out").into());
        }
    }

    if let Err(error) = DeviceBuffer::<u8>::uninitialized(&first, 600 << 20) {
        println!("{error}\nhint: {}", error.hint().unwrap_or("none"));
    }
    let stats = pool.stats();
    let (live, reserved) = (Bytes::new(stats.peak_live), Bytes::new(stats.peak_reserved));
    println!("{} allocations, at most {live} live and {reserved} reserved", stats.done.allocations);
    let path = std::env::args().nth(1).unwrap_or_else(|| "pool.pickle".to_owned());
    let of_pool = SnapshotOf { pool: &pool, history: Some(&history), id: (0, 0) };
    write_torch_snapshot(BufWriter::new(File::create(&path)?), &[of_pool])?;
    println!("makeroom why {path}");
    Ok(())
}
