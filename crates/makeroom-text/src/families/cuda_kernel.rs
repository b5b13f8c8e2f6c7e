//! Errors of the driver and the compiler when a kernel needs more of a multiprocessor's resources than there are, or
//! when the in-kernel heap is full. They are not about the GPU's memory.
//!
//! | wording | where |
//! |---|---|
//! | `too many resources requested for launch`, `cudaErrorLaunchOutOfResources`, `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES` | registers × threads, or shared memory, at a launch |
//! | `uses too much parameter memory. 5.102 KiB exceeds the 4.000 KiB limit`, `Formal parameter space overflowed (5224 bytes required, max 4096 bytes allowed)` | the arguments of a kernel: CUDA.jl, ptxas |
//! | `too many blocks in cooperative launch` | blocks that do not fit the device at once |
//! | `uses too much shared data (0xc400 bytes, 0xc000 max)`, `… local memory` | ptxas, CUDA.jl |
//! | `local memory (100352) exceeds limit (49152) in function` | LLVM for AMD |
//! | `Amount of dynamic shared memory exceeds device limit (100352 > 49152 bytes)` | CUDA.jl |
//! | `Shared memory size limit exceeded: requested 262144, available: 232448` | XLA |
//! | `requested shared memory size of 100352 larger than allowed size of 49152` | IREE |
//! | `Threadgroup memory size (100352) exceeds the maximum threadgroup memory allowed (49152)` | Metal |
//! | `Register allocation failed with register count of '32'` | ptxas |
//! | `cudaLimitMallocHeapSize` | `malloc` inside a kernel |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::size;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "too many resources requested",
        "LaunchOutOfResources",
        "LAUNCH_OUT_OF_RESOURCES",
        "too many blocks in cooperative launch",
        "uses too much ",
        "local memory (",
        "Shared memory size limit exceeded",
        "shared memory exceeds",
        "shared memory allocation exceeded",
        "Shared memory requested exceeds",
        "requested shared memory size",
        "more dynamic shared memory than",
        "Threadgroup memory size",
        "MallocHeapSize",
        "device heap",
        "in-kernel heap",
        "Register allocation failed",
        "parameter space overflowed",
    ],
    read,
};

static SHARED_DATA: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"uses too much shared data \(0x([0-9a-f]+) bytes, 0x([0-9a-f]+) max"));
static BOTH_SIZES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)limit exceeded: requested (\d+), available:? (\d+)|local memory \((\d+)\) exceeds limit \((\d+)\)|\((\d+) > (\d+) bytes\)|memory size of (\d+)(?: bytes)? larger than allowed size of (\d+)|memory size \((\d+)\) exceeds the maximum \D+\((\d+)\)",
    )
});
/// Arguments of a kernel beyond their limit, in the words of CUDA.jl and of ptxas.
static PARAMETERS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)too much parameter memory|parameter space overflowed"));
static PARAMETER_SIZES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)(\d+(?:\.\d+)?) (KiB|bytes) (?:exceeds the|required, max) (\d+(?:\.\d+)?) (KiB|bytes) (?:limit|allowed)",
    )
});
/// Words that say that there is not enough, for anchors that are also said of what is.
static TOO_LITTLE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)resources requested|out_?of_?resources|cooperative launch|uses too much (?:shared|local|parameter|constant)|register allocation failed|space overflowed|exceed|larger than allowed|more dynamic shared memory than",
    )
});
static FULL_HEAP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)out of memory|exhausted|exceed|too small|failed|returned null|increase"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let mut facts = Facts::new(Framework::Cuda, Resource::Kernel, passage);
    let is_heap = line.contains("HeapSize") || line.contains("heap");
    if is_heap {
        if !FULL_HEAP.is_match(line) {
            return None;
        }
        facts.state(
            Cause::SharedMemoryOrKernelResource,
            Certainty::Likely,
            "The heap that kernels allocate from is full. Its size is fixed (8 MiB by default), however much GPU memory is free.",
        );
        return Some(facts);
    }
    if !TOO_LITTLE.is_match(line) {
        return None;
    }
    if PARAMETERS.is_match(line) {
        facts.state(Cause::SharedMemoryOrKernelResource, Certainty::Certain, parameters(text));
        return Some(facts);
    }
    let summary = match amounts(text) {
        Some((needed, limit)) => format!("A kernel needs {needed} of shared memory; the limit is {limit}."),
        None if line.contains("cooperative") => {
            "A cooperative launch requests more blocks than can be resident on the GPU at once.".to_owned()
        }
        None => {
            "A kernel could not be launched: its block needs more registers or shared memory than a multiprocessor has. The GPU's memory is not involved.".to_owned()
        }
    };
    facts.state(Cause::SharedMemoryOrKernelResource, Certainty::Certain, summary);
    Some(facts)
}

/// The sentence about arguments that a launch cannot pass.
fn parameters(text: &str) -> String {
    let sizes = PARAMETER_SIZES.captures(text);
    let sizes = sizes.and_then(|found| Some((size(&found[1], &found[2])?, size(&found[3], &found[4])?)));
    let amount = match sizes {
        Some((needed, limit)) => format!("The arguments of a kernel take {needed}; the limit is {limit}."),
        None => "The arguments of a kernel take more than a launch can pass.".to_owned(),
    };
    format!("{amount} The GPU's memory is not involved.")
}

/// The static shared memory that ptxas rejects, and its limit.
pub(crate) fn shared_data(text: &str) -> Option<(Bytes, Bytes)> {
    let found = SHARED_DATA.captures(text)?;
    let bytes = |group: usize| u64::from_str_radix(&found[group], 16).ok().map(Bytes::new);
    Some((bytes(1)?, bytes(2)?))
}

/// The needed and the available amount, where the text gives both.
fn amounts(text: &str) -> Option<(Bytes, Bytes)> {
    if let Some(amounts) = shared_data(text) {
        return Some(amounts);
    }
    let found = BOTH_SIZES.captures(text)?;
    let mut sizes =
        found.iter().skip(1).flatten().filter_map(|size| size.as_str().parse().ok()).map(Bytes::new);
    Some((sizes.next()?, sizes.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn launches_that_ask_for_too_much() {
        for text in [
            "CUDA error (step 3): too many resources requested for launch",
            "numba.cuda.cudadrv.driver.CudaAPIError: [701] Call to cuLaunchKernel results in CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
            "hipErrorLaunchOutOfResources: out of resources",
            "RuntimeError: CUDA error: too many blocks in cooperative launch",
            "INTERNAL: Shared memory requested exceeds device resources.",
            "XlaRuntimeError: RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 262144, available: 232448",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(facts.resource, Resource::Kernel, "{text}");
            let stated = &facts.statements[0];
            assert_eq!(
                (stated.cause, stated.certainty),
                (Cause::SharedMemoryOrKernelResource, Certainty::Certain),
                "{text}"
            );
        }
    }

    #[test]
    fn compilers_give_figures() {
        let text = "ptxas error   : Entry function '_Z15flash_attn_tileILi128E' uses too much shared data (0xc400 bytes, 0xc000 max)";
        let summary = &facts_in(text).unwrap().statements[0].summary;
        assert!(summary.contains("49.00 KiB") && summary.contains("48.00 KiB"), "{summary}");
        for text in [
            "ERROR: LoadError: Amount of dynamic shared memory exceeds device limit (100352 > 49152 bytes)",
            "error: local memory (100352) exceeds limit (49152) in function 'attention'",
            "INVALID_ARGUMENT; requested shared memory size of 100352 larger than allowed size of 49152",
            "Threadgroup memory size (100352) exceeds the maximum threadgroup memory allowed (49152)",
        ] {
            let summary = &facts_in(text).unwrap().statements[0].summary;
            assert!(summary.contains("98.00 KiB") && summary.contains("48.00 KiB"), "{summary}");
        }
    }

    #[test]
    fn arguments_have_a_limit_of_their_own() {
        for text in [
            "ERROR: Kernel invocation uses too much parameter memory.\n6.000 KiB exceeds the 4.000 KiB limit imposed by sm_75 / PTX v7.6.",
            "ptxas error   : Formal parameter space overflowed (6144 bytes required, max 4096 bytes allowed) in function 'step'",
        ] {
            let summary = &facts_in(text).unwrap().statements[0].summary;
            assert!(
                summary.contains("arguments of a kernel take 6.00 KiB; the limit is 4.00 KiB"),
                "{summary}"
            );
        }
    }

    #[test]
    fn the_heap_inside_kernels() {
        let text = "Error: malloc failed on the device, increase cudaLimitMallocHeapSize";
        assert_eq!(facts_in(text).unwrap().statements[0].certainty, Certainty::Likely);
        assert!(facts_in("cudaDeviceSetLimit(cudaLimitMallocHeapSize, 1 << 30)").is_none());
    }

    #[test]
    fn memory_is_not_taken() {
        assert_ne!(facts_in("CUDA error: out of memory").unwrap().resource, Resource::Kernel);
    }
}
