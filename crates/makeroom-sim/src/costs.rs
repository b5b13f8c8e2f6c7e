//! What driver calls cost, as measured on an H200 (driver 580, CUDA 13.0).
//!
//! `cudaMalloc` with its `cudaFree` grows with the size; virtual memory costs per handle, and little by its size. The
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

/// Nanoseconds of `cuMemMap`, one handle of any size.
pub(crate) const MAP: u64 = 2_000;
/// Nanoseconds of `cuMemCreate`, by size.
const CREATE: [(u64, u64); 3] = [(2 << 20, 18_000), (256 << 20, 18_000), (1 << 30, 44_000)];
/// Nanoseconds of `cuMemSetAccess`, for each handle in its range, by the handle's size.
const ACCESS: [(u64, u64); 3] = [(2 << 20, 37_000), (256 << 20, 61_000), (1 << 30, 107_000)];
/// Nanoseconds of `cuMemUnmap`, by the handle's size.
const UNMAP: [(u64, u64); 3] = [(2 << 20, 23_000), (256 << 20, 28_000), (1 << 30, 41_000)];
/// Nanoseconds of `cuMemRelease`, by size.
const RELEASE: [(u64, u64); 3] = [(2 << 20, 15_000), (256 << 20, 144_000), (1 << 30, 870_000)];

/// Nanoseconds of one `cudaMalloc`, or of one `cudaFree`: half of both.
pub(crate) fn malloc_or_free(size: u64) -> u64 {
    interpolate(&MALLOC_AND_FREE, size) / 2
}

/// Nanoseconds to create one handle.
pub(crate) fn create(size: u64) -> u64 {
    interpolate(&CREATE, size)
}

/// Nanoseconds to open one handle for access.
pub(crate) fn access(size: u64) -> u64 {
    interpolate(&ACCESS, size)
}

/// Nanoseconds to unmap one handle.
pub(crate) fn unmap_one(size: u64) -> u64 {
    interpolate(&UNMAP, size)
}

/// Nanoseconds to give one handle back.
pub(crate) fn release(size: u64) -> u64 {
    interpolate(&RELEASE, size)
}

/// A cost between those that were measured, on a straight line; beyond the last one on its continuation, and below
/// the first one that.
fn interpolate(measured: &[(u64, u64)], size: u64) -> u64 {
    let (first, last) = (measured[0], measured[measured.len() - 1]);
    if size <= first.0 {
        return first.1;
    }
    let upper = measured.iter().position(|&(at, _)| size <= at).unwrap_or(measured.len() - 1);
    let ((size_below, cost_below), (size_above, cost_above)) = (measured[upper - 1], measured[upper]);
    let slope = (cost_above - cost_below) as f64 / (size_above - size_below) as f64;
    let cost = cost_below as f64 + slope * (size - size_below) as f64;
    debug_assert!(size > last.0 || cost <= last.1 as f64 + 1.0);
    cost as u64
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
        for (size, cost) in ACCESS {
            assert_eq!(access(size), cost);
        }
        assert_eq!((create(64 << 20), release(129 << 20)), (18_000, 79_500));
        assert_eq!(malloc_or_free(1), 42_000);
        assert!(malloc_or_free(16 << 30) > 6_000_000);
    }
}
