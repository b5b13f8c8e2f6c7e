//! ONNX Runtime: its arena, and the CUDA calls below it.
//!
//! | wording | what it means |
//! |---|---|
//! | `bfc_arena.cc:368 … Failed to allocate memory for requested buffer of size 123` | the arena could not grow, on the device or on the host |
//! | `bfc_arena.cc:376 … Available memory of 512 is smaller than requested bytes of 4096` | the arena is at its own limit (`gpu_mem_limit`, `max_mem`) |
//! | `Creating BFCArena for Cuda with following configs: … memory limit: 123` | that limit |
//! | `CUDA failure 2: out of memory ; GPU=0 ; … ; expr=cudaMalloc(…)` | one of its own calls failed |
//! | `CUBLAS failure 3`, `CUDNN failure 4: CUDNN_STATUS_ALLOC_FAILED` | a library got no memory |

use std::sync::LazyLock;

use makeroom_core::{DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::{captured_number, size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "requested buffer of size",
        "smaller than requested bytes",
        "CUDA failure 2",
        "CUDNN failure",
        "CUBLAS failure",
    ],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)(?:requested buffer of size|smaller than requested bytes of) (\d+)"));
static LEFT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Available memory of (\d+) is smaller"));
static LIMIT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Creating BFCArena for Cuda\b.*?memory limit: (\d+)"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"; ?GPU=(\d+)"));
static PINNED: LazyLock<Regex> = LazyLock::new(|| pattern(r"expr=.*\bcuda(?:HostAlloc|MallocHost)\b"));
/// Calls that need little memory.
static SMALL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"expr=.*\b(?:cudaStreamCreate|cudaEventCreate|cublasCreate|cudnnCreate|cublasLtCreate)")
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let mut facts = Facts::new(Framework::OnnxRuntime, Resource::Device, passage);
    facts.device = DEVICE.captures(line).and_then(|found| captured_number(&found, 1)).map(DeviceIndex);
    facts.request = REQUEST.captures(text).and_then(|found| size(&found[1], "B"));
    if let Some(found) = LEFT.captures(text) {
        let (left, request) = (size(&found[1], "B")?, facts.request?);
        let summary = format!(
            "The arena has {left} left of its own limit, but {request} was requested; the GPU's memory is not the limit."
        );
        facts.state(Cause::ArtificialLimit, Certainty::Certain, summary);
        return Some(facts);
    }
    if line.contains("requested buffer of size") {
        // The same arena serves the CPU, and the text does not say which one failed.
        let is_cpu_only = passage.all().any(|line| line.contains("BFCArena for Cpu"))
            && !passage.all().any(|line| line.contains("BFCArena for Cuda"));
        facts.resource = if is_cpu_only { Resource::Host } else { Resource::Device };
        let limits = passage.before().filter_map(|line| LIMIT.captures(line));
        facts.limit = limits
            .filter_map(|found| captured_number(&found, 1))
            .find(|&limit| limit != u64::MAX)
            .map(makeroom_core::Bytes::new);
        return Some(facts);
    }
    if PINNED.is_match(line) {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "An allocation of pinned host memory failed; the GPU's memory is not the limit.",
        );
        return Some(facts);
    }
    let lower = line.to_ascii_lowercase();
    if !lower.contains("out of mem") && !lower.contains("alloc_failed") {
        return None;
    }
    if SMALL.is_match(line) {
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Possible,
            "The GPU is full: even a handle or a stream, which needs little memory, could not be created.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    const ARENA: &str = "[E:onnxruntime:, sequential_executor.cc:516 ExecuteKernel] Non-zero status code returned while running Conv node. Name:'Conv_7' Status Message: /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool, onnxruntime::WaitNotificationFn)";

    #[test]
    fn an_arena_at_its_own_limit() {
        let text = format!("{ARENA} Available memory of 512 is smaller than requested bytes of 4096");
        let facts = facts_in(&text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("onnxruntime", Some(Bytes::kib(4))));
        assert_eq!(facts.statements[0].cause, Cause::ArtificialLimit);
        assert_eq!(facts.statements[0].certainty, Certainty::Certain);
    }

    #[test]
    fn an_arena_that_cannot_grow() {
        let text = format!("{ARENA} Failed to allocate memory for requested buffer of size 1073741824");
        let facts = facts_in(&text).unwrap();
        assert_eq!((facts.request, facts.limit), (Some(Bytes::gib(1)), None));
        assert!(facts.statements.is_empty());
        let limited = format!(
            "Creating BFCArena for Cuda with following configs: initial_chunk_size_bytes: 1048576 memory limit: 2147483648 arena_extend_strategy: 0\n{text}"
        );
        assert_eq!(facts_in(&limited).unwrap().limit, Some(Bytes::gib(2)));
    }

    #[test]
    fn a_call_that_fails() {
        let text = "CUDA failure 2: out of memory ; GPU=1 ; hostname=box ; file=cuda_allocator.cc ; line=47 ; expr=cudaMalloc((void**)&p, size);";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.device), ("onnxruntime", Some(DeviceIndex(1))));
        assert!(facts.statements.is_empty());
        let pinned = text.replace("cudaMalloc((void**)", "cudaMallocHost((void**)");
        assert_eq!(facts_in(&pinned).unwrap().statements[0].cause, Cause::HostMemory);
        let stream = text.replace(
            "cudaMalloc((void**)&p, size)",
            "cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)",
        );
        let facts = facts_in(&stream).unwrap();
        assert_eq!(
            (facts.framework_id(), facts.statements[0].cause),
            ("onnxruntime", Cause::LiveDataFillsDevice)
        );
    }

    #[test]
    fn other_failures_are_not_taken() {
        assert!(facts_in("CUDNN failure 3: CUDNN_STATUS_BAD_PARAM ; GPU=0 ; hostname=x").is_none());
    }
}
