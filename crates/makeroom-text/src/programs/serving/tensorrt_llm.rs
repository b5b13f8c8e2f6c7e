//! TensorRT-LLM's options: the KV cache takes a share of the memory that engine and buffers leave; the engine's
//! activations grow with its largest batch and number of tokens.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::super::{Program, Work};
use super::{half, more_devices};
use crate::situation::Situation;

pub(super) const TENSORRT_LLM: Program = Program {
    name: "TensorRT-LLM",
    frameworks: &[Framework::TensorRtLlm],
    marks: &["tensorrt-llm", "tensorrt_llm", "[trt-llm]", "trtllm"],
    work: Work::Inference,
    advise,
};

/// TensorRT-LLM's share of the free memory for the KV cache unless it is set.
const DEFAULT_SHARE: f64 = 0.9;

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let share = situation.settings.number(&[
        "kv_cache_free_gpu_mem_fraction",
        "kv_cache_free_gpu_memory_fraction",
        "free_gpu_memory_fraction",
    ]);
    match cause {
        Cause::ArtificialLimit => {
            let mut fixes = Vec::new();
            if share.is_none_or(|share| share < 0.95) {
                fixes.push(
                    Fix::new("give the KV cache a larger share of the free memory")
                        .command("--kv_cache_free_gpu_memory_fraction 0.95"),
                );
            }
            fixes.extend(shorter(situation));
            fixes
        }
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::NonFrameworkOverhead
        | Cause::Preallocation
        | Cause::Fragmentation => {
            let mut fixes = vec![smaller_cache(share)];
            fixes.extend(shorter(situation));
            if let Some(requests) = half(situation, &["max_batch_size"], 8, 1) {
                fixes.push(
                    Fix::new("build the engine for fewer requests at once")
                        .command(format!("trtllm-build --max_batch_size {requests}")),
                );
            }
            if let Some(tokens) = half(situation, &["max_num_tokens"], 4096, 512) {
                fixes.push(
                    Fix::new("build the engine for fewer tokens per step: activations shrink")
                        .command(format!("trtllm-build --max_num_tokens {tokens}")),
                );
            }
            fixes.push(more_devices(situation, &["tp_size"], "--tp_size "));
            fixes
        }
        Cause::OtherProcesses | Cause::HiddenHolder => vec![smaller_cache(share)],
        _ => Vec::new(),
    }
}

fn smaller_cache(share: Option<f64>) -> Fix {
    let suggested = (share.unwrap_or(DEFAULT_SHARE) - 0.2).max(0.1);
    Fix::new("give the KV cache a smaller share of the free memory")
        .command(format!("--kv_cache_free_gpu_memory_fraction {suggested:.1}   (Triton: kv_cache_free_gpu_mem_fraction:{suggested:.1})"))
}

fn shorter(situation: &Situation<'_>) -> Option<Fix> {
    let length = half(situation, &["max_seq_len"], 8192, 1024)?;
    Some(Fix::new("limit the sequence length").command(format!("--max_seq_len {length}")))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    #[test]
    fn the_cache_and_the_engine() {
        let text = "trtllm-build --max_batch_size 64 --max_num_tokens 8192\n[TensorRT-LLM][ERROR] CUDA runtime error in ::cudaMallocAsync(ptr, n, mCudaStream->get()): out of memory (tllmBuffers.h:112)";
        let steps = commands(text, Cause::LiveDataFillsDevice);
        assert!(steps[0].starts_with("--kv_cache_free_gpu_memory_fraction 0.7"), "{steps:?}");
        assert!(steps.contains(&"trtllm-build --max_batch_size 32".to_owned()));
        assert!(steps.contains(&"trtllm-build --max_num_tokens 4096".to_owned()));
    }
}
