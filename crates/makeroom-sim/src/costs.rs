//! Costs of driver calls, as measured on an H200 (driver 580, CUDA 13.0).
//!
//! The cost of `cudaMalloc` and `cudaFree` grows with the size; virtual memory costs per handle, and hardly depends on
//! the size. The figures are those of that machine: they rank allocators, but do not predict times on other machines.

/// Nanoseconds of `cudaMalloc` and its `cudaFree` together, by size.
const MALLOC_AND_FREE: [(u64, u64); 5] =
    [(1 << 20, 84_000), (20 << 20, 102_000), (256 << 20, 287_000), (1 << 30, 843_000), (8 << 30, 6_407_000)];
/// Nanoseconds to reserve a range of addresses.
pub(crate) const RESERVE: u64 = 3_000;
/// Nanoseconds to create and map one handle and set its access, for handles of 2 to 20 MiB.
const MAP_HANDLE: u64 = 18_000 + 2_000 + 37_000;
/// Nanoseconds to unmap and release one such handle.
const UNMAP_HANDLE: u64 = 23_000 + 15_000;
/// Nanoseconds of a stream-ordered allocation or free from a warm pool.
pub(crate) const POOL_CALL: u64 = 650;
/// Nanoseconds for such a pool to allocate another chunk of 32 MiB from the device.
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

/// Nanoseconds to set access for one handle.
pub(crate) fn access(size: u64) -> u64 {
    interpolate(&ACCESS, size)
}

/// Nanoseconds to unmap one handle.
pub(crate) fn unmap_one(size: u64) -> u64 {
    interpolate(&UNMAP, size)
}

/// Nanoseconds to release one handle.
pub(crate) fn release(size: u64) -> u64 {
    interpolate(&RELEASE, size)
}

/// Interpolates linearly between measured costs, extrapolates beyond the last one, and uses the first one below it.
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

/// Nanoseconds to unmap and release this many handles.
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
