//! Faiss on the GPU.
//!
//! | versions | wording |
//! |---|---|
//! | – 1.6 | `failed to cudaMalloc 1610612736 bytes (error 2 out of memory)` |
//! | 1.7.0 | `Failed to cudaMalloc 536870912 bytes on device 1 (error 2 out of memory`, then `Outstanding allocations:` by type |
//! | 1.7.1 – | `StandardGpuResources: alloc fail type FlatData dev 2 space Device stream 0 size 2764800000 bytes (cudaMalloc error out of memory [2])` |
//! | 1.11 – | the same after `Faiss device allocator fail`, with `Device free memory: 82400968704 bytes` |
//! | host | `failed to cudaHostAlloc 268435456 bytes (error 2 out of memory)` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::{captured_number, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &["StandardGpuResources", "fail type", "failed to cudaMalloc", "failed to cudaHostAlloc"],
    read,
};

static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)failed to cuda(?:Malloc|HostAlloc|MallocManaged|MallocHost) (\d+) (bytes)")
});
static TYPED_REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"fail type \w+ dev \d+ space \w+.*? size (\d+) (bytes)"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?:fail type \w+ dev|bytes on device) (\d+)"));
static FREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device free memory: (\d+) (bytes)"));
static OUTSTANDING: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Alloc type \w+: \d+ allocations, (\d+) (bytes)"));
static HOST: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)failed to cuda(?:HostAlloc|MallocHost)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let outstanding: Vec<Bytes> = passage.onward().filter_map(|line| find_size(&OUTSTANDING, line)).collect();
    let mut facts = Facts {
        request: Some(find_size(&TYPED_REQUEST, text).or_else(|| find_size(&REQUEST, text))?),
        device: DEVICE.captures(text).and_then(|found| captured_number(&found, 1)).map(DeviceIndex),
        free: find_size(&FREE, text),
        live: (!outstanding.is_empty()).then(|| outstanding.into_iter().sum()),
        ..Facts::new(Framework::Faiss, Resource::Device, passage)
    };
    if HOST.is_match(text) {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "Faiss could not allocate pinned host memory. The GPU's memory is not involved.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn every_wording_is_read() {
        for (text, device) in [
            (
                "RuntimeError: Error in void faiss::gpu::allocMemorySpaceV(faiss::gpu::MemorySpace, void**, size_t) at gpu/utils/MemorySpace.cpp:26: Error: 'err == cudaSuccess' failed: failed to cudaMalloc 4096 bytes (error 2 out of memory)",
                None,
            ),
            (
                "Error: 'err == cudaSuccess' failed: Failed to cudaMalloc 4096 bytes on device 1 (error 2 out of memory",
                Some(DeviceIndex(1)),
            ),
            (
                "Error: 'err == cudaSuccess' failed: StandardGpuResources: alloc\n fail type FlatData dev 2 space Device stream 0 size 4096 bytes (cudaMalloc error out of memory [2])",
                Some(DeviceIndex(2)),
            ),
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(
                (facts.framework_id(), facts.request, facts.device),
                ("faiss", Some(Bytes::kib(4)), device),
                "{text}"
            );
            assert!(facts.statements.is_empty());
        }
    }

    #[test]
    fn outstanding_allocations_are_live() {
        let facts = facts_in("Failed to cudaMalloc 4096 bytes on device 0 (error 2 out of memory\nOutstanding allocations:\nAlloc type FlatData: 2 allocations, 8192 bytes\nAlloc type Other: 1 allocations, 1024 bytes").unwrap();
        assert_eq!(facts.live, Some(Bytes::new(9216)));
    }

    #[test]
    fn pinned_memory_is_host_memory() {
        let facts = facts_in("failed to cudaHostAlloc 268435456 bytes (error 2 out of memory)").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::HostMemory);
    }
}
