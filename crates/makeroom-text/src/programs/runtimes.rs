//! Inference runtimes: TensorRT, ONNX Runtime, `OpenVINO`, `CTranslate2`.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use super::{Program, Work};
use crate::situation::Situation;

pub(super) const PROGRAMS: &[&Program] = &[&TENSORRT, &ONNX_RUNTIME, &OPENVINO, &CTRANSLATE2];

const TENSORRT: Program = Program {
    name: "TensorRT",
    frameworks: &[Framework::TensorRt],
    marks: &["[trt]", "[tensorrt]", "trtexec", "nvinfer1", "torch2trt"],
    work: Work::Inference,
    advise: tensorrt,
};

const ONNX_RUNTIME: Program = Program {
    name: "ONNX Runtime",
    frameworks: &[Framework::OnnxRuntime],
    marks: &["onnxruntime", "bfc_arena.cc", "CUDAExecutionProvider"],
    work: Work::Inference,
    advise: onnx_runtime,
};

const OPENVINO: Program = Program {
    name: "OpenVINO",
    frameworks: &[Framework::OpenVino],
    marks: &["openvino"],
    work: Work::Inference,
    advise: openvino,
};

const CTRANSLATE2: Program = Program {
    name: "CTranslate2",
    frameworks: &[Framework::CTranslate2],
    marks: &["ctranslate2", "faster_whisper", "faster-whisper", "whisper-fast", "whisperx", "WhisperModel("],
    work: Work::Inference,
    advise: ctranslate2,
};

/// The builder's workspace where nothing says how large it is.
const WORKSPACE: Bytes = Bytes::gib(2);

fn tensorrt(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let settings = situation.settings;
    match cause {
        Cause::ArtificialLimit => {
            let needed = situation
                .facts
                .request
                .map_or(WORKSPACE, |request| Bytes::new(request.get().next_power_of_two()));
            vec![Fix::new("raise the builder's workspace limit").command(workspace(situation, needed))]
        }
        // ONNX Runtime builds an engine for each new range of shapes, and has its own options for that.
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::NonFrameworkOverhead
        | Cause::Leak
            if ["onnxruntime", "tensorrt_execution_provider", "TensorrtExecutionProvider"]
                .iter()
                .any(|words| settings.mentions(words)) =>
        {
            vec![
                Fix::new("limit the workspace of each engine that ONNX Runtime builds (default 1 GiB)").command(
                    "providers=[('TensorrtExecutionProvider', {'trt_max_workspace_size': 536870912})]",
                ),
                Fix::new("build one engine for all shapes, instead of one for each new range, and keep it on disk").command(
                    "{'trt_engine_cache_enable': True, 'trt_profile_min_shapes': 'input:1x3x32x32', 'trt_profile_max_shapes': 'input:1x3x1024x1024', 'trt_profile_opt_shapes': 'input:1x3x512x512'}",
                ),
                Fix::new("share the workspace between the engines of a session")
                    .command("{'trt_context_memory_sharing_enable': True}"),
            ]
        }
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::NonFrameworkOverhead => {
            let is_building =
                ["Tactic", "builder", "trtexec", "buildSerializedNetwork", "buildEngine", "workspace"]
                    .iter()
                    .any(|word| settings.mentions(word));
            let mut fixes = Vec::new();
            if is_building {
                // The tactic that failed wanted the request: allow half of it. A small request is not a workspace.
                let request = situation.facts.request.unwrap_or(WORKSPACE.scaled(2.0));
                if request >= Bytes::mib(512) {
                    let half = Bytes::new((request.get() / 2).next_power_of_two() / 2).min(Bytes::gib(16));
                    fixes.push(
                        Fix::new("limit the workspace, so that the builder picks tactics that fit")
                            .command(workspace(situation, half)),
                    );
                }
                if !settings.is_on(&["--fp16", "fp16"]) {
                    fixes.push(
                        Fix::new("build the engine in 16-bit precision (half the memory)")
                            .command("--fp16   (config.set_flag(trt.BuilderFlag.FP16))"),
                    );
                }
                let (from, shapes) = largest_shape(situation);
                fixes.push(
                    Fix::new(format!(
                        "lower the maximum input size{from}: the largest shape determines the memory use"
                    ))
                    .command(format!("--maxShapes={shapes}")),
                );
                if settings.number(&["builderOptimizationLevel"]).is_none() && !is_old(situation) {
                    fixes.push(
                        Fix::new("let the builder try fewer tactics").command("--builderOptimizationLevel=2"),
                    );
                }
            } else {
                fixes.push(
                    Fix::new("create one execution context per GPU, and share its memory between engines")
                        .command("engine.create_execution_context_without_device_memory()"),
                );
                fixes.push(Fix::new("rebuild the engine for a smaller maximum batch").command(format!(
                    "trtexec --onnx=model.onnx --maxShapes={} --fp16",
                    largest_shape(situation).1
                )));
            }
            fixes
        }
        _ => Vec::new(),
    }
}

/// An input and its shape, as options and `trtexec` write them.
static SHAPE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"--(?:max|opt)?[sS]hapes=[\x22']?([\w./-]+):(\d{1,6}(?:x\d{1,6}){1,5})|Input binding for ([\w./-]+) with dimensions (\d{1,6}(?:x\d{1,6}){1,5})",
    )
});

/// The present largest shape, and one of half the size under the same name: half the batch, else half the sides.
fn largest_shape(situation: &Situation<'_>) -> (String, String) {
    let found = situation.settings.parts().into_iter().find_map(|part| SHAPE.captures(part));
    let named = found.as_ref().and_then(|found| {
        Some((found.get(1).or(found.get(3))?.as_str(), found.get(2).or(found.get(4))?.as_str()))
    });
    let Some((name, shape)) = named else { return (String::new(), "input:1x3x512x512".to_owned()) };
    let mut sides: Vec<u64> = shape.split('x').filter_map(|side| side.parse().ok()).collect();
    match sides.first_mut() {
        Some(batch) if *batch > 1 => *batch /= 2,
        _ => {
            for side in sides.iter_mut().skip(2) {
                *side = (*side / 64 * 32).max(32);
            }
        }
    }
    let sides: Vec<String> = sides.iter().map(u64::to_string).collect();
    (format!(" from {name}:{shape}"), format!("{name}:{}", sides.join("x")))
}

/// Whether the text comes from a version before 8.4, which had its own call for the workspace.
fn is_old(situation: &Situation<'_>) -> bool {
    situation.settings.mentions("setMaxWorkspaceSize") || situation.settings.mentions("[TensorRT]")
}

fn workspace(situation: &Situation<'_>, bytes: Bytes) -> String {
    let mib = bytes.get() >> 20;
    if is_old(situation) {
        format!("trtexec --workspace={mib}   (config.max_workspace_size = {mib} << 20)")
    } else {
        format!(
            "trtexec --memPoolSize=workspace:{mib}   (config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, {mib} << 20))"
        )
    }
}

fn onnx_runtime(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let settings = situation.settings;
    match cause {
        Cause::ArtificialLimit => {
            let now = settings
                .number(&["gpu_mem_limit", "memory limit"])
                .filter(|&limit| limit < 1e15)
                .map(|limit| limit as u64);
            let request = situation.facts.request.map_or(0, Bytes::get);
            let needed = now.map_or(8 << 30, |now| now + request.max(1 << 30));
            vec![
                Fix::new("raise or remove the arena's limit")
                    .command(format!("providers=[('CUDAExecutionProvider', {{'gpu_mem_limit': {needed}}})]")),
            ]
        }
        Cause::LiveDataFillsDevice | Cause::Fragmentation | Cause::NonFrameworkOverhead => arena(situation),
        Cause::OtherProcesses | Cause::HiddenHolder => {
            let limit = situation.facts.free.map_or(4 << 30, |free| free.scaled(0.9).get());
            vec![
                Fix::new("or cap the arena below the memory that is free")
                    .command(format!("providers=[('CUDAExecutionProvider', {{'gpu_mem_limit': {limit}}})]")),
            ]
        }
        _ => Vec::new(),
    }
}

fn arena(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if ["tritonserver", "triton-inference-server", "onnx runtime error"]
        .iter()
        .any(|words| settings.mentions(words))
    {
        return arena_in_triton();
    }
    // Face swappers run a session per thread.
    if [
        "execution_threads",
        "execution-threads",
        "roop",
        "Deep-Live-Cam",
        "execution_thre",
        "DeepFaceLive",
        "faceswap",
    ]
    .iter()
    .any(|words| settings.mentions(words))
    {
        fixes.push(
            Fix::new("run one thread: each holds its own session buffers").command("--execution-threads 1"),
        );
    }
    if settings
        .value(&["arena_extend_strategy"])
        .is_none_or(|value| value == "0" || value == "kNextPowerOfTwo")
    {
        fixes.push(
            Fix::new("grow the arena by the requested size instead of by powers of two").command(
                "providers=[('CUDAExecutionProvider', {'arena_extend_strategy': 'kSameAsRequested'})]",
            ),
        );
    }
    if settings
        .value(&["cudnn_conv_algo_search"])
        .is_none_or(|value| value.eq_ignore_ascii_case("EXHAUSTIVE"))
        && (settings.mentions("conv") || situation.facts.request.is_none())
    {
        fixes.push(
            Fix::new("pick convolutions by heuristic, without large trial workspaces")
                .command("{'cudnn_conv_algo_search': 'HEURISTIC', 'cudnn_conv_use_max_workspace': '0'}"),
        );
    }
    match situation.batch() {
        Some(batch) if batch > 1 => fixes.push(
            Fix::new(format!("halve the batch from {batch}")).command(format!("batch_size={}", batch / 2)),
        ),
        _ => fixes.push(Fix::new("convert the model to 16-bit precision (half the memory)").command(
            "onnx.save(onnxconverter_common.float16.convert_float_to_float16(onnx.load(path)), path16)",
        )),
    }
    if !settings.mentions("enable_memory_arena_shrinkage") {
        fixes
            .push(Fix::new("return unused arena memory after each run").command(
                "run_options.add_run_config_entry('memory.enable_memory_arena_shrinkage', 'gpu:0')",
            ));
    }
    fixes
}

/// ONNX Runtime as Triton's backend: the same options in config.pbtxt.
fn arena_in_triton() -> Vec<Fix> {
    vec![
        Fix::new("run one instance of the model per GPU (in config.pbtxt)")
            .command("instance_group [ { count: 1, kind: KIND_GPU } ]"),
        Fix::new("grow the arena by the requested size instead of by powers of two (in config.pbtxt)")
            .command(r#"parameters { key: "arena_extend_strategy" value { string_value: "1" } }"#),
        Fix::new("cap the arena of each model, so that all fit (in config.pbtxt)")
            .command(r#"parameters { key: "gpu_mem_limit" value { string_value: "2147483648" } }"#),
        Fix::new("lower the maximum batch size (in config.pbtxt)").command("max_batch_size: 4"),
        Fix::new("return unused arena memory after each run (in config.pbtxt)").command(
            r#"parameters { key: "memory.enable_memory_arena_shrinkage" value { string_value: "gpu:0" } }"#,
        ),
    ]
}

fn openvino(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let settings = situation.settings;
    let is_llama = settings.mentions("llama-cli") || settings.mentions("llama-server");
    let mut fixes = Vec::new();
    match cause {
        Cause::IntegerOrShapeBug => fixes.push(
            Fix::new(
                "turn off prefix caching, whose block counter overflows in long chats, and update OpenVINO GenAI",
            )
            .command("scheduler_config.enable_prefix_caching = False"),
        ),
        Cause::ArtificialLimit => {
            if is_llama {
                let context =
                    settings.number(&["-c", "--ctx-size"]).map_or(4096, |tokens| (tokens / 2.0) as u64);
                fixes.push(
                    Fix::new("use a shorter context and a smaller batch: each buffer shrinks with them")
                        .command(format!("-c {context} -ub 128")),
                );
            }
            fixes.push(
                Fix::new("allow buffers above the driver's default cap")
                    .command("core.set_property('GPU', {'GPU_ENABLE_LARGE_ALLOCATIONS': 'YES'})"),
            );
            fixes.push(
                Fix::new("quantize the weights to 4 bits: the largest buffer shrinks to a quarter")
                    .command("optimum-cli export openvino --model MODEL --weight-format int4 OUT"),
            );
            fixes.push(
                Fix::new("run with a batch of 1 and smaller inputs")
                    .command("model.reshape({0: [1, 3, 512, 512]})"),
            );
        }
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice => {
            fixes.push(Fix::new("run one stream at a time").command(
                "core.compile_model(model, 'GPU', {'NUM_STREAMS': '1', 'PERFORMANCE_HINT': 'LATENCY'})",
            ));
            if !settings.mentions("int4") {
                fixes.push(
                    Fix::new("quantize the weights to 4 bits (a quarter of the size)")
                        .command("optimum-cli export openvino --model MODEL --weight-format int4 OUT"),
                );
            }
            fixes.push(
                Fix::new("quantize the KV cache to 8 bits")
                    .command("core.set_property('GPU', {'KV_CACHE_PRECISION': 'u8'})"),
            );
            fixes.push(
                Fix::new(
                    "or run on the CPU, and update the graphics driver: driver faults cause the same error",
                )
                .command("core.compile_model(model, 'CPU')"),
            );
        }
        _ => {}
    }
    fixes
}

fn ctranslate2(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice) {
        return Vec::new();
    }
    let settings = situation.settings;
    // The standalone program has flags where the library has parameters.
    let is_program = ["--model=", "--model ", "-bs=", "whisper-fast", "faster-whisper-xxl"]
        .iter()
        .any(|words| settings.mentions(words));
    let option = |name: &str, value: &str| {
        if is_program { format!("--{name} {}", value.trim_matches('"')) } else { format!("{name}={value}") }
    };
    let mut fixes = Vec::new();
    if !settings.value(&["compute_type"]).is_some_and(|value| value.contains("int8")) {
        fixes.push(
            Fix::new("load the weights in 8-bit precision (half the size)")
                .command(option("compute_type", "\"int8_float16\"")),
        );
    }
    if settings.number(&["beam_size", "-bs"]) != Some(1.0) {
        fixes
            .push(Fix::new("decode greedily: each beam has its own cache").command(option("beam_size", "1")));
    }
    let batch = settings.number(&["batch_size"]).filter(|&batch| batch > 1.0);
    if let Some(batch) = batch {
        let half = ((batch / 2.0) as u64).to_string();
        fixes.push(Fix::new(format!("halve the batch from {batch}")).command(option("batch_size", &half)));
    } else if settings.mentions("whisperx") || settings.mentions("Batched") {
        fixes.push(Fix::new("transcribe fewer segments at once").command(option("batch_size", "4")));
    }
    if settings.mentions("whisper") {
        fixes.push(Fix::new("use a smaller model").command(if is_program {
            "--model medium"
        } else {
            "WhisperModel(\"distil-large-v3\")"
        }));
    }
    fixes.push(Fix::new("or run on the CPU").command(format!(
        "{} {}",
        option("device", "\"cpu\""),
        option("compute_type", "\"int8\"")
    )));
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::testing::commands;
    use super::*;

    #[test]
    fn a_workspace_for_the_tactic() {
        let text = "[E] Error[1]: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)\n[W] [TRT] Requested amount of GPU memory (8589934592 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.\n[E] Engine could not be created from network (trtexec)";
        assert!(
            commands(text, Cause::LiveDataFillsDevice)[0].starts_with("trtexec --memPoolSize=workspace:2048")
        );
        let scratch = "[E] Internal error: plugin node Resize_1 requires 33554432 bytes of scratch space, but only 16777216 is available. Try increasing the workspace size with IBuilder::setMaxWorkspaceSize().";
        assert!(commands(scratch, Cause::ArtificialLimit)[0].starts_with("trtexec --workspace=32"));
    }

    #[test]
    fn the_shapes_of_the_log_get_smaller() {
        let built = |option: &str| {
            let text = format!(
                "trtexec --onnx=m.onnx {option}\n[E] Error[1]: [defaultAllocator.cpp::allocate::31] Error Code 1: Cuda Runtime (out of memory)"
            );
            commands(&text, Cause::LiveDataFillsDevice).join(" ")
        };
        assert!(built("--maxShapes=images:8x3x640x640").contains("--maxShapes=images:4x3x640x640"));
        assert!(built("--shapes=images:1x3x640x640").contains("--maxShapes=images:1x3x320x320"));
        assert!(built("").contains("--maxShapes=input:1x3x512x512"));
    }

    #[test]
    fn the_arena() {
        let text = "[E:onnxruntime:, sequential_executor.cc:516 ExecuteKernel] Non-zero status code returned while running Conv node. bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 1073741824";
        let steps = commands(text, Cause::LiveDataFillsDevice);
        assert!(steps[0].contains("kSameAsRequested") && steps[1].contains("HEURISTIC"), "{steps:?}");
        let limited = "'gpu_mem_limit': 2147483648\nbfc_arena.cc:376 Available memory of 512 is smaller than requested bytes of 4096";
        assert!(commands(limited, Cause::ArtificialLimit)[0].contains("3221225472"));
    }

    #[test]
    fn faster_whisper_and_openvino() {
        let text = "WhisperModel('large-v3', compute_type=\"float16\"); model.transcribe(a, beam_size=5)  # faster_whisper\nRuntimeError: CUDA failed with error out of memory";
        let steps = commands(text, Cause::LiveDataFillsDevice);
        assert_eq!(steps[..2], ["compute_type=\"int8_float16\"", "beam_size=1"]);
        let text = "[GPU] Exceeded max size of memory object allocation: requested 8589934592 bytes, but max alloc size supported by device is 4294967296 bytes.";
        assert!(commands(text, Cause::ArtificialLimit)[0].contains("GPU_ENABLE_LARGE_ALLOCATIONS"));
    }
}
