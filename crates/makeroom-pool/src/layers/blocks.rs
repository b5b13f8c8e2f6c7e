//! What a layer knows of the blocks in use, by address, for many threads at once.
//!
//! A block that is freed below may be handed out to another thread at once. So a layer forgets a block before it
//! passes the free on, and remembers it again where that failed: then no address is ever known twice.

use makeroom_core::{Address, FastMap};

use crate::error::Result;
use crate::fork::Lock;

/// How many locks the addresses share.
const SHARDS: usize = 64;

/// A value for each block in use.
#[derive(Debug)]
pub(crate) struct Blocks<V> {
    shards: Vec<Lock<FastMap<u64, V>>>,
}

impl<V> Blocks<V> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Lock::new(FastMap::default())).collect() }
    }

    /// Addresses are multiples of 512, and neighbours are often used by one thread.
    fn shard(&self, address: Address) -> &Lock<FastMap<u64, V>> {
        let spread = (address.0 >> 9).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        &self.shards[spread as usize % SHARDS]
    }

    pub(crate) fn insert(&self, address: Address, value: V) -> Result<()> {
        self.shard(address).lock()?.insert(address.0, value);
        Ok(())
    }

    pub(crate) fn remove(&self, address: Address) -> Result<Option<V>> {
        Ok(self.shard(address).lock()?.remove(&address.0))
    }

    /// Changes what is known of a block, if it is known.
    pub(crate) fn change(&self, address: Address, change: impl FnOnce(&mut V)) -> Result<()> {
        if let Some(value) = self.shard(address).lock()?.get_mut(&address.0) {
            change(value);
        }
        Ok(())
    }

    pub(crate) fn get(&self, address: Address) -> Result<Option<V>>
    where
        V: Copy,
    {
        Ok(self.shard(address).lock()?.get(&address.0).copied())
    }
}
