//! Frameworks and bindings that few start new work with, and small ones: CNTK, Caffe2 and Detectron, tinygrad, `ManagedCuda`,
//! GCC's offloading.

use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const APPLICATIONS: &[&Program] = &[&DETECTRON_1, &CNTK, &TINYGRAD, &MANAGED_CUDA, &NVPTX];
pub(super) const PROGRAMS: &[&Program] = &[&CAFFE2];

const DETECTRON_1: Program = Program {
    name: "Detectron",
    frameworks: &[],
    marks: &["detectron/utils", "detectron/core", "detectron/modeling", "tools/train_net.py --cfg"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DETECTRON_1_LEVERS),
};

const DETECTRON_1_LEVERS: &[Lever] = &[
    Lever::lower(
        "put fewer images on each GPU{from}, and lower SOLVER.BASE_LR by the same factor",
        "TRAIN.IMS_PER_BATCH {to}",
        &["TRAIN.IMS_PER_BATCH", "IMS_PER_BATCH"],
        1,
    ),
    Lever::new("train on smaller images", "TRAIN.SCALES \"(500,)\" TRAIN.MAX_SIZE 833")
        .unless_said(&["TRAIN.MAX_SIZE 833"]),
    Lever::lower(
        "sample fewer proposals per image{from}",
        "TRAIN.BATCH_SIZE_PER_IM {to}",
        &["TRAIN.BATCH_SIZE_PER_IM", "BATCH_SIZE_PER_IM"],
        256,
    )
    .at_least(64, 64),
    Lever::new(
        "reuse the memory of activations that are no longer needed",
        "MODEL.MEMONGER True TEST.MEMONGER True",
    )
    .unless_said(&["MEMONGER True"]),
];

const CAFFE2: Program = Program {
    name: "Caffe2",
    frameworks: &[],
    marks: &["caffe2/"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, CAFFE2_LEVERS),
};

const CAFFE2_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size", "--batch_size"]),
    Lever::new("allocate from CUB's pool, which frees memory between nets", "--caffe2_cuda_memory_pool=cub")
        .unless_said(&["memory_pool=cub"]),
    Lever::new("use smaller cuDNN workspaces (default 64 MB)", "ws_nbytes_limit=16 * 1024 * 1024")
        .unless_said(&["ws_nbytes_limit"]),
];

const CNTK: Program = Program {
    name: "CNTK",
    frameworks: &[],
    marks: &[
        "cntk",
        "&deviceBufferPtr",
        "sizeof(AllocatedElemType",
        "Starting minibatch loop",
        "minibatchSize",
    ],
    work: Work::Training,
    advise: |situation, cause| match cause {
        // Its workspaces and its arrays come from the same memory.
        Cause::NonFrameworkOverhead => lever::steps(situation, Cause::LiveDataFillsDevice, CNTK_LEVERS),
        _ => lever::steps(situation, cause, CNTK_LEVERS),
    },
};

const CNTK_LEVERS: &[Lever] = &[
    Lever::new(
        "detect fewer regions, and use smaller images (config.py)",
        "__C.NUM_ROI_PROPOSALS = 50; __C.IMAGE_WIDTH = 500; __C.IMAGE_HEIGHT = 500",
    )
    .only(|situation| ["rcnn", "FasterRCNN", "roi"].iter().any(|words| situation.settings.mentions(words))),
    Lever::batch(
        "lower the minibatch size{from}",
        "minibatch_size={to}   (BrainScript: minibatchSize = {to})",
        &["minibatchSize", "minibatch_size", "mb_size"],
    ),
    Lever::new("share more memory between nodes", "cntk.cntk_py.enable_hyper_memory_compress()")
        .unless_said(&["hyper_memory_compress", "hyperCompressMemory"]),
    Lever::new(
        "limit cuDNN's convolution workspace: 0 means no limit",
        "Convolution(…, max_temp_mem_size_in_samples=1)   (BrainScript: maxTempMemSizeInSamples = 1)",
    )
    .unless_said(&["max_temp_mem_size_in_samples", "maxTempMemSizeInSamples"]),
];

const TINYGRAD: Program = Program {
    name: "tinygrad",
    frameworks: &[],
    marks: &["tinygrad/", "tinygrad", "EVAL_BS=", "examples/hlb_cifar10"],
    work: Work::Other,
    advise: tinygrad,
};

fn tinygrad(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::HostMemory
        | Cause::CacheHeldByFramework => lever::steps(situation, Cause::LiveDataFillsDevice, TINYGRAD_LEVERS),
        _ => lever::steps(situation, cause, TINYGRAD_LEVERS),
    }
}

fn is_language_model(situation: &Situation<'_>) -> bool {
    ["llama", "gpt2", "mixtral"].iter().any(|words| situation.settings.mentions(words))
}

const TINYGRAD_LEVERS: &[Lever] = &[
    Lever::new(
        "load the weights in 8-bit or 4-bit precision",
        "python examples/llama.py --quantize int8   (or nf4)",
    )
    .unless_said(&["--quantize"])
    .only(is_language_model),
    Lever::lower("lower the batch size{from}", "BS={to} python …", &["BS", "-bs"], 64)
        .only(|situation| !is_language_model(situation)),
    Lever::lower("evaluate in smaller batches{from}", "EVAL_BS={to} python …", &["EVAL_BS"], 0),
    Lever::new("return freed buffers to the driver instead of keeping them", "LRU=0 python …")
        .unless_said(&["LRU=0"]),
    Lever::new("compute in 16-bit precision", "DEFAULT_FLOAT=HALF python …")
        .unless_said(&["DEFAULT_FLOAT=HALF", "HALF=1"]),
];

const MANAGED_CUDA: Program = Program {
    name: "ManagedCuda",
    frameworks: &[],
    marks: &["ManagedCuda", "NPPImage_", "CudaDeviceVariable"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, MANAGED_CUDA_LEVERS),
};

const MANAGED_CUDA_LEVERS: &[Lever] = &[
    Lever::new(
        "dispose of images as soon as you are done with them: the garbage collector does not see GPU memory",
        "using (var image = new NPPImage_8uC3(width, height)) { … }",
    )
    .only(|situation| situation.settings.mentions("NPPImage") && !situation.settings.mentions("using (var")),
    Lever::new(
        "dispose of arrays as soon as you are done with them: the garbage collector does not see GPU memory",
        "using (var data = new CudaDeviceVariable<float>(count)) { … }",
    )
    .only(|situation| !situation.settings.mentions("NPPImage")),
    Lever::new("check the free memory before allocating a large array", "context.GetFreeDeviceMemorySize()")
        .unless_said(&["GetFreeDeviceMemorySize"]),
];

const NVPTX: Program = Program {
    name: "GCC's offloading",
    frameworks: &[],
    marks: &["nvptx-none-run", "libgomp-plugin-nvptx", "libgomp: cuMemAlloc", "nvptx-tools"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, NVPTX_LEVERS),
};

const NVPTX_LEVERS: &[Lever] = &[
    Lever::new(
        "reserve a smaller stack: each thread that the GPU can run at once gets one (default 128 KiB)",
        "nvptx-none-run -S 8192 …",
    )
    .only(|situation| situation.settings.mentions("nvptx-none-run")),
    Lever::new("reserve a smaller heap (default 256 MiB)", "nvptx-none-run -H 16777216 …")
        .only(|situation| situation.settings.mentions("nvptx-none-run")),
    Lever::new(
        "start fewer teams: each has its own stack",
        "OMP_NUM_TEAMS=32 GOMP_NVPTX_NATIVE_GPU_THREAD_POOL_SIZE=32",
    )
    .variable()
    .only(|situation| !situation.settings.mentions("nvptx-none-run")),
];

#[cfg(test)]
mod tests {
    use super::super::testing::check;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, log, first, set) in [
            (
                "Detectron",
                "  File \"/src/detectron/utils/train.py\", line 9, in train_model\nRuntimeError: [enforce fail at context_gpu.cu:343] error == cudaSuccess. 2 vs 0. Error at: context_gpu.cu:343: out of memory",
                "TRAIN.IMS_PER_BATCH 1",
                ("MODEL.MEMONGER True", "MEMONGER"),
            ),
            (
                "CNTK",
                "CUDA failure 2: out of memory ; GPU=0 ; hostname=box ; expr=cudaMalloc((void**) &deviceBufferPtr, n)",
                "minibatch_size=1",
                ("enable_hyper_memory_compress()", "hyper_memory_compress"),
            ),
            (
                "tinygrad",
                "BS=512 python examples/hlb_cifar10.py\n  File \"/src/tinygrad/device.py\", line 9, in alloc\npyopencl._cl.MemoryError: clEnqueueMapBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE",
                "BS=256",
                ("LRU=0", "LRU=0"),
            ),
            (
                "ManagedCuda",
                "ManagedCuda.CudaException: ErrorOutOfMemory: out of memory at new CudaDeviceVariable",
                "CudaDeviceVariable<float>(count)",
                ("GetFreeDeviceMemorySize", "GetFreeDeviceMemorySize"),
            ),
        ] {
            check(name, log, first, set);
        }
    }
}
