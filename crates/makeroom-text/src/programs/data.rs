//! Data frames, arrays and search: RAPIDS, Dask, Spark, FAISS, CuPy, Numba, DALI.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const APPLICATIONS: &[&Program] = &[&SPARK, &NVTABULAR, &DASK_CUDA, &CUML];
pub(super) const PROGRAMS: &[&Program] = &[&RAPIDS, &FAISS, &DALI, &NUMBA, &CUPY];

const CUML: Program = Program {
    name: "cuML",
    frameworks: &[],
    marks: &["cuml/", "cuml.", "from cuml"],
    work: Work::Other,
    advise: |situation, cause| rapids(situation, cause, CUML_LEVERS),
};

const CUML_LEVERS: &[Lever] = &[
    Lever::new(
        "build the neighbor graph in batches, with the data in host memory",
        "UMAP(build_algo=\"nn_descent\").fit(X, data_on_host=True)",
    )
    .unless_said(&["nn_descent"])
    .only(|situation| situation.settings.mentions("umap")),
    Lever::new("compute distances in smaller batches", "DBSCAN(max_mbytes_per_batch=1000)")
        .unless_said(&["max_mbytes_per_batch"])
        .only(|situation| situation.settings.mentions("dbscan")),
    Lever::new("let managed memory spill to the host", "rmm.reinitialize(managed_memory=True)")
        .unless_said(&["managed_memory=True", "ManagedMemoryResource"]),
    Lever::new("pass 32-bit numbers", "X = X.astype(\"float32\")").unless_said(&["float32"]),
    Lever::new(
        "fit on a sample of the rows, then transform the rest in batches",
        "model.fit(X.sample(frac=0.25))",
    ),
];

const NVTABULAR: Program = Program {
    name: "NVTabular",
    frameworks: &[],
    marks: &["nvtabular"],
    work: Work::Other,
    advise: |situation, cause| rapids(situation, cause, NVTABULAR_LEVERS),
};

const NVTABULAR_LEVERS: &[Lever] = &[
    Lever::new("read the dataset in smaller partitions", "nvt.Dataset(path, part_size=\"128MB\")")
        .unless_said(&["part_size=", "part_mem_fraction="]),
    Lever::new(
        "count categories in host memory, split into more parts",
        "Categorify(on_host=True, tree_width=16)",
    )
    .unless_said(&["tree_width"])
    .only(|situation| situation.settings.mentions("categorify")),
    Lever::new("let managed memory spill to the host", "rmm.reinitialize(managed_memory=True)")
        .unless_said(&["managed_memory=True", "ManagedMemoryResource"]),
];

const RAPIDS: Program = Program {
    name: "RAPIDS",
    frameworks: &[Framework::Rmm],
    marks: &["cudf/", "cudf.", "import cudf", "rmm/", "import rmm"],
    work: Work::Other,
    advise: |situation, cause| rapids(situation, cause, RAPIDS_LEVERS),
};

const RAPIDS_LEVERS: &[Lever] = &[
    Lever::new("let data frames spill to host memory", "CUDF_SPILL=on")
        .unless_said(&["CUDF_SPILL=on", "spill=True"])
        .variable(),
    Lever::new("let managed memory exceed GPU memory", "rmm.reinitialize(managed_memory=True)")
        .unless_said(&["managed_memory=True", "ManagedMemoryResource"]),
    Lever::new(
        "use CUDA's stream-ordered pool, which fragments less",
        "rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())",
    )
    .unless_said(&["CudaAsyncMemoryResource"]),
    Lever::new(
        "read and process the data in partitions",
        "dask_cudf.read_parquet(path, split_row_groups=True)",
    )
    .unless_said(&["dask_cudf"]),
];

fn rapids(situation: &Situation<'_>, cause: Cause, levers: &[Lever]) -> Vec<Fix> {
    match cause {
        Cause::ArtificialLimit => pool_limit(situation),
        // A pool that cannot use its free pieces is what the stream-ordered one is for.
        Cause::Fragmentation => lever::steps(situation, Cause::LiveDataFillsDevice, &RAPIDS_LEVERS[2..3]),
        _ => lever::steps(situation, cause, levers),
    }
}

/// The pool refused, not the device.
fn pool_limit(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if situation.settings.mentions("rmm-pool-size") || situation.settings.mentions("rmm_pool_size") {
        fixes.push(
            Fix::new("limit the pool to 90 % of one GPU's memory: a pool cannot be larger than that memory")
                .command("dask-cuda-worker --rmm-pool-size 0.9"),
        );
    }
    let total = situation.facts.total.map(|total| total.scaled(0.9).get() >> 20);
    let size = total.map_or_else(|| "24 * 2**30".to_owned(), |mebibytes| format!("{mebibytes} * 2**20"));
    fixes.push(
        Fix::new("raise the pool's maximum, which is the memory that was free when it was created")
            .command(format!("rmm.reinitialize(pool_allocator=True, maximum_pool_size={size})")),
    );
    fixes.push(
        Fix::new("or let a managed pool exceed GPU memory").command(
            "rmm.reinitialize(managed_memory=True, pool_allocator=True, maximum_pool_size=64 * 2**30)",
        ),
    );
    fixes.push(
        Fix::new("use CUDA's stream-ordered pool, which has no fixed maximum")
            .command("rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())"),
    );
    fixes
}

const DASK_CUDA: Program = Program {
    name: "Dask-CUDA",
    frameworks: &[],
    marks: &["dask_cuda", "dask-cuda", "dask cuda worker", "LocalCUDACluster", "dask_cudf"],
    work: Work::Other,
    advise: |situation, cause| rapids(situation, cause, DASK_CUDA_LEVERS),
};

const DASK_CUDA_LEVERS: &[Lever] = &[
    Lever::new(
        "spill to host memory earlier (default: at 0.8 of the GPU's memory)",
        "dask-cuda-worker --device-memory-limit 0.5",
    )
    .unless_said(&["device-memory-limit", "device_memory_limit"]),
    Lever::switch(
        "turn on spilling in cuDF",
        "dask-cuda-worker --enable-cudf-spill",
        &["--enable-cudf-spill", "enable_cudf_spill"],
    ),
    Lever::new("leave some memory outside the pool", "--rmm-pool-size 0.7")
        .unless_said(&["rmm-pool-size 0.7"]),
    Lever::new("use smaller partitions", "ddf = ddf.repartition(partition_size=\"256MB\")")
        .unless_said(&["partition_size"]),
];

const SPARK: Program = Program {
    name: "Spark RAPIDS",
    frameworks: &[Framework::SparkRapids],
    marks: &["com.nvidia.spark.rapids", "spark.rapids.", "ai.rapids.cudf"],
    work: Work::Other,
    advise: spark,
};

fn spark(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        // The second executor found the card taken by the first one's pool.
        Cause::OtherProcesses | Cause::Preallocation | Cause::ArtificialLimit => vec![
            Fix::new("run one executor per GPU").command("--conf spark.executor.resource.gpu.amount=1 --conf spark.task.resource.gpu.amount=0.25"),
            Fix::new("or give each of two executors less than half of the GPU's memory")
                .command("--conf spark.rapids.memory.gpu.allocFraction=0.45 --conf spark.rapids.memory.gpu.maxAllocFraction=0.45"),
        ],
        Cause::HostMemory if situation.facts.quote.contains("inned") || situation.settings.mentions("offHeapLimit") => vec![
            Fix::new("pin less host memory").command("--conf spark.rapids.memory.pinnedPool.size=2g"),
            Fix::new("raise the executor's memory overhead").command("--conf spark.executor.memoryOverhead=8g"),
        ],
        _ => lever::steps(situation, cause, SPARK_LEVERS),
    }
}

const SPARK_LEVERS: &[Lever] = &[
    Lever::new(
        "run one task on the GPU at a time (default 2)",
        "--conf spark.rapids.sql.concurrentGpuTasks=1",
    )
    .unless_said(&["concurrentGpuTasks=1", "concurrentGpuTasks 1"]),
    Lever::new("process smaller batches (default 1g)", "--conf spark.rapids.sql.batchSizeBytes=256m")
        .unless_said(&["batchSizeBytes=256m"]),
    Lever::raise(
        "use more, smaller partitions{from}",
        "--conf spark.sql.shuffle.partitions={to}",
        &["spark.sql.shuffle.partitions"],
        800,
        8000,
    ),
    Lever::new("read smaller file splits", "--conf spark.sql.files.maxPartitionBytes=128m")
        .unless_said(&["maxPartitionBytes=128m"]),
    Lever::new(
        "let the pool use more of the GPU's memory",
        "--conf spark.rapids.memory.gpu.allocFraction=0.9",
    )
    .only(|situation| {
        situation.settings.number(&["spark.rapids.memory.gpu.allocFraction"]).is_some_and(|part| part < 0.8)
    }),
];

const FAISS: Program = Program {
    name: "FAISS",
    frameworks: &[Framework::Faiss],
    marks: &["faiss::gpu", "StandardGpuResources", "faiss/gpu", "faiss.index_cpu_to_gpu"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::HostMemory => vec![
            Fix::new("do not allocate a pinned buffer (default 256 MiB)").command("res.setPinnedMemory(0)"),
            Fix::new("add vectors in chunks")
                .command("for part in numpy.array_split(x, 16): index.add(part)"),
        ],
        _ => lever::steps(situation, cause, FAISS_LEVERS),
    },
};

const FAISS_LEVERS: &[Lever] = &[
    Lever::new("shrink the scratch buffer (1.5 GiB by default)", "res = faiss.StandardGpuResources(); res.setTempMemory(256 * 2**20)").unless_said(&["setTempMemory", "noTempMemory"]).only(|situation| situation.settings.mentions("TemporaryMemoryBuffer")),
    Lever::new("store vectors in 16-bit precision (half the size)", "options = faiss.GpuClonerOptions(); options.useFloat16 = True").unless_said(&["useFloat16 = True", "useFloat16=True"]),
    Lever::new("compress vectors: IVFPQ stores each one in 64 bytes", "faiss.index_factory(d, \"IVF4096,PQ64\")").unless_said(&["IVFPQ", ",PQ"]),
    Lever::new("spread the index across all GPUs", "options = faiss.GpuMultipleClonerOptions(); options.shard = True; faiss.index_cpu_to_all_gpus(index, options)").unless_said(&["shard = True", "shard=True"]),
    Lever::new("shrink the scratch buffer (1.5 GiB by default)", "res.setTempMemory(256 * 2**20)").unless_said(&["setTempMemory", "noTempMemory", "TemporaryMemoryBuffer"]),
    Lever::new("cluster on the CPU", "faiss.Kmeans(d, k, gpu=False)").only(|situation| situation.settings.mentions("kmeans")),
];

const DALI: Program = Program {
    name: "DALI",
    frameworks: &[Framework::Dali],
    marks: &["nvidia/dali", "nvidia.dali"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::Leak => lever::steps(situation, Cause::LiveDataFillsDevice, &DALI_LEVERS[1..3]),
        _ => lever::steps(situation, cause, DALI_LEVERS),
    },
};

const DALI_LEVERS: &[Lever] = &[
    Lever::batch("lower the pipeline's batch size{from}", "Pipeline(batch_size={to})", &["batch_size"]),
    Lever::new(
        "preallocate the decoder's buffers for the largest image, so that they do not grow",
        "fn.decoders.image(…, device_memory_padding=211025920, host_memory_padding=140544512)",
    )
    .unless_said(&["device_memory_padding"]),
    Lever::new("prepare one batch ahead instead of two", "Pipeline(prefetch_queue_depth=1)")
        .unless_said(&["prefetch_queue_depth=1"]),
    Lever::new("decode on the CPU", "fn.decoders.image(…, device=\"cpu\")")
        .unless_said(&["device=\"cpu\"", "device='cpu'"]),
    Lever::new("release PyTorch's cache before the pipeline is built", "torch.cuda.empty_cache()")
        .only(|situation| situation.settings.mentions("torch")),
];

const NUMBA: Program = Program {
    name: "Numba",
    frameworks: &[Framework::Numba],
    marks: &["numba.cuda", "numba/cuda"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, NUMBA_LEVERS),
};

const NUMBA_LEVERS: &[Lever] = &[
    Lever::new(
        "free arrays immediately: by default, up to 20 % of the GPU's memory waits to be freed",
        "NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT=1",
    )
    .unless_said(&["MAX_PENDING_DEALLOCS_COUNT=1"])
    .variable(),
    Lever::new(
        "process the data in at least 2 chunks and reuse one device array",
        "d_part = cuda.device_array(n // 2); d_part.copy_to_device(x[:n // 2])",
    ),
    Lever::new("let managed memory spill to the host", "cuda.managed_array(shape, dtype)")
        .unless_said(&["managed_array"]),
];

const CUPY: Program = Program {
    name: "CuPy",
    frameworks: &[Framework::CuPy],
    marks: &["cupy/cuda", "cupy.cuda", "import cupy"],
    work: Work::Other,
    advise: cupy,
};

fn cupy(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::ArtificialLimit => {
            let needed =
                situation.facts.limit.map(|limit| limit + situation.facts.request.unwrap_or_default());
            let size = needed.map_or_else(
                || "fraction=0.9".to_owned(),
                |bytes| format!("size={} * 2**20", bytes.scaled(1.1).get() >> 20),
            );
            vec![
                Fix::new("raise the pool's limit")
                    .command(format!("cupy.get_default_memory_pool().set_limit({size})")),
            ]
        }
        _ => lever::steps(situation, cause, CUPY_LEVERS),
    }
}

const CUPY_LEVERS: &[Lever] = &[
    Lever::batch("process fewer rows at a time{from}", "batch_size={to}", &["batch_size"])
        .only(|situation| situation.batch().is_some()),
    Lever::new(
        "compute in at least 2 chunks, and copy each result to the host",
        "numpy.concatenate([f(cupy.asarray(part)).get() for part in numpy.array_split(x, 2)])",
    ),
    Lever::new(
        "let managed memory spill to the host",
        "cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)",
    )
    .unless_said(&["malloc_managed"]),
    Lever::new(
        "compute in 32-bit precision: CuPy defaults to 64-bit",
        "x = cupy.asarray(x, dtype=cupy.float32)",
    )
    .unless_said(&["float32"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check};
    use super::*;

    const RMM: &str = "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /opt/include/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory";

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, log, first, set) in [
            ("RAPIDS", RMM.to_owned(), "CUDF_SPILL=on", ("rmm.reinitialize(managed_memory=True)", "managed_memory")),
            ("cuML", format!("File \"umap.pyx\", line 3, in cuml.manifold.umap.UMAP.fit\n{RMM}"), "nn_descent", ("build_algo='nn_descent'", "nn_descent")),
            ("Dask-CUDA", format!("dask-cuda-worker tcp://a:8786\n{RMM}"), "--device-memory-limit 0.5", ("--enable-cudf-spill", "--enable-cudf-spill")),
            ("Spark RAPIDS", "com.nvidia.spark.rapids.jni.GpuSplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry".to_owned(), "concurrentGpuTasks=1", ("spark.rapids.sql.concurrentGpuTasks=1", "concurrentGpuTasks")),
            ("FAISS", "StandardGpuResources: alloc fail type FlatData dev 0 space Device stream 0x5 size 8589934592 bytes (cudaMalloc error out of memory [2])".to_owned(), "useFloat16", ("index_factory(d, 'IVF1024,PQ32')", "PQ64")),
            ("DALI", "nvidia/dali: Critical error in pipeline: Error in thread 0: [/opt/dali/dali/core/mm/async_pool.h:50] Can't allocate 314572800 bytes on device 0. CUDA allocation failed".to_owned(), "Pipeline(batch_size=1)", ("Pipeline(prefetch_queue_depth=1)", "prefetch_queue_depth")),
            ("Numba", "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY".to_owned(), "NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT=1", ("x = cuda.managed_array(n)", "managed_array")),
            ("CuPy", "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 4,294,967,296 bytes (allocated so far: 6,442,450,944 bytes).".to_owned(), "array_split(x, 2)", ("cupy.cuda.malloc_managed", "malloc_managed")),
        ] {
            check(name, &log, first, set);
        }
    }

    #[test]
    fn a_pool_that_refused_is_raised() {
        let log = "dask-cuda-worker a --rmm-pool-size 90GB\nstd::bad_alloc: out_of_memory: RMM failure at: rmm/mr/device/pool_memory_resource.hpp:183: Maximum pool size exceeded";
        let (_, steps) = advice(log, Cause::ArtificialLimit);
        assert!(
            steps[0].command.as_deref().is_some_and(|line| line.contains("--rmm-pool-size 0.9")),
            "{steps:?}"
        );
    }
}
