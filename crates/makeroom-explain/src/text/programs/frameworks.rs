//! Other frameworks, where no application is recognized: PaddlePaddle, MXNet, Caffe, Darknet, Theano, Julia and more.

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::text::situation::Situation;
use crate::{Cause, Fix};

/// What has no format of its own, and so is found by marks before the format that it borrows.
pub(super) const APPLICATIONS: &[&Program] =
    &[&PADDLE_OCR, &TORCH7, &MINDSPORE, &ONEFLOW, &JITTOR, &CANDLE, &BURN, &MLX];
pub(super) const PROGRAMS: &[&Program] = &[&PADDLE, &MXNET, &DARKNET, &CAFFE, &THEANO, &JULIA, &DL4J, &DLIB];

const PADDLE_OCR: Program = Program {
    name: "PaddleOCR",
    frameworks: &[],
    marks: &["paddleocr", "ppocr"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, PADDLE_OCR_LEVERS),
};

const PADDLE_OCR_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per card{from} in the training config",
        "-o Train.loader.batch_size_per_card={to}",
        &["batch_size_per_card"],
    )
    .only(|situation| situation.is_training()),
    Lever::lower("limit the pool of each predictor{from} MB", "gpu_mem={to}", &["gpu_mem", "--gpu_mem"], 500)
        .at_least(500, 100),
    Lever::lower("recognize fewer lines at a time{from}", "rec_batch_num={to}", &["rec_batch_num"], 1),
    Lever::lower(
        "scale large pages down{from} px",
        "det_limit_type='max', det_limit_side_len=960",
        &["det_limit_side_len"],
        960,
    )
    .at_least(960, 32),
    Lever::lower(
        "run fewer workers{from}: each loads the models",
        "gunicorn --workers {to}",
        &["--workers", "-w"],
        0,
    ),
];

const PADDLE: Program = Program {
    name: "PaddlePaddle",
    frameworks: &["paddlepaddle"],
    marks: &["paddle/fluid", "paddle/phi", "import paddle", "paddlepaddle", "paddlex"],
    work: Work::Other,
    advise: paddle,
};

fn paddle(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let environment = situation.environment;
    match cause {
        Cause::OtherProcesses | Cause::HiddenHolder | Cause::Preallocation => vec![
            Fix::new("allocate memory as it is needed")
                .command(environment.export("FLAGS_allocator_strategy=auto_growth")),
            Fix::new("take a smaller share at the start (default 0.92)").command(
                environment
                    .export(&format!("FLAGS_fraction_of_gpu_memory_to_use=0.{:02}", paddle_share(situation))),
            ),
        ],
        Cause::ArtificialLimit => vec![
            Fix::new("remove the limit (0: none)").command(environment.export("FLAGS_gpu_memory_limit_mb=0")),
            Fix::new("let Paddle use more of the GPU")
                .command(environment.export("FLAGS_fraction_of_gpu_memory_to_use=0.92")),
        ],
        _ => {
            let mut fixes = lever::steps(situation, cause, PADDLE_LEVERS);
            let share = situation.settings.number(&["FLAGS_fraction_of_gpu_memory_to_use"]);
            if share.is_some_and(|share| share < 0.9) && cause == Cause::LiveDataFillsDevice {
                fixes.insert(
                    0,
                    Fix::new(format!("let Paddle use more of the GPU than {}", share.unwrap_or_default()))
                        .command(environment.export("FLAGS_fraction_of_gpu_memory_to_use=0.92")),
                );
            }
            fixes
        }
    }
}

fn paddle_share(situation: &Situation<'_>) -> u64 {
    match (situation.facts.free, situation.facts.total) {
        (Some(free), Some(total)) => ((free.share_of(total) * 90.0) as u64).clamp(5, 90),
        _ => 50,
    }
}

const PADDLE_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "batch_size={to}",
        &["batch_size", "--batch_size", "batch_size_per_card", "train_batch_size"],
    ),
    Lever::new("train in 16 bits", "with paddle.amp.auto_cast(level='O2'): …").unless_said(&[
        "auto_cast",
        "--amp",
        "use_amp",
    ]),
    Lever::new(
        "recompute activations instead of keeping them",
        "paddle.distributed.fleet.utils.recompute(block, x)",
    )
    .unless_said(&["recompute"]),
    Lever::lower("shorten the sequences{from}", "max_seq_len={to}", &["max_seq_len", "max_seq_length"], 0)
        .at_least(64, 64),
    Lever::new("release unused blocks between steps", "paddle.device.cuda.empty_cache()")
        .unless_said(&["cuda.empty_cache"]),
];

const MXNET: Program = Program {
    name: "MXNet",
    frameworks: &["mxnet"],
    marks: &["mxnet", "gluoncv"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, MXNET_LEVERS),
};

const MXNET_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "--batch-size {to}",
        &["--batch-size", "batch_size", "per_batch_size"],
    ),
    Lever::new("recompute activations instead of keeping them", "MXNET_BACKWARD_DO_MIRROR=1")
        .unless_said(&["DO_MIRROR=1"])
        .variable(),
    Lever::new(
        "search no cuDNN algorithm: the search needs large workspaces",
        "MXNET_CUDNN_AUTOTUNE_DEFAULT=0",
    )
    .unless_said(&["AUTOTUNE_DEFAULT=0"])
    .variable(),
    Lever::raise(
        "leave more than 5 % of the GPU outside the pool{from} %",
        "MXNET_GPU_MEM_POOL_RESERVE={to}",
        &["MXNET_GPU_MEM_POOL_RESERVE"],
        15,
        30,
    )
    .variable(),
];

const DARKNET: Program = Program {
    name: "Darknet",
    frameworks: &["darknet"],
    marks: &["darknet", "subdivisions="],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DARKNET_LEVERS),
};

const DARKNET_LEVERS: &[Lever] = &[
    Lever::raise(
        "split each batch into more parts{from} in the .cfg file",
        "subdivisions={to}",
        &["subdivisions"],
        64,
        64,
    ),
    Lever::new("do not resize images during training: the last [yolo] layers go up to 608x608", "random=0")
        .unless_said(&["random=0\n"]),
    Lever::side(
        "use a smaller network input{from} in the .cfg file (a multiple of 32)",
        "width={to} height={to}",
        &["width", "height"],
        416,
        (256, 32),
    ),
    Lever::new("build with cuDNN in 16 bits", "make CUDNN=1 CUDNN_HALF=1").unless_said(&["CUDNN_HALF=1"]),
];

const CAFFE: Program = Program {
    name: "Caffe",
    frameworks: &["caffe"],
    marks: &["caffe/", "syncedmem.cpp", "caffe.bin", "pycaffe"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, CAFFE_LEVERS),
};

const CAFFE_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower batch_size{from} in the train and test layers, and accumulate with iter_size in the solver",
        "batch_size: {to}\niter_size: {steps}",
        &["batch_size"],
    ),
    Lever::new("use a smaller test batch: training and test nets share the GPU", "TEST layer: batch_size: 1"),
    Lever::new("reshape the input to a smaller image", "net.blobs['data'].reshape(1, 3, 320, 320)"),
    Lever::new("build with cuDNN, whose convolutions need smaller buffers", "USE_CUDNN := 1")
        .unless_said(&["cudnn"]),
];

const THEANO: Program = Program {
    name: "Theano",
    frameworks: &["theano"],
    marks: &["theano", "lasagne"],
    work: Work::Other,
    advise: theano,
};

fn theano(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::OtherProcesses | Cause::Preallocation => vec![
            Fix::new("do not take memory at the start")
                .command(situation.environment.export("THEANO_FLAGS=gpuarray.preallocate=-1,lib.cnmem=0")),
        ],
        _ => lever::steps(situation, cause, THEANO_LEVERS),
    }
}

const THEANO_LEVERS: &[Lever] = &[
    Lever::batch("lower the minibatch{from}", "batch_size={to}", &["batch_size", "minibatch_size"]),
    Lever::new("free intermediate results at once", "THEANO_FLAGS=allow_gc=True,scan.allow_gc=True")
        .unless_said(&["allow_gc=True"])
        .variable(),
    Lever::new(
        "use cuDNN convolutions with small workspaces",
        "THEANO_FLAGS=dnn.conv.algo_fwd=small,dnn.conv.algo_bwd_filter=none,dnn.conv.algo_bwd_data=none",
    )
    .unless_said(&["algo_fwd=small"])
    .variable(),
    Lever::new(
        "process test data in slices of the training batch size",
        "f(x[i:i + batch_size]) for each slice",
    ),
];

const JULIA: Program = Program {
    name: "CUDA.jl",
    frameworks: &["julia"],
    marks: &["CUDA.jl", "CuArray", "julia>"],
    work: Work::Other,
    advise: julia,
};

fn julia(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::OtherProcesses | Cause::HiddenHolder => vec![
            Fix::new("cap this process's pool at half of the GPU")
                .command(situation.environment.export("JULIA_CUDA_HARD_MEMORY_LIMIT=50%")),
        ],
        Cause::ArtificialLimit => vec![
            Fix::new("raise the limit")
                .command(situation.environment.export("JULIA_CUDA_HARD_MEMORY_LIMIT=95%")),
        ],
        _ => lever::steps(situation, cause, JULIA_LEVERS),
    }
}

const JULIA_LEVERS: &[Lever] = &[
    Lever::new(
        "free arrays that are out of use: the garbage collector does not see GPU memory",
        "GC.gc(true); CUDA.reclaim()",
    )
    .unless_said(&["CUDA.reclaim()"]),
    Lever::new("free temporary arrays in the loop yourself", "CUDA.unsafe_free!(x)")
        .unless_said(&["unsafe_free!"]),
    Lever::new("use 32-bit numbers", "cu(x)   # Float32").unless_said(&["Float32"]),
    Lever::new(
        "collect garbage earlier: a soft limit below the GPU's memory",
        "JULIA_CUDA_SOFT_MEMORY_LIMIT=80%",
    )
    .unless_said(&["SOFT_MEMORY_LIMIT"])
    .variable(),
];

const DL4J: Program = Program {
    name: "Deeplearning4j",
    frameworks: &["deeplearning4j"],
    marks: &["deeplearning4j", "nd4j"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => {
            vec![Fix::new("raise the off-heap limit: it holds the arrays, the heap needs little").command(
                "-Xmx4G -Dorg.bytedeco.javacpp.maxbytes=16G -Dorg.bytedeco.javacpp.maxphysicalbytes=20G",
            )]
        }
        _ => lever::steps(situation, cause, DL4J_LEVERS),
    },
};

const DL4J_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the minibatch{from}",
        "new RecordReaderDataSetIterator(reader, {to})",
        &["batchSize", "batch_size"],
    ),
    Lever::new(
        "reuse workspaces",
        ".trainingWorkspaceMode(WorkspaceMode.ENABLED).inferenceWorkspaceMode(WorkspaceMode.ENABLED)",
    )
    .unless_said(&["WorkspaceMode.ENABLED"]),
    Lever::new(
        "use cuDNN algorithms without workspace",
        ".cudnnAlgoMode(ConvolutionLayer.AlgoMode.NO_WORKSPACE)",
    )
    .unless_said(&["NO_WORKSPACE"]),
    Lever::new("prefetch no batches to the GPU", "new AsyncDataSetIterator(iterator, 1)"),
];

const TORCH7: Program = Program {
    name: "Torch7",
    frameworks: &[],
    marks: &["cutorch", "torch/install", "luajit", "THCStorage.cu", "THCTensorRandom", ".lua:"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, TORCH7_LEVERS),
};

const TORCH7_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "th main.lua -batchSize {to}",
        &["-batchSize", "-batch_size", "batchSize"],
    ),
    Lever::new("collect garbage in the training loop: tensors are freed only then", "collectgarbage()")
        .unless_said(&["collectgarbage"]),
    Lever::new("share gradient buffers", "-shareGradInput true").unless_said(&["shareGradInput true"]),
    Lever::new("use cuDNN without its algorithm search", "cudnn.fastest = false; cudnn.benchmark = false"),
    Lever::side("use smaller images{from}", "-image_size {to}", &["-image_size"], 0, (64, 32)),
];

const MINDSPORE: Program = Program {
    name: "MindSpore",
    frameworks: &[],
    marks: &["mindspore"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => {
            vec![Fix::new("raise the limit").command("mindspore.set_context(max_device_memory=\"30GB\")")]
        }
        _ => lever::steps(situation, cause, MINDSPORE_LEVERS),
    },
};

const MINDSPORE_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size"]),
    Lever::new("optimize the graph's memory", "mindspore.set_context(memory_optimize_level=\"O1\")")
        .unless_said(&["memory_optimize_level"]),
    Lever::new("recompute activations instead of keeping them", "cell.recompute()")
        .unless_said(&[".recompute()"]),
    Lever::new("let MindSpore use more of the device", "mindspore.set_context(max_device_memory=\"30GB\")")
        .unless_said(&["max_device_memory"]),
];

const ONEFLOW: Program = Program {
    name: "OneFlow",
    frameworks: &[],
    marks: &["oneflow"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, ONEFLOW_LEVERS),
};

const ONEFLOW_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size", "--batch_size"]),
    Lever::new(
        "recompute activations in graph mode",
        "self.module.to(flow.nn.graph.GraphModule).activation_checkpointing = True",
    )
    .unless_said(&["activation_checkpointing"]),
    Lever::new("train in 16 bits in graph mode", "self.config.enable_amp(True)")
        .unless_said(&["enable_amp(True)"]),
    Lever::new("release unused blocks", "oneflow.cuda.empty_cache()").unless_said(&["cuda.empty_cache"]),
];

const JITTOR: Program = Program {
    name: "Jittor",
    frameworks: &[],
    marks: &["jittor"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::HostMemory | Cause::Leak => vec![
            Fix::new("keep numbers, not Vars, from step to step").command("total += loss.item()"),
            Fix::new("print what is alive after each epoch").command("jt.display_memory_info()"),
            Fix::new("let Jittor swap to disk")
                .command("JT_SAVE_MEM=1 cpu_mem_limit=16000000000 device_mem_limit=8000000000 python …"),
        ],
        _ => lever::steps(situation, cause, JITTOR_LEVERS),
    },
};

const JITTOR_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size"]),
    Lever::new(
        "let Jittor swap to the CPU and disk",
        "JT_SAVE_MEM=1 cpu_mem_limit=16000000000 device_mem_limit=8000000000 python …",
    )
    .unless_said(&["JT_SAVE_MEM=1", "device_mem_limit: "]),
    Lever::new("give each MPI rank its own GPU", "mpirun -np 2 -x CUDA_VISIBLE_DEVICES=0,1 python …")
        .only(|situation| situation.settings.mentions("mpi")),
    Lever::new("release unused memory between steps", "jt.sync_all(); jt.gc()").unless_said(&["jt.gc()"]),
];

const DLIB: Program = Program {
    name: "dlib",
    frameworks: &["dlib"],
    marks: &["face_recognition", "dlib"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, DLIB_LEVERS),
};

const DLIB_LEVERS: &[Lever] = &[
    Lever::new(
        "scale the image to at most 1600 px before detection: memory grows with its area",
        "image = cv2.resize(image, None, fx=0.5, fy=0.5)",
    ),
    Lever::new(
        "do not upsample: each time quadruples the pixels",
        "face_locations(image, number_of_times_to_upsample=0, model=\"cnn\")",
    )
    .unless_said(&["upsample=0", "upsample_num_times=0"]),
    Lever::lower(
        "detect in fewer images at a time{from}",
        "batch_face_locations(images, batch_size={to})",
        &["batch_size"],
        1,
    )
    .only(|situation| situation.settings.mentions("batch")),
    Lever::new("detect on the CPU", "face_locations(image, model=\"hog\")")
        .unless_said(&["\"hog\"", "'hog'"]),
];

const CANDLE: Program = Program {
    name: "candle",
    frameworks: &[],
    marks: &[
        "candle-core",
        "candle_core",
        "candle-examples",
        "DriverError(CUDA_ERROR_OUT_OF_MEMORY",
        "cudarc",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, CANDLE_LEVERS),
};

const CANDLE_LEVERS: &[Lever] = &[
    Lever::new(
        "load the weights in 16 bits",
        "VarBuilder::from_mmaped_safetensors(&files, DType::BF16, &device)",
    )
    .unless_said(&["DType::BF16", "DType::F16", "--dtype bf16", "--dtype f16", "--use-f16"]),
    Lever::new("use a quantized model", "--example quantized -- --which 7b-mistral")
        .unless_said(&["quantized", "gguf"]),
    Lever::new("generate a smaller image", "--height 512 --width 512")
        .only(|situation| situation.settings.mentions("diffusion")),
    Lever::lower(
        "generate fewer tokens{from}: the KV cache grows with each",
        "--sample-len {to}",
        &["--sample-len"],
        256,
    ),
    Lever::new("run on the CPU", "--cpu").unless_said(&["--cpu"]),
];

const BURN: Program = Program {
    name: "Burn",
    frameworks: &[],
    marks: &["cubecl", "burn-wgpu", "burn-cuda", "burn/", "tracel-ai"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::ArtificialLimit => lever::steps(situation, Cause::LiveDataFillsDevice, BURN_LEVERS),
        _ => lever::steps(situation, cause, BURN_LEVERS),
    },
};

const BURN_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "config.with_batch_size({to})", &["batch_size"]),
    Lever::new("use the CUDA backend: wgpu limits the size of one buffer", "--features cuda")
        .unless_said(&["--features cuda", "burn-cuda"]),
    Lever::new(
        "allocate a page per buffer instead of large pools",
        "RuntimeOptions { memory_config: MemoryConfiguration::ExclusivePages, ..Default::default() }",
    )
    .unless_said(&["ExclusivePages"]),
    Lever::new("compute in 16 bits", "type Backend = Wgpu<half::f16, i32>;").unless_said(&["f16"]),
];

const MLX: Program = Program {
    name: "MLX",
    frameworks: &[],
    marks: &["mlx_lm", "mlx-lm", "import mlx", "mlx.core", "mlx/backend"],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, MLX_LEVERS),
};

const MLX_LEVERS: &[Lever] = &[
    Lever::new(
        "let the GPU wire more of the machine's memory (24 GB of 32, say)",
        "sudo sysctl iogpu.wired_limit_mb=24576",
    )
    .unless_said(&["iogpu.wired_limit_mb="]),
    Lever::lower("cap the KV cache{from} tokens", "--max-kv-size {to}", &["--max-kv-size"], 4096)
        .at_least(512, 512),
    Lever::new("process the prompt in smaller steps", "--prefill-step-size 512")
        .unless_said(&["prefill-step-size"]),
    Lever::new("use a model with fewer bits", "mlx_lm.convert --hf-path MODEL -q --q-bits 4")
        .unless_said(&["4bit", "4-bit"]),
];

#[cfg(test)]
#[path = "frameworks_tests.rs"]
mod tests;
