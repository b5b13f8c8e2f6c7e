//! llama.cpp and the programs on it. Memory is weights (layers on the GPU), the KV cache (context length times slots)
//! and a compute buffer (micro-batch times context). The programs name the same settings differently ([`dialect`]).

mod dialect;
mod layers;
mod webui;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};

use super::{Program, Work};
use crate::host_fixes;
use crate::situation::Situation;
use dialect::Dialect;
pub(super) use webui::WEBUI;

pub(super) const PROGRAMS: &[&Program] = &[&LLAMA_CPP, &OLLAMA, &WEBUI];

const LLAMA_CPP: Program = Program {
    name: "llama.cpp",
    frameworks: &[Framework::LlamaCpp],
    marks: &[
        "llama-server",
        "llama-cli",
        "ggml_",
        "ggml-cuda",
        "llama_model_load",
        "llm_load",
        "llama_cpp",
        "llama-cpp",
        "koboldcpp",
        "whisper.cpp",
        "stable-diffusion.cpp",
    ],
    work: Work::Inference,
    advise,
};

const OLLAMA: Program = Program {
    name: "Ollama",
    frameworks: &[Framework::Ollama],
    marks: &["ollama", "llama runner process"],
    work: Work::Inference,
    advise,
};

/// The options that set the context length, by program.
const CONTEXT: &[&str] =
    &["-c", "--ctx-size", "num_ctx", "OLLAMA_CONTEXT_LENGTH", "contextsize", "n_ctx", "KvSize"];
/// The options that set the KV cache's type.
const KV_TYPE: &[&str] =
    &["-ctk", "--cache-type-k", "cache_type", "OLLAMA_KV_CACHE_TYPE", "quantkv", "type_k"];
/// Weights that one of the usual large GPUs holds, with room for the context.
const ONE_GPU: Bytes = Bytes::gib(72);
/// A context below this is not worth halving.
const SHORT_CONTEXT: u64 = 2048;

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let dialect = Dialect::from_situation(situation);
    match cause {
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::NonFrameworkOverhead
        | Cause::Fragmentation => smaller(situation, dialect),
        Cause::ArtificialLimit if situation.settings.mentions("context's memory pool") => pool(dialect),
        Cause::ArtificialLimit => limit(situation, dialect),
        Cause::OtherProcesses | Cause::HiddenHolder if dialect == Dialect::Ollama => vec![
            Fix::new("unload the models that Ollama keeps loaded, and allow only one at a time")
                .command(situation.environment.export("OLLAMA_MAX_LOADED_MODELS=1")),
            Fix::new("leave 1 GiB per GPU for other programs")
                .command(situation.environment.export("OLLAMA_GPU_OVERHEAD=1073741824")),
        ],
        Cause::OtherProcesses | Cause::HiddenHolder => {
            dialect.layers(layers::fewer(situation)).into_iter().collect()
        }
        Cause::HostMemory => host(situation, dialect),
        _ => Vec::new(),
    }
}

/// Fewer layers, a shorter context, a smaller KV cache, a smaller compute buffer.
fn smaller(situation: &Situation<'_>, dialect: Dialect) -> Vec<Fix> {
    if let Some(fixes) = dialect.own_model(situation) {
        return fixes;
    }
    let settings = situation.settings;
    let kv = layers::device_buffer(situation, "KV buffer size");
    let mut fixes: Vec<Fix> = Vec::new();
    let is_compute = is_compute_buffer(situation);
    let mut batch: Option<Fix> = micro_batch(situation, dialect);
    if is_compute {
        fixes.extend(batch.take());
        if ["pipeline parallelism enabled", "n_copies=4"].iter().any(|words| settings.mentions(words))
            && dialect == Dialect::LlamaCpp
        {
            let fix = Fix::new(
                "build without pipeline parallelism: compute buffers are about a quarter of the size",
            )
            .command("cmake -B build -DGGML_CUDA=ON -DGGML_SCHED_MAX_COPIES=1");
            fixes.push(match situation.facts.request {
                Some(request) => fix.frees(request.scaled(0.7)),
                None => fix,
            });
        }
    }
    if settings.mentions("estimatedContextVramUsage") {
        fixes.extend(shorter_context(situation, dialect, kv));
    }
    let wired = wired_limit(situation);
    let is_shared = wired.is_some();
    fixes.extend(wired);
    if !is_shared {
        fixes.extend(experts(situation, dialect));
        let layers = dialect.layers(layers::fewer(situation));
        fixes.extend(layers.map(|fix| Fix { frees: layers::to_free(situation), ..fix }));
    }
    fixes.extend(shorter_context(situation, dialect, kv));
    if settings.value(KV_TYPE).is_none_or(|value| value.contains("16"))
        && !settings.is_on(&["--no-kv-offload", "-nkvo"])
    {
        let fix = dialect.kv_8_bit(situation);
        fixes.extend(fix.map(|fix| match kv {
            Some(kv) => fix.frees(kv.scaled(0.47)),
            None => fix,
        }));
    }
    fixes.extend(fewer_slots(situation, dialect, kv));
    fixes.extend(split(situation, dialect));
    fixes.extend(batch);
    if is_weights(situation) && !settings.mentions("estimatedContextVramUsage") {
        // The context and the compute buffer come later.
        let is_kept = |fix: &Fix| fix.command.as_deref().is_some_and(Dialect::is_about_weights);
        fixes.retain(is_kept);
        fixes.push(dialect.smaller_quantization());
    }
    fixes
}

/// Whether the buffer that failed is a compute buffer.
fn is_compute_buffer(situation: &Situation<'_>) -> bool {
    ["failed to allocate compute", "gallocr_reserve", "graph_reserve", "sched_reserve"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

/// Whether the buffer that failed holds weights.
fn is_weights(situation: &Situation<'_>) -> bool {
    let words = ["alloc_tensor_range", "error loading model: unable to allocate"];
    !is_compute_buffer(situation) && words.iter().any(|words| situation.settings.mentions(words))
}

fn micro_batch(situation: &Situation<'_>, dialect: Dialect) -> Option<Fix> {
    let now = situation
        .settings
        .number(&["-ub", "--ubatch-size", "n_ubatch", "blasbatchsize", "batchsize"])
        .filter(|&now| now >= 1.0)
        .map_or(512, |now| now as u64);
    if now <= 64 {
        return None;
    }
    let fix = dialect.micro_batch(now / 2)?;
    let request = situation.facts.request.filter(|_| is_compute_buffer(situation));
    Some(match request {
        Some(request) => fix.frees(request.scaled(0.5)),
        None => fix,
    })
}

/// A mixture-of-experts model keeps speed with its experts in RAM.
fn experts(situation: &Situation<'_>, dialect: Dialect) -> Option<Fix> {
    let settings = situation.settings;
    let has_experts = settings.number(&["n_expert"]).is_some_and(|count| count > 1.0)
        || [
            "-A3B",
            "A22B",
            "8x7B",
            "mixtral",
            "gpt-oss",
            "deepseek2",
            "DeepSeek-V",
            "DeepSeek-R1-0",
            "MoE",
            "_exps",
        ]
        .iter()
        .any(|name| settings.mentions(name));
    if !has_experts
        || settings.value(&["--n-cpu-moe", "-ncmoe", "moecpu"]).is_some()
        || settings.is_on(&["--cpu-moe", "-cmoe"])
    {
        return None;
    }
    let layers = layers::count(situation).unwrap_or(48);
    let count = layers::fewer(situation)
        .filter(|_| layers::to_free(situation).is_some())
        .map_or(layers / 2, |fit| layers - fit.min(layers))
        .max(1);
    dialect.experts(count)
}

fn shorter_context(situation: &Situation<'_>, dialect: Dialect, kv: Option<Bytes>) -> Option<Fix> {
    let now = situation.settings.number(CONTEXT).filter(|&tokens| tokens >= 1.0).map(|tokens| tokens as u64);
    let Some(now) = now else {
        // LM Studio's own estimate shows a long context.
        if situation.settings.number(&["estimatedContextVramUsageBytes"]).is_some_and(|gib| gib >= 2.0) {
            let fix = Fix::new("shorten the context: its cache is a large part of the estimate");
            return Some(fix.command("Context Length: 32768"));
        }
        return dialect.context(None, dialect.short_context(situation.facts.total));
    };
    if now <= SHORT_CONTEXT {
        return None;
    }
    let fix = dialect.context(Some(now), now / 2)?;
    Some(match kv {
        Some(kv) => fix.frees(kv.scaled(0.5)),
        None => fix,
    })
}

fn fewer_slots(situation: &Situation<'_>, dialect: Dialect, kv: Option<Bytes>) -> Option<Fix> {
    let slots = situation
        .settings
        .number(&[
            "-np",
            "--parallel",
            "n_seq_max",
            "n_slots",
            "OLLAMA_NUM_PARALLEL",
            "runner.parallel",
            "parallel",
        ])
        .filter(|&slots| slots > 1.0);
    let fix = match (slots, dialect) {
        (None, Dialect::Ollama) if !situation.settings.mentions("OLLAMA_NUM_PARALLEL") => {
            dialect.one_slot(situation)?
        }
        (None, _) => return None,
        (Some(_), _) => dialect.one_slot(situation)?,
    };
    Some(match kv.zip(slots).filter(|_| dialect == Dialect::Ollama) {
        Some((kv, slots)) => fix.frees(kv.scaled(1.0 - 1.0 / slots)),
        None => fix,
    })
}

/// Several GPUs: the one that failed gets a smaller part.
fn split(situation: &Situation<'_>, dialect: Dialect) -> Option<Fix> {
    let settings = situation.settings;
    if settings.value(&["-ts", "--tensor-split", "tensor_split"]).is_some() {
        return None;
    }
    let device = situation.facts.device?.0 as usize;
    if let Some(request) =
        situation.facts.request.filter(|&request| request >= ONE_GPU && is_weights(situation))
    {
        let devices = request.get().div_ceil(ONE_GPU.get()).clamp(2, 8) as usize;
        return dialect.spread(&vec!["1"; devices].join(","));
    }
    let listed = (0..16).take_while(|index| settings.mentions(&format!("CUDA{index} "))).count();
    let devices = settings
        .number(&["found"])
        .filter(|_| settings.mentions("CUDA devices"))
        .map_or(listed, |count| count as usize)
        .max(device + 1);
    if !(2..=8).contains(&devices) {
        return None;
    }
    let parts: Vec<&str> = (0..devices).map(|index| if index == device { "2" } else { "3" }).collect();
    dialect.split(device, &parts.join(","))
}

/// One buffer is larger than the driver allows.
fn limit(situation: &Situation<'_>, dialect: Dialect) -> Vec<Fix> {
    if let Some(fixes) = dialect.own_model(situation) {
        return fixes;
    }
    let mut fixes: Vec<Fix> = micro_batch(situation, dialect).into_iter().collect();
    fixes.extend(shorter_context(situation, dialect, None));
    fixes.extend(dialect.layers(layers::fewer(situation)));
    fixes
}

/// ggml's fixed pool: a program that computed it wrongly, or an option beyond what it was computed for.
fn pool(dialect: Dialect) -> Vec<Fix> {
    let mut fixes = vec![match dialect {
        Dialect::Python => {
            Fix::new("update llama-cpp-python: current versions compute the pool's size from the model")
                .command("pip install --upgrade llama-cpp-python")
        }
        Dialect::Kobold => {
            Fix::new("update koboldcpp: current versions compute the pool's size from the model")
        }
        Dialect::Whisper => {
            Fix::new("update whisper.cpp: current versions compute the pool's size from the model")
                .command("git pull && cmake --build build")
        }
        Dialect::StableDiffusion => {
            Fix::new("update stable-diffusion.cpp: current versions compute the pool's size from the model")
                .command("git pull --recurse-submodules && cmake --build build")
        }
        _ => Fix::new("update llama.cpp: current versions compute the pool's size from the model")
            .command("git pull && cmake --build build"),
    }];
    fixes.extend(dialect.context(None, 2048));
    fixes
}

/// Metal shares RAM with all other programs, up to its own limit.
fn wired_limit(situation: &Situation<'_>) -> Option<Fix> {
    let settings = situation.settings;
    let is_metal = ["ggml_metal", "kIOGPU"].iter().any(|words| settings.mentions(words));
    if !is_metal || settings.mentions("iogpu.wired_limit_mb") {
        return None;
    }
    let limit = settings.number(&["recommendedMaxWorkingSetSize"]).map_or(12_288, |now| (now * 1.15) as u64);
    Some(
        Fix::new("raise the share of RAM that Metal may wire, and leave 4 GB for macOS (resets at reboot)")
            .command(format!("sudo sysctl iogpu.wired_limit_mb={limit}")),
    )
}

/// Models of Ollama's library and their sizes in gigabytes, largest first.
const MODELS: &[(u64, &str)] = &[
    (43, "llama3.3:70b"),
    (20, "qwen3:32b"),
    (14, "gpt-oss:20b"),
    (9, "qwen3:14b"),
    (5, "qwen3:8b"),
    (2, "llama3.2:3b"),
    (1, "llama3.2:1b"),
];
/// A need beyond this many times the memory is one that no context length bridges.
const OUT_OF_REACH: f64 = 1.5;

/// A model that fits, where this one is far from it.
fn smaller_model(situation: &Situation<'_>, dialect: Dialect) -> Option<Fix> {
    let facts = situation.facts;
    let stated = |name: &str| {
        let gib = situation.settings.number(&[name]).filter(|gib| (0.1..1e5).contains(gib));
        gib.filter(|_| situation.settings.mentions("more system memory"))
            .map(|gib| Bytes::from_units(gib, 1 << 30))
    };
    let needed =
        facts.request.or_else(|| stated("more system memory")).filter(|_| dialect == Dialect::Ollama)?;
    let available = facts.free.or(facts.total).or_else(|| stated("available"))?;
    let is_long = situation.settings.number(CONTEXT).is_some_and(|tokens| tokens > 8192.0);
    if needed.share_of(available) < if is_long { 2.0 * OUT_OF_REACH } else { OUT_OF_REACH } {
        return None;
    }
    // The context and the runtime need memory in addition to the weights.
    let room = available.scaled(0.8).get() / 1_000_000_000;
    let (size, name) = MODELS.iter().find(|(size, _)| *size <= room)?;
    Some(
        Fix::new(format!(
            "run a model whose file is smaller than {room} GB (`ollama list` shows the sizes), such as this one, which takes {size} GB: {needed} is {:.0} times the {available} that is available, and no other setting can make up for that",
            needed.share_of(available)
        ))
        .command(format!("ollama run {name}")),
    )
}

fn host(situation: &Situation<'_>, dialect: Dialect) -> Vec<Fix> {
    // The kernel's OOM killer: the machine's or the container's limit comes first.
    if situation.facts.framework == Framework::Host && host_fixes::has_limit(situation) {
        return Vec::new();
    }
    let settings = situation.settings;
    if let Some(model) = smaller_model(situation, dialect) {
        return vec![model];
    }
    let mut fixes: Vec<Fix> = shorter_context(situation, dialect, None).into_iter().collect();
    fixes.extend(fewer_slots(situation, dialect, None));
    if dialect == Dialect::Ollama {
        fixes.extend(dialect.kv_8_bit(situation).filter(|_| settings.value(KV_TYPE).is_none()));
        fixes.push(dialect.smaller_quantization());
    } else if settings.is_on(&["--no-mmap", "-nommap", "--nommap"]) {
        fixes.push(Fix::new("memory-map the model file instead of reading it into RAM: drop --no-mmap"));
    } else if settings.is_on(&["--mlock"]) {
        fixes.push(
            Fix::new("raise the limit on locked memory, or drop --mlock").command("ulimit -l unlimited"),
        );
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::testing::commands;
    use super::*;

    const LOADED: &str = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA X, compute capability 8.9, VMM: yes, VRAM: 12288 MiB\nllama_model_load_from_file_impl: using device CUDA0 (NVIDIA X) - 11264 MiB free\nload_tensors: offloaded 41/41 layers to GPU\nload_tensors:        CUDA0 model buffer size =  8200.00 MiB\nllama_context: n_ctx         = 16384\nllama_kv_cache_init:      CUDA0 KV buffer size =  2560.00 MiB\n";
    const COMPUTE: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1024.00 MiB on device 0: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 1073741824\nllama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers";

    #[test]
    fn the_layers_that_fit() {
        let steps = commands(
            &format!("llama-server -m m.gguf -ngl 99 -c 16384\n{LOADED}{COMPUTE}"),
            Cause::LiveDataFillsDevice,
        );
        assert_eq!(steps[0], "-ub 256");
        // 520 MiB short and a twentieth of the card to spare, 262 MiB a layer.
        assert_eq!(steps[1], "-ngl 36");
        assert!(
            steps.contains(&"-c 8192".to_owned()) && steps.contains(&"-fa on -ctk q8_0 -ctv q8_0".to_owned()),
            "{steps:?}"
        );
    }

    #[test]
    fn what_is_set_is_not_repeated() {
        let text = format!("llama-server -m m.gguf -c 2048 -ub 64 -ctk q8_0 -ctv q8_0 -ts 1,2\n{COMPUTE}")
            .replace("device 0", "device 1")
            .replace("CUDA0", "CUDA1");
        let steps = commands(&text, Cause::LiveDataFillsDevice);
        assert!(
            steps.iter().all(|step| !step.starts_with("-c ")
                && !step.contains("-ub")
                && !step.contains("-ctk")
                && !step.contains("split")),
            "{steps:?}"
        );
    }

    #[test]
    fn experts_go_to_ram_and_the_full_device_gets_less() {
        let text = format!(
            "llm_load_print_meta: n_layer = 48\nllm_load_print_meta: n_expert         = 128\nggml_cuda_init: found 2 CUDA devices:\nllama_context: pipeline parallelism enabled (n_copies=4)\n{COMPUTE}"
        );
        let steps = commands(&text, Cause::LiveDataFillsDevice);
        assert!(steps.contains(&"--n-cpu-moe 24".to_owned()), "{steps:?}");
        assert!(steps.contains(&"--tensor-split 2,3".to_owned()), "{steps:?}");
        assert!(steps.iter().any(|step| step.contains("GGML_SCHED_MAX_COPIES=1")), "{steps:?}");
    }

    #[test]
    fn each_program_has_its_own_names() {
        let steps =
            |front: &str| commands(&format!("{front}\n{LOADED}{COMPUTE}"), Cause::LiveDataFillsDevice);
        assert!(steps("ollama[7]: time=2025 level=INFO").contains(&"/set parameter num_gpu 36".to_owned()));
        assert!(steps("ollama[7]: num_ctx 16384").contains(&"/set parameter num_ctx 8192".to_owned()));
        assert!(steps("Welcome to KoboldCpp - Version 1.90").contains(&"--gpulayers 36".to_owned()));
        assert!(
            steps("llm = Llama(model_path='m.gguf')  # llama_cpp").contains(&"n_gpu_layers=36".to_owned())
        );
    }

    #[test]
    fn ram_for_ollama() {
        let text = "DEFAULT_NUM_CTX: num_ctx=32768\nError: model requires more system memory (18.0 GiB) than is available (11.5 GiB)   ollama";
        let steps = commands(text, Cause::HostMemory);
        assert_eq!(steps[0], "/set parameter num_ctx 16384");
    }
}
