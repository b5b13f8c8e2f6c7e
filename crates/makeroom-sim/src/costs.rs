//! What driver calls cost, as measured on an H200 (driver 580, CUDA 13.0).
//!
//! `cudaMalloc` with its `cudaFree` grows with the size; virtual memory costs per handle, whatever its size. The
//! figures belong to that machine: they rank allocators, they do not predict another machine's clock.

/// Nanoseconds of `cudaMalloc` and its `cudaFree` together, by size.
const MALLOC_AND_FREE: [(u64, u64); 5] =
    [(1 << 20, 84_000), (20 << 20, 102_000), (256 << 20, 287_000), (1 << 30, 843_000), (8 << 30, 6_407_000)];
/// Nanoseconds to reserve a range of addresses.
pub(crate) const RESERVE: u64 = 3_000;
/// Nanoseconds to create, map and open one handle for access, for handles of 2 to 20 MiB.
const MAP_HANDLE: u64 = 18_000 + 2_000 + 37_000;
/// Nanoseconds to unmap one such handle and give it back.
const UNMAP_HANDLE: u64 = 23_000 + 15_000;
/// Nanoseconds of a stream-ordered allocation or free from a warm pool.
pub(crate) const POOL_CALL: u64 = 650;
/// Nanoseconds for such a pool to take one more chunk of 32 MiB from the device.
pub(crate) const POOL_GROW: u64 = 40_000;
/// Nanoseconds for such a pool to move a chunk to other addresses.
pub(crate) const POOL_MOVE: u64 = 52_000;

/// Nanoseconds of one `cudaMalloc`, or of one `cudaFree`: half of both.
pub(crate) fn malloc_or_free(size: u64) -> u64 {
    let (first, last) = (MALLOC_AND_FREE[0], MALLOC_AND_FREE[MALLOC_AND_FREE.len() - 1]);
    if size <= first.0 {
        return first.1 / 2;
    }
    let upper = MALLOC_AND_FREE.iter().position(|&(at, _)| size <= at).unwrap_or(MALLOC_AND_FREE.len() - 1);
    let ((size_below, cost_below), (size_above, cost_above)) =
        (MALLOC_AND_FREE[upper - 1], MALLOC_AND_FREE[upper]);
    let slope = (cost_above - cost_below) as f64 / (size_above - size_below) as f64;
    let cost = cost_below as f64 + slope * (size - size_below) as f64;
    debug_assert!(size > last.0 || cost <= last.1 as f64 + 1.0);
    cost as u64 / 2
}

/// Nanoseconds to map this many handles.
pub(crate) fn map(handles: u64) -> u64 {
    handles * MAP_HANDLE
}

/// Nanoseconds to unmap this many handles and give them back.
pub(crate) fn unmap(handles: u64) -> u64 {
    handles * UNMAP_HANDLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_pass_through_what_was_measured_and_grow_between() {
        for (size, both) in MALLOC_AND_FREE {
            assert_eq!(malloc_or_free(size), both / 2);
        }
        assert_eq!(malloc_or_free(1), 42_000);
        assert!(malloc_or_free(16 << 30) > 6_000_000);
    }
}
