//! Tests of the frameworks' steps.

use super::super::testing::{advice, check, torch};
use super::*;

const CUDA: &str = "CUDA error 2: out of memory";

#[test]
fn each_program_is_found_and_names_its_own_options() {
    let paddle = "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 98.5MB memory on GPU 0, 7.25GB memory has been allocated and available memory is only 15.2MB.";
    for (name, log, first, set) in [
        ("PaddleOCR", format!("ppocr INFO: start\n{paddle}"), "gpu_mem=500", ("rec_batch_num=1", "rec_batch_num")),
        ("PaddlePaddle", paddle.to_owned(), "batch_size=1", ("paddle.amp.auto_cast(", "auto_cast")),
        ("MXNet", "mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:108: cudaMalloc failed: out of memory".to_owned(), "--batch-size 1", ("export MXNET_BACKWARD_DO_MIRROR=1", "MIRROR")),
        ("Darknet", "CUDA Error: out of memory\ndarknet: ./src/cuda.c:36: check_error: Assertion `0' failed.".to_owned(), "subdivisions=64", ("random=0\n", "random=0")),
        ("Caffe", "F0101 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory".to_owned(), "batch_size: 1", ("I0101 cudnn_conv_layer.cpp", "USE_CUDNN")),
        ("Theano", "MemoryError: Error allocating 71323200 bytes of device memory (out of memory). Driver report 10526720 bytes free and 4294770688 bytes total".to_owned(), "batch_size=1", ("THEANO_FLAGS=allow_gc=True", "allow_gc")),
        ("CUDA.jl", "ERROR: LoadError: Out of GPU memory trying to allocate 1.500 GiB\nEffective GPU memory usage: 99.20% (7.900 GiB/8.000 GiB)\nCUDA.jl".to_owned(), "CUDA.reclaim()", ("CUDA.reclaim()", "CUDA.reclaim()")),
        ("Deeplearning4j", "java.lang.RuntimeException: CUDA error code: 2 org.nd4j.linalg.jcublas: out of memory".to_owned(), "RecordReaderDataSetIterator(reader, 1)", ("WorkspaceMode.ENABLED", "WorkspaceMode")),
        ("Torch7", "/home/me/torch/install/bin/luajit: cuda runtime error (2) : out of memory at /tmp/cutorch/lib/THC/generic/THCStorage.cu:66".to_owned(), "-batchSize 1", ("collectgarbage()", "collectgarbage")),
        ("MindSpore", format!("mindspore/ccsrc/runtime: \n{CUDA}"), "batch_size=1", ("cell.recompute()", "recompute")),
        ("OneFlow", "oneflow::RuntimeException what(): Error: CUDA out of memory. Tried to allocate 114.0 MB".to_owned(), "batch_size=1", ("self.config.enable_amp(True)", "enable_amp")),
        ("Jittor", "jittor/src/mem/allocator/cuda_dual_allocator.h: CUDA error 2: out of memory".to_owned(), "batch_size=1", ("JT_SAVE_MEM=1 python a.py", "JT_SAVE_MEM")),
        ("dlib", "RuntimeError: Error while calling cudaMalloc(&data, n) in file /tmp/dlib/dlib/cuda/gpu_data.cpp:218. code: 2, reason: out of memory".to_owned(), "cv2.resize", ("number_of_times_to_upsample=0", "number_of_times_to_upsample")),
        ("candle", "Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".to_owned(), "DType::BF16", ("--dtype bf16", "DType::BF16")),
        ("Burn", format!("cubecl-runtime/src/memory_management/dynamic.rs:156\n{CUDA}"), "with_batch_size(1)", ("cargo run --features cuda", "--features cuda")),
        ("MLX", format!("python -m mlx_lm generate\n{CUDA}"), "iogpu.wired_limit_mb", ("--max-kv-size 512", "--max-kv-size")),
    ] {
        check(name, &log, first, set);
    }
}

#[test]
fn paddle_takes_the_share_that_is_free() {
    let log = "Out of memory error on GPU 0. Cannot allocate 98.5MB memory on GPU 0, available memory is only 15.2MB. paddle";
    let (_, steps) = advice(log, Cause::OtherProcesses);
    assert!(
        steps.iter().any(|fix| fix.command.as_deref().unwrap_or("").contains("auto_growth")),
        "{steps:?}"
    );
}

#[test]
fn a_framework_is_not_named_by_chance() {
    let (program, _) = advice(&torch("python main.py"), Cause::LiveDataFillsDevice);
    assert_eq!(program.name, "PyTorch");
}
