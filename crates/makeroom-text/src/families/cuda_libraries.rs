//! CUDA's libraries when they find no memory: a status and rarely a figure. They allocate from the driver, outside
//! the framework's pool; whether the pool, another process or the libraries hold the rest, the status does not show.
//! So nothing here is more than possible.
//!
//! | library | wordings |
//! |---|---|
//! | cuBLAS | `CUBLAS_STATUS_ALLOC_FAILED`, `CUBLAS_STATUS_NOT_INITIALIZED when calling cublasCreate(handle)` |
//! | cuDNN | `CUDNN_STATUS_ALLOC_FAILED`, `CUDNN_STATUS_NOT_SUPPORTED` about a workspace, `…_ALLOCATION_FAILED` in 9 |
//! | cuFFT, cuSOLVER, cuSPARSE, cuRAND | `CUFFT_ALLOC_FAILED`, `CUSOLVER_STATUS_ALLOC_FAILED`, `CURAND_STATUS_ALLOCATION_FAILED` |
//! | NCCL | `NCCL WARN Cuda failure 'out of memory'`, `Failed to CUDA calloc 6291456 bytes`, `ncclUnhandledCudaError` + `Cuda failure 2 'out of memory'` |

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource, Statement};
use crate::family::Family;
use crate::figures::{binary_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "CUBLAS_STATUS_",
        "CUDNN_STATUS_",
        "CUFFT_ALLOC_FAILED",
        "CUSOLVER_STATUS_ALLOC_FAILED",
        "CUSPARSE_STATUS_ALLOC_FAILED",
        "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
        "CURAND_STATUS_ALLOCATION_FAILED",
        "HIPBLAS_STATUS_ALLOC_FAILED",
        "Cuda failure",
        "Failed to CUDA calloc",
        "ncclUnhandledCudaError",
    ],
    read,
};

/// The library was being set up.
static CREATION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:cublas|cudnn|cusolverdn|cusparse)(?:create|\.create)|_get_handle|createhandle")
});
static NCCL_REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Failed to CUDA (?:calloc|malloc|host alloc)(?: async)? (\d+) (bytes)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let upper = line.to_ascii_uppercase();
    if upper.contains("NCCL") || line.contains("Cuda failure") || line.contains("Failed to CUDA") {
        return read_nccl(passage);
    }
    let refused = ["ALLOC_FAILED", "ALLOCATION_FAILED", "INSUFFICIENT_RESOURCES"]
        .iter()
        .any(|words| upper.contains(words));
    let at_creation = upper.contains("NOT_INITIALIZED")
        && std::iter::once(line).chain(passage.before().take(2)).any(|line| CREATION.is_match(line));
    let workspace = upper.contains("NOT_SUPPORTED") && upper.contains("WORKSPACE");
    if !(refused || at_creation || workspace) {
        return None;
    }
    let mut facts = Facts::new(library(&upper), Resource::Device, passage);
    let summary = if at_creation {
        "The library could not be initialized, usually because the framework's pool left no memory for it; the log does not show what holds the GPU's memory."
    } else {
        "The library could not allocate its handle or workspace, which are outside the framework's pool; the log does not show what holds the GPU's memory."
    };
    facts.state(Cause::NonFrameworkOverhead, Certainty::Possible, summary);
    Some(facts)
}

fn library(upper: &str) -> Framework {
    let known = [
        ("CUBLAS", Framework::CuBlas),
        ("CUDNN", Framework::CuDnn),
        ("CUFFT", Framework::CuFft),
        ("CUSOLVER", Framework::CuSolver),
        ("CUSPARSE", Framework::CuSparse),
        ("CURAND", Framework::CuRand),
    ];
    known
        .iter()
        .find(|(prefix, _)| upper.contains(prefix))
        .map_or(Framework::HipBlas, |&(_, library)| library)
}

/// NCCL names the call's error; anything but memory is not read.
fn read_nccl(passage: &Passage<'_>) -> Option<Facts> {
    let is_about_memory = |line: &str| {
        let lower = line.to_ascii_lowercase();
        lower.contains("cuda failure") && lower.contains("out of memory") || lower.contains("failed to cuda")
    };
    if !passage.onward().take(4).any(is_about_memory) {
        return None;
    }
    let mut facts = Facts::new(Framework::Nccl, Resource::Device, passage);
    facts.request = passage.onward().take(4).find_map(|line| find_size(&NCCL_REQUEST, line));
    if let Some(cache) = cache_of_pytorch(passage) {
        facts.statements.push(cache);
    }
    facts.lead(
        Cause::NonFrameworkOverhead,
        "NCCL could not allocate its buffers, which are outside the framework's pool; the log does not show what holds the GPU's memory.",
    );
    Some(facts)
}

/// PyTorch's cache where a text shows that it is far larger than live memory. NCCL allocates outside PyTorch's pool and
/// cannot use it.
fn cache_of_pytorch(passage: &Passage<'_>) -> Option<Statement> {
    /// A cache this many times live memory is not needed.
    const FAR_MORE: f64 = 1.5;
    static FIGURES: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)located(?: memory)?[ =:]{1,3}([\d.]+)(?: ?[-–] ?[\d.]+)? ?([GM])(?:i?B)?\b[^\n]{0,40}?\breserved(?: memory)?[ =:]{1,3}([\d.]+)(?: ?[-–] ?[\d.]+)? ?([GM]?)(?:i?B)?\b",
        )
    });
    static TOLD: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:caching allocator|pytorch['’]?s? cache|cached memory|reserved memory|the cache|the pool)\b[^.\n]{0,60}\b([2-9]|\d+\.\d+|[1-9]\d)(?: ?[x×]| times)",
        )
    });
    let fixes = || {
        vec![
            Fix::new("let PyTorch's cache shrink: expandable segments reuse freed memory for blocks of any size, and unused blocks go back to the driver above this share")
                .command("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,garbage_collection_threshold:0.7"),
            Fix::new("limit PyTorch's pool, so that part of the GPU's memory is left for NCCL")
                .command("torch.cuda.set_per_process_memory_fraction(0.9)"),
            Fix::new("release the cache before the first collective creates its communicators")
                .command("torch.cuda.empty_cache()"),
        ]
    };
    let figures = passage.all().find_map(|line| {
        let found = FIGURES.captures(line)?;
        let live = binary_size(&found[1], &found[2])?;
        let unit = if found[4].is_empty() { &found[2] } else { &found[4] };
        Some((live, binary_size(&found[3], unit)?))
            .filter(|(live, reserved)| *reserved > live.scaled(FAR_MORE))
    });
    if let Some((live, reserved)) = figures {
        let summary = format!(
            "PyTorch's cache holds {reserved}, although only {live} is live; NCCL allocates outside that pool, and no memory is left for it."
        );
        let stated =
            Statement::new(Cause::CacheHeldByFramework, Certainty::Likely, summary).mended_by(fixes());
        return Some(Statement { bytes: Some(reserved - live), ..stated });
    }
    passage.all().find(|line| TOLD.is_match(line)).map(|_| {
        let summary = "The log says that PyTorch's cache holds several times its live memory; NCCL allocates outside that pool, and no memory is left for it.";
        Statement::new(Cause::CacheHeldByFramework, Certainty::Likely, summary).mended_by(fixes())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn a_cache_of_several_times_the_live_memory_is_named() {
        for rest in [
            "step 40 allocated=21.5G reserved=66.0G",
            "mem: allocated: 21.5 GiB, max allocated: 30 GiB, reserved: 66.0 GiB",
            "live tensors are small, but the caching allocator holds 3.1x that",
        ] {
            let text = format!("{rest}\nnode1:77:91 [0] NCCL WARN Cuda failure 2 'out of memory'");
            let facts = facts_in(&text).unwrap();
            let stated = &facts.statements[0];
            assert_eq!(
                (stated.cause, stated.certainty),
                (Cause::CacheHeldByFramework, Certainty::Likely),
                "{text}"
            );
        }
        let text = "allocated=61.5G reserved=66.0G\nnode1:77:91 [0] NCCL WARN Cuda failure 2 'out of memory'";
        assert_eq!(facts_in(text).unwrap().statements[0].cause, Cause::NonFrameworkOverhead);
    }

    #[test]
    fn a_status_alone_decides_nothing() {
        for (text, framework) in [
            (
                "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
                "cublas",
            ),
            ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", "cudnn"),
            ("RuntimeError: cuFFT error: CUFFT_ALLOC_FAILED", "cufft"),
            (
                "[rank1]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank1]: Last error:\n[rank1]: Cuda failure 2 'out of memory'",
                "nccl",
            ),
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(facts.framework_id(), framework);
            let stated = &facts.statements[0];
            assert_eq!((stated.cause, stated.certainty), (Cause::NonFrameworkOverhead, Certainty::Possible));
        }
    }

    #[test]
    fn nccl_may_give_a_size() {
        let text = "ng1:25:48 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\n\nng1:25:48 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes";
        assert_eq!(facts_in(text).unwrap().request, Some(Bytes::mib(6)));
    }

    #[test]
    fn a_handle_that_could_not_be_created() {
        let text = "  File \"cupy/cuda/cublas.pyx\", line 318, in cupy.cuda.cublas.create\ncupy.cuda.cublas.CUBLASError: CUBLAS_STATUS_NOT_INITIALIZED";
        assert_eq!(facts_in(text).unwrap().framework_id(), "cublas");
        assert!(facts_in("CUBLASError: CUBLAS_STATUS_NOT_INITIALIZED").is_none());
    }

    #[test]
    fn other_states_are_not_taken() {
        assert!(facts_in("CUDNN_STATUS_BAD_PARAM").is_none());
        assert!(facts_in("NCCL WARN Cuda failure 'invalid argument'").is_none());
        assert!(facts_in("RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED").is_none());
    }
}
