//! The same settings by the names that each program on llama.cpp gives them.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::Fix;

use crate::situation::Situation;

/// A program on llama.cpp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    LlamaCpp,
    Ollama,
    Kobold,
    /// llama-cpp-python and `LangChain` on it.
    Python,
    LmStudio,
    LocalAi,
    Jan,
    /// text-generation-webui.
    WebUi,
    Whisper,
    StableDiffusion,
}

impl Dialect {
    /// The program that a text shows; llama.cpp's own tools where none other does.
    pub(super) fn from_situation(situation: &Situation<'_>) -> Self {
        let mentions = |words: &[&str]| words.iter().any(|words| situation.settings.mentions(words));
        if situation.facts.framework == Framework::Ollama {
            Self::Ollama
        } else if mentions(&["llama-server -", "llama-cli -", "main: build", "./main -m"]) {
            Self::LlamaCpp
        } else if mentions(&["kobold"]) {
            Self::Kobold
        } else if mentions(&["lm studio", "lmstudio", "lm-studio", "estimatedModelVramUsage", "LM Link"]) {
            Self::LmStudio
        } else if mentions(&["localai", "local-ai", "/build/backends/"]) {
            Self::LocalAi
        } else if mentions(&["cortex.cpp", "janhq", "jan/data", "[cortex"]) {
            Self::Jan
        } else if mentions(&["text-generation-webui", "oobabooga"]) {
            Self::WebUi
        } else if mentions(&[
            "llama_cpp",
            "llama-cpp-python",
            "LlamaCpp(",
            "langchain",
            "localGPT",
            "privateGPT",
        ]) {
            Self::Python
        } else if mentions(&["ollama", "llama runner process"]) {
            Self::Ollama
        } else if mentions(&[
            "whisper_init",
            "whisper_backend",
            "whisper.cpp",
            "whisper-cli",
            "whisper_model_load",
        ]) {
            Self::Whisper
        } else if mentions(&["stable-diffusion.cpp", "sd.cpp", "[ERROR] model.cpp", "ggml_extend.hpp"]) {
            Self::StableDiffusion
        } else {
            Self::LlamaCpp
        }
    }

    /// Fewer layers on the GPU.
    pub(super) fn layers(self, count: Option<u64>) -> Option<Fix> {
        let Some(count) = count else {
            let fix =
                Fix::new("keep some layers in RAM: start with 20 on the GPU, and add more while they fit");
            return Some(fix.command(self.layers_option(20)?));
        };
        let action = if count == 0 {
            "keep all layers in RAM; the GPU still speeds up prompt processing".to_owned()
        } else {
            format!("put {count} layers on the GPU and the rest in RAM")
        };
        Some(Fix::new(action).command(self.layers_option(count)?))
    }

    fn layers_option(self, count: u64) -> Option<String> {
        Some(match self {
            Self::LlamaCpp => format!("-ngl {count}"),
            Self::Ollama => format!("/set parameter num_gpu {count}"),
            Self::Kobold => format!("--gpulayers {count}"),
            Self::Python => format!("n_gpu_layers={count}"),
            Self::LmStudio => format!("GPU Offload: {count}"),
            Self::LocalAi => format!("gpu_layers: {count}   (YAML of the model)"),
            Self::Jan => format!("GPU Layers: {count}"),
            Self::WebUi => format!("--gpu-layers {count}"),
            Self::Whisper | Self::StableDiffusion => return None,
        })
    }

    /// A context below the default, where the text does not show the present one. Ollama's default grows with the
    /// GPU: 4096 tokens below 24 GiB, 32768 below 48 GiB; llama.cpp's is 4096 or the model's maximum.
    pub(super) fn short_context(self, total: Option<Bytes>) -> u64 {
        match self {
            Self::Ollama if total.is_some_and(|total| total >= Bytes::gib(23)) => 8192,

            Self::Ollama | Self::Kobold | Self::LmStudio => 2048,
            _ => 4096,
        }
    }

    /// A shorter context.
    pub(super) fn context(self, now: Option<u64>, tokens: u64) -> Option<Fix> {
        let unset = match self {
            Self::Ollama => "shorten the context (default 4096 tokens, more on GPUs with 24 GiB or more)",
            Self::Kobold => "shorten the context (default 4096 or 8192 tokens, depending on the version)",
            _ => "limit the context: by default it can be the model's maximum",
        };
        let action = now.map_or(unset.to_owned(), |now| {
            format!("halve the context from {now} tokens: the KV cache shrinks with it")
        });
        Some(Fix::new(action).command(match self {
            Self::Ollama => format!("/set parameter num_ctx {tokens}"),
            Self::Kobold => format!("--contextsize {tokens}"),
            Self::Python => format!("n_ctx={tokens}"),
            Self::LmStudio => format!("Context Length: {tokens}"),
            Self::LocalAi => format!("context_size: {tokens}   (YAML of the model)"),
            Self::Jan => format!("Context Size: {tokens}"),
            Self::WebUi => format!("--ctx-size {tokens}"),
            Self::LlamaCpp => format!("-c {tokens}"),
            Self::Whisper | Self::StableDiffusion => return None,
        }))
    }

    /// An 8-bit KV cache.
    pub(super) fn kv_8_bit(self, situation: &Situation<'_>) -> Option<Fix> {
        let fix = Fix::new("quantize the KV cache to 8 bits (about half the size)");
        let environment = situation.environment;
        Some(fix.command(match self {
            Self::LlamaCpp => "-fa on -ctk q8_0 -ctv q8_0".to_owned(),
            Self::Ollama => format!(
                "{} && {}",
                environment.export("OLLAMA_FLASH_ATTENTION=1"),
                environment.export("OLLAMA_KV_CACHE_TYPE=q8_0")
            ),
            Self::Kobold => "--flashattention --quantkv 1".to_owned(),
            Self::Python => {
                "flash_attn=True, type_k=llama_cpp.GGML_TYPE_Q8_0, type_v=llama_cpp.GGML_TYPE_Q8_0".to_owned()
            }
            Self::LocalAi => "flash_attention: true\ncache_type_k: q8_0\ncache_type_v: q8_0".to_owned(),
            Self::Jan => "Flash Attention: on, KV Cache K Type: q8_0, KV Cache V Type: q8_0".to_owned(),
            Self::LmStudio => "Flash Attention: on, K and V Cache Quantization Type: Q8_0".to_owned(),
            Self::WebUi => "--cache-type q8_0".to_owned(),
            Self::Whisper | Self::StableDiffusion => return None,
        }))
    }

    /// A smaller compute buffer.
    pub(super) fn micro_batch(self, tokens: u64) -> Option<Fix> {
        let fix = Fix::new("process prompts in smaller batches: the compute buffer shrinks with them");
        Some(fix.command(match self {
            Self::LlamaCpp => format!("-ub {tokens}"),
            Self::Kobold => format!("--blasbatchsize {tokens}"),
            Self::Python => format!("n_ubatch={tokens}"),
            Self::LmStudio => format!("Evaluation Batch Size: {tokens}"),
            Self::LocalAi => format!("batch: {tokens}"),
            Self::Jan => format!("uBatch Size: {tokens}"),
            Self::WebUi => format!("--batch-size {tokens}"),
            Self::Ollama => format!("/set parameter num_batch {tokens}"),
            Self::Whisper | Self::StableDiffusion => return None,
        }))
    }

    /// The experts of some layers in RAM.
    pub(super) fn experts(self, count: u64) -> Option<Fix> {
        let fix = Fix::new(format!(
            "keep the experts of {count} layers in RAM, which saves a lot of memory and costs little speed"
        ));
        Some(fix.command(match self {
            Self::LlamaCpp => format!("--n-cpu-moe {count}"),
            Self::Kobold => format!("--moecpu {count}"),
            Self::WebUi => format!("--extra-flags n-cpu-moe={count}"),
            _ => return None,
        }))
    }

    /// One request at a time.
    pub(super) fn one_slot(self, situation: &Situation<'_>) -> Option<Fix> {
        let fix = Fix::new("serve one request at a time: each slot has its own part of the KV cache");
        Some(fix.command(match self {
            Self::Ollama => situation.environment.export("OLLAMA_NUM_PARALLEL=1"),
            Self::LlamaCpp => "-np 1".to_owned(),
            _ => return None,
        }))
    }

    /// A smaller part for the device that failed.
    pub(super) fn split(self, device: usize, parts: &str) -> Option<Fix> {
        self.parts(Fix::new(format!("give GPU {device} a smaller part of the model")), parts)
    }

    /// Spreads weights that no usual GPU holds.
    pub(super) fn spread(self, parts: &str) -> Option<Fix> {
        let count = parts.split(',').count();
        self.parts(Fix::new(format!("spread the weights over {count} GPUs, if the machine has them")), parts)
    }

    fn parts(self, fix: Fix, parts: &str) -> Option<Fix> {
        Some(fix.command(match self {
            Self::LlamaCpp | Self::WebUi => format!("--tensor-split {parts}"),
            Self::Kobold => format!("--tensor_split {}", parts.replace(',', " ")),
            Self::Python => format!("tensor_split=[{parts}]"),
            _ => return None,
        }))
    }

    /// Whether a command is one of [`Self::layers`], [`Self::experts`] or [`Self::split`].
    pub(super) fn is_about_weights(command: &str) -> bool {
        ["-ngl", "layers", "num_gpu", "GPU Offload", "moe", "tensor"]
            .iter()
            .any(|words| command.contains(words))
    }

    /// A smaller file.
    pub(super) fn smaller_quantization(self) -> Fix {
        Fix::new("load a smaller quantization of the model").command(match self {
            Self::Ollama => "ollama run MODEL:7b-instruct-q4_K_M",
            Self::LlamaCpp => "-hf USER/MODEL-GGUF:Q4_K_M",
            _ => "MODEL-Q4_K_M.gguf",
        })
    }

    /// Programs that have no layers, context and KV cache to set.
    pub(super) fn own_model(self, situation: &Situation<'_>) -> Option<Vec<Fix>> {
        let settings = situation.settings;
        match self {
            Self::Whisper => {
                let mut fixes = vec![
                    Fix::new("run a smaller or quantized model")
                        .command("-m models/ggml-large-v3-turbo-q5_0.bin"),
                ];
                if settings.number(&["-bs", "--beam-size"]) != Some(1.0) {
                    fixes.push(
                        Fix::new("decode greedily: each beam has its own KV cache").command("-bs 1 -bo 1"),
                    );
                }
                if !settings.is_on(&["-fa", "--flash-attn"]) {
                    fixes.push(
                        Fix::new("turn on flash attention, which needs smaller compute buffers")
                            .command("-fa"),
                    );
                }
                fixes.push(Fix::new("or run on the CPU").command("-ng"));
                Some(fixes)
            }
            Self::StableDiffusion => {
                let mut fixes = Vec::new();
                // The VAE makes the largest single buffer.
                for (option, action) in [
                    ("--vae-tiling", "decode the image in tiles"),
                    (
                        "--vae-conv-direct",
                        "convolve without unfolding the image, which makes the VAE buffer smaller",
                    ),
                    ("--diffusion-fa", "turn on flash attention"),
                    ("--clip-on-cpu", "keep the text encoder in RAM"),
                    ("--offload-to-cpu", "keep weights in RAM until they are used"),
                ] {
                    // A buffer above the driver's cap is not about free memory.
                    let is_about_free_memory = option.ends_with("cpu")
                        && settings.mentions("exceeds device memory allocation limit");
                    if !settings.is_on(&[option]) && !is_about_free_memory {
                        fixes.push(Fix::new(action).command(option));
                    }
                }
                let side = settings
                    .number(&["-W", "--width"])
                    .filter(|&side| (128.0..=16384.0).contains(&side))
                    .map_or(512, |side| (side as u64 * 3 / 4).next_multiple_of(64));
                fixes.push(Fix::new("generate a smaller image").command(format!("-W {side} -H {side}")));
                Some(fixes)
            }
            _ => None,
        }
    }
}
