//! Libraries and frameworks whose errors are one line: Numba, MXNet, Theano, XGBoost, LightGBM, DALI, Dask, Caffe, dlib,
//! Deeplearning4j, Thrust, Kokkos.

use makeroom_core::Framework;
use makeroom_explain::Cause::{
    ArtificialLimit, HostMemory, LiveDataFillsDevice, OtherProcesses, Preallocation,
    SharedMemoryOrKernelResource, Undetermined,
};
use makeroom_explain::Certainty;

use super::{Phrase, family};

const PINNED: &str = "The call that failed allocates pinned host memory. The GPU's memory is not involved.";
const NO_CONTEXT: &str = "The driver had no memory for a context. This process holds nothing yet, so other processes hold the GPU's memory.";
const ONE_BUFFER: &str = "OpenCL could not allocate a buffer. A single buffer may use only part of the GPU's memory, often a quarter.";
/// A definite reason near NCCL's error.
const NAMED_BY_NCCL: &str = r"Cuda failure|Last error:\s*\S|illegal|kernel image|assert|invalid (?:device|argument|usage)|unspecified|Xid|timed? ?out|peer access|insufficient|driver version|out of memory|compute capability|not compatible|system error";
const OFF_HEAP: &str = "Host memory outside the Java heap ran out, or JavaCPP's limit for it (-Dorg.bytedeco.javacpp.maxbytes) was reached. The GPU is not involved.";

pub(super) const ROWS: &[Phrase] = &[
    // The table that PyTorch prints of its allocator counts its failures.
    Phrase::device(Framework::PyTorch, &["CUDA OOMs"], r"\bCUDA OOMs: +[1-9]")
        .figures_near(r"Allocated memory +\| +(?P<live>\d+) ?(?P<live_unit>[KMG]i?B)"),
    // Part of the table that TensorFlow's allocator prints when it runs out, from a run that ended there.
    Phrase::device(Framework::TensorFlow, &["Chunks of size"], r"\b\d+ Chunks of size \d+")
        .near(r"\bcrash(?:es|ed|ing)?\b|\b(?:stops|stopped|fails|failed|dies|died|exits|killed|freezes)\b")
        .not_near(r"ran out of memory|not a failure|ResourceExhausted|OOM when|Sum Total of|InUse:"),
    // Numba: the call says which kind of memory it was.
    Phrase::new(
        Framework::Numba,
        crate::facts::Resource::Kernel,
        &["Call to cu"],
        r"Call to cu\w+ results in \S*LAUNCH_OUT_OF_RESOURCES",
    )
        .spanning_lines()
        .certain(
            SharedMemoryOrKernelResource,
            "The kernel needs more registers or shared memory per block than a multiprocessor has; device memory is not involved.",
        ),
    Phrase::host(Framework::Numba, &["Call to cu"], r"Call to cu\w*Host\w* results in \S*OUT_OF_MEMORY")
        .spanning_lines()
        .certain(HostMemory, PINNED),
    Phrase::device(Framework::Numba, &["Call to cu"], r"Call to cu\w*Ctx\w* results in \S*OUT_OF_MEMORY")
        .spanning_lines()
        .likely(OtherProcesses, NO_CONTEXT),
    Phrase::device(Framework::Numba, &["Call to cu"], r"Call to cu\w+ results in \S*OUT_OF_MEMORY").spanning_lines(),
    Phrase::new(
        Framework::Triton,
        crate::facts::Resource::Kernel,
        &["out of resources", "out of resource"],
        r"\bout of resources?\b",
    )
    .unless(r"\bcl[A-Z]\w+|CL_|opencl|-5\b|PI_ERROR|UR_RESULT|HSA_STATUS|GPU resources|memory")
    .near(r"(?i:triton|sageatt\w*|flash.?att\w*|\w*attn_\w+\[grid\]|_fwd\[grid\]|shared memory|num_stages)")
    .leads(
        SharedMemoryOrKernelResource,
        "A kernel needs more shared memory or registers than a multiprocessor of this GPU has; the GPU's memory need not be full.",
    ),
    // MXNet frees its whole pool before it tries again, so the pool's cache is not the reason.
    Phrase::host(
        Framework::MxNet,
        &["pinned_memory_storage.h"],
        r"pinned_memory_storage\.h.*(?:out of memory|\(2 vs\. 0\)|allocation failed)",
    )
        .certain(
            HostMemory,
            "MXNet could not allocate pinned host memory. The GPU's memory is not involved.",
        ),
    Phrase::device(
        Framework::MxNet,
        &["storage_manager.h", "gpu_device_storage.h"],
        r"(?:storage_manager|device_storage)\.h.*(?:cudaMalloc (?:retry )?failed|CUDA|Memory allocation failed|cudaSuccess \(2 vs\. 0\)):? ?(?:out of memory|.*out of memory|$|\.)",
    ),
    Phrase::device(
        Framework::MxNet,
        &["CUDA: out of memory", "cudaMalloc retry failed", "cudaMalloc failed", "cudaSuccess (2 vs. 0)"],
        r"(?:cudaMalloc (?:retry )?failed|CUDA):? ?out of memory|MXNetError.*out of memory|cudaSuccess \(2 vs\. 0\)",
    )
    .near(r"mxnet|mshadow"),
    // Theano's old and new back ends. A driver that could not report prints zeros.
    Phrase::device(
        Framework::Theano,
        &["bytes of device memory"],
        r"Error allocating (?P<request>\d+) bytes of device memory(?:.*?new total bytes allocated: (?P<live>\d+))?(?:.*?Driver report (?P<free>\d+) bytes free and (?P<total>[1-9]\d*) bytes total)?",
    )
    .spanning_lines(),
    Phrase::device(
        Framework::Theano,
        &["GpuArrayException", "CNMEM_STATUS_OUT_OF_MEMORY"],
        r"GpuArrayException.*out of memory|CNMEM_STATUS_OUT_OF_MEMORY",
    )
        .spanning_lines()
        .unless(r"CUDA memory with byte size"),
    // XGBoost means 2³⁰ bytes by GB.
    Phrase::device(
        Framework::XgBoost,
        &["Memory allocation error on worker"],
        r"Memory allocation error on worker(?:.*?- Free memory: (?P<free>[\d.]+) ?(?P<free_unit>[KMGT]?B?))?(?:.*?- Requested memory: (?P<request>[\d.]+) ?(?P<request_unit>[KMGT]?B?))?",
    )
    .spanning_lines(),
    // LightGBM through OpenCL and CUDA.
    Phrase::either(Framework::LightGbm, &["Out of Host Memory"], r"Out of Host Memory")
        .near(r"lightgbm|boost::compute")
        .leads(
            HostMemory,
            "OpenCL returned its out-of-host-memory status, which drivers also use when their own resources run out.",
        ),
    Phrase::either(Framework::LightGbm, &["Out of Resources"], r"Out of Resources").near(r"lightgbm|boost::compute"),
    Phrase::device(Framework::LightGbm, &["Memory Object Allocation Failure"], r"Memory Object Allocation Failure")
        .near(r"lightgbm|boost::compute")
        .possible(ArtificialLimit, ONE_BUFFER),
    Phrase::device(Framework::LightGbm, &["[CUDA] out of memory", "[CUDA] invalid"], r"\[CUDA\] out of memory").near(r"lightgbm|boost::compute"),
    // DALI.
    Phrase::host(Framework::Dali, &["Can't allocate "], r"Can't allocate (?P<request>\d+) bytes on host")
        .certain(HostMemory, "DALI could not allocate host memory. The GPU is not involved."),
    Phrase::device(
        Framework::Dali,
        &["Can't allocate "],
        r"Can't allocate (?P<request>\d+) bytes on device (?P<device>\d+)",
    ),
    Phrase::device(
        Framework::Dali,
        &[
            "CUDA allocation failed",
            "CUDA runtime API error cudaErrorMemoryAllocation",
            "NVJPEG_STATUS_ALLOCATOR_FAILURE",
        ],
        r"CUDA allocation failed.*pipeline object|CUDA runtime API error cudaErrorMemoryAllocation|NVJPEG_STATUS_ALLOCATOR_FAILURE",
    )
    .spanning_lines(),
    // A person reports that JAX took the GPU from another framework.
    Phrase::device(
        Framework::Jax,
        &["reserves most", "reserves all", "allocates most", "allocates all", "grabs most", "grabs all", "takes most", "takes all"],
        r"(?-i:\bJAX\b)[^.]{0,60}\b(?:reserves|preallocates|pre-allocates|allocates|grabs|takes)\b (?:most|all)\b[^.]{0,24}\b(?:GPU|VRAM|device)\b",
    )
    .near(r"\bOOM\b|out of memory")
    .unless(r"by default|\?\s*$")
    .likely(Preallocation, "JAX reserves most of the GPU's memory when it starts, even if another framework only imports it."),
    // FlashInfer cuts its buffers out of a workspace of fixed size.
    Phrase::device(
        Framework::Sglang,
        &["AlignedAllocator"],
        r"Failed to allocate memory for (?P<name>\w+) with size (?P<request>\d+) and alignment \d+ in AlignedAllocator",
    )
    .near(r"(?i)sglang")
    .certain(
        ArtificialLimit,
        "FlashInfer's workspace has a fixed size and has no room for the {request} that {name} needs; the GPU need not be full.",
    ),
    Phrase::device(
        Framework::FlashInfer,
        &["AlignedAllocator"],
        r"Failed to allocate memory for (?P<name>\w+) with size (?P<request>\d+) and alignment \d+ in AlignedAllocator",
    )
    .certain(
        ArtificialLimit,
        "FlashInfer's workspace has a fixed size and has no room for the {request} that {name} needs; the GPU need not be full.",
    ),
    // Dask's nanny ends the worker; the worker's own lines are warnings. Its units are decimal.
    Phrase::host(Framework::Dask, &["memory budget"], r"Worker.*exceeded \d+% memory budget")
        .certain(
            HostMemory,
            "A Dask worker used up its budget of host memory and was restarted. The GPU is not involved.",
        ),
    Phrase::host(Framework::Dask, &["KilledWorker"], r"KilledWorker\b.*workers died while (?:running|trying to run) it")
        .leads(
            HostMemory,
            "Several Dask workers died on the same task, which usually means that each ran out of host memory.",
        ),
    Phrase::host(
        Framework::Dask,
        &["Worker memory limit:"],
        r"Process memory: (?P<used>[\d.]+) ?(?P<used_unit>[KMGT]?i?B).*?Worker memory limit: (?P<limit>[\d.]+) ?(?P<limit_unit>[KMGT]?i?B)",
    )
    .spanning_lines()
    .decimal()
    .warning()
    .certain(HostMemory, "A Dask worker uses {used} of its {limit} of host memory."),
    // Caffe: error 2 is cudaErrorMemoryAllocation. The network's data is an estimate, not a request.
    Phrase::host(Framework::Caffe, &["== cudaSuccess (2 vs. 0)"], r"Check failed.*(?:cudaMallocHost|cudaHostAlloc)")
        .certain(
            HostMemory,
            "Caffe could not allocate pinned host memory. The GPU's memory is not involved.",
        ),
    Phrase::device(Framework::Caffe, &["== cudaSuccess (2 vs. 0)"], r"Check failed")
        .figures_near(r"Memory required for data: (?P<needed>\d+)")
        .possible(
            LiveDataFillsDevice,
            "Caffe reports that the network's data needs {needed}; weights, gradients and workspaces need additional memory.",
        ),
    // dlib: the call says which kind of memory it was.
    Phrase::host(
        Framework::Dlib,
        &["Error while calling cu"],
        r"Error while calling cu\w*Host\w*.*? reason: ?out of memory",
    )
        .spanning_lines()
        .certain(HostMemory, PINNED),
    Phrase::device(
        Framework::Dlib,
        &["Error while calling cu"],
        r"Error while calling cu\w+.*? reason: ?(?:out of memory|\w*ALLOC_FAILED)",
    )
        .spanning_lines(),
    // Deeplearning4j, ND4J and JavaCPP.
    Phrase::host(
        Framework::DeepLearning4j,
        &["from HOST memory", "[HOST] memory", "physicalBytes"],
        r"Failed to allocate \[?\d+\]? bytes from HOST memory|Can't allocate \[HOST\] memory|Cannot allocate new \w+Pointer\(\d+\)|Physical memory usage is too high",
    )
    .certain(HostMemory, OFF_HEAP),
    Phrase::device(
        Framework::DeepLearning4j,
        &["from DEVICE", "[DEVICE] memory"],
        r"(?:Failed to|Can't) allocate (?:\[DEVICE\] memory:? ?)?\[?(?P<request>\d+)\]?(?: bytes from DEVICE(?: \[(?P<device>\d+)\])? memory)?",
    )
    .spanning_lines(),
    Phrase::device(
        Framework::DeepLearning4j,
        &["[DEVICE] memory"],
        r"Out of \[DEVICE\] memory, host memory will be used instead: deviceId: \[(?P<device>\d+)\], requested bytes: \[(?P<request>\d+)\]",
    )
    .spanning_lines()
    .warning(),
    // Kokkos names the memory space.
    Phrase::host(
        Framework::Kokkos,
        &["Kokkos failed to allocate"],
        r#"MemorySpace named "?(?:Host|CudaHostPinned|HIPHostPinned).*?(?:Allocation of size (?P<request>[\d.]+) ?(?P<request_unit>[KMGT]?)i?B? failed|$)"#,
    )
    .spanning_lines()
    .certain(HostMemory, "The allocation failed in a host memory space. The GPU is not involved."),
    Phrase::host(Framework::Kokkos, &["HostSpace::allocate"], r"HostSpace::allocate\[[^\]]*\]\( ?(?P<request>\d+) ?\)")
        .certain(HostMemory, "The allocation failed in a host memory space. The GPU is not involved."),
    Phrase::device(
        Framework::Kokkos,
        &["Kokkos failed to allocate"],
        r"Kokkos failed to allocate.*?(?:Allocation of size (?P<request>[\d.]+) ?(?P<request_unit>[KMGT]?)i?B? failed|$)",
    )
    .spanning_lines()
    .unless(r"unknown error|ErrorNotSupported|NotSupported|IllegalAddress"),
    Phrase::device(Framework::Kokkos, &["Kokkos_Cuda", "Kokkos_HIP"], r"MemoryAllocation|out of memory"),
    Phrase::device(
        Framework::CuSparse,
        &["insufficient resources when calling"],
        r"insufficient resources when calling .?cusparse",
    ),
    // A program's own check of a call that pins host memory.
    Phrase::host(
        Framework::Cuda,
        &["HostAlloc", "MallocHost", "hipHostMalloc", "MemHostAlloc"],
        r"\b(?:cudaHostAlloc|cudaMallocHost|hipHostMalloc|cuMemHostAlloc|cuMemAllocHost)\b(?:\([^)]*\))?:? (?:call )?(?:fail|error)",
    )
    .unless(r"out of memory|MemoryAllocation|OUT_OF_MEMORY|invalid|illegal|not (?:supported|permitted|initialized)|insufficient driver|driver version")
    .likely(HostMemory, PINNED),
    // NCCL prints the reason below where it knows it, or with NCCL_DEBUG=INFO.
    Phrase::host(Framework::Nccl, &["NCCL WARN Failed to malloc"], r"NCCL WARN Failed to malloc (?P<request>\d+) bytes")
        .certain(HostMemory, "NCCL could not allocate host memory. The GPU's memory is not involved."),
    Phrase::either(Framework::Nccl, &["unhandled cuda error"], r"(?:ProcessGroupNCCL|NCCL version).*unhandled cuda error|unhandled cuda error.*(?:NCCL ver|ncclUnhandled)")
        .not_near(NAMED_BY_NCCL)
        .states(
            Undetermined,
            Certainty::Undetermined,
            "NCCL hides the CUDA error that it received: often it is a lack of memory for NCCL's buffers, but it can also be a failed kernel or a driver fault. NCCL_DEBUG=INFO prints the error.",
        ),
    // Thrust and CUB: the runtime's word for the error says that it was the GPU's memory.
    Phrase::device(
        Framework::Thrust,
        &["bad_alloc", "get_temporary_buffer failed", "cudaErrorMemoryAllocation", "failed: out of memory"],
        r"bad_alloc: cudaErrorMemoryAllocation|get_temporary_buffer failed|thrust::.*(?:out of memory|cudaErrorMemoryAllocation)|\b(?:parallel_for|radix_sort|reduce|scan|merge_sort|copy|unique|for_each)\w*(?: failed)?:? (?:failed .*)?(?:cudaErrorMemoryAllocation|out of memory)",
    )
    .spanning_lines(),
];

family!();

#[cfg(test)]
mod tests {
    use makeroom_core::{Bytes, DeviceIndex};
    use makeroom_explain::{Cause, Certainty};

    use crate::facts::{Resource, Severity};
    use crate::find::facts_in;

    #[test]
    fn device_memory_without_figures_states_nothing() {
        for (text, framework) in [
            (
                "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
                "numba",
            ),
            (
                "numba.cuda.cudadrv.driver.CudaAPIError: [CUresult.CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in\nCUDA_ERROR_OUT_OF_MEMORY",
                "numba",
            ),
            ("[19:03:47] src/storage/./pooled_storage_manager.h:62: Memory allocation failed.", "mxnet"),
            (
                "mxnet.base.MXNetError: [11:18:15] src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory",
                "mxnet",
            ),
            (
                "[11:18:15] src/storage/./pooled_storage_manager.h:130: cudaMalloc retry failed: out of memory",
                "mxnet",
            ),
            (
                "mxnet.base.MXNetError: [1:2:3] src/engine/x.h:9: Check failed: e == cudaSuccess (2 vs. 0) : CUDA: out of memory",
                "mxnet",
            ),
            (
                "F0101 12:00:00.000001  4321 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n*** Check failure stack trace: ***",
                "caffe",
            ),
            (
                "RuntimeError: Error while calling cudaMalloc(&data, n) in file dlib/cuda/cuda_data_ptr.cpp:28. code:\n2, reason: out of memory",
                "dlib",
            ),
            (
                "RuntimeError: Critical error in pipeline: CUDA allocation failed\nCurrent pipeline object is no longer valid.",
                "dali",
            ),
            ("RuntimeError: std::bad_alloc: cudaErrorMemoryAllocation: out of memory", "thrust"),
            (
                "terminate called after throwing an instance of 'thrust::system::system_error'\n  what():  parallel_for failed: cudaErrorMemoryAllocation: out of memory",
                "thrust",
            ),
            (
                "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: out of memory",
                "thrust",
            ),
            ("RuntimeError: temporary_buffer::allocate: get_temporary_buffer failed", "thrust"),
            (
                "pygpu.gpuarray.GpuArrayException: b'cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory'",
                "theano",
            ),
            ("[LightGBM] [Fatal] [CUDA] out of memory /src/cuda_column_data.cpp 67", "lightgbm"),
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.statements.len()), (framework, 0), "{text}");
            assert_eq!((facts.resource, facts.request), (Resource::Device, None), "{text}");
        }
    }

    #[test]
    fn nccl_without_a_reason_leaves_it_open() {
        let text = "torch.distributed.DistBackendError: NCCL error in: torch/csrc/ProcessGroupNCCL.cpp:1970, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5";
        assert_eq!(facts_in(text).unwrap().statements[0].cause, Cause::Undetermined);
        let named = format!(
            "{text}\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure 'invalid device symbol'"
        );
        assert!(facts_in(&named).is_none());
    }

    #[test]
    fn the_call_or_the_memory_space_names_the_resource() {
        for (text, framework, cause) in [
            ("[2] Call to cuMemHostAlloc results in CUDA_ERROR_OUT_OF_MEMORY", "numba", Cause::HostMemory),
            (
                "[2] Call to cuDevicePrimaryCtxRetain results in CUDA_ERROR_OUT_OF_MEMORY",
                "numba",
                Cause::OtherProcesses,
            ),
            (
                "[701] Call to cuLaunchKernel results in CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
                "numba",
                Cause::SharedMemoryOrKernelResource,
            ),
            (
                "[1:2:3] src/storage/./pinned_memory_storage.h:51: Check failed: e == cudaSuccess CUDA: out of memory",
                "mxnet",
                Cause::HostMemory,
            ),
            (
                "Error while calling cudaMallocHost(&data, new_size*sizeof(float)) in file dlib/cuda/gpu_data.cpp:211. code: 2, reason: out of memory",
                "dlib",
                Cause::HostMemory,
            ),
            ("Can't allocate 1048576 bytes on host.", "dali", Cause::HostMemory),
            (
                "syncedmem.hpp:25] Check failed: (cudaMallocHost(ptr, size)) == cudaSuccess (2 vs. 0)",
                "caffe",
                Cause::HostMemory,
            ),
            (
                "java.lang.RuntimeException: Can't allocate [HOST] memory: 800; threadId: 1",
                "deeplearning4j",
                Cause::HostMemory,
            ),
            (
                "java.lang.OutOfMemoryError: Cannot allocate new FloatPointer(100): totalBytes = 2G, physicalBytes = 9G",
                "deeplearning4j",
                Cause::HostMemory,
            ),
            (
                "Caused by: java.lang.OutOfMemoryError: Physical memory usage is too high: physicalBytes (9G) > maxPhysicalBytes (8G)",
                "deeplearning4j",
                Cause::HostMemory,
            ),
            (
                "distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting",
                "dask",
                Cause::HostMemory,
            ),
            (
                "Kokkos::HostSpace::allocate[ INTEL_MM_ALLOC ]( 18446743565090964400 ) FAILED NULL",
                "kokkos",
                Cause::IntegerOrShapeBug,
            ),
        ] {
            let facts = facts_in(text).unwrap_or_else(|| panic!("not read: {text}"));
            assert_eq!((facts.framework_id(), facts.statements[0].cause), (framework, cause), "{text}");
        }
    }

    #[test]
    fn figures_are_read() {
        let facts = facts_in("Error allocating 2000 bytes of device memory (out of memory). Driver report 1000 bytes free and 9000 bytes total").unwrap();
        assert_eq!(
            (facts.request, facts.free, facts.total),
            (Some(Bytes::new(2000)), Some(Bytes::new(1000)), Some(Bytes::new(9000)))
        );
        let facts = facts_in("Error allocating 24 bytes of device memory (out of memory). Driver report 0 bytes free and 0 bytes total").unwrap();
        assert_eq!((facts.framework_id(), facts.free, facts.total), ("theano", None, None));
        for (free, request) in [("1073741824", "3221225472"), ("1GB", "3GB")] {
            let text = format!(
                "xgboost.core.XGBoostError: [13:55:26] /src/c_api/../common/device_helpers.cuh:414: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: {free}\n- Requested memory: {request}\n"
            );
            let facts = facts_in(&text).unwrap();
            assert_eq!(facts.framework_id(), "xgboost");
            assert_eq!((facts.free, facts.request), (Some(Bytes::gib(1)), Some(Bytes::gib(3))));
            assert!(facts.statements.is_empty());
        }
        let device = facts_in("RuntimeError: Critical error in pipeline:\nError when executing Mixed operator decoders__Image encountered:\nCan't allocate 1048576 bytes on device 1.\nCurrent pipeline object is no longer valid.").unwrap();
        assert_eq!(
            (device.framework_id(), device.request, device.device),
            ("dali", Some(Bytes::mib(1)), Some(DeviceIndex(1)))
        );
        let facts =
            facts_in("java.lang.RuntimeException: Failed to allocate 4096 bytes from DEVICE [2] memory")
                .unwrap();
        assert_eq!((facts.request, facts.device), (Some(Bytes::kib(4)), Some(DeviceIndex(2))));
    }

    #[test]
    fn warnings_are_warnings() {
        let high = facts_in("distributed.worker - WARNING - Memory use is high but worker has no data to store to disk. Perhaps some other process is leaking memory? Process memory: 6.00 GB -- Worker memory limit: 8.00 GB").unwrap();
        assert_eq!(high.severity, Severity::Warning);
        let fallback = facts_in("WARN o.n.j.handler.impl.CudaZeroHandler - Out of [DEVICE] memory, host memory will be used instead: deviceId: [0], requested bytes: [4096]").unwrap();
        assert_eq!((fallback.request, fallback.severity), (Some(Bytes::kib(4)), Severity::Warning));
    }

    #[test]
    fn the_memory_space_of_kokkos_decides() {
        const ERROR: &str = "  what():  Kokkos failed to allocate memory for label \"Scratch\".  Allocation using MemorySpace named \"Cuda\" failed with the following error:  Allocation of size 1.5 G failed, likely due to insufficient memory.  (The allocation mechanism was cudaMalloc().  The Cuda allocation returned the error code \"\"cudaErrorMemoryAllocation\".)";
        let facts = facts_in(ERROR).unwrap();
        assert_eq!((facts.framework_id(), facts.resource), ("kokkos", Resource::Device));
        assert_eq!((facts.request, facts.statements.len()), (Some(Bytes::mib(1536)), 0));
        let facts = facts_in(&ERROR.replace("\"Cuda\"", "\"Host\"")).unwrap();
        assert_eq!((facts.resource, facts.statements[0].cause), (Resource::Host, Cause::HostMemory));
        assert!(facts_in("Kokkos_CudaSpace.cpp:12: cudaErrorInvalidValue").is_none());
    }

    #[test]
    fn what_a_network_needs_is_a_possible_reason() {
        let facts = facts_in("I0101 12:00:00.0 1 net.cpp:299] Memory required for data: 3221225472\nF0101 12:00:01.0 1 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory").unwrap();
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::LiveDataFillsDevice, Certainty::Possible)
        );
        assert!(facts.statements[0].summary.contains("3.00 GiB"));
    }

    #[test]
    fn opencls_words_are_no_proof() {
        let facts = facts_in("[LightGBM] [Fatal] Out of Host Memory").unwrap();
        assert!(facts.statements[0].leads && facts.statements[0].cause == Cause::HostMemory);
        let facts = facts_in("terminate called after throwing an instance of 'boost::wrapexcept<boost::compute::opencl_error>'\n  what():  Memory Object Allocation Failure").unwrap();
        assert_eq!((facts.framework_id(), facts.statements[0].certainty), ("lightgbm", Certainty::Possible));
    }

    #[test]
    fn other_programs_and_other_errors_are_not_taken() {
        for (text, framework) in [
            ("ggml: cudaMalloc failed: out of memory", "mxnet"),
            ("std::bad_alloc: cudaErrorMemoryAllocation: out of memory", "xgboost"),
            ("clEnqueueNDRangeKernel: Out of Resources, out of memory", "lightgbm"),
            ("terminate called after throwing an instance of 'std::bad_alloc'", "thrust"),
            ("Error allocating 24 bytes: out of memory", "theano"),
        ] {
            assert_ne!(facts_in(text).unwrap().framework_id(), framework, "{text}");
        }
        for text in [
            "[1] Call to cuMemcpyHtoD results in CUDA_ERROR_INVALID_VALUE",
            "Error while calling cudaMemcpy(dest, src) in file gpu_data.cpp:62. code: 11, reason: invalid argument",
            "syncedmem.cpp:19] Check failed: error == cudaSuccess (29 vs. 0)  driver shutting down",
        ] {
            assert!(facts_in(text).is_none(), "{text}");
        }
    }
}
