//! vLLM: its share of the GPU is not free, is too small, or leaves no room for the memory outside it.
//!
//! | versions | wording |
//! |---|---|
//! | 0.9 – | `Free memory on device (9.50/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, 21.60 GiB)`; later with `cuda:1`; on CPUs `desired CPU memory utilization` |
//! | all | `No available memory for the cache blocks. Try increasing gpu_memory_utilization` |
//! | – 0.8 | `# GPU blocks: 0`, `# cuda blocks: 0`, `the rest of the memory reserved for KV Cache is -1.05GiB` |
//! | 0.8 – | `Available KV cache memory: -1.2 GiB` |
//! | – 0.8 | `The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (4096)` |
//! | 0.8 – | `To serve at least one request with the models's max seq len (40960), (5.50 GiB KV cache is needed, which is larger than the available KV cache memory (4.50 GiB)` |
//! | 0.8 – | `CUDA out of memory occurred when warming up sampler with 1024 dummy requests`, `… warming up pooler …` |
//! | 0.7 – | `CUDA Error: out of memory at …/cumem_allocator.cpp:62` (sleep mode) |
//! | – 0.8 | `Too large swap space. 8.00 GiB out of the 15.00 GiB total CPU memory`, `Aborted due to the lack of CPU swap space` |
//! | all | `Error in memory profiling. Initial free memory 20.1 GiB, current free memory 22.3 GiB` |
//! | all | `preempted … because there is not enough KV cache space` (a warning) |
//!
//! The budget lines are read by [`super::vllm_budget`]; the steps are in `programs/serving/vllm.rs`.

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::advice::{self, Maker};
use makeroom_explain::thresholds::{CONTEXT_CEILING, CONTEXT_TYPICAL};
use makeroom_explain::{Cause, Certainty, Fix};
use makeroom_search::{Regex, contains_folded, pattern};

use super::vllm_budget::{Budget, is_worth_a_share};
use super::vllm_running::{read_filled_budget, read_profiling, read_sleep_mode, read_swap, read_warm_up};
use crate::facts::{Facts, Resource, Severity, Statement};
use crate::family::Family;
use crate::figures::{captured_number, captured_size};
use crate::log::{Passage, clipped};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "memory on device",
        "desired CPU memory utilization",
        "No available memory for the cache blocks",
        "max seq len",
        "vLLM instance can use total_gpu_memory",
        "reserved for KV Cache is",
        "Available KV cache memory:",
        "kv_cache_size=-",
        "# GPU blocks: 0",
        "# cuda blocks: 0",
        "# rocm blocks: 0",
        "warming up sampler",
        "warming up pooler",
        "cumem_allocator",
        "device_allocator/cumem.py",
        "Too large swap space",
        "lack of CPU swap space",
        "Error in memory profiling",
        "not enough KV cache space",
        "KV cache is needed",
        "KV cache needed",
        "KV cache required",
        "needed for KV cache",
        "required for KV cache",
        "for the KV cache",
        "larger than available KV",
        "larger than the available KV",
        "exceeds the available KV",
    ],
    read,
};

/// A smaller share of a small card may belong to a context, a desktop and libraries, whatever it is in bytes.
const CONTEXT_SHARE: f64 = 0.1;
/// A share below this holds no model.
const LEAST_SHARE: f64 = 0.05;
/// A share up to this leaves room on the GPU that was not asked for.
const SMALL_SHARE: f64 = 0.85;

static STARTUP: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)memory on (?:device(?: cuda:(\d+))?|node(?: \d+)?) \(([\d.]+)/([\d.]+) ?GiB\) on startup is less than desired [GC]PU memory utilization \(([\d.]+), ([\d.]+) ?GiB\)",
    )
});
static KV_NEEDED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\(?([\d.]+) ?(GiB) KV cache is needed, which is larger than the available KV cache memory \((-?[\d.]+)(?: ?(?:GiB)? ?(?:[–~-]|to) ?[\d.]+)? ?(GiB)",
    )
});
static KV_TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)max seq len \((\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((\d+)\)",
    )
});
/// The same check in shortened or translated notes: the need and the rest, in either order.
static NEEDED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)([\d.]+) ?([GM]i?B)\)?(?: of)? KV[- ]cache (?:memory )?(?:is |are |was )?(?:needed|required)|\b(?:needs?|needed|requires?|required)\b[ :=(]{1,3}(?:about |at least |~ ?)?([\d.]+) ?([GM]i?B)|([\d.]+) ?([GM]i?B) (?:is |are |was )?(?:needed|required)",
    )
});
static LEFT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bavailable (?:KV[- ]cache ?)?(?:memory ?)?[ :=(]{0,3}(?:is |of |only )?(-?[\d.]+)(?: ?[–~-] ?[\d.]+)? ?([GM]i?B)|\b(?:only|have|has|got|leaves)\b (?:about |~ ?)?(-?[\d.]+) ?([GM]i?B)|(-?[\d.]+) ?([GM]i?B)(?: is| are| was)?(?: still)? (?:available|left|free)\b",
    )
});

/// The need and the rest of a KV cache that is too small, where the words are not vLLM's own.
fn shortage(text: &str) -> Option<(Bytes, Bytes)> {
    /// Both stand in one sentence or two.
    const LONGEST: usize = 400;
    let text = clipped(text, LONGEST);
    // A negative figure means that nothing is left.
    let size = |words: &Regex| {
        let found = words.captures(text)?;
        let group = (1..=5).step_by(2).find(|&group| found.get(group).is_some())?;
        if found[group].starts_with('-') { Some(Bytes::ZERO) } else { captured_size(&found, group) }
    };
    let (needed, left) = (size(&NEEDED)?, size(&LEFT)?);
    (needed > left).then_some((needed, left))
}

/// Whether a line compares the KV cache that a request needs with what there is.
fn is_cache_check(line: &str) -> bool {
    let has = |words: &str| contains_folded(line, words);
    has("KV cache") && ["need", "requir", "larger than", "exceeds"].iter().any(|words| has(words))
}

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let has = |words: &str| contains_folded(line, words);
    let facts = Facts::new(Framework::Vllm, Resource::Device, passage);
    if has("memory on device") || has("desired CPU memory") {
        read_startup(facts, text)
    } else if has("cache blocks") {
        Some(read_no_cache(facts, &Budget::around(passage)))
    } else if has("max seq len") || is_cache_check(line) {
        read_sequence_length(facts, text, &Budget::around(passage))
    } else if has("warming up") {
        read_warm_up(facts, text)
    } else if has("cumem") {
        read_sleep_mode(facts, passage)
    } else if has("swap space") {
        Some(read_swap(facts, text))
    } else if has("memory profiling") {
        read_profiling(facts, text)
    } else if has("not enough KV cache space") {
        Some(Facts { severity: Severity::Warning, ..facts })
    } else {
        let budget = Budget::around(passage);
        // Zero blocks, or a budget below zero, is the failure itself: the error may stand further down or be cut off.
        if has("blocks: 0") || budget.cache.is_some_and(|cache| cache <= 0.0) {
            return Some(read_no_cache(facts, &budget));
        }
        read_filled_budget(facts, passage)
    }
}

/// The share that vLLM was given was not free when it started.
fn read_startup(mut facts: Facts, text: &str) -> Option<Facts> {
    let found = STARTUP.captures(text)?;
    let gib =
        |group: usize| captured_number(&found, group).map(|amount: f64| Bytes::from_units(amount, 1 << 30));
    let (free, total, desired) = (gib(2)?, gib(3)?, gib(5)?);
    facts.device = captured_number(&found, 1).map(DeviceIndex);
    (facts.free, facts.total, facts.request) = (Some(free), Some(total), Some(desired));
    if contains_folded(&found[0], "CPU memory") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            format!("vLLM on the CPU requests {desired} of RAM, but only {free} of {total} is free."),
        );
        return Some(facts);
    }
    if free >= desired || free > total {
        return Some(facts);
    }
    let used = total - free;
    let (cause, who) = if used > CONTEXT_CEILING && used.share_of(total) > CONTEXT_SHARE {
        (Cause::OtherProcesses, "more than a context needs, so another process holds it")
    } else {
        (Cause::NonFrameworkOverhead, "about as much as a context and a desktop need")
    };
    let summary = format!(
        "vLLM requests {desired}, but only {free} is free: {used} of {total} was in use before it started, {who}."
    );
    let stated =
        Statement::new(cause, Certainty::Likely, summary).mended_by(at_start(free, total, facts.device));
    facts.statements.push(Statement { bytes: Some(used), ..stated });
    Some(facts)
}

/// The share that vLLM is to take is not free: free the rest, or take less.
fn at_start(free: Bytes, total: Bytes, device: Option<DeviceIndex>) -> Vec<Fix> {
    let mut fixes = vec![advice::list_holders(Maker::Nvidia).frees((total - free) - CONTEXT_TYPICAL)];
    let share = (free.share_of(total) * 100.0).floor() / 100.0;
    if share >= LEAST_SHARE && is_worth_a_share(free, total) {
        fixes.push(
            Fix::new(format!("or limit vLLM to the {free} that is free, if the model fits"))
                .command(format!("--gpu-memory-utilization {share:.2}")),
        );
    }
    fixes.extend(advice::another_device(Maker::Nvidia, device));
    fixes
}

/// After weights and activations nothing is left of the share for the KV cache.
fn read_no_cache(mut facts: Facts, budget: &Budget) -> Facts {
    facts.total = budget.total;
    let share = budget.share.map_or(String::new(), |share| format!(" of {share}"));
    if let (Some(total), Some(limit), Some(fixed)) = (budget.total, budget.limit, budget.fixed) {
        let summary = format!(
            "Weights, activations and libraries take {fixed}; gpu_memory_utilization{share} allows {limit} of {total}. Nothing is left for the KV cache."
        );
        // At the default share the GPU is the limit, below it the share is.
        let is_limit = fixed.share_of(total) < 0.9 && !budget.is_at_largest();
        let cause = if is_limit { Cause::ArtificialLimit } else { Cause::LiveDataFillsDevice };
        let certainty = if is_limit && budget.needed_share(None).is_some() {
            Certainty::Certain
        } else {
            Certainty::Likely
        };
        facts.state(cause, certainty, summary);
        return facts;
    }
    let cache = budget.cache.filter(|&cache| cache < 0.0).map_or(String::new(), |cache| {
        format!(" The limit is exceeded by {}.", Bytes::from_units(-cache, 1 << 30))
    });
    if budget.is_at_largest() {
        facts.lead(
            Cause::LiveDataFillsDevice,
            format!("Weights and activations leave nothing for the KV cache although gpu_memory_utilization{share} is already at its maximum.{cache}"),
        );
    } else {
        facts.lead(
            Cause::ArtificialLimit,
            format!("Weights and activations take everything that gpu_memory_utilization{share} allows; nothing is left for the KV cache.{cache}"),
        );
    }
    facts
}

/// The KV cache is too small for a single request of full length.
fn read_sequence_length(mut facts: Facts, text: &str, budget: &Budget) -> Option<Facts> {
    let is_small = budget.share.is_some_and(|share| share <= SMALL_SHARE);
    if let Some(found) = KV_TOKENS.captures(text) {
        let summary = format!(
            "One request of {} tokens needs more KV cache than there is: there is room for only {} tokens.",
            &found[1], &found[2]
        );
        let cause = if is_small { Cause::ArtificialLimit } else { Cause::LiveDataFillsDevice };
        facts.state(cause, Certainty::Likely, summary);
        return Some(facts);
    }
    let figures = KV_NEEDED
        .captures(text)
        .and_then(|found| Some((captured_size(&found, 1)?, captured_size(&found, 3).unwrap_or(Bytes::ZERO))))
        .or_else(|| shortage(text));
    let Some((needed, available)) = figures else {
        // The message is a failed check even if its figures were cut off.
        let has = |words: &str| contains_folded(text, words);
        return (has("KV cache is needed") && (has("max seq len") || has("larger than"))).then(|| {
            let summary = "One full-length request needs more KV cache than there is.".to_owned();
            facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
            facts
        });
    };
    facts.request = Some(needed);
    facts.total = budget.total;
    let beyond = budget.total.zip(budget.limit).map(|(total, limit)| total - limit);
    let (cause, rest) = match beyond {
        Some(beyond) if beyond >= needed - available => (
            Cause::ArtificialLimit,
            format!("; gpu_memory_utilization leaves {beyond} of the GPU's memory unused"),
        ),
        None if is_small => (
            Cause::ArtificialLimit,
            "; gpu_memory_utilization leaves part of the GPU's memory unused".to_owned(),
        ),
        _ => (Cause::LiveDataFillsDevice, " after loading the weights".to_owned()),
    };
    let left = if available.is_zero() { "nothing".to_owned() } else { available.to_string() };
    let summary = format!("One full-length request needs {needed} of KV cache, but {left} is left{rest}.");
    facts.state(cause, Certainty::Likely, summary);
    Some(facts)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::find::facts_in;

    /// The cause that the family states first.
    pub(in super::super) fn conclusion(text: &str) -> (Cause, Certainty) {
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework, Framework::Vllm, "{text}");
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
            (Cause::ArtificialLimit, Certainty::Certain)
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
        for rest in ["(8.82–9.66 GiB per rank)", "(8.82 to 9.66 GiB)", "(…)", ""] {
            let text = format!(
                "ValueError: To serve at least one request with the model's max seq len (65536),\n14.6 GiB KV cache is needed, which is larger than the available KV cache memory\n{rest}."
            );
            assert_eq!(conclusion(&text), (Cause::LiveDataFillsDevice, Certainty::Likely), "{text}");
        }
        for text in [
            "KV cache check failed: available 3.2 GiB, needs 7.75 GiB for the KV cache of one request",
            "engine dies: 7.75 GiB KV cache needed, only 3.2 GiB left",
            "7936 MiB KV cache required > 3277 MiB available (max_model_len 65536)",
            "max seq len (65536) exceeds the available KV cache: required 7.75 GiB, available KV cache memory: 3.20 GiB",
        ] {
            assert_eq!(conclusion(text), (Cause::LiveDataFillsDevice, Certainty::Likely), "{text}");
            assert_eq!(facts_in(text).unwrap().request, Some(Bytes::mib(7936)), "{text}");
        }
        let fits = "KV cache: needs 2.5 GiB for the KV cache, 9.0 GiB available, ok";
        assert!(facts_in(fits).is_none_or(|facts| facts.request.is_none()));
        assert!(facts_in("a KV cache is needed for each request").is_none());
        let tokens = "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (5136). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`";
        assert_eq!(conclusion(tokens), (Cause::LiveDataFillsDevice, Certainty::Likely));
    }

    #[test]
    fn a_budget_below_zero_is_the_failure() {
        for text in [
            "worker.py:267] the current vLLM instance can use total_gpu_memory (12.00GiB) x gpu_memory_utilization (0.60) = 7.20GiB\nworker.py:267] model weights take 7.10GiB; non_torch_memory takes 0.05GiB; PyTorch activation peak memory takes 0.90GiB; the rest of the memory reserved for KV Cache is -0.85GiB.\nexecutor_base.py:111] # cuda blocks: 0, # CPU blocks: 4681",
            "total_gpu_memory=12.00GiB peak_torch_memory=7.9GiB kv_cache_size=-0.85GiB gpu_memory_utilization=0.60",
        ] {
            assert_eq!(conclusion(text), (Cause::ArtificialLimit, Certainty::Certain), "{text}");
        }
        for text in [
            "INFO 04-27 10:13:05 llm_engine.py:275] # GPU blocks: 0, # CPU blocks: 256",
            "INFO 09-02 20:06:36 [gpu_worker.py:560] Available KV cache memory: -2.31 GiB",
        ] {
            assert_eq!(conclusion(text), (Cause::ArtificialLimit, Certainty::Possible), "{text}");
        }
        assert!(facts_in("[gpu_worker.py:560] Available KV cache memory: 2.31 GiB\nready").is_none());
        let full = "vllm serve m --gpu-memory-utilization 0.97\nValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.";
        assert_eq!(conclusion(full), (Cause::LiveDataFillsDevice, Certainty::Possible));
    }

    #[test]
    fn case_does_not_matter() {
        let text = startup(" cuda:0", "9.5/24.0").to_lowercase();
        assert_eq!(conclusion(&text), (Cause::OtherProcesses, Certainty::Likely));
    }
}
