//! Measures the host time of the pool's policy per allocation and free, for the five patterns that PyTorch's native
//! allocator was measured with. Used by `bench/pool-speed`.
//!
//! The backing returns immediately, so only the policy is measured. Each figure is the best of many rounds, after a
//! warm-up round. PyTorch's figures are from another machine (the host of an H200): they are a guide, not a comparison.
#![expect(clippy::print_stdout, reason = "this program prints a table")]

use std::time::Instant;

use makeroom_core::{Address, StreamId};
use makeroom_place::pool::{Backing, Fence, Handle, Piece, Policy, Refused, Settings, Timeout};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The number of rounds per pattern, and of allocation/free pairs per round.
const ROUNDS: usize = 30;
const PAIRS: usize = 20_000;

/// A pattern, and the time that PyTorch's allocator took.
struct Pattern {
    name: &'static str,
    live: usize,
    smallest: u64,
    largest: u64,
    pytorch: f64,
}

const PATTERNS: [Pattern; 5] = [
    Pattern { name: "the same size again", live: 1, smallest: MIB, largest: MIB, pytorch: 422.0 },
    Pattern { name: "1000 of 512 B-1 MiB", live: 1000, smallest: 512, largest: MIB, pytorch: 931.0 },
    Pattern { name: "400 of 1-256 MiB", live: 400, smallest: MIB, largest: 256 * MIB, pytorch: 784.0 },
    Pattern { name: "1000 of 512 B-256 MiB", live: 1000, smallest: 512, largest: 256 * MIB, pytorch: 1104.0 },
    Pattern { name: "4000 of 512 B-64 MiB", live: 4000, smallest: 512, largest: 64 * MIB, pytorch: 1115.0 },
];

fn main() {
    println!(
        "{:<24}{:>10}{:>16}{:>10}{:>14}{:>17}",
        "pattern", "ns a pair", "PyTorch (H200)", "ratio", "calls a pair", "reserved ÷ live"
    );
    for pattern in &PATTERNS {
        let (nanoseconds, calls, reserved) = measure(pattern);
        println!(
            "{:<24}{nanoseconds:>10.0}{:>16.0}{:>10.2}{calls:>14.5}{reserved:>17.4}",
            pattern.name,
            pattern.pytorch,
            nanoseconds / pattern.pytorch
        );
    }
}

/// The lowest time of a pair in any round, in nanoseconds; the number of backing calls per pair in the last round; and
/// the peak of reserved memory divided by that of live memory.
fn measure(pattern: &Pattern) -> (f64, f64, f64) {
    let mut pool = Policy::new(Settings::default());
    let mut backing = Granting::default();
    let stream = StreamId(0);
    let mut random = Random(1);
    // Sizes and victims are chosen before the clock starts.
    let sizes: Vec<u64> = (0..PAIRS).map(|_| random.size(pattern.smallest, pattern.largest)).collect();
    let victims: Vec<usize> = (0..PAIRS).map(|_| random.below(pattern.live as u64) as usize).collect();
    let mut live: Vec<Address> = Vec::new();
    for index in 0..pattern.live {
        live.extend(
            pool.allocate_block(&mut backing, sizes[index % PAIRS], stream).map(|block| block.address),
        );
    }
    let mut best = f64::INFINITY;
    let mut calls = 0;
    for _ in 0..=ROUNDS {
        calls = backing.calls;
        let start = Instant::now();
        for (&size, &victim) in sizes.iter().zip(&victims) {
            let freed = pool.free(&mut backing, live[victim], stream);
            let block = pool.allocate_block(&mut backing, size, stream);
            if let (Ok(_), Ok(block)) = (freed, block) {
                live[victim] = block.address;
            }
        }
        best = best.min(start.elapsed().as_nanos() as f64 / PAIRS as f64);
        calls = backing.calls - calls;
    }
    let stats = pool.stats();
    (best, calls as f64 / PAIRS as f64, stats.peak_reserved as f64 / stats.peak_live as f64)
}

/// A linear congruential generator: deterministic.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// Every order of magnitude is equally likely.
    fn size(&mut self, smallest: u64, largest: u64) -> u64 {
        let share = self.below(1 << 20) as f64 / f64::from(1 << 20);
        let size = smallest as f64 * (largest as f64 / smallest as f64).powf(share);
        (size as u64).clamp(smallest, largest).max(KIB / 2)
    }
}

/// A device that grants everything immediately.
#[derive(Default)]
struct Granting {
    addresses: u64,
    names: u64,
    calls: u64,
}

impl Granting {
    fn name(&mut self) -> u64 {
        self.calls += 1;
        self.names += 1;
        self.names
    }
}

impl Backing for Granting {
    fn reserve(&mut self, size: u64) -> Result<Address, Refused> {
        self.addresses += (1 << 44) + size;
        Ok(Address(self.addresses.next_multiple_of(1 << 40)))
    }

    fn create(&mut self, _size: u64) -> Result<Handle, Refused> {
        Ok(Handle(self.name()))
    }

    fn release(&mut self, _piece: Piece) -> Result<(), Refused> {
        self.calls += 1;
        Ok(())
    }

    fn map(&mut self, _address: Address, _pieces: &[Piece]) -> Result<(), Refused> {
        self.calls += 1;
        Ok(())
    }

    fn unmap(&mut self, _address: Address, _piece: Piece) -> Result<(), Refused> {
        self.calls += 1;
        Ok(())
    }

    fn fence(&mut self, _stream: StreamId) -> Result<Fence, Refused> {
        Ok(Fence(self.name()))
    }

    fn passed(&mut self, _stream: StreamId) -> Fence {
        Fence(self.names)
    }

    fn wait(&mut self, _stream: StreamId, _mark: Fence, _patience: Timeout) -> Result<(), Refused> {
        Ok(())
    }
}
