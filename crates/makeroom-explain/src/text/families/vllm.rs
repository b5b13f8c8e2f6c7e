//! vLLM: what it says when its share of the card is not free, when its share is too small, and when it filled its
//! share and something beside it no longer fits.
//!
//! | versions | wording |
//! |---|---|
//! | 0.9 – | `Free memory on device (9.50/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, 21.60 GiB)`; later with `cuda:1` |
//! | all | `No available memory for the cache blocks. Try increasing gpu_memory_utilization` |
//! | – 0.8 | `The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (4096)` |
//! | 0.8 – | `To serve at least one request with the models's max seq len (40960), (5.50 GiB KV cache is needed, which is larger than the available KV cache memory (4.50 GiB)` |
//! | 0.6 – 0.8 | `the current vLLM instance can use total_gpu_memory (…) x gpu_memory_utilization (…) = …`, `model weights take …` |
//! | 0.8 – | `Available KV cache memory: 12.50 GiB` |
//! | 0.8 – | `CUDA out of memory occurred when warming up sampler with 1024 dummy requests` |
//! | 0.7 – | `CUDA Error: out of memory at …/cumem_allocator.cpp:62` (sleep mode) |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex};
use regex::Regex;

use super::vllm_fixes::{self, Share};
use crate::thresholds::CONTEXT_CEILING;
use crate::text::facts::{Facts, Resource, Statement};
use crate::text::family::Family;
use crate::text::figures::{captured_number, captured_size, find_size, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Free memory on device",
        "No available memory for the cache blocks",
        "max seq len",
        "vLLM instance can use total_gpu_memory",
        "reserved for KV Cache is",
        "Available KV cache memory:",
        "warming up sampler",
        "cumem_allocator",
    ],
    read,
};

/// A smaller share of a small card may be a context's, a desktop's and libraries', whatever it is in bytes.
const CONTEXT_SHARE: f64 = 0.1;

static STARTUP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Free memory on device(?: cuda:(\d+))? \(([\d.]+)/([\d.]+) ?GiB\) on startup is less than desired GPU memory utilization \(([\d.]+), ([\d.]+) ?GiB\)",
    )
});
static KV_NEEDED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"\(?([\d.]+) ?(GiB) KV cache is needed, which is larger than the available KV cache memory \((-?[\d.]+) ?(GiB)",
    )
});
static KV_TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"max seq len \((\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((\d+)\)",
    )
});
static LENGTH: LazyLock<Regex> = LazyLock::new(|| pattern(r"max seq len \((\d+)\)"));
static ESTIMATED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"estimated maximum model length is (?:about )?(\d+)"));
static BUDGET: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"total_gpu_memory \(([\d.]+) ?(GiB)\) x gpu_memory_utilization \([\d.]+\) = ([\d.]+) ?(GiB)")
});
static PARTS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"model weights take ([\d.]+) ?(GiB); non_torch_memory takes ([\d.]+) ?(GiB); PyTorch activation peak memory takes ([\d.]+) ?(GiB)",
    )
});
static SAMPLER: LazyLock<Regex> = LazyLock::new(|| pattern(r"warming up sampler with (\d+) dummy requests"));
static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Tried to allocate ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static DEVICE: LazyLock<Regex> = LazyLock::new(|| pattern(r"GPU (\d+)"));
static TOTAL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"total capaci?ty of ([\d.]+) ?([KMGTP]?i?B|bytes)"));
static FREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"of which ([\d.]+) ?([KMGTP]?i?B|bytes) is free"));
static LIVE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"([\d.]+) ?([KMGTP]?i?B|bytes) is allocated by PyTorch"));
static CACHED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"([\d.]+) ?([KMGTP]?i?B|bytes) is reserved by PyTorch but unallocated"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let facts = Facts::new("vllm", Resource::Device, passage);
    if line.contains("Free memory on device") {
        read_startup(facts, text)
    } else if line.contains("cache blocks") {
        Some(read_cache_blocks(facts, &Budget::read(passage)))
    } else if line.contains("max seq len") {
        read_sequence_length(facts, text, &Budget::read(passage))
    } else if line.contains("warming up sampler") {
        read_sampler(facts, text)
    } else if line.contains("cumem_allocator") {
        line.contains("out of memory").then_some(facts)
    } else {
        read_filled_budget(facts, passage)
    }
}

/// The share that vLLM was told to take was not free when it started.
fn read_startup(mut facts: Facts, text: &str) -> Option<Facts> {
    let found = STARTUP.captures(text)?;
    let gib =
        |group: usize| captured_number(&found, group).map(|amount: f64| Bytes::from_units(amount, 1 << 30));
    let (free, total, desired) = (gib(2)?, gib(3)?, gib(5)?);
    facts.device = captured_number(&found, 1).map(DeviceIndex);
    (facts.free, facts.total, facts.request) = (Some(free), Some(total), Some(desired));
    if free >= desired || free > total {
        return Some(facts);
    }
    let used = total - free;
    let (cause, who) = if used > CONTEXT_CEILING && used.share_of(total) > CONTEXT_SHARE {
        (Cause::OtherProcesses, "more than a context takes, so another process holds it")
    } else {
        (Cause::NonFrameworkOverhead, "what a context and a desktop take")
    };
    let summary = format!(
        "vLLM was told to take {desired} and found {free} free: {used} of {total} was in use before it started, {who}."
    );
    let fixes = vllm_fixes::at_start(free, total, facts.device);
    let stated = Statement::new(cause, Certainty::Likely, summary).mended_by(fixes);
    facts.statements.push(Statement { bytes: Some(used), ..stated });
    Some(facts)
}

/// What vLLM measured before it reserved its cache.
#[derive(Default)]
struct Budget {
    total: Option<Bytes>,
    /// What it may use.
    limit: Option<Bytes>,
    /// Weights, activations and what is not PyTorch's.
    fixed: Option<Bytes>,
}

impl Budget {
    fn read(passage: &Passage<'_>) -> Self {
        let mut budget = Self::default();
        for line in passage.all().chain(passage.others()) {
            if let Some(found) = BUDGET.captures(line) {
                budget.total = captured_size(&found, 1);
                budget.limit = captured_size(&found, 3);
            }
            if let Some(found) = PARTS.captures(line) {
                budget.fixed = [1, 3, 5].into_iter().map(|group| captured_size(&found, group)).sum();
            }
        }
        budget
    }

    fn share(&self) -> Share {
        Share { total: self.total, limit: self.limit }
    }

    /// What the card has beyond what vLLM may use.
    fn beyond(&self) -> Option<Bytes> {
        Some(self.total? - self.limit?)
    }
}

/// After weights and activations nothing was left of the share.
fn read_cache_blocks(mut facts: Facts, budget: &Budget) -> Facts {
    facts.total = budget.total;
    let (Some(total), Some(limit), Some(fixed)) = (budget.total, budget.limit, budget.fixed) else {
        let larger = vllm_fixes::larger_share(budget.share(), None).into_iter();
        facts.statements.push(
            Statement::new(
                Cause::ArtificialLimit,
                Certainty::Possible,
                "Weights and activations took all that gpu_memory_utilization allows, and nothing was left for the cache. Whether the card has more is not said.",
            )
            .mended_by(larger.chain(vllm_fixes::smaller_model()).collect()),
        );
        return facts;
    };
    let summary = format!(
        "Weights, activations and libraries take {fixed} of the {limit} that gpu_memory_utilization allows on a card of {total}; nothing is left for the cache."
    );
    // A share of nine tenths is vLLM's own default: below that the card has room that was not asked for.
    let cause = if fixed.share_of(total) < 0.9 { Cause::ArtificialLimit } else { Cause::LiveDataFillsDevice };
    let larger = vllm_fixes::larger_share(budget.share(), None).into_iter();
    let options = larger.chain(vllm_fixes::smaller_model()).collect();
    facts.statements.push(Statement::new(cause, Certainty::Likely, summary).mended_by(options));
    facts
}

/// The cache is too small for a single request of full length.
fn read_sequence_length(mut facts: Facts, text: &str, budget: &Budget) -> Option<Facts> {
    if let Some(found) = KV_TOKENS.captures(text) {
        let summary = format!(
            "A sequence of {} tokens needs more cache than the {} tokens for which memory was left.",
            &found[1], &found[2]
        );
        let fixes = vllm_fixes::shorter_requests(captured_number(&found, 2), budget.share(), None);
        facts
            .statements
            .push(Statement::new(Cause::LiveDataFillsDevice, Certainty::Likely, summary).mended_by(fixes));
        return Some(facts);
    }
    let found = KV_NEEDED.captures(text)?;
    let needed = captured_size(&found, 1)?;
    let available = captured_size(&found, 3).unwrap_or(Bytes::ZERO);
    facts.request = Some(needed);
    facts.total = budget.total;
    // Without the measurements, nine tenths are taken for granted, vLLM's default.
    let (cause, rest) = match budget.beyond() {
        Some(beyond) if beyond >= needed - available => (
            Cause::ArtificialLimit,
            format!("; gpu_memory_utilization leaves {beyond} of the card untouched"),
        ),
        _ => (Cause::LiveDataFillsDevice, " beside the weights".to_owned()),
    };
    let left = if available.is_zero() { "nothing".to_owned() } else { available.to_string() };
    let summary = format!("One request of full length needs {needed} of cache and {left} was left{rest}.");
    let number = |figure: &Regex| captured_number(&figure.captures(text)?, 1);
    let estimated: Option<u64> = number(&ESTIMATED);
    let longest = estimated.or_else(|| vllm_fixes::longest_request(number(&LENGTH)?, needed, available));
    let mut fixes = vllm_fixes::shorter_requests(longest, budget.share(), Some(needed - available));
    if cause == Cause::ArtificialLimit {
        // A larger share costs nothing; shorter requests do.
        fixes.sort_by_key(|fix| std::cmp::Reverse(fix.frees));
    }
    facts.statements.push(Statement::new(cause, Certainty::Likely, summary).mended_by(fixes));
    Some(facts)
}

fn read_sampler(mut facts: Facts, text: &str) -> Option<Facts> {
    let found = SAMPLER.captures(text)?;
    facts.batch = captured_number(&found, 1);
    let summary = format!(
        "vLLM had filled its share; what it left did not suffice for the logits of {} requests at once.",
        &found[1]
    );
    let fixes = vllm_fixes::fewer_requests(facts.batch);
    facts
        .statements
        .push(Statement::new(Cause::LiveDataFillsDevice, Certainty::Possible, summary).mended_by(fixes));
    Some(facts)
}

/// vLLM reserved its cache, and then a small request of PyTorch's found nothing free.
fn read_filled_budget(mut facts: Facts, passage: &Passage<'_>) -> Option<Facts> {
    let error: Vec<&str> =
        passage.onward().skip_while(|line| !line.contains("Tried to allocate")).take(6).collect();
    (*error.first()?).clone_into(&mut facts.quote);
    let error = error.join(" ");
    let (request, free) = (find_size(&REQUEST, &error)?, find_size(&FREE, &error)?);
    let total = find_size(&TOTAL, &error).or(Budget::read(passage).total)?;
    facts.device = DEVICE.captures(&error).and_then(|found| captured_number(&found, 1)).map(DeviceIndex);
    (facts.request, facts.free, facts.total) = (Some(request), Some(free), Some(total));
    (facts.live, facts.cached) = (find_size(&LIVE, &error), find_size(&CACHED, &error));
    if request.share_of(total) > 0.02 || free > request {
        return None;
    }
    let limit =
        Budget::read(passage).limit.map_or(String::new(), |limit| format!(" of {limit} out of {total}"));
    let summary = format!(
        "vLLM filled its own share{limit}; what it left for CUDA graphs, NCCL and contexts did not suffice, and {request} more was refused with {free} free."
    );
    facts.state(Cause::NonFrameworkOverhead, Certainty::Likely, summary);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    fn conclusion(text: &str) -> (Cause, Certainty) {
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework, "vllm", "{text}");
        facts
            .statements
            .first()
            .map_or((Cause::Undetermined, Certainty::Undetermined), |stated| (stated.cause, stated.certainty))
    }

    fn startup(device: &str, figures: &str) -> String {
        format!(
            "(EngineCore_DP0 pid=17) ERROR 09-28 15:47:24 [core.py:718] ValueError: Free memory on device{device} ({figures} GiB) on startup is less than desired GPU memory utilization (0.9, 21.6 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        )
    }

    #[test]
    fn a_share_that_is_not_free_at_the_start() {
        let text = startup(" cuda:1", "9.5/24.0");
        assert_eq!(conclusion(&text), (Cause::OtherProcesses, Certainty::Likely));
        let facts = facts_in(&text).unwrap();
        assert_eq!((facts.device, facts.total), (Some(DeviceIndex(1)), Some(Bytes::gib(24))));
        assert_eq!(conclusion(&startup("", "21.3/22.5")), (Cause::NonFrameworkOverhead, Certainty::Likely));
        assert_eq!(conclusion(&startup("", "24.5/24.0")), (Cause::Undetermined, Certainty::Undetermined));
        let wrapped = startup("", "9.5/24.0").replace(" than desired", "\n than desired");
        assert_eq!(conclusion(&wrapped), (Cause::OtherProcesses, Certainty::Likely));
    }

    #[test]
    fn a_share_that_is_too_small_for_the_weights() {
        let error = "[rank0]: ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
        assert_eq!(conclusion(error), (Cause::ArtificialLimit, Certainty::Possible));
        let profile = |total: &str, utilization: &str, limit: &str| {
            format!(
                "INFO 02-26 09:54:05 worker.py:267] the current vLLM instance can use total_gpu_memory ({total}GiB) x gpu_memory_utilization ({utilization}) = {limit}GiB\nINFO 02-26 09:54:05 worker.py:267] model weights take 5.20GiB; non_torch_memory takes 0.03GiB; PyTorch activation peak memory takes 1.42GiB; the rest of the memory reserved for KV Cache is -1.05GiB.\n{error}"
            )
        };
        assert_eq!(
            conclusion(&profile("16.00", "0.35", "5.60")),
            (Cause::ArtificialLimit, Certainty::Likely)
        );
        assert_eq!(
            conclusion(&profile("7.00", "0.90", "6.30")),
            (Cause::LiveDataFillsDevice, Certainty::Likely)
        );
    }

    #[test]
    fn a_cache_that_is_too_small_for_one_request() {
        let text = "ValueError: To serve at least one request with the models's max seq len (40960), (5.50 GiB KV cache is needed, which is larger than the available KV cache memory (4.50 GiB). Based on the available memory, the estimated maximum model length is 32768.";
        assert_eq!(conclusion(text), (Cause::LiveDataFillsDevice, Certainty::Likely));
        assert_eq!(facts_in(text).unwrap().request, Some(Bytes::mib(5632)));
        let text = format!(
            "the current vLLM instance can use total_gpu_memory (24.00GiB) x gpu_memory_utilization (0.80) = 19.20GiB\n{text}"
        );
        assert_eq!(conclusion(&text), (Cause::ArtificialLimit, Certainty::Likely));
        let tokens = "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (5136). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`";
        assert_eq!(conclusion(tokens), (Cause::LiveDataFillsDevice, Certainty::Likely));
    }

    #[test]
    fn a_share_that_leaves_nothing_for_the_rest() {
        let text = "(RayWorkerWrapper pid=7, ip=node) INFO 03-27 10:29:01 [worker.py:267] the current vLLM instance can use total_gpu_memory (48.00GiB) x gpu_memory_utilization (0.98) = 47.04GiB [repeated 3x across cluster]\n(RayWorkerWrapper pid=8, ip=node) loading\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 6 has a total capacity of 48.00 GiB of which 1024.00 KiB is free.";
        assert_eq!(conclusion(text), (Cause::NonFrameworkOverhead, Certainty::Likely));
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.device, facts.request), (Some(DeviceIndex(6)), Some(Bytes::mib(2))));
        let large = text.replace("2.00 MiB", "9.00 GiB");
        assert_eq!(facts_in(&large).unwrap().framework, "pytorch");
    }

    #[test]
    fn the_sampler_and_the_sleep_mode() {
        let text = "(VllmWorker rank=0 pid=10) ERROR 03-16 06:12:38 [multiproc_executor.py:375] RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.";
        assert_eq!(conclusion(text), (Cause::LiveDataFillsDevice, Certainty::Possible));
        assert_eq!(facts_in(text).unwrap().batch, Some(256));
        let text = "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62";
        assert_eq!(conclusion(text), (Cause::Undetermined, Certainty::Undetermined));
    }
}
