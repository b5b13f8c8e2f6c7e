//! The definition of each cause in figures, once for error texts and recordings.
//!
//! A text and a recording know different things about a failed request. Both put what they know into a
//! [`Shortage`]; the functions here decide, and the callers only word the result. A definition returns `false`
//! where a figure it needs is unknown.

use makeroom_core::Bytes;

/// Memory of a PyTorch process outside its allocator: the driver's context, code, cuBLAS and cuDNN handles.
pub const CONTEXT_TYPICAL: Bytes = Bytes::mib(600);
/// The same with NCCL, workspaces and a desktop; anything above this belongs to another holder.
pub const CONTEXT_CEILING: Bytes = Bytes::mib(1434);
/// The largest GPU on sale in 2026 has 288 GB (NVIDIA B300, AMD MI355X).
pub const LARGEST_GPU: Bytes = Bytes::new(288_000_000_000);
/// No GPU and no machine with unified memory comes near this: a size overflowed or a shape is wrong.
pub const ABSURD: Bytes = Bytes::gib(16 << 10);
/// Hardly a machine has this much host memory for one piece: the size is more likely wrong than needed.
pub const ABSURD_ON_HOST: Bytes = Bytes::gib(1536);
/// A request this many times the device's memory is a wrong shape rather than a large batch.
const ABSURD_FACTOR: f64 = 1024.0;
/// Cached memory of this share of the reserved memory is more than the usual remainder between live blocks.
const LARGE_CACHE_SHARE: f64 = 0.05;
/// Figures of a text differ by this factor from what was meant.
const ROUNDING: f64 = 1.02;
/// A cache below this part of the request does not explain that it failed.
const LEAST_OF_REQUEST: f64 = 0.5;
/// A smaller cache is fragmentation too, if it is this many times the missing bytes …
const AMPLE_CACHE_FACTOR: f64 = 10.0;
/// … and worth a setting: this many bytes and this share of the reserved memory.
const AMPLE_CACHE: Bytes = Bytes::mib(512);
const AMPLE_CACHE_SHARE: f64 = 0.025;
/// Private pools (CUDA graphs, `MemPool`) decide from this share of the memory they are part of.
const PRIVATE_POOL_SHARE: f64 = 0.5;
/// A leak decides when at least this share of the live memory leaked.
const LEAK_SHARE: f64 = 0.25;

/// A failed request and the memory around it, as far as the input says.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shortage {
    /// The failed request.
    pub request: Bytes,
    /// The device's memory, or the limit in its place.
    pub total: Option<Bytes>,
    /// Memory that the allocator could still take from the driver.
    pub free: Option<Bytes>,
    /// Memory in use by the program.
    pub live: Option<Bytes>,
    /// Memory that the allocator holds unused.
    pub cached: Option<Bytes>,
    /// Device memory that no allocation can use: the context of this process.
    pub context: Bytes,
}

impl Shortage {
    /// `integer_or_shape_bug`: nothing has that much memory.
    pub fn is_absurd(&self) -> bool {
        self.request >= ABSURD || self.total.is_some_and(|total| self.request > total.scaled(ABSURD_FACTOR))
    }

    /// `request_exceeds_device`: the request alone is larger than the device, less the context that it takes to
    /// make the request at all. Where the device's size is unknown, larger than any GPU.
    pub fn exceeds_device(&self) -> bool {
        self.request > self.total.map_or(LARGEST_GPU, |total| total - self.context)
    }

    /// Bytes that had to be free in addition. A nearly full device fails requests that seem to fit, because the
    /// driver rounds and keeps pages of its own; then the shortfall is the whole request. Live memory beyond the device's size
    /// has to go as well.
    pub fn missing(&self) -> Option<Bytes> {
        let free = self.free?;
        let short = if free < self.request { self.request - free } else { self.request };
        let beyond = self.live.zip(self.total).map_or(Bytes::ZERO, |(live, total)| live - total);
        Some(short + beyond)
    }

    /// `fragmentation`: free and cached memory together suffice, and the cached part is larger than both what is
    /// missing and the usual remainder between live blocks.
    pub(crate) fn is_fragmented(&self) -> bool {
        let Some(cached) = self.cached else { return false };
        let share = cached.share_of(self.live.unwrap_or(Bytes::ZERO) + cached);
        let missing = self.request - self.free.unwrap_or(Bytes::ZERO);
        let is_ample = cached >= missing.scaled(AMPLE_CACHE_FACTOR)
            && cached >= AMPLE_CACHE
            && share >= AMPLE_CACHE_SHARE;
        cached >= missing && (share >= LARGE_CACHE_SHARE || is_ample)
    }

    /// The same, from the figures of a text alone: a cache that is small compared with the request is the usual
    /// remainder, even if the shortfall is small.
    pub fn is_fragmented_in_text(&self) -> bool {
        self.cached.is_some_and(|cached| cached >= self.request.scaled(LEAST_OF_REQUEST))
            && self.is_fragmented()
    }

    /// Whether the cache alone would hold the request. Texts round both figures.
    pub fn is_cache_enough(&self) -> bool {
        self.cached.is_some_and(|cached| cached.scaled(ROUNDING) >= self.request)
    }

    /// `live_data_fills_device`, beyond doubt: live memory and the request exceed the device.
    pub fn live_exceeds_device(&self) -> bool {
        matches!((self.live, self.total), (Some(live), Some(total)) if live + self.request > total)
    }
}

/// `non_framework_overhead` by private pools: they hold most of `whole` and at least the missing bytes.
pub fn private_pools_decide(pools: Bytes, whole: Bytes, missing: Bytes) -> bool {
    pools.share_of(whole) >= PRIVATE_POOL_SHARE && pools >= missing
}

/// `leak`: memory that grew from step to step is a substantial part of the live memory.
pub(crate) fn leak_decides(leaked: Bytes, live: Bytes) -> bool {
    leaked.share_of(live) >= LEAK_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortage(request: u64, free: u64, live: u64, cached: u64) -> Shortage {
        Shortage {
            request: Bytes::mib(request),
            total: Some(Bytes::mib(free + live + cached)),
            free: Some(Bytes::mib(free)),
            live: Some(Bytes::mib(live)),
            cached: Some(Bytes::mib(cached)),
            context: Bytes::ZERO,
        }
    }

    #[test]
    fn fragmentation_compares_the_cache_with_the_missing_bytes() {
        // A tenth is cached, which is more than the shortfall.
        assert!(shortage(400, 300, 9000, 1000).is_fragmented());
        // The same share, but less than the shortfall.
        assert!(!shortage(4000, 300, 9000, 1000).is_fragmented());
        // Small compared with the live memory, large compared with the missing bytes.
        assert!(shortage(260, 250, 40_000, 1700).is_fragmented());
        // The usual remainder between live blocks.
        assert!(!shortage(26, 12, 26_000, 220).is_fragmented());
        // More than the shortfall, but less than the whole request.
        assert!(shortage(24, 20, 80, 9).is_fragmented());
        assert!(!shortage(24, 20, 80, 9).is_fragmented_in_text());
        assert!(shortage(400, 300, 9000, 1000).is_fragmented_in_text());
        // Together with free memory the cache would do, alone it would not.
        assert!(shortage(460, 455, 3500, 330).is_fragmented_in_text());
        assert!(!shortage(460, 455, 3500, 330).is_cache_enough());
    }

    #[test]
    fn live_memory_beyond_the_device_is_missing_too() {
        let mut full = shortage(6 << 10, 0, 16 << 10, 0);
        assert_eq!(full.missing(), Some(Bytes::gib(6)));
        full.live = Some(Bytes::gib(20));
        assert_eq!(full.missing(), Some(Bytes::gib(10)));
        full.free = Some(Bytes::gib(2));
        assert_eq!(full.missing(), Some(Bytes::gib(8)));
    }

    #[test]
    fn only_a_request_larger_than_the_device_exceeds_it() {
        let mut request = shortage(60 << 10, 34 << 10, 0, 105 << 10);
        assert!(!request.exceeds_device());
        request.total = Some(Bytes::gib(48));
        assert!(request.exceeds_device());
        request.total = None;
        assert!(!request.exceeds_device());
        request.request = Bytes::gib(300);
        assert!(request.exceeds_device() && !request.is_absurd());
        request.request = Bytes::gib(17 << 10);
        assert!(request.is_absurd());
    }
}
