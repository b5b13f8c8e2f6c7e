//! A hash map for integer keys that are already well distributed (addresses, handles).
//!
//! The standard hasher resists chosen keys, but costs about 15 ns per lookup, which is most of the time of a replay.
//! This one multiplies and folds. It also mixes in a random seed per process, so that a hostile file cannot force
//! collisions.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map with integer keys from a file.
pub type FastMap<K, V> = HashMap<K, V, FastHasher>;

/// The hasher of [`FastMap`].
#[derive(Clone, Copy, Debug)]
pub struct FastHasher {
    state: u64,
}

impl Default for FastHasher {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Self { state: *SEED.get_or_init(|| RandomState::new().hash_one(0_u8)) }
    }
}

impl BuildHasher for FastHasher {
    type Hasher = Self;
    fn build_hasher(&self) -> Self {
        *self
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
        self.write_u64(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        // The 128-bit product folded onto itself: every input bit reaches every output bit.
        let product = u128::from(self.state ^ value) * u128::from(0x9e37_79b9_7f4a_7c15_u64);
        self.state = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_addresses_spread_over_all_bits() {
        let hasher = FastHasher::default();
        let mut low_bits = [0_u32; 16];
        for address in 0..16_000_u64 {
            low_bits[(hasher.hash_one(address * 512) & 15) as usize] += 1;
        }
        assert!(low_bits.iter().all(|&count| (800..1200).contains(&count)), "{low_bits:?}");
    }
}
