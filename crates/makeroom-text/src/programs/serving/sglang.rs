//! SGLang's options. `--mem-fraction-static` covers weights and the token pool; activations and CUDA graphs use the
//! rest.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::super::{Program, Work};
use super::{count, half, has_fp8, more_devices};
use crate::situation::Situation;

pub(super) const SGLANG: Program = Program {
    name: "SGLang",
    frameworks: &[Framework::Sglang],
    marks: &["sglang", "mem-fraction-static", "mem_fraction_static"],
    work: Work::Inference,
    advise,
};

const SHARE: &[&str] = &["mem_fraction_static"];
const DEVICES: &[&str] = &["--tp-size", "--tp", "tp_size", "--tensor-parallel-size"];
/// SGLang's usual default for one GPU.
const DEFAULT_SHARE: f64 = 0.88;
/// The largest share that leaves room for activations and graphs.
const LARGEST_SHARE: f64 = 0.95;

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::ArtificialLimit => {
            let mut fixes: Vec<Fix> = larger_share(situation).into_iter().collect();
            fixes.extend(smaller_model(situation));
            fixes
        }
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice
            if situation.facts.framework == Framework::Sglang && !is_pool_full(situation) =>
        {
            smaller_model(situation)
        }
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::NonFrameworkOverhead
        | Cause::Preallocation
        | Cause::Fragmentation => fuller_gpu(situation),
        Cause::OtherProcesses | Cause::HiddenHolder if situation.facts.framework != Framework::Sglang => {
            vec![smaller_share(situation)]
        }
        _ => Vec::new(),
    }
}

/// Whether live requests fill the token pool, so that fewer of them help.
fn is_pool_full(situation: &Situation<'_>) -> bool {
    ["Prefill out of memory", "Decode out of memory", "lower your batch size", "alloc_req_slots"]
        .iter()
        .any(|words| situation.settings.mentions(words))
}

/// The share that holds weights and a token pool: SGLang keeps `1 - share` of the memory that was free at the start.
fn larger_share(situation: &Situation<'_>) -> Option<Fix> {
    let settings = situation.settings;
    let now = settings.number(SHARE);
    let least = settings.number(&["Raise --mem-fraction-static above"]).or_else(|| {
        let (after, weights) = (situation.facts.free?, situation.facts.live?);
        Some(weights.share_of(weights + after))
    });
    // The pool gets half of what the weights leave.
    let suggested =
        least.map_or(0.9, |least| ((least + (1.0 - least) / 2.0) * 100.0).floor() / 100.0).min(LARGEST_SHARE);
    let suggested = if now.is_some_and(|now| suggested <= now) {
        ((now? + LARGEST_SHARE) * 50.0).ceil() / 100.0
    } else {
        suggested
    };
    if now.is_some_and(|now| suggested <= now) || least.is_some_and(|least| suggested <= least) {
        return None;
    }
    let from = now.map_or(format!("the default (about {DEFAULT_SHARE})"), |now| now.to_string());
    Some(
        Fix::new(format!("raise the static share from {from}: it holds the weights and the KV cache"))
            .command(format!("--mem-fraction-static {suggested:.2}")),
    )
}

fn smaller_share(situation: &Situation<'_>) -> Fix {
    let suggested =
        situation.settings.number(SHARE).map_or(0.8, |now| ((now - 0.05) * 100.0).round() / 100.0).max(0.1);
    Fix::new("lower the static share: activations and CUDA graphs get the rest")
        .command(format!("--mem-fraction-static {suggested:.2}"))
}

/// The weights leave nothing for the token pool.
fn smaller_model(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = vec![more_devices(situation, DEVICES, "--tp-size ")];
    if let Some(length) = half(situation, &["context_length", "--context-length"], 8192, 2048) {
        fixes.push(
            Fix::new("limit the context: one request then needs less KV cache")
                .command(format!("--context-length {length}")),
        );
    }
    if settings.value(&["quantization"]).is_none() {
        let option = if has_fp8(situation) { "--quantization fp8" } else { "--torchao-config int8wo" };
        fixes.push(Fix::new("load the weights in 8-bit precision (half the size)").command(option));
    }
    if has_fp8(situation)
        && settings.value(&["kv_cache_dtype"]).is_none_or(|value| value.eq_ignore_ascii_case("auto"))
    {
        fixes.push(
            Fix::new("quantize the KV cache to 8 bits: twice as many tokens fit")
                .command("--kv-cache-dtype fp8_e5m2"),
        );
    }
    fixes.push(Fix::new("cap the token pool, so that it does not compete with activations").command(
        format!(
            "--max-total-tokens {}",
            half(situation, &["--max-total-tokens", "max_total_tokens"], 32_768, 4096).unwrap_or(4096)
        ),
    ));
    fixes
}

/// Activations, CUDA graphs or live requests do not fit.
fn fuller_gpu(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    let is_pool = is_pool_full(situation);
    if !is_pool {
        fixes.push(smaller_share(situation));
    }
    if let Some(requests) = half(situation, &["max_running_requests", "--max-running-requests"], 32, 1) {
        fixes.push(
            Fix::new("run fewer requests at once").command(format!("--max-running-requests {requests}")),
        );
    }
    if let Some(tokens) = half(situation, &["chunked_prefill_size", "--chunked-prefill-size"], 2048, 512) {
        fixes.push(
            Fix::new("split long prompts into smaller chunks")
                .command(format!("--chunked-prefill-size {tokens}")),
        );
    }
    if is_pool {
        let now = situation.settings.number(SHARE).unwrap_or(DEFAULT_SHARE);
        if now + 0.02 < LARGEST_SHARE {
            fixes.push(
                Fix::new("enlarge the token pool")
                    .command(format!("--mem-fraction-static {:.2}", (now + 0.04).min(LARGEST_SHARE))),
            );
        }
    } else if !situation.settings.is_on(&["--disable-cuda-graph", "disable_cuda_graph"]) {
        let largest = count(situation, &["cuda_graph_max_bs", "cuda_graph_max_bs_decode"])
            .map_or(16, |now| (now / 2).max(1));
        let is_new = situation.settings.mentions("cuda-graph-max-bs-decode");
        let option = if is_new { "--cuda-graph-max-bs-decode" } else { "--cuda-graph-max-bs" };
        fixes.push(
            Fix::new("capture CUDA graphs for small batches only").command(format!("{option} {largest}")),
        );
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    #[test]
    fn the_share_follows_from_the_weights() {
        let text = "--mem-fraction-static 0.7\nLoad weight begin. avail mem=40.00 GB\nLoad weight end. type=X, dtype=torch.bfloat16, avail mem=10.00 GB, mem usage=30.00 GB.\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static.";
        assert_eq!(commands(text, Cause::ArtificialLimit)[0], "--mem-fraction-static 0.87");
        let bare = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.";
        assert_eq!(commands(bare, Cause::ArtificialLimit)[0], "--mem-fraction-static 0.90");
        let named = "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise --mem-fraction-static above 0.800 (minimum viable = 0.7996).";
        assert_eq!(commands(named, Cause::ArtificialLimit)[0], "--mem-fraction-static 0.90");
    }

    #[test]
    fn a_full_pool_and_a_full_gpu() {
        let pool = "server_args: max_running_requests=64\nRuntimeError: Decode out of memory. Try to lower your batch size.";
        assert_eq!(commands(pool, Cause::LiveDataFillsDevice)[0], "--max-running-requests 32");
        let gpu = "python -m sglang.launch_server --mem-fraction-static 0.9\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 256.00 MiB is free.";
        assert_eq!(commands(gpu, Cause::LiveDataFillsDevice)[0], "--mem-fraction-static 0.85");
    }
}
