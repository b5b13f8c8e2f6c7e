//! Sharded map from the address of a live block to a value, for concurrent use by layers.
//!
//! An upstream allocator may hand a freed block to another thread at once. So a layer removes a block before it
//! forwards the free, and reinserts it if that fails: an address is never in the map twice.

use makeroom_core::{Address, FastMap};

use crate::error::Result;
use crate::fork::Lock;

/// Number of shards.
const SHARDS: usize = 128;

/// Aligned to cache lines, to avoid false sharing between shards.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<V>(Lock<FastMap<u64, V>>);

/// A value for each live block.
#[derive(Debug)]
pub(crate) struct Blocks<V> {
    shards: Box<[Shard<V>]>,
}

impl<V> Blocks<V> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard(Lock::new(FastMap::default()))).collect() }
    }

    /// Addresses are multiples of 512, and neighbors are often used by the same thread.
    fn shard(&self, address: Address) -> &Lock<FastMap<u64, V>> {
        let spread = (address.0 >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[spread as usize % SHARDS].0
    }

    pub(crate) fn insert(&self, address: Address, value: V) -> Result<()> {
        self.shard(address).lock()?.insert(address.0, value);
        Ok(())
    }

    pub(crate) fn remove(&self, address: Address) -> Result<Option<V>> {
        Ok(self.shard(address).lock()?.remove(&address.0))
    }

    /// Reads or changes the value of a block, if it has one.
    pub(crate) fn look<R>(&self, address: Address, look: impl FnOnce(Option<&mut V>) -> R) -> Result<R> {
        Ok(look(self.shard(address).lock()?.get_mut(&address.0)))
    }
}
