//! The driver's bare "out of memory", as every program that calls it prints it. Without figures it says only that
//! a call failed; the driver returns it for pinned host memory too, and some texts show that call. What the program
//! adds (the call, sizes, its own line) is read by `call.rs` and `site.rs`.
//!
//! | wording | who |
//! |---|---|
//! | `CUDA error: out of memory`, `CUDA driver error: out of memory`, `torch.AcceleratorError: …` | PyTorch outside its allocator |
//! | `CUDA_ERROR_OUT_OF_MEMORY`, `cudaErrorMemoryAllocation`, `hipErrorOutOfMemory` | wrappers in all languages |
//! | `CUDA runtime error: out of memory (2)`, `cuda runtime error (2) : out of memory` | Torch 7, PyTorch before 1.0 |
//! | `(-217:Gpu API call) out of memory in function …` | OpenCV |
//! | `cudaMalloc(&p, 4294967296) failed: out of memory`, `GPUassert: out of memory solver.cu 214`, `solver.cu:214, code: 2, reason: out of memory` | a program's own check |
//! | `cudaMallocHost`, `cudaHostAlloc`, `cudaHostRegister`, `pin_memory` in the failing line | pinned host memory |
//! | `cuCtxCreate`, `cuDevicePrimaryCtxRetain` in the failing line | not even a context fitted |

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::call::Call;
use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::log::Passage;
use crate::site::source_line;
use crate::smi_table::{self, DeviceUse};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "CUDA error: out of memory",
        "CUDA driver error: out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "ERROR_OUT_OF_MEMORY",
        "ErrorMemoryAllocation",
        "ErrorOutOfMemory",
        "runtime error: out of memory",
        "runtime error (2)",
        "Gpu API call) out of memory",
        "Gpu API call (out of memory",
        "CUDA_ERROR_OUT_OF_M",
        "cuda failed with error 2",
        "cuda failed with error out of memory",
        "cuda error 2",
        "cuda failure 2",
        "cuda failure: status=2",
        "cuda error: 2",
        "cuda error = 2",
        "cuda error (2)",
        "cuda error no",
        "cuda error code",
        "API error = 0002",
        "cuda driver error 2",
        "cuda runtime error 2",
        "cuda driver call failed: 2",
        "cudaError_t 2",
        "cudaError 2",
        "CUresult 2",
        "cuda error code=2",
        "code=2(cuda",
        "cuMemCreate",
        "cudaMalloc",
        "hipMalloc",
        "cuMemAlloc",
        "cuda error: out of memory",
        "returned (2): Out of memory",
        "cudaMallocHost",
        "CUDA_ERROR 2",
        "cuCtxCreate",
        "cuDevicePrimaryCtxRetain",
        "out of memory",
    ],
    read,
};

/// The anchors that are CUDA's in any line; the last of the family's anchors is anybody's.
const OWN_ANCHORS: &[&str] = FAMILY.anchors.split_at(FAMILY.anchors.len() - 1).0;

/// A call that allocates pinned host memory.
static PINNED_CALL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\b(?:cudaMallocHost|hipHostMalloc|cuMemAllocHost|cuMemHostAlloc)\b"));
/// Words for pinned memory in a line of the program.
static PINNED_SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"pin_memory ?= ?True|\bpin_memory\(|\bpagelocked_\w+\(|alloc_pinned_memory|\bcudaHostAlloc\b|CachingHostAllocator|\bcuda?HostRegister\b|\bcuMemHostRegister\b",
    )
});
/// Words that make pinned memory thinkable.
static PINNED_HINT: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)pin[_ ]memory|pinned|non[_ ]?blocking"));
/// What makes a line that only says "out of memory" CUDA's.
static CUDA_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\b(?:cuda|hip)[A-Z]\w+|(?i:\bcuda (?:failed|failure|error|runtime|driver|context|malloc))|\bcu(?:Mem|Ctx|Module|Launch)\w+|\.(?:cuh?|hip)\b|\bGPUassert\b|\bcode: ?2, reason\b",
    )
});
/// The number of the error alone.
static ERROR_TWO: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bAPI error = 0002\b|\bcuda (?:driver |runtime |failed with )?(?:error|failure|call failed)(?: code| no\.?| number)?[\s:=#(]{1,4}(?:status ?= ?|code ?=? ?)?2(?:$|[\s),.;:](?:\D|$))|\b(?:cudaError(?:_t)?|CUresult)[\s:=(]{1,3}2(?:$|[\s),.;:])|\bcode=2\(cuda|\bCUDA_ERROR[\s:=(]{1,3}2(?:$|[\s),.;:](?:\D|$))|\bfailed call to cu(?:Mem(?:Alloc|Create)|CtxCreate|DevicePrimaryCtxRetain)\w*\W{1,3}2\b|\b(?:cuda|cu|hip)(?:Malloc|Mem(?:Alloc|Create))\w*(?:\([^)]*\))? (?:failed|returned|error)\W{0,3}(?:with )?(?:error )?(?:code )?2\b",
    )
});
/// A line of source code that handles the error.
static SOURCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"=>\s*\{?\s*$|\{\s*$|\bif ?\(.*== ?(?:cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory)\b|^\s*(?:if|case|catch|return)\b.*[:{;]\s*$",
    )
});
/// Another error in the same line: then it is not about memory.
static OTHER_ERROR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)illegal_?address|illegal memory access"));
static HIP_WORDS: LazyLock<Regex> = LazyLock::new(|| pattern(r"\bhip[A-Z]\w+|\.hip\b"));
/// A line above the error that announces it.
static PLACE_ABOVE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\b(?:error|failure|failed|fatal)\b"));
/// A line below the error that names where it was.
static PLACE_BELOW: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\s*(?:at|in|from|file|File|line|@|-->)\b?"));
static CONTEXT_CALL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(?:cuCtxCreate\w*|cuDevicePrimaryCtxRetain|hipCtxCreate)\b|\b(?:creat(?:e|ing)|initializing)\b.{0,20}\b(?:cuda|gpu|device) context",
    )
});
/// A context that failed, in a line that was cut off before the reason.
static NO_REASON: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\bfailed call to cu(?:DevicePrimaryCtxRetain|CtxCreate)\w*\W*$"));
/// Lines under a line of source that point at its parts.
static MARKS: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[\s~^]*$"));

/// A device with this share in use is full.
const FULL: f64 = 0.95;

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let lower = line.to_ascii_lowercase();
    if SOURCE.is_match(line) || OTHER_ERROR.is_match(line) {
        return None;
    }
    let is_refusal = ["out of memory", "out_of_m", "memoryallocation", "outofmemory"]
        .iter()
        .any(|words| lower.contains(words))
        || ERROR_TWO.is_match(line)
        || (NO_REASON.is_match(line) && full_in_table(passage).is_some());
    let is_cuda = OWN_ANCHORS.iter().any(|anchor| lower.contains(&anchor.to_ascii_lowercase()));
    if !is_refusal || !(is_cuda || CUDA_WORDS.is_match(line)) {
        return None;
    }
    let framework = if HIP_WORDS.is_match(line) { Framework::Hip } else { Framework::Cuda };
    let mut facts = Facts::new(framework, Resource::Device, passage);
    let call = Call::read(line);
    (facts.request, facts.free, facts.total) = (call.request, call.free, call.total);
    facts.site = source_line(line).or_else(|| {
        let below = passage.onward().nth(1).filter(|below| PLACE_BELOW.is_match(below));
        let above = passage.before().next().filter(|above| PLACE_ABOVE.is_match(above));
        below.and_then(source_line).or_else(|| above.and_then(source_line))
    });
    // The innermost line of the program stands right above the error.
    let source = passage.before().find(|line| !MARKS.is_match(line)).unwrap_or("");
    if PINNED_CALL.is_match(line) || PINNED_CALL.is_match(source) {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "The call that failed allocates pinned host memory. The GPU's memory is not involved.",
        );
    } else if PINNED_SOURCE.is_match(line) || PINNED_SOURCE.is_match(source) {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Likely,
            "The line that failed pins host memory; if that fails, the driver returns the same error as for GPU memory.",
        );
    } else if PINNED_HINT.is_match(line) || passage.before().take(12).any(|line| PINNED_HINT.is_match(line)) {
        facts.state(
            Cause::HostMemory,
            Certainty::Possible,
            "The log mentions pinned memory or asynchronous copies: the driver also returns this error when it cannot pin host memory.",
        );
    } else if let Some(used) = empty_in_table(passage).filter(|_| facts.request.is_none()) {
        facts.state(Cause::HostMemory, Certainty::Possible, empty_device(used));
    } else if CONTEXT_CALL.is_match(line) && line.contains("nvenc") {
        // Each encoder opens its own context, so the holder may be the same program.
        facts.state(
            Cause::OtherProcesses,
            Certainty::Possible,
            "The driver had no memory for an encoder's context: other processes or earlier encoders hold the GPU's memory.",
        );
    } else if CONTEXT_CALL.is_match(line) || CONTEXT_CALL.is_match(source) {
        facts.lead(
            Cause::OtherProcesses,
            "The driver had no memory for a context. This process holds nothing yet, so other processes hold the GPU's memory.",
        );
    } else if facts.request.is_none()
        && let Some(used) = full_in_table(passage)
    {
        facts.lead(
            Cause::OtherProcesses,
            format!("The table in this log shows {} of {} in use on the GPU; other processes hold it, unless the table was printed while this program ran.", used.used, used.total),
        );
    }
    Some(facts)
}

/// The first device of a table around the error, where it is full and the table does not say of what.
fn full_in_table(passage: &Passage<'_>) -> Option<DeviceUse> {
    let table = smi_table::tables(passage.all()).into_iter().next()?;
    let first = *table.devices.first()?;
    (table.processes.is_empty() && first.used.share_of(first.total) >= FULL).then_some(first)
}

/// A device with at most this share in use is empty.
const EMPTY: f64 = 0.1;

/// The only device of a table around the error, where nothing is on it.
pub(super) fn empty_in_table(passage: &Passage<'_>) -> Option<DeviceUse> {
    let table = smi_table::tables(passage.all()).into_iter().next()?;
    let &[only] = table.devices.as_slice() else { return None };
    (only.used.share_of(only.total) <= EMPTY).then_some(only)
}

/// An error of the driver on a device that is shown to be empty.
pub(super) fn empty_device(used: DeviceUse) -> String {
    format!(
        "The table in this log shows only {} of {} in use on the GPU. The driver also returns this error when it cannot pin host memory for a copy.",
        used.used, used.total
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_bare_refusal_says_nothing() {
        for text in [
            "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
            "RuntimeError: CUDA driver error: out of memory",
            "pycuda._driver.MemoryError: cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY",
            "simulation.cu(81): cudaErrorMemoryAllocation: out of memory",
            "THCudaCheck FAIL file=torch/csrc/cuda/Module.cpp line=32 error=2 : cuda runtime error (2) : out of memory",
            "OpenCV(4.5.1) error: (-217:Gpu API call) out of memory in function 'allocate'",
            "OpenCV Error: Gpu API call (out of memory) in allocate, file gpu_mat.cpp, line 12",
            "transcribe: cuda failed with error 2",
            "render: CUDA error 2",
            "cuMemCreate failed: 2",
            "CUDA_ERROR 2 in step 7",
            "failed call to cuMemAlloc: 2",
            "solver: CUDA error: 2",
            "CUDA Error Code : 2",
            "Cuda failure: status=2 in CreateBuffer at line 12",
            "Cuda driver error 2 in call at file 'memory.h' in line 15.",
            "kernel.cpp:9: cudaError_t 2",
            "CUDA error at wave.cu:31 code=2(cudaErrorMemoryAllocation) \"cudaMalloc(&p, n)\"",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework_id(), facts.resource), ("cuda", Resource::Device), "{text}");
            assert!(facts.statements.is_empty(), "{text}");
        }
    }

    #[test]
    fn pinned_memory_in_the_failing_line() {
        let text = "Traceback (most recent call last):\n  File \"load.py\", line 5, in <module>\n    batch = torch.empty(2**40, dtype=torch.uint8, pin_memory=True)\n            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\ntorch.AcceleratorError: CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation' in the documentation.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.resource, facts.line), (Resource::Host, 5));
        assert_eq!(facts.statements[0].certainty, Certainty::Likely);
        let text = "cuda runtime error (2) : out of memory at aten/src/THC/THCCachingHostAllocator.cpp:278";
        assert_eq!(facts_in(text).unwrap().statements[0].certainty, Certainty::Likely);
        let text =
            "error at copy.cu:12: cudaMallocHost(&p, n) failed: cudaErrorMemoryAllocation (out of memory)";
        assert_eq!(facts_in(text).unwrap().statements[0].certainty, Certainty::Certain);
        let text = "with non_blocking=True I get RuntimeError: CUDA error: out of memory";
        assert_eq!(facts_in(text).unwrap().statements[0].certainty, Certainty::Possible);
    }

    #[test]
    fn a_context_that_does_not_fit() {
        let text = "[AVHWDeviceContext @ 0x55d0] cu->cuCtxCreate(&hwctx->cuda_ctx, flags, device) failed -> CUDA_ERROR_OUT_OF_MEMORY: out of memory";
        for (text, leads) in
            [(text.to_owned(), true), (text.replace("AVHWDeviceContext", "h264_nvenc"), false)]
        {
            let stated = &facts_in(&text).unwrap().statements[0];
            assert_eq!((stated.cause, stated.certainty), (Cause::OtherProcesses, Certainty::Possible));
            assert_eq!(stated.leads, leads, "{text}");
        }
    }

    #[test]
    fn source_and_other_errors_are_not_taken() {
        for text in [
            "    if (status == cudaErrorMemoryAllocation) {",
            "if (err == cudaErrorMemoryAllocation) { fprintf(stderr, \"out of memory\"); }",
            "Err(CUDA_ERROR_OUT_OF_MEMORY) => {",
            "std::bad_alloc: CUDA error at: cuda_memory_resource.hpp:70: cudaErrorIllegalAddress an illegal memory access was encountered",
            "CUDA error 209: no kernel image",
            "CUDA error: 2024-01-01 was the last run",
            "CUDA error code 2.5 is not a number of ours",
        ] {
            assert!(facts_in(text).is_none(), "{text}");
        }
    }

    #[test]
    fn pytorchs_allocator_is_not_taken() {
        let text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.";
        assert_eq!(facts_in(text).unwrap().framework_id(), "pytorch");
    }
}
