//! Text Generation Inference's options. Its warm-up prefills `--max-batch-prefill-tokens` tokens and gives the rest of
//! the GPU to the KV cache.

use makeroom_core::Framework;
use makeroom_explain::{Cause, Fix};

use super::super::{Program, Work};
use super::{count, half, has_fp8, more_devices};
use crate::situation::Situation;

pub(super) const TGI: Program = Program {
    name: "Text Generation Inference",
    frameworks: &[Framework::Tgi],
    marks: &[
        "text-generation-inference",
        "text_generation_server",
        "text_generation_launcher",
        "text_generation_router",
        "text_generation_client",
        "text-generation-launcher",
    ],
    work: Work::Inference,
    advise,
};

const PREFILL: &[&str] = &["max_batch_prefill_tokens"];
const TOTAL: &[&str] = &["max_total_tokens"];
const INPUT: &[&str] = &["max_input_tokens", "max_input_length"];

fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    match cause {
        Cause::ArtificialLimit
            if situation.settings.number(&["cuda_memory_fraction"]).is_some_and(|share| share < 1.0) =>
        {
            vec![Fix::new("let TGI use all GPU memory").command("--cuda-memory-fraction 1.0")]
        }
        Cause::LiveDataFillsDevice
        | Cause::RequestExceedsDevice
        | Cause::ArtificialLimit
        | Cause::Fragmentation
        | Cause::NonFrameworkOverhead
        | Cause::Preallocation => smaller(situation),
        Cause::OtherProcesses | Cause::HiddenHolder => {
            let share = situation
                .facts
                .free
                .zip(situation.facts.total)
                .map_or(0.5, |(free, total)| (free.share_of(total) * 0.95).clamp(0.05, 0.95));
            vec![
                Fix::new("or limit TGI to the memory that is free")
                    .command(format!("--cuda-memory-fraction {share:.2}")),
            ]
        }
        _ => Vec::new(),
    }
}

fn smaller(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    let failed =
        |names: &[&str]| settings.number(names).filter(|&value| value >= 1.0).map(|value| value as u64);
    let prefill = failed(&["Not enough memory to handle"]).or_else(|| count(situation, PREFILL));
    if settings.mentions("total tokens with") {
        let tokens = failed(&["Not enough memory to handle"]).map_or(16_000, |tokens| tokens / 2);
        fixes.push(
            Fix::new("halve the KV cache that all requests share")
                .command(format!("--max-batch-total-tokens {tokens}")),
        );
    }
    let prefill = if settings.mentions("total tokens with") { count(situation, PREFILL) } else { prefill };
    match prefill {
        Some(tokens) if tokens > 512 => fixes.push(
            Fix::new(format!("halve the warm-up's prefill from {tokens} tokens")).command(format!(
                "--max-batch-prefill-tokens {0} --max-input-tokens {1}",
                tokens / 2,
                count(situation, INPUT).map_or(tokens / 2 - 1, |input| input.min(tokens / 2 - 1))
            )),
        ),
        Some(_) => {}
        None => fixes.push(
            Fix::new("limit the warm-up's prefill")
                .command("--max-batch-prefill-tokens 2048 --max-input-tokens 2047"),
        ),
    }
    if let Some(tokens) = half(situation, TOTAL, 4096, 512) {
        let input = count(situation, INPUT).map_or(tokens / 2, |input| input.min(tokens / 2));
        fixes.push(
            Fix::new("limit the prompt and output length per request")
                .command(format!("--max-total-tokens {tokens} --max-input-tokens {input}")),
        );
    }
    fixes.push(more_shards(situation));
    let is_quantized = settings.value(&["quantize"]).is_some_and(|value| !value.eq_ignore_ascii_case("none"));
    if !is_quantized {
        fixes.push(
            Fix::new("load the weights in 4-bit precision (a quarter of the size)")
                .command("--quantize bitsandbytes-nf4"),
        );
    } else if has_fp8(situation) && settings.value(&["kv_cache_dtype"]).is_none() {
        fixes.push(Fix::new("quantize the KV cache to 8 bits").command("--kv-cache-dtype fp8_e5m2"));
    }
    fixes
}

/// TGI prints its arguments as Rust does: `num_shard: Some(8)`.
fn more_shards(situation: &Situation<'_>) -> Fix {
    let now = situation.settings.number(&["num_shard: Some"]).map(|count| count as u64);
    match now {
        Some(shards) => {
            Fix::new(format!("split the model across {} GPUs, if the machine has them", shards * 2))
                .command(format!("--num-shard {}", shards * 2))
        }
        None => more_devices(situation, &["num_shard"], "--num-shard "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    #[test]
    fn half_of_what_failed() {
        let text = "Args { model_id: \"m\", num_shard: Some(2), quantize: None, max_input_length: 1024, max_total_tokens: 2048 }\nRuntimeError: Not enough memory to handle 8192 prefill tokens. You need to decrease `--max-batch-prefill-tokens`";
        let steps = commands(text, Cause::LiveDataFillsDevice);
        assert_eq!(
            steps[..3],
            [
                "--max-batch-prefill-tokens 4096 --max-input-tokens 1024",
                "--max-total-tokens 1024 --max-input-tokens 512",
                "--num-shard 4"
            ]
        );
        let text = "Not enough memory to handle 16000 total tokens with 4096 prefill tokens. You need to decrease `--max-batch-total-tokens` or `--max-batch-prefill-tokens`";
        assert_eq!(commands(text, Cause::LiveDataFillsDevice)[0], "--max-batch-total-tokens 8000");
    }

    #[test]
    fn a_failure_while_it_serves() {
        let text = "text_generation_router: router/src/server.rs\nServer error: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which 100.00 MiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.";
        assert!(commands(text, Cause::LiveDataFillsDevice)[0].starts_with("--max-batch-prefill-tokens 2048"));
    }
}
