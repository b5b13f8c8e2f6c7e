//! Frameworks that print another library's errors: they are found by marks, before that library's format.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::lever::{self, Lever};
use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] =
    &[&PADDLE_OCR, &TORCH7, &MINDSPORE, &ONEFLOW, &JITTOR, &CANDLE, &BURN, &MLX];

const PADDLE_OCR: Program = Program {
    name: "PaddleOCR",
    frameworks: &[],
    marks: &["paddleocr", "ppocr"],
    work: Work::Other,
    advise: |situation, cause| lever::steps(situation, cause, PADDLE_OCR_LEVERS),
};

fn is_training(situation: &Situation<'_>) -> bool {
    situation.is_training()
}

const PADDLE_OCR_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size per card{from} in the training config",
        "-o Train.loader.batch_size_per_card={to}",
        &["batch_size_per_card"],
    )
    .only(is_training),
    Lever::lower("limit the pool of each predictor{from MB}", "gpu_mem={to}", &["gpu_mem", "--gpu_mem"], 500)
        .at_least(500, 100),
    Lever::lower("recognize fewer lines at a time{from}", "rec_batch_num={to}", &["rec_batch_num"], 1),
    Lever::lower(
        "scale large pages down{from px}",
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

const TORCH7: Program = Program {
    name: "Torch7",
    frameworks: &[],
    marks: &["cutorch", "torch/install", "luajit", ".lua:", "train.lua", "main.lua", "neural_style.lua"],
    work: Work::Training,
    advise: |situation, cause| lever::steps(situation, cause, TORCH7_LEVERS),
};

const TORCH7_LEVERS: &[Lever] = &[
    Lever::batch(
        "lower the batch size{from}",
        "th main.lua -batchSize {to}",
        &["-batchSize", "-batch_size", "batchSize"],
    ),
    Lever::new(
        "run the garbage collector in the training loop: tensors are freed only then",
        "collectgarbage()",
    )
    .unless_said(&["collectgarbage"]),
    Lever::new("share gradient buffers", "-shareGradInput true").unless_said(&["shareGradInput true"]),
    Lever::new("turn off cuDNN's algorithm search", "cudnn.fastest = false; cudnn.benchmark = false"),
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
        Cause::OtherProcesses | Cause::HiddenHolder | Cause::Preallocation => vec![
            Fix::new("limit MindSpore to the memory that is free")
                .command("mindspore.set_context(max_device_memory=\"4GB\")"),
        ],
        _ => lever::steps(situation, cause, MINDSPORE_LEVERS),
    },
};

const MINDSPORE_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size"]),
    Lever::new("optimize the graph's memory", "mindspore.set_context(memory_optimize_level=\"O1\")")
        .unless_said(&["memory_optimize_level"]),
    Lever::new("recompute activations instead of keeping them", "cell.recompute()")
        .unless_said(&[".recompute()"]),
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
    Lever::new("train in 16-bit precision in graph mode", "self.config.enable_amp(True)")
        .unless_said(&["enable_amp(True)"]),
    Lever::new("release unused blocks", "oneflow.cuda.empty_cache()").unless_said(&["cuda.empty_cache"]),
];

const JITTOR: Program = Program {
    name: "Jittor",
    frameworks: &[Framework::Jittor],
    marks: &["jittor", "GPU memory is overflow, please reduce"],
    work: Work::Other,
    advise: |situation, cause| match cause {
        Cause::HostMemory | Cause::Leak => vec![
            Fix::new("keep plain numbers instead of Vars from step to step").command("total += loss.item()"),
            Fix::new("print the live tensors after each epoch").command("jt.display_memory_info()"),
            Fix::new("let Jittor swap to disk")
                .command("JT_SAVE_MEM=1 cpu_mem_limit=16000000000 device_mem_limit=8000000000 python …"),
        ],
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice => {
            let mut fixes = lever::steps(situation, cause, JITTOR_LEVERS);
            if !situation.settings.mentions("JT_SAVE_MEM=1") {
                let device = jittor_limit(situation);
                fixes.insert(
                    0,
                    Fix::new(
                        "let Jittor swap to RAM and disk once it uses three quarters of the GPU's memory",
                    )
                    .command(format!(
                        "JT_SAVE_MEM=1 cpu_mem_limit=16000000000 device_mem_limit={device} python …"
                    )),
                );
            }
            fixes
        }
        _ => lever::steps(situation, cause, JITTOR_LEVERS),
    },
};

/// Three quarters of the GPU in bytes, as the error gives its size.
fn jittor_limit(situation: &Situation<'_>) -> u64 {
    let total = situation.settings.value(&["Total"]).and_then(|value| {
        let number: f64 = value.trim_end_matches("GB").parse().ok()?;
        (value.ends_with("GB") && (0.5..1e4).contains(&number)).then_some(number)
    });
    total.map_or(8_000_000_000, |gigabytes| (gigabytes * 750.0) as u64 * 1_000_000)
}

const JITTOR_LEVERS: &[Lever] = &[
    Lever::batch("lower the batch size{from}", "batch_size={to}", &["batch_size"]),
    Lever::new("give each MPI rank its own GPU", "mpirun -np 2 -x CUDA_VISIBLE_DEVICES=0,1 python …")
        .only(|situation| situation.settings.mentions("mpi")),
    Lever::new("release unused memory between steps", "jt.sync_all(); jt.gc()").unless_said(&["jt.gc()"]),
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
        "load the weights in 16-bit precision",
        "VarBuilder::from_mmaped_safetensors(&files, DType::BF16, &device)",
    )
    .unless_said(&["DType::BF16", "DType::F16", "--dtype bf16", "--dtype f16", "--use-f16"]),
    Lever::new("use a quantized model", "--example quantized -- --which 7b-mistral")
        .unless_said(&["quantized", "gguf"]),
    Lever::new("generate a smaller image", "--height 512 --width 512")
        .only(|situation| situation.settings.mentions("diffusion")),
    Lever::lower(
        "generate fewer tokens{from}: the KV cache grows with each token",
        "--sample-len {to}",
        &["--sample-len"],
        256,
    )
    .only(|situation| !situation.settings.mentions("diffusion")),
    Lever::new("run on the CPU", "--cpu").unless_said(&["--cpu"]),
];

const BURN: Program = Program {
    name: "Burn",
    frameworks: &[],
    marks: &[
        "cubecl",
        "burn-wgpu",
        "burn-cuda",
        "burn/",
        "tracel-ai",
        "burn_",
        "resnet-burn",
        "diffusion-burn",
    ],
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
    Lever::new("compute in 16-bit precision", "type Backend = Wgpu<half::f16, i32>;").unless_said(&["f16"]),
];

const MLX: Program = Program {
    name: "MLX",
    frameworks: &[],
    marks: &[
        "mlx_lm",
        "mlx-lm",
        "import mlx",
        "mlx.core",
        "mlx/backend",
        "[METAL] Command buffer execution failed",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, MLX_LEVERS),
};

const MLX_LEVERS: &[Lever] = &[
    Lever::new(
        "let the GPU wire more of the machine's memory (for example, 24 of 32 GB)",
        "sudo sysctl iogpu.wired_limit_mb=$(( $(sysctl -n hw.memsize) / 1048576 * 3 / 4 ))",
    )
    .unless_said(&["iogpu.wired_limit_mb="]),
    Lever::lower("cap the KV cache{from tokens}", "--max-kv-size {to}", &["--max-kv-size"], 4096)
        .at_least(512, 512),
    Lever::new("process the prompt in smaller steps", "--prefill-step-size 512")
        .unless_said(&["prefill-step-size"]),
    Lever::new("use a model quantized to fewer bits", "mlx_lm.convert --hf-path MODEL -q --q-bits 4")
        .unless_said(&["4bit", "4-bit"]),
];

#[cfg(test)]
mod tests {
    use super::super::testing::check;

    const CUDA: &str = "CUDA error 2: out of memory";

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        let paddle = "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 98.5MB memory on GPU 0, 7.25GB memory has been allocated and available memory is only 15.2MB.";
        for (name, log, first, set) in [
    ("PaddleOCR", format!("ppocr INFO: start\n{paddle}"), "gpu_mem=500", ("rec_batch_num=1", "rec_batch_num")),
    ("Torch7", "/home/me/torch/install/bin/luajit: cuda runtime error (2) : out of memory at /tmp/cutorch/lib/THC/generic/THCStorage.cu:66".to_owned(), "-batchSize 1", ("collectgarbage()", "collectgarbage")),
    ("MindSpore", format!("mindspore/ccsrc/runtime: \n{CUDA}"), "batch_size=1", ("cell.recompute()", "recompute")),
    ("OneFlow", "oneflow::RuntimeException what(): Error: CUDA out of memory. Tried to allocate 114.0 MB".to_owned(), "batch_size=1", ("self.config.enable_amp(True)", "enable_amp")),
    ("Jittor", "jittor/src/mem/allocator/cuda_dual_allocator.h: CUDA error 2: out of memory".to_owned(), "JT_SAVE_MEM=1", ("JT_SAVE_MEM=1 python a.py", "JT_SAVE_MEM")),
    ("candle", "Error: DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".to_owned(), "DType::BF16", ("--dtype bf16", "DType::BF16")),
    ("Burn", format!("cubecl-runtime/src/memory_management/dynamic.rs:156\n{CUDA}"), "with_batch_size(1)", ("cargo run --features cuda", "--features cuda")),
    ("MLX", format!("python -m mlx_lm generate\n{CUDA}"), "iogpu.wired_limit_mb", ("--max-kv-size 512", "--max-kv-size")),
        ] {
            check(name, &log, first, set);
        }
    }
}
