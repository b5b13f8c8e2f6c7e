//! Status codes without a name: a call of the driver or of a library, and the number that means that memory ran out.
//! The number alone means nothing, so each row asks for the call or the library in front of it.
//!
//! | library | number |
//! |---|---|
//! | CUDA runtime and driver, HIP | 2 |
//! | cuFFT, cuSOLVER, cuSPARSE, cuDNN | 2 |
//! | cuBLAS | 3 |
//! | cuRAND | 102 |
//! | OpenGL | 0x505 (1285) |
//! | Direct3D, DXGI | 8007000E |
//! | Vulkan (through VMA) | -2 |
//! | kernel drivers of AMD, Intel and nouveau | -12 (`ENOMEM`) |
//! | NVIDIA's kernel module | 0x51 (`NV_ERR_NO_MEMORY`) |

use makeroom_core::Framework;
use makeroom_explain::Cause::{ArtificialLimit, NonFrameworkOverhead, RequestExceedsDevice};

use super::{Phrase, family};

const WORKSPACE: &str = "The library could not allocate its handle, plan or workspace, which are outside the framework's pool; the log does not show what holds the GPU's memory.";

pub(super) const ROWS: &[Phrase] = &[
    Phrase::device(
        Framework::CuFft,
        &["cufft"],
        r"\bcufft\w*\b.{0,120}?(?:\(2 vs\. 0\)|\b(?:error|code|status|result|returned|failed|res)\b\W{0,4}(?:(?:with|code|status|error|result)\W{1,3}){0,2}2\b)",
    )
    .unless(r"CUFFT_(?:INVALID|EXEC|SETUP|UNALIGNED|INTERNAL|NOT|NO_)")
    .possible(NonFrameworkOverhead, WORKSPACE),
    Phrase::device(
        Framework::CuBlas,
        &["cublasCreate", "cublasLtCreate", "CUBLAS_STATUS_SUCCESS (3"],
        r"\bcublas(?:Lt)?Create\w*\b.{0,60}?\b(?:error|code|status|result|returned|failed)\b\W{0,4}(?:(?:with|code|status|error)\W{1,3}){0,2}3\b|CUBLAS_STATUS_SUCCESS \(3 vs",
    )
    .possible(NonFrameworkOverhead, WORKSPACE),
    Phrase::device(
        Framework::Cuda,
        &["SUCCESS (2 vs", "cusolverDnCreate", "cusparseCreate", "cudnnCreate", "cusolver error", "cusparse error"],
        r"CU(?:SOLVER|SPARSE|DNN)_STATUS_SUCCESS \(2 vs|\b(?:cusolver|cusparse|cudnn)\w*Create\w*\b.{0,60}?\b(?:error|code|status|returned|failed)\b\W{0,4}(?:(?:with|code|status|error)\W{1,3}){0,2}2\b|\bcus(?:olver|parse) (?:error|status)\W{1,3}2\b",
    )
    .possible(NonFrameworkOverhead, WORKSPACE),
    // MATLAB limits a single array to what the device can address.
    Phrase::device(
        Framework::Matlab,
        &["variable size"],
        r"\bMaximum (?:gpuArray )?variable size (?:allowed on (?:the|this) device )?(?:is |was )?exceeded",
    )
    .possible(
        RequestExceedsDevice,
        "One array is larger than MATLAB allows on this GPU, however much memory is free.",
    ),
    // The cache of an engine, which is sized when it starts.
    Phrase::device(
        Framework::Unknown,
        &["KV cache", "KV pool", "kv_cache", "kv cache", "free blocks", "only one request"],
        r"(?i)\bkv[ _-]?(?:cache|pool)\b.{0,24}\b(?:exhausted|is full|overflow\w*|ran out|out of (?:space|blocks|slots))\b|\bNo space left for only one request\b|\b(?:no|not enough|out of|insufficient) (?:free )?(?:kv[ _-]?cache )?blocks\b.{0,40}\b(?:kv|cache|request|sequence)\b",
    )
    .unless(r"preempt\w*|retract\w*|WARN|swap(?:ped|ping)")
    .possible(
        ArtificialLimit,
        "The engine's KV cache has no room left for this request. It is sized at startup, so the GPU itself may have memory free.",
    ),
    Phrase::device(Framework::CuRand, &["curand"], r"\bcurand\w*\b.{0,60}?\b102\b")
        .possible(NonFrameworkOverhead, WORKSPACE),
    // The driver's CUresult, before or behind the call.
    Phrase::device(
        Framework::Cuda,
        &["CUresult", "cu_mem_", "cuMem", "cuvidCreate", "CUDA driver API error", "CUDA call failed", "CudaException", "CUDAException"],
        r"\bCuda\w*Exception\b\W{0,3}(?:(?:error|with|status)\W{1,3}){0,2}(?:code|status|number)\W{0,3}2\b|\bCUresult\b\W{0,3}(?:error)?\W{0,4}(?:result ?= ?)?2\b|\b(?:cu_mem_\w+|cuMem\w+|cuvidCreate\w+)\b.{0,80}?\b(?:result|res|ret|rc|code|status|error|failed)\b\W{0,4}(?:(?:with|code|result|status|error)\W{1,3}){0,2}(?:0x0*)?2\b|\b(?:result|res|ret|rc) ?= ?(?:0x0*)?2\b.{0,80}\bcu_?[mM]em_?\w*|\bCUDA (?:driver |runtime )?(?:API )?(?:call failed|error)\W{1,3}(?:code|status)\W{0,3}2\b",
    )
    .unless(r"\bnot found\b|invalid|HAMI-core|vGPU"),
    Phrase::device(
        Framework::Cuda,
        &["CUDA context", "GPU context"],
        r"\b(?:fail\w*|error|could not|cannot|unable)\b.{0,24}\bcreat\w*.{0,12}\b(?:CUDA|GPU) context\b.{0,24}?\W(?:0x0*2|2)\W*$",
    ),
    Phrase::device(
        Framework::OpenGl,
        &["GL error", "GL_error", "glGetError", "OpenGL error", "glError"],
        r"\b(?:Open)?GL[ _]?error\b\W{0,6}(?:code |number )?\W{0,2}(?:0x0*505|1285)\b|\bglGetError\b.{0,30}(?:0x0*505|\b1285)\b",
    ),
    Phrase::device(
        Framework::Direct3d,
        &["8007000e"],
        r"\b(?:D3D|Direct3D|DXGI|ID3D|DirectML|dxgi|d3d1[12])\w*\b.{0,160}8007000e\b|8007000e\b.{0,80}\b(?:D3D|DXGI|texture)",
    ),
    Phrase::device(Framework::Vulkan, &["vmaCreate", "vmaAllocate"], r"\bvma(?:Create|Allocate)\w+\b.{0,60}?\W-2\b"),
    // Kernel drivers return the negative errno: ENOMEM is 12. It may be the GPU's memory or the machine's.
    Phrase::either(
        Framework::KernelDriver,
        &["amdgpu", "i915 ", "i915:", "nouveau", "radeon", "[drm]", "[drm:", "drm: ", "ttm: ", "[TTM]"],
        r"(?:\b(?:amdgpu|i915|nouveau|radeon|drm|ttm)\b).{0,120}\b(?:fail\w*|error|unable|space)\b.{0,40}?(?:\(|[:=] ?|\s)-12\b",
    ),
    Phrase::device(Framework::NvidiaDriver, &["NV_ERR_NO_MEMORY"], r"\bNV_ERR_NO_MEMORY\b"),
];

family!();

#[cfg(test)]
mod tests {
    use crate::facts::Resource;
    use crate::find::facts_in;

    #[test]
    fn numbers_that_mean_memory() {
        for (text, framework) in [
            ("Check failed: cufftPlanMany(&plan, 1, &n) == CUFFT_SUCCESS (2 vs. 0)", "cufft"),
            ("cufftPlan1d failed with code 2", "cufft"),
            ("cublasCreate failed: 3", "cublas"),
            ("curandCreateGenerator returned 102", "curand"),
            ("saver.cpp: CUresult error: result=2 func=cu_mem_create", "cuda"),
            ("rc=2 from cuMemCreate, giving up", "cuda"),
            ("[hevc_nvenc @ 0x1] Failed creating CUDA context for NVENC: 0x2", "cuda"),
            ("[av1_cuvid @ 0x1] cuvidCreateDecoder(&decoder) failed: 0x2", "cuda"),
            ("GL error: 0x0505", "opengl"),
            ("Unhandled CudaException: error code 2", "cuda"),
            ("# Resizing ends in CudaException code 2", "cuda"),
            ("d3d11: failed to create texture width=4096 [D3D error was 8007000e]", "direct3d"),
            ("vmaCreateImage returned -2", "vulkan"),
            ("cusolver error: 2", "cuda"),
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.resource), (framework, Resource::Device), "{text}");
        }
    }

    #[test]
    fn other_numbers_do_not() {
        for text in [
            "cufftPlan2d failed with code 5",
            "cublasCreate failed: 1",
            "curandCreateGenerator returned 203",
            "CUresult error: result=201",
            "cuMemCreate failed with result 1",
            "GL error: 0x0502",
            "CudaException code 209",
            "vmaCreateImage returned -3",
            "Failed creating CUDA context for NVENC: 0x3e7",
        ] {
            assert!(facts_in(text).is_none(), "{text}");
        }
    }
}
