//! Further engines for language models: Aphrodite, MLC LLM, mistral.rs, `ExLlama`.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Fix};
use makeroom_search::{Regex, pattern};

use super::half;
use crate::figures::captured_number;
use crate::programs::lever::{self, Lever};
use crate::programs::{Program, Work};
use crate::situation::Situation;

/// A fork of vLLM with its options.
pub(super) const APHRODITE: Program = Program {
    name: "Aphrodite Engine",
    frameworks: &[],
    marks: &["aphrodite/", "aphrodite-engine", "aphrodite run", "AphroditeEngine", "RayWorkerAphrodite"],
    work: Work::Inference,
    advise: |situation, cause| match cause {
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice if is_loading(situation) => {
            lever::steps(situation, cause, APHRODITE_WEIGHTS)
        }
        _ => super::vllm::advise(situation, cause),
    },
};

/// Whether the weights were being loaded, so that neither share nor length matters yet.
fn is_loading(situation: &Situation<'_>) -> bool {
    ["load_model", "load_weights", "weight_loader", "Loading model weights"]
        .iter()
        .any(|words| situation.settings.mentions(words))
        && !["GPU blocks", "KV cache size", "execute_model"]
            .iter()
            .any(|words| situation.settings.mentions(words))
}

const APHRODITE_WEIGHTS: &[Lever] = &[
    Lever::new(
        "quantize the weights to 4 bits (a quarter of the 16-bit size)",
        "--quantization fp4   (or fp6, fp8)",
    )
    .unless_said(&["--quantization", "-q fp", "gptq", "awq", "exl2"]),
    Lever::raise(
        "split the model across more GPUs{from}",
        "--tensor-parallel-size {to}",
        &["--tensor-parallel-size", "tensor_parallel_size", "-tp"],
        2,
        16,
    ),
    Lever::lower(
        "move part of the weights to RAM (GiB per GPU)",
        "--cpu-offload-gb {to}",
        &["--cpu-offload-gb"],
        8,
    ),
];

pub(super) const MLC: Program = Program {
    name: "MLC LLM",
    frameworks: &[],
    marks: &[
        "mlc_llm",
        "mlc-llm",
        "mlcchat",
        "ai.mlc.",
        "web-llm",
        "Insufficient GPU memory error: The available",
    ],
    work: Work::Inference,
    advise: mlc,
};

/// MLC's budget: what it may use, the weights, the buffer for one prefill chunk (all in MB).
static BUDGET: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"available single GPU memory is ([\d.]+) MB[\s\S]{0,80}?model weight size \(([\d.]+) MB\)[\s\S]{0,60}?buffer size \(([\d.]+) MB\)",
    )
});
/// MLC's share of the GPU unless it is set.
const MLC_SHARE: f64 = 0.85;
/// Its largest share that leaves the driver its part.
const MLC_LARGEST_SHARE: f64 = 0.97;
/// Room for the KV cache of one short conversation, in MB.
const MLC_LEAST_CACHE: f64 = 256.0;

fn mlc(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    if !matches!(
        cause,
        Cause::LiveDataFillsDevice
            | Cause::RequestExceedsDevice
            | Cause::ArtificialLimit
            | Cause::IntegerOrShapeBug
    ) {
        return Vec::new();
    }
    let settings = situation.settings;
    let chunk = half(situation, &["prefill_chunk_size", "--prefill-chunk-size"], 1024, 128);
    let smaller_chunk = chunk.map(|chunk| {
        Fix::new("prefill in smaller chunks: the temporary buffer shrinks with them")
            .command(format!("mlc_llm gen_config … --prefill-chunk-size {chunk}"))
    });
    let shorter =
        half(situation, &["context_window_size", "--context-window-size"], 4096, 1024).map(|tokens| {
            Fix::new("limit the context: the KV cache shrinks with it").command(format!(
                "mlc_llm serve … --overrides \"context_window_size={tokens};max_num_sequence=1\""
            ))
        });
    let fewer_bits = Fix::new("quantize the model to fewer bits, or choose a smaller one")
        .command("mlc_llm convert_weight … --quantization q4f16_1   (q3f16_1 on phones)");
    let figures = settings.parts().into_iter().find_map(|part| {
        let found = BUDGET.captures(part)?;
        let figure = |group: usize| captured_number::<f64>(&found, group);
        Some((figure(1)?, figure(2)?, figure(3)?))
    });
    let Some((available, weights, buffer)) = figures else {
        return [smaller_chunk, shorter, Some(fewer_bits)].into_iter().flatten().collect();
    };
    if weights + buffer < available {
        return vec![
            Fix::new("recompile the model with an explicit context and chunk size: the weights and buffers fit, but the KV cache for the default context does not")
                .command("mlc_llm gen_config … --context-window-size 4096 --prefill-chunk-size 1024"),
        ];
    }
    let share = settings
        .number(&["gpu_memory_utilization"])
        .filter(|share| (0.05..1.0).contains(share))
        .unwrap_or(MLC_SHARE);
    let needed = share * (weights + buffer + MLC_LEAST_CACHE) / available.max(1.0);
    let larger = (needed <= MLC_LARGEST_SHARE).then(|| {
        let to = (needed * 100.0).ceil() / 100.0;
        Fix::new(format!("raise MLC's share of GPU memory from {share}: it is {:.0} MB too small", weights + buffer - available))
            .command(format!("mlc_llm serve … --overrides \"gpu_memory_utilization={to:.2}\"   (Python: EngineConfig(gpu_memory_utilization={to:.2}))"))
    });
    // Weights alone beyond the budget: neither the share nor the buffer is the lever.
    if weights >= available {
        return [Some(fewer_bits), larger, smaller_chunk].into_iter().flatten().collect();
    }
    let (first, second) = if buffer > weights { (smaller_chunk, larger) } else { (larger, smaller_chunk) };
    [first, second, shorter, Some(fewer_bits)].into_iter().flatten().collect()
}

pub(super) const MISTRAL_RS: Program = Program {
    name: "mistral.rs",
    frameworks: &[],
    marks: &[
        "mistralrs",
        "mistral.rs",
        "GgufModelBuilder",
        "TextModelBuilder::new",
        "UqffTextModelBuilder",
        "with_paged_attn",
    ],
    work: Work::Inference,
    advise: |situation, cause| lever::steps(situation, cause, MISTRAL_RS_LEVERS),
};

const MISTRAL_RS_LEVERS: &[Lever] = &[
    Lever::lower(
        "cap the KV cache of paged attention{from|: by default it takes 90 % of the free memory}",
        ".with_paged_attn(|| PagedAttentionMetaBuilder::default().with_gpu_memory(MemoryGpuConfig::ContextSize({to})).build())?   (server: --pa-ctxt-len {to})",
        &["--pa-ctxt-len", "ContextSize"],
        4096,
    )
    .at_least(1024, 256),
    Lever::new("put fewer layers on the GPU", "mistralrs-server -n 20 …   (Rust: DeviceMapSetting::auto)")
        .unless_said(&["mistralrs-server -n", "num_device_layers", "--num-device-layers"]),
    Lever::new("quantize the weights while they load", ".with_isq(IsqType::Q4K)   (server: --isq 4)")
        .unless_said(&["isq", "gguf", "uqff"]),
    Lever::lower("allow fewer concurrent requests{from}", "--max-seqs {to}", &["--max-seqs"], 2),
];

pub(super) const EXLLAMA: Program = Program {
    name: "ExLlama",
    frameworks: &[],
    marks: &[
        "exllamav2/",
        "exllamav3/",
        "exllamav2",
        "exllamav3",
        "ExLlamaV2Cache",
        "Insufficient VRAM in split",
        "Insufficient VRAM for model and cache",
        "tabbyAPI",
    ],
    work: Work::Inference,
    advise: exllama,
};

fn exllama(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let settings = situation.settings;
    // The same engine inside other programs has their options.
    if ["text-generation-webui", "oobabooga"].iter().any(|words| settings.mentions(words)) {
        return (crate::programs::llama_cpp::WEBUI.advise)(situation, cause);
    }
    if !matches!(cause, Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice | Cause::Fragmentation) {
        return Vec::new();
    }
    let is_third = ["exllamav3", "in split for", "exl3"].iter().any(|words| settings.mentions(words));
    let is_server =
        ["tabby", "cache-mode", "cache_mode", "config.yml"].iter().any(|words| settings.mentions(words));
    let tokens = half(situation, &["max_seq_len", "cache_size"], 8192, 1024);
    let mut fixes = Vec::new();
    let is_quantized = settings.value(&["cache_mode"]).is_some_and(|mode| !mode.eq_ignore_ascii_case("FP16"))
        || ["Cache_Q4", "Cache_Q6", "Cache_Q8"].iter().any(|words| settings.mentions(words));
    if !is_quantized {
        let fix = Fix::new("quantize the cache to 8 or 4 bits (about half or a quarter of the 16-bit size)");
        fixes.push(match (is_server, is_third) {
            (true, true) => fix.command("cache_mode: 8,8   (or 4,4; config.yml of TabbyAPI)"),
            (true, false) => fix.command("cache_mode: Q8   (or Q4; config.yml of TabbyAPI)"),
            (false, true) => fix.command(
                "Cache(model, max_num_tokens=8192, layer_type=CacheLayer_quant, k_bits=4, v_bits=4)",
            ),
            (false, false) => fix.command("ExLlamaV2Cache_Q4(model, max_seq_len=8192, lazy=True)"),
        });
    }
    if let Some(tokens) = tokens {
        let fix = Fix::new("shorten the context: the cache shrinks with it");
        fixes.push(match (is_server, is_third) {
            (true, _) => fix.command(format!("max_seq_len: {tokens}\ncache_size: {tokens}")),
            (false, true) => fix.command(format!("Cache(model, max_num_tokens={tokens})")),
            (false, false) => fix.command(format!("ExLlamaV2Cache(model, max_seq_len={tokens}, lazy=True)")),
        });
    }
    let chunk = half(situation, &["chunk_size", "max_chunk_size", "max_input_len"], 512, 128);
    if let Some(chunk) = chunk {
        let fix = Fix::new(
            "process prompts in smaller chunks (default 2048): the forward pass needs less at a time",
        );
        fixes.push(if is_server {
            fix.command(format!("chunk_size: {chunk}"))
        } else if is_third {
            fix.command(format!("Generator(…, max_chunk_size={chunk})"))
        } else {
            fix.command(format!(
                "config.max_input_len = {chunk}; config.max_attention_size = {}",
                chunk * chunk
            ))
        });
    }
    let smaller = situation.facts.total.unwrap_or(Bytes::gib(24)).get() >> 30;
    fixes.push(
        Fix::new(format!(
            "load a version of the model with fewer bits per weight, so that its files stay below {} GB",
            smaller * 3 / 4
        ))
        .command("the 3.0bpw branch of the model's repository instead of 4.0bpw or more"),
    );
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;
    use crate::programs::testing::{advice, check, torch};

    #[test]
    fn each_program_is_found_and_names_its_own_options() {
        for (name, line, first, set) in [
            (
                "Aphrodite Engine",
                "aphrodite/modeling/loader.py in load_model",
                "--quantization fp4",
                ("--quantization gptq", "--quantization"),
            ),
            (
                "mistral.rs",
                "mistralrs-core/src/pipeline/normal.rs",
                "ContextSize(4096)",
                ("--isq 4", "--isq"),
            ),
            (
                "ExLlama",
                "exllamav2/model.py in forward",
                "ExLlamaV2Cache_Q4",
                ("ExLlamaV2Cache_Q4(", "Cache_Q4"),
            ),
        ] {
            check(name, &torch(line), first, set);
        }
    }

    fn mlc_error(available: u32, weights: u32, buffer: u32) -> String {
        format!(
            "TVMError: Check failed: (output_res.IsOk()) is false: Insufficient GPU memory error: The available single GPU memory is {available}.000 MB, which is less than the sum of model weight size ({weights}.000 MB) and temporary buffer size ({buffer}.000 MB)."
        )
    }

    #[test]
    fn the_budget_decides_between_share_chunk_and_model() {
        let first = |available, weights, buffer| {
            let (program, steps) = advice(&mlc_error(available, weights, buffer), Cause::LiveDataFillsDevice);
            assert_eq!(program.name, "MLC LLM");
            steps[0].command.clone().unwrap_or_default()
        };
        assert!(
            first(20_000, 18_000, 2_300).contains("gpu_memory_utilization=0.88"),
            "{}",
            first(20_000, 18_000, 2_300)
        );
        assert!(first(10_000, 4_000, 9_000).contains("--prefill-chunk-size 1024"));
        assert!(first(4_000, 5_000, 500).contains("--quantization"));
        assert!(first(20_000, 50, 100).contains("--context-window-size 4096"));
    }

    #[test]
    fn a_forks_running_engine_has_vllms_options() {
        let text = "aphrodite run model --gpu-memory-utilization 0.98\n# GPU blocks: 2211\nexecute_model\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 256.00 MiB is free.";
        assert_eq!(commands(text, Cause::LiveDataFillsDevice)[0], "--gpu-memory-utilization 0.95");
    }
}
