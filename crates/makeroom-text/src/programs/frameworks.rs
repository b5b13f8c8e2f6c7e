//! Other frameworks, where no application is recognized: PaddlePaddle, MXNet, Caffe, Darknet, Theano, Julia and more.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;
use crate::smaller;

/// The only program that writes its format.
pub(super) const APPLICATIONS: &[&Program] = &[&DARKNET];
pub(super) const PROGRAMS: &[&Program] = &[&PADDLE, &MXNET, &CAFFE, &THEANO, &JULIA, &DL4J, &DLIB];

const PADDLE: Program = Program {
    name: "PaddlePaddle",
    frameworks: &[Framework::PaddlePaddle],
    marks: &["paddle/fluid", "paddle/phi", "import paddle", "paddlepaddle", "paddlex", "paddlespeech"],
    work: Work::Other,
    advise: paddle,
};

fn paddle(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let environment = situation.environment;
    match cause {
        Cause::OtherProcesses | Cause::HiddenHolder | Cause::Preallocation => vec![
            Fix::new("allocate memory as it is needed")
                .command(environment.export("FLAGS_allocator_strategy=auto_growth")),
            Fix::new("reserve a smaller share of GPU memory at startup (default 0.92)").command(
                environment
                    .export(&format!("FLAGS_fraction_of_gpu_memory_to_use=0.{:02}", paddle_share(situation))),
            ),
        ],
        Cause::ArtificialLimit => vec![
            Fix::new("remove the limit (0: no limit)")
                .command(environment.export("FLAGS_gpu_memory_limit_mb=0")),
            Fix::new("let Paddle use more of the GPU's memory")
                .command(environment.export("FLAGS_fraction_of_gpu_memory_to_use=0.92")),
        ],
        _ => {
            let mut fixes = lever::steps(situation, cause, PADDLE_LEVERS);
            if cause == Cause::LiveDataFillsDevice && !situation.is_training() {
                fixes.splice(0..0, smaller::smaller_input(situation));
            }
            let share = situation
                .settings
                .number(&["FLAGS_fraction_of_gpu_memory_to_use is", "FLAGS_fraction_of_gpu_memory_to_use"]);
            if share.is_some_and(|share| share < 0.9) && cause == Cause::LiveDataFillsDevice {
                fixes.insert(
                    0,
                    Fix::new(format!(
                        "let Paddle use a larger share of GPU memory than {}",
                        share.unwrap_or_default()
                    ))
                    .command(environment.export("FLAGS_fraction_of_gpu_memory_to_use=0.92")),
                );
            }
            fixes
        }
    }
}

fn is_training(situation: &Situation<'_>) -> bool {
    situation.is_training()
}

fn paddle_share(situation: &Situation<'_>) -> u64 {
    match (situation.facts.free, situation.facts.total) {
        (Some(free), Some(total)) if free.share_of(total) >= 0.1 => {
            ((free.share_of(total) * 90.0) as u64).min(90)
        }
        _ => 50,
    }
}

const PADDLE_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "batch_size={to}",
        &["batch_size", "--batch_size", "batch_size_per_card", "train_batch_size"],
    )
    .only(smaller::has_batches),
    Lever::new("train in 16-bit precision", "with paddle.amp.auto_cast(level='O2'): …")
        .unless_said(&["auto_cast", "--amp", "use_amp"])
        .only(is_training),
    Lever::new("run the model without gradients", "with paddle.no_grad(): …")
        .unless_said(&["no_grad"])
        .only(|situation| !situation.is_training()),
    Lever::new(
        "recompute activations instead of keeping them",
        "paddle.distributed.fleet.utils.recompute(block, x)",
    )
    .unless_said(&["recompute"])
    .only(is_training),
    Lever::lower("shorten the sequences{from}", "max_seq_len={to}", &["max_seq_len", "max_seq_length"], 0)
        .at_least(64, 64),
    Lever::new("release unused blocks between steps", "paddle.device.cuda.empty_cache()")
        .unless_said(&["cuda.empty_cache"]),
];

const MXNET: Program = Program {
    name: "MXNet",
    frameworks: &[Framework::MxNet],
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
        "turn off cuDNN's algorithm search, which needs large workspaces",
        "MXNET_CUDNN_AUTOTUNE_DEFAULT=0",
    )
    .unless_said(&["AUTOTUNE_DEFAULT=0"])
    .variable(),
    Lever::raise(
        "raise the share of GPU memory outside the pool{from %| (default 5 %)}",
        "MXNET_GPU_MEM_POOL_RESERVE={to}",
        &["MXNET_GPU_MEM_POOL_RESERVE"],
        15,
        30,
    )
    .variable(),
];

const DARKNET: Program = Program {
    name: "Darknet",
    frameworks: &[Framework::Darknet],
    marks: &["./darknet ", "darknet: ./src", "darknet.exe", "subdivisions="],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, DARKNET_LEVERS),
};

/// Whether Darknet found no subdivisions in the file, and so puts the whole batch on the GPU.
fn is_default_of_one(situation: &Situation<'_>) -> bool {
    situation.settings.mentions("subdivisions: Using default")
}

const DARKNET_LEVERS: &[Lever] = &[
    Lever::raise(
        "split each batch of 64 into more parts{from} in the [net] section of the .cfg file",
        "batch=64\nsubdivisions={to}",
        &["subdivisions"],
        64,
        64,
    )
    .only(|situation| !is_default_of_one(situation)),
    Lever::new(
        "split each batch of 64 into 16 or 32 parts in the [net] section of the .cfg file, which does not set subdivisions",
        "batch=64\nsubdivisions=16",
    )
    .only(is_default_of_one),
    Lever::new("do not resize the network input during training: resizing raises it to 608x608 (in the last [yolo] layers)", "random=0")
        .unless_said(&["random=0\n"]),
    Lever::side(
        "use a smaller network input{from} in the .cfg file (a multiple of 32)",
        "width={to} height={to}",
        &["width", "height"],
        416,
        (256, 32),
    ),
    Lever::new("build with cuDNN in half precision", "make CUDNN=1 CUDNN_HALF=1").unless_said(&["CUDNN_HALF=1"]),
];

const CAFFE: Program = Program {
    name: "Caffe",
    frameworks: &[Framework::Caffe],
    marks: &["caffe/", "syncedmem.cpp", "caffe.bin", "pycaffe"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, CAFFE_LEVERS),
};

const CAFFE_LEVERS: &[Lever] = &[
    Lever::new(
        "build without CUDA: a CUDA build opens the GPU even in CPU mode (Makefile.config, then rebuild)",
        "CPU_ONLY := 1",
    )
    .only(|situation| {
        ["solver_mode: CPU", "CPU mode", "CPU-only", "cpu only"]
            .iter()
            .any(|words| situation.settings.mentions(words))
    }),
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
    frameworks: &[Framework::Theano],
    marks: &["theano", "lasagne"],
    work: Work::Other,
    advise: theano,
};

fn theano(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::OtherProcesses | Cause::Preallocation => vec![
            Fix::new("do not preallocate memory")
                .command(situation.environment.export("THEANO_FLAGS=gpuarray.preallocate=-1,lib.cnmem=0")),
        ],
        _ => lever::steps(situation, cause, THEANO_LEVERS),
    }
}

const THEANO_LEVERS: &[Lever] = &[
    Lever::batch("lower the minibatch size{from}", "batch_size={to}", &["batch_size", "minibatch_size"]),
    Lever::new("free intermediate results immediately", "THEANO_FLAGS=allow_gc=True,scan.allow_gc=True")
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
    frameworks: &[Framework::Julia],
    marks: &[
        "CUDA.jl",
        "CuArray",
        "julia>",
        "CUDAnative",
        "CUDAdrv",
        "CUDA.CuError",
        "Flux or Knet",
        "julia --project",
        "LoadError: CUDA",
    ],
    work: Work::Other,
    advise: julia,
};

fn julia(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::OtherProcesses | Cause::HiddenHolder => vec![
            Fix::new("cap this process's pool at half of the GPU's memory")
                .command(situation.environment.export("JULIA_CUDA_HARD_MEMORY_LIMIT=50%")),
        ],
        Cause::NonFrameworkOverhead | Cause::CacheHeldByFramework => {
            lever::steps(situation, Cause::LiveDataFillsDevice, JULIA_LEVERS)
        }
        Cause::ArtificialLimit => vec![
            Fix::new("raise the limit")
                .command(situation.environment.export("JULIA_CUDA_HARD_MEMORY_LIMIT=95%")),
        ],
        _ => lever::steps(situation, cause, JULIA_LEVERS),
    }
}

const JULIA_LEVERS: &[Lever] = &[
    Lever::new(
        "increase the in-kernel heap size (default 8 MiB); find the allocation in the kernel with @device_code_warntype",
        "CUDA.limit!(CUDA.LIMIT_MALLOC_HEAP_SIZE, 256 * 2^20)",
    )
    .only(|situation| situation.settings.mentions("dynamic GPU memory")),
    Lever::new(
        "free arrays that are no longer used: the garbage collector does not see GPU memory",
        "GC.gc(true); CUDA.reclaim()",
    )
    .unless_said(&["CUDA.reclaim()"]),
    Lever::new("free temporary arrays in the loop yourself", "CUDA.unsafe_free!(x)")
        .unless_said(&["unsafe_free!"]),
    Lever::new("use 32-bit numbers", "cu(x)   # Float32").unless_said(&["Float32"]),
    Lever::new(
        "collect garbage earlier: set a soft limit below the GPU's memory",
        "JULIA_CUDA_SOFT_MEMORY_LIMIT=80%",
    )
    .unless_said(&["SOFT_MEMORY_LIMIT"])
    .variable(),
];

const DL4J: Program = Program {
    name: "Deeplearning4j",
    frameworks: &[Framework::DeepLearning4j],
    marks: &["deeplearning4j", "nd4j"],
    work: Work::Training,
    advise: |situation, cause| match cause {
        Cause::HostMemory => {
            vec![off_heap(situation)]
        }
        _ => lever::steps(situation, cause, DL4J_LEVERS),
    },
};

/// The limit of the memory outside the heap, above what the process has where the text shows it.
fn off_heap(situation: &Situation<'_>) -> Fix {
    let physical = situation.settings.value(&["physicalBytes"]).and_then(|value| {
        let digits = value.trim_end_matches(|last: char| last.is_ascii_alphabetic());
        let bytes: u64 = digits.parse().ok()?;
        Some(if value.ends_with(['M', 'm']) { bytes >> 10 } else { bytes >> 30 })
    });
    match physical.filter(|&gigabytes| gigabytes >= 20) {
        Some(held) => Fix::new(format!(
            "raise the limit of the whole process above the {held} GiB that it uses (0: no limit), and make the heap smaller"
        ))
        .command(format!(
            "-Xmx4G -Dorg.bytedeco.javacpp.maxbytes={0}G -Dorg.bytedeco.javacpp.maxphysicalbytes={0}G",
            held * 3 / 2
        )),
        None => Fix::new("raise the off-heap limit: the arrays are stored there, and the heap needs little")
            .command("-Xmx4G -Dorg.bytedeco.javacpp.maxbytes=16G -Dorg.bytedeco.javacpp.maxphysicalbytes=20G"),
    }
}

const DL4J_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the minibatch size{from}",
        "new RecordReaderDataSetIterator(reader, {to})",
        &["batchSize", "batch_size"],
    ),
    Lever::new(
        "reuse workspaces",
        ".trainingWorkspaceMode(WorkspaceMode.ENABLED).inferenceWorkspaceMode(WorkspaceMode.ENABLED)",
    )
    .unless_said(&["WorkspaceMode.ENABLED"]),
    Lever::new(
        "use cuDNN algorithms that need no workspace",
        ".cudnnAlgoMode(ConvolutionLayer.AlgoMode.NO_WORKSPACE)",
    )
    .unless_said(&["NO_WORKSPACE"]),
    Lever::new("do not prefetch batches to the GPU", "new AsyncDataSetIterator(iterator, 1)"),
];

const DLIB: Program = Program {
    name: "dlib",
    frameworks: &[Framework::Dlib],
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
        "do not upsample: each step quadruples the pixels",
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

#[cfg(test)]
mod tests {
    use super::super::testing::{advice, check, torch};
    use super::*;

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let paddle = "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 98.5MB memory on GPU 0, 7.25GB memory has been allocated and available memory is only 15.2MB.";
        for (name, log, first, set) in [
            ("PaddlePaddle", format!("epoch 3\n{paddle}"), "batch_size=1", ("paddle.amp.auto_cast(", "auto_cast")),
            ("MXNet", "mxnet.base.MXNetError: src/storage/./pooled_storage_manager.h:108: cudaMalloc failed: out of memory".to_owned(), "--batch-size 1", ("export MXNET_BACKWARD_DO_MIRROR=1", "MIRROR")),
            ("Darknet", "CUDA Error: out of memory\ndarknet: ./src/cuda.c:36: check_error: Assertion `0' failed.".to_owned(), "subdivisions=64", ("random=0\n", "random=0")),
            ("Caffe", "F0101 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory".to_owned(), "batch_size: 1", ("I0101 cudnn_conv_layer.cpp", "USE_CUDNN")),
            ("Theano", "MemoryError: Error allocating 71323200 bytes of device memory (out of memory). Driver report 10526720 bytes free and 4294770688 bytes total".to_owned(), "batch_size=1", ("THEANO_FLAGS=allow_gc=True", "allow_gc")),
            ("CUDA.jl", "ERROR: LoadError: Out of GPU memory trying to allocate 1.500 GiB\nEffective GPU memory usage: 99.20% (7.900 GiB/8.000 GiB)\nCUDA.jl".to_owned(), "CUDA.reclaim()", ("CUDA.reclaim()", "CUDA.reclaim()")),
            ("Deeplearning4j", "java.lang.RuntimeException: CUDA error code: 2 org.nd4j.linalg.jcublas: out of memory".to_owned(), "RecordReaderDataSetIterator(reader, 1)", ("WorkspaceMode.ENABLED", "WorkspaceMode")),
            ("dlib", "RuntimeError: Error while calling cudaMalloc(&data, n) in file /tmp/dlib/dlib/cuda/gpu_data.cpp:218. code: 2, reason: out of memory".to_owned(), "cv2.resize", ("number_of_times_to_upsample=0", "number_of_times_to_upsample")),
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
}
