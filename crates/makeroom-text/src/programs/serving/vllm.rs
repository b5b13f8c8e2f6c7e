//! vLLM's options. It measures weights and activations at startup and gives the rest of its share to the KV cache, so
//! the share, the longest request and the number of requests decide, not a batch size.

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Fix};

use super::super::{Program, Work};
use super::{count, half, has_fp8, more_devices};
use crate::families::vllm_budget::{Budget, DEFAULT_SHARE, LARGEST_SHARE, is_worth_a_share};
use crate::situation::Situation;

pub(super) const VLLM: Program = Program {
    name: "vLLM",
    frameworks: &[Framework::Vllm],
    marks: &[
        "vllm/",
        "vllm serve",
        "vllm.",
        "from vllm",
        "vllmworker",
        "vllm-openai",
        "enginecore_",
        "gpu_memory_utilization",
        "gpu-memory-utilization",
    ],
    work: Work::Inference,
    advise,
};

/// vLLM's KV cache comes in blocks of this many tokens.
const BLOCK_TOKENS: u64 = 16;
/// A share below this holds no model.
const LEAST_SHARE: f64 = 0.05;
/// Memory for CUDA graphs, NCCL and contexts outside the share.
const OUTSIDE: f64 = 0.05;

const LENGTH: &[&str] = &["max_model_len", "max_seq_len", "max seq len"];
const REQUESTS: &[&str] = &["max_num_seqs"];
const TOKENS: &[&str] = &["max_num_batched_tokens"];
const DEVICES: &[&str] = &["tensor_parallel_size", "-tp"];

pub(super) fn advise(situation: &Situation<'_>, cause: Cause) -> Vec<Fix> {
    let budget = Budget::read(&situation.settings);
    match cause {
        Cause::ArtificialLimit => {
            let mut fixes: Vec<Fix> = larger_share(situation, &budget).into_iter().collect();
            // Weights that fill the share leave no cache to make smaller.
            if situation.settings.mentions("No available memory for the cache blocks") {
                fixes.extend(smaller_weights(situation));
            }
            fixes.extend(shorter_requests(situation));
            fixes.extend(less_outside_the_cache(situation));
            fixes.push(more_devices(situation, DEVICES, "--tensor-parallel-size "));
            fixes
        }
        Cause::LiveDataFillsDevice | Cause::RequestExceedsDevice => {
            if is_after_startup(situation) {
                fuller_gpu(situation, &budget)
            } else {
                smaller_model(situation, &budget)
            }
        }
        Cause::NonFrameworkOverhead | Cause::Preallocation | Cause::Fragmentation => {
            fuller_gpu(situation, &budget)
        }
        Cause::OtherProcesses | Cause::HiddenHolder => share_of_free(situation).into_iter().collect(),
        Cause::CacheHeldByFramework => vec![
            Fix::new("release the trainer's cached memory before vLLM wakes up")
                .command("torch.cuda.empty_cache(); llm.wake_up()"),
            smaller_share(situation, &budget, 0.4),
        ],
        Cause::HostMemory => host(situation),
        _ => Vec::new(),
    }
}

/// Whether the KV cache was reserved when the failure came: from then on a larger share makes it worse.
fn is_after_startup(situation: &Situation<'_>) -> bool {
    let is_torch = situation.facts.framework.is_torch() || situation.facts.framework == Framework::Cuda;
    let marks = [
        "GPU KV cache size",
        "Capturing",
        "warming up",
        "execute_model",
        "Avg prompt throughput",
        "gpu_blocks",
        "initialize_kv_cache",
        "Available KV cache memory",
        "backward(",
        "_dummy_run",
        "profile_run",
    ];
    let is_capturing =
        ["Capturing the model for CUDA graphs", "Capturing CUDA graph", "cuda_graph_runner", "capture_model"]
            .iter()
            .any(|mark| situation.settings.mentions(mark));
    let is_serving = is_capturing && situation.facts.framework != Framework::Vllm
        || is_torch && marks.iter().any(|mark| situation.settings.mentions(mark));
    is_serving || ["warming up sampler", "wake_up"].iter().any(|words| situation.settings.mentions(words))
}

/// A larger share: the smallest that holds everything where the log has the figures, else the largest.
fn larger_share(situation: &Situation<'_>, budget: &Budget) -> Option<Fix> {
    let now = budget.share.unwrap_or(DEFAULT_SHARE);
    let needed = situation.facts.request.filter(|_| situation.settings.mentions("KV cache is needed"));
    let suggested = budget.needed_share(needed).unwrap_or(LARGEST_SHARE);
    if suggested < now + 0.005 {
        return None;
    }
    let from = budget.share.map_or("the default 0.9".to_owned(), |share| share.to_string());
    Some(
        Fix::new(format!("raise vLLM's share of GPU memory from {from}, if no other process needs it"))
            .command(format!("--gpu-memory-utilization {suggested:.2}")),
    )
}

/// A share that leaves memory for everything outside the KV cache.
fn smaller_share(situation: &Situation<'_>, budget: &Budget, unset: f64) -> Fix {
    let now = budget.share.unwrap_or(DEFAULT_SHARE);
    let short = situation
        .account
        .missing()
        .zip(situation.facts.total)
        .map_or(OUTSIDE, |(short, total)| (short.share_of(total) * 1.5).clamp(0.03, 0.3));
    let suggested = if budget.share.is_some() { ((now - short) * 100.0).floor() / 100.0 } else { unset };
    let suggested = suggested.max(LEAST_SHARE);
    let fix = Fix::new("lower vLLM's share, so that memory outside the KV cache fits")
        .command(format!("--gpu-memory-utilization {suggested:.2}"));
    match situation.facts.total {
        Some(total) if suggested < now => fix.frees(total.scaled(now - suggested)),
        _ => fix,
    }
}

/// The share that other processes leave.
fn share_of_free(situation: &Situation<'_>) -> Option<Fix> {
    let (free, total) = (situation.facts.free?, situation.facts.total?);
    let share = (free.share_of(total) * 100.0).floor() / 100.0;
    ((LEAST_SHARE..1.0).contains(&share) && is_worth_a_share(free, total)).then(|| {
        Fix::new(format!("or limit vLLM to the {free} that is free, if the model fits"))
            .command(format!("--gpu-memory-utilization {share:.2}"))
    })
}

/// The longest request that the KV cache holds.
fn shorter_requests(situation: &Situation<'_>) -> Option<Fix> {
    let settings = situation.settings;
    let number =
        |names: &[&str]| settings.number(names).filter(|&value| value >= 1.0).map(|value| value as u64);
    let length = number(&["max seq len"]).or_else(|| number(LENGTH));
    let longest = number(&["estimated maximum model length is about", "estimated maximum model length is"])
        .or_else(|| number(&["stored in KV cache"]))
        .or_else(|| longest_request(length?, situation.facts.request?, available_cache(situation)?));
    if let Some(longest) = longest {
        return Some(
            Fix::new(format!("limit requests to the {longest} tokens that fit in the KV cache"))
                .command(format!("--max-model-len {longest}")),
        );
    }
    match length {
        Some(length) if length <= 4096 => None,
        Some(length) => Some(
            Fix::new(format!(
                "halve the maximum request length from {length} tokens: one request needs half the KV cache"
            ))
            .command(format!("--max-model-len {}", length / 2)),
        ),
        None => Some(
            Fix::new("limit the request length: by default, it is the model's maximum")
                .command("--max-model-len 8192"),
        ),
    }
}

/// The KV cache of an error that names what is needed.
fn available_cache(situation: &Situation<'_>) -> Option<Bytes> {
    let gib = situation.settings.number(&["available KV cache memory"]).filter(|&gib| gib > 0.0)?;
    situation.settings.mentions("KV cache is needed").then(|| Bytes::from_units(gib, 1 << 30))
}

/// The longest request that a cache has room for, where one of `length` tokens needs `needed`.
fn longest_request(length: u64, needed: Bytes, available: Bytes) -> Option<u64> {
    let tokens = u128::from(length) * u128::from(available.get()) / u128::from(needed.get().max(1));
    let tokens = u64::try_from(tokens).ok()?;
    Some(tokens / BLOCK_TOKENS * BLOCK_TOKENS).filter(|&tokens| tokens > 0 && tokens < length)
}

/// Activations and graphs, which the KV cache could have.
fn less_outside_the_cache(situation: &Situation<'_>) -> Vec<Fix> {
    let mut fixes = Vec::new();
    if !situation.settings.is_on(&["--enforce-eager", "enforce_eager"]) {
        fixes.push(
            Fix::new("run without CUDA graphs (less memory, slower decoding)").command("--enforce-eager"),
        );
    }
    if let Some(tokens) = half(situation, TOKENS, 2048, 512) {
        fixes.push(
            Fix::new("process fewer tokens per step: activations shrink")
                .command(format!("--enable-chunked-prefill --max-num-batched-tokens {tokens}")),
        );
    }
    fixes
}

/// Weights and the KV cache of one request do not fit.
fn smaller_model(situation: &Situation<'_>, budget: &Budget) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes: Vec<Fix> = shorter_requests(situation).into_iter().collect();
    if !budget.is_at_largest() && situation.facts.framework == Framework::Vllm {
        fixes.extend(larger_share(situation, budget));
    }
    fixes.push(more_devices(situation, DEVICES, "--tensor-parallel-size "));
    if has_fp8(situation)
        && settings.value(&["kv_cache_dtype"]).is_none_or(|value| value.eq_ignore_ascii_case("auto"))
    {
        fixes.push(
            Fix::new("quantize the KV cache to 8 bits: twice as many tokens fit")
                .command("--kv-cache-dtype fp8"),
        );
    }
    fixes.extend(smaller_weights(situation));
    fixes.extend(less_outside_the_cache(situation));
    fixes
}

/// GPUs before Turing, for which vLLM has no AWQ kernels.
const WITHOUT_AWQ: [&str; 6] = ["V100", "P100", "P40", "GTX 10", "TITAN V", "capability 7.0"];

/// Weights in fewer bits, unless they are quantized already.
fn smaller_weights(situation: &Situation<'_>) -> Option<Fix> {
    let settings = situation.settings;
    let is_quantized =
        settings.value(&["quantization"]).is_some_and(|value| !value.eq_ignore_ascii_case("none"))
            || ["awq", "gptq", "-fp8", "int4", "w4a16"].iter().any(|name| settings.mentions(name));
    if is_quantized {
        return None;
    }
    Some(if has_fp8(situation) {
        Fix::new("load the weights in 8-bit precision (half the size)").command("--quantization fp8")
    } else if WITHOUT_AWQ.iter().any(|name| settings.mentions(name)) {
        Fix::new("load a 4-bit GPTQ checkpoint of the model (a quarter of the size; vLLM's AWQ kernels need compute capability 7.5)")
            .command("--quantization gptq --model …-GPTQ-Int4")
    } else {
        Fix::new("load a 4-bit checkpoint of the model (a quarter of the size)")
            .command("--quantization awq --model …-AWQ")
    })
}

/// The share is filled; memory outside the KV cache is short.
fn fuller_gpu(situation: &Situation<'_>, budget: &Budget) -> Vec<Fix> {
    let mut fixes = vec![smaller_share(situation, budget, 0.85)];
    let requests = situation.facts.batch.or_else(|| count(situation, REQUESTS));
    let fewer = requests.map_or(64, |now| (now / 2).max(1));
    if requests != Some(1) {
        fixes.push(Fix::new("run fewer requests at once").command(format!("--max-num-seqs {fewer}")));
    }
    fixes.extend(less_outside_the_cache(situation).into_iter().rev());
    fixes
}

fn host(situation: &Situation<'_>) -> Vec<Fix> {
    let settings = situation.settings;
    let mut fixes = Vec::new();
    if settings.mentions("CPU memory utilization") {
        let share = situation
            .facts
            .free
            .zip(situation.facts.total)
            .map_or(0.5, |(free, total)| free.share_of(total) * 0.95);
        fixes.push(
            Fix::new("reserve less RAM: on the CPU, this option sets the share of RAM")
                .command(format!("--gpu-memory-utilization {share:.2}")),
        );
    }
    if settings.mentions("lack of CPU swap space") {
        let space = settings.number(&["swap_space"]).map_or(8, |space| (space * 2.0) as u64);
        fixes.push(
            Fix::new("give preempted requests more swap space").command(format!("--swap-space {space}")),
        );
        fixes.push(
            Fix::new("or run fewer requests at once")
                .command(format!("--max-num-seqs {}", half(situation, REQUESTS, 64, 1).unwrap_or(1))),
        );
    } else if settings.mentions("swap space") {
        fixes.push(
            Fix::new("reserve less RAM as swap space; the default is 4 GiB per GPU")
                .command("--swap-space 1"),
        );
    }
    let swap = settings.number(&["swap_space"]);
    if fixes.is_empty() && swap.is_none_or(|swap| swap > 0.0) {
        fixes.push(
            Fix::new("do not reserve RAM as swap space (default 4 GiB for each GPU)")
                .command("--swap-space 0"),
        );
    }
    if let Some(offloaded) = settings.number(&["cpu_offload_gb"]).filter(|&size| size > 0.0) {
        fixes.push(
            Fix::new("keep fewer weights in RAM")
                .command(format!("--cpu-offload-gb {}", (offloaded / 2.0) as u64)),
        );
    }
    fixes
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::commands;
    use super::*;

    const NO_BLOCKS: &str = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";

    #[test]
    fn the_share_that_the_budget_needs() {
        let text = format!(
            "total_gpu_memory (20.00GiB) x gpu_memory_utilization (0.50) = 10.00GiB\nmodel weights take 10.00GiB; non_torch_memory takes 0.40GiB; PyTorch activation peak memory takes 2.00GiB; the rest of the memory reserved for KV Cache is -2.40GiB.\n{NO_BLOCKS}"
        );
        let steps = commands(&text, Cause::ArtificialLimit);
        assert_eq!(steps[0], "--gpu-memory-utilization 0.67");
        assert!(commands(NO_BLOCKS, Cause::ArtificialLimit)[0].ends_with("0.95"));
    }

    #[test]
    fn what_is_set_is_not_repeated() {
        let text = format!(
            "vllm serve m --dtype half --gpu-memory-utilization 0.95 --max-model-len 16384 --enforce-eager --tensor-parallel-size 2   # Tesla V100\n{NO_BLOCKS}"
        );
        let steps = commands(&text, Cause::LiveDataFillsDevice);
        assert_eq!(steps[..2], ["--max-model-len 8192", "--tensor-parallel-size 4"]);
        assert!(
            steps.iter().all(|step| !step.contains("fp8")
                && !step.contains("eager")
                && !step.contains("utilization")),
            "{steps:?}"
        );
    }

    #[test]
    fn the_longest_request_that_fits() {
        let tokens = "ValueError: The model's max seq len (32768) is larger than the maximum number of tokens that can be stored in KV cache (9136). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`";
        assert_eq!(commands(tokens, Cause::LiveDataFillsDevice)[0], "--max-model-len 9136");
        let needed = "ValueError: To serve at least one request with the models's max seq len (40960), (5.00 GiB KV cache is needed, which is larger than the available KV cache memory (3.00 GiB).";
        assert_eq!(commands(needed, Cause::LiveDataFillsDevice)[0], "--max-model-len 24576");
        let estimated =
            format!("{needed} Based on the available memory, the estimated maximum model length is 24100.");
        assert_eq!(commands(&estimated, Cause::LiveDataFillsDevice)[0], "--max-model-len 24100");
    }

    #[test]
    fn the_share_that_is_free() {
        let text = "ValueError: Free memory on device (9.50/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, 21.60 GiB).";
        assert_eq!(commands(text, Cause::OtherProcesses), ["--gpu-memory-utilization 0.39"]);
    }

    #[test]
    fn a_share_that_leaves_too_little() {
        let text = "vllm serve --gpu-memory-utilization 0.98 --max-num-seqs 128\nGPU KV cache size: 123,456 tokens\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 256.00 MiB is free. Of the allocated memory 38.00 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.";
        let steps = commands(text, Cause::LiveDataFillsDevice);
        assert_eq!(steps[..2], ["--gpu-memory-utilization 0.95", "--max-num-seqs 64"]);
    }

    #[test]
    fn the_longest_request_is_a_number_of_blocks() {
        assert_eq!(longest_request(40_960, Bytes::gib(10), Bytes::gib(3)), Some(12_288));
        assert_eq!(longest_request(1000, Bytes::gib(10), Bytes::ZERO), None);
        assert_eq!(longest_request(1000, Bytes::ZERO, Bytes::gib(1)), None);
    }
}
