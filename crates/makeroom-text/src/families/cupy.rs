//! CuPy (and Chainer): its memory pool, and CUDA libraries that allocate outside of it.
//!
//! | versions | wording |
//! |---|---|
//! | 2 – 6 | `out of memory to allocate 200000000 bytes (total 1800000000 bytes)`, from 6 on with `, limit set to N bytes`; the total includes the request |
//! | 7 – | `Out of memory allocating 20,000,000 bytes (allocated so far: 3,000,000,000 bytes, limit set to: … bytes).` |
//! | all | `CuFFTError: CUFFT_ALLOC_FAILED`, `CUSOLVERError: CUSOLVER_STATUS_ALLOC_FAILED`, `CUBLASError: …` |
//! | all | `CUDARuntimeError: cudaErrorMemoryAllocation: out of memory` |
//!
//! Before it fails, CuPy gives every unused whole block back to the driver, so what it had then is in use. The
//! limit is checked before the driver is called.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, pattern};

use super::cuda_driver::{empty_device, empty_in_table};
use crate::facts::{Facts, Resource, Statement};
use crate::family::Family;
use crate::figures::captured_size;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "allocated so far:",
        "out of memory to allocate",
        "Out of memory allocating",
        "ALLOC_FAILED",
        "cudaErrorMemoryAllocation",
        "CUDA_ERROR_OUT_OF_MEMORY",
    ],
    read,
};

/// A pool below this does not fill any GPU.
const LEAST_FILLING: Bytes = Bytes::gib(1);

static POOL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Out of memory allocating ([\d,]+) (bytes) \(allocated so far: ([\d,]+) (bytes)(?:, limit set to:? ([\d,]+) (bytes))?",
    )
});
static OLD_POOL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"out of memory to allocate ([\d,]+) (bytes) \(total ([\d,]+) (bytes)(?:, limit set to:? ([\d,]+) (bytes))?",
    )
});
static LIBRARY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(CuFFT|CUSOLVER|CUBLAS|CUDNN|CUSPARSE)Error: \S*ALLOC_FAILED"));
static RUNTIME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?:cupy\S*|chainer\S*|^)\b(?:CUDARuntimeError|CUDADriverError): (?:cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY)",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let mut facts = Facts::new(Framework::CuPy, Resource::Device, passage);
    if let Some(found) = POOL.captures(text) {
        facts.request = captured_size(&found, 1);
        facts.live = captured_size(&found, 3);
        facts.limit = captured_size(&found, 5);
    } else if let Some(found) = OLD_POOL.captures(text) {
        facts.request = captured_size(&found, 1);
        facts.live = captured_size(&found, 3).zip(facts.request).map(|(total, request)| total - request);
        facts.limit = captured_size(&found, 5);
    } else if let Some(found) = LIBRARY.captures(text) {
        facts.state(
            Cause::CacheHeldByFramework,
            Certainty::Possible,
            format!("{} allocates outside CuPy's pool, which keeps the memory of deleted arrays.", &found[1]),
        );
    } else if RUNTIME.is_match(text) {
        if passage.before().take(12).any(|line| line.contains("pinned_memory")) {
            facts.resource = Resource::Host;
            facts.state(
                Cause::HostMemory,
                Certainty::Likely,
                "CuPy could not allocate pinned host memory. The GPU's memory is not involved.",
            );
        } else if let Some(used) = empty_in_table(passage) {
            let staged = Fix::new("copy the array to the GPU in parts: CuPy stages a copy in pinned host memory of the same size")
                .command("for i in range(0, len(x), rows): gpu[i:i + rows] = cupy.asarray(x[i:i + rows])   (rows = len(x) // 8)");
            let conclusion = Statement::new(Cause::HostMemory, Certainty::Possible, empty_device(used));
            facts.statements.push(conclusion.mended_by(vec![staged]));
            facts.ruled_out.push(Cause::OtherProcesses);
        }
    } else {
        return None;
    }
    state_limit(&mut facts);
    Some(facts)
}

fn state_limit(facts: &mut Facts) {
    if let (Some(limit), Some(live), Some(request)) = (facts.limit, facts.live, facts.request)
        && live + request > limit
        && !limit.is_zero()
    {
        facts.reserved = Some(live);
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Certain,
            format!("CuPy's pool has a limit of {limit} and holds {live}; {request} more failed before the driver was called."),
        );
    } else {
        facts.limit = facts.limit.filter(|&limit| limit > Bytes::ZERO);
        state_live(facts);
    }
}

/// CuPy returns every unused block to the driver before it fails, so a large pool is live arrays.
fn state_live(facts: &mut Facts) {
    if let (Some(live), Some(request)) = (facts.live, facts.request)
        && live >= LEAST_FILLING
        && live >= request
    {
        let summary = format!(
            "CuPy's arrays hold {live} and {request} more failed; the log does not give the GPU's size."
        );
        facts.lead(Cause::LiveDataFillsDevice, summary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn both_wordings_of_the_pool_are_read() {
        let new = facts_in("cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,048,576 bytes (allocated so far: 4,194,304 bytes).").unwrap();
        let old = facts_in("cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1048576 bytes (total 5242880 bytes)").unwrap();
        for facts in [new, old] {
            assert_eq!(facts.framework_id(), "cupy");
            assert_eq!((facts.request, facts.live), (Some(Bytes::mib(1)), Some(Bytes::mib(4))));
            assert!(facts.statements.is_empty());
        }
    }

    #[test]
    fn the_limit_fails_the_request_before_the_driver_does() {
        let facts = facts_in("Out of memory allocating 2,097,152 bytes (allocated so far: 7,340,032 bytes, limit set to: 8,388,608 bytes).").unwrap();
        assert_eq!(facts.limit, Some(Bytes::mib(8)));
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::ArtificialLimit, Certainty::Certain)
        );
    }

    #[test]
    fn a_library_beside_the_pool_is_only_possibly_starved_by_it() {
        let facts = facts_in("cupy.cuda.cufft.CuFFTError: CUFFT_ALLOC_FAILED").unwrap();
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::CacheHeldByFramework, Certainty::Possible)
        );
    }

    #[test]
    fn a_large_pool_is_live_data() {
        let facts = facts_in("OutOfMemoryError: Out of memory allocating 1,048,576 bytes (allocated so far: 4,294,967,296 bytes).").unwrap();
        let stated = &facts.statements[0];
        assert!(stated.leads && stated.cause == Cause::LiveDataFillsDevice);
    }

    #[test]
    fn a_pool_larger_than_any_gpu_is_a_wrong_counter() {
        let facts = facts_in("OutOfMemoryError: Out of memory allocating 1,048,576 bytes (allocated so far: 3,298,534,883,328 bytes).").unwrap().without_wrapped_figures();
        assert_eq!((facts.live, facts.evidence.len()), (None, 1));
        assert_eq!(facts.statements[0].cause, Cause::IntegerOrShapeBug);
    }

    #[test]
    fn an_error_without_figures_states_nothing() {
        let facts = facts_in(
            "cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory",
        )
        .unwrap();
        assert_eq!((facts.framework_id(), facts.statements.len()), ("cupy", 0));
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(
            facts_in("RESOURCE_EXHAUSTED: Out of memory allocating 512 bytes.").unwrap().framework_id(),
            "cupy"
        );
    }
}
