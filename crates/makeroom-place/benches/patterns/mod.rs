//! The patterns of allocations that the pool's policy is measured with: those that PyTorch's native allocator was
//! measured with. The backing returns immediately, so only the policy runs.

use makeroom_core::{Address, StreamId};
use makeroom_place::pool::{Backing, Fence, Handle, Piece, Policy, Refused, Settings, Timeout};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The number of allocation/free pairs until the sizes repeat.
pub(crate) const PAIRS: usize = 20_000;
const STREAM: StreamId = StreamId(0);

/// Blocks of random sizes, of which a random one is replaced at a time.
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    live: usize,
    smallest: u64,
    largest: u64,
}

pub(crate) const PATTERNS: [Pattern; 5] = [
    Pattern { name: "the same size again", live: 1, smallest: MIB, largest: MIB },
    Pattern { name: "1000 of 512 B-1 MiB", live: 1000, smallest: 512, largest: MIB },
    Pattern { name: "400 of 1-256 MiB", live: 400, smallest: MIB, largest: 256 * MIB },
    Pattern { name: "1000 of 512 B-256 MiB", live: 1000, smallest: 512, largest: 256 * MIB },
    Pattern { name: "4000 of 512 B-64 MiB", live: 4000, smallest: 512, largest: 64 * MIB },
];

/// A pool in the middle of a pattern.
pub(crate) struct Work {
    pub(crate) pool: Policy,
    pub(crate) backing: Granting,
    /// Sizes and victims are chosen before anything is measured.
    pairs: Vec<(u64, usize)>,
    live: Vec<Address>,
    next: usize,
}

impl Work {
    pub(crate) fn new(pattern: &Pattern) -> Self {
        let mut random = Random(1);
        let sizes: Vec<u64> = (0..PAIRS).map(|_| random.size(pattern.smallest, pattern.largest)).collect();
        let pairs =
            sizes.iter().map(|&size| (size, random.below(pattern.live as u64) as usize)).collect::<Vec<_>>();
        let mut pool = Policy::new(Settings::default());
        let mut backing = Granting::default();
        let first = (0..pattern.live).map(|index| sizes[index % PAIRS]);
        let live = first
            .filter_map(|size| pool.allocate_block(&mut backing, size, STREAM).ok())
            .map(|block| block.address);
        let live = live.collect();
        Self { pool, backing, pairs, live, next: 0 }
    }

    /// Frees one block and allocates another.
    pub(crate) fn pair(&mut self) {
        let (size, victim) = self.pairs[self.next];
        self.next = (self.next + 1) % PAIRS;
        let freed = self.pool.free(&mut self.backing, self.live[victim], STREAM);
        let block = self.pool.allocate_block(&mut self.backing, size, STREAM);
        if let (Ok(_), Ok(block)) = (freed, block) {
            self.live[victim] = block.address;
        }
    }

    /// Repeats the whole pattern: the first rounds also take memory from the backing.
    pub(crate) fn rounds(&mut self, count: usize) {
        (0..count * PAIRS).for_each(|_| self.pair());
    }
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
pub(crate) struct Granting {
    addresses: u64,
    names: u64,
    pub(crate) calls: u64,
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
