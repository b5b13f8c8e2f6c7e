//! Makes a thread contend for the pool's lock until it takes its small blocks from an arena.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use makeroom_core::Address;
use makeroom_pool::{Allocator as _, Pool, PoolStream, Site, Watcher};

/// Holds the pool's lock on demand, until others have found it taken, and records reserved ranges.
#[derive(Debug)]
pub(crate) struct Gate {
    is_closed: AtomicBool,
    is_met: Barrier,
    ranges: Mutex<Vec<(Address, u64)>>,
}

impl Gate {
    pub(crate) fn new() -> Arc<Self> {
        let (is_closed, ranges) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { is_closed, is_met: Barrier::new(2), ranges })
    }

    /// The index of the pool's range that contains an address.
    pub(crate) fn range_of(&self, address: Address) -> Option<usize> {
        let holds = |&(first, bytes): &(Address, u64)| (first.0..first.0 + bytes).contains(&address.0);
        self.ranges.lock().unwrap().iter().position(holds)
    }
}

impl Watcher for Gate {
    fn reserved(&self, address: Address, bytes: u64) {
        self.ranges.lock().unwrap().push((address, bytes));
    }

    fn may_take(&self, _bytes: u64) -> bool {
        if self.is_closed.swap(false, Ordering::Relaxed) {
            self.is_met.wait();
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

/// A block from this thread's arena: it finds the pool's lock taken until it switches.
pub(crate) fn block_of_a_side(pool: &Pool, gate: &Gate, stream: &PoolStream, bytes: u64) -> Address {
    let here = Site::here();
    let allocate = || pool.allocate(bytes, stream.id(), here).unwrap();
    let range_of_core = gate.range_of(allocate());
    for _ in 0..50 {
        gate.is_closed.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            // More than is cached, so that the pool calls `may_take`.
            let more = pool.stats().cached + (8 << 20);
            scope.spawn(move || pool.allocate(more, stream.id(), here).unwrap());
            gate.is_met.wait();
            allocate();
        });
        let address = allocate();
        if gate.range_of(address) != range_of_core {
            return address;
        }
    }
    panic!("the thread never turned aside");
}
