//! vLLM after its budget is made: warm-up, serving, sleep mode. See [`super::vllm`] for the wordings.

use std::sync::LazyLock;

use makeroom_core::DeviceIndex;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::vllm_budget::Budget;
use crate::facts::{Facts, Resource};
use crate::figures::{captured_number, captured_size, find_size};
use crate::log::Passage;

static SAMPLER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)warming up (?:sampler|pooler)(?: with (\d+) dummy requests| \((\w+)\))?"));
static SWAP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)swap space\. ([\d.]+) ?(GiB) out of the ([\d.]+) ?(GiB)"));
static PROFILING: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Initial free memory ([\d.]+)(?: GiB)?, current free memory ([\d.]+)"));
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

pub(super) fn read_warm_up(mut facts: Facts, text: &str) -> Option<Facts> {
    let found = SAMPLER.captures(text)?;
    facts.batch = captured_number(&found, 1);
    let requests = facts.batch.map_or("a full batch".to_owned(), |count| format!("{count} requests"));
    facts.state(
        Cause::LiveDataFillsDevice,
        Certainty::Possible,
        format!(
            "vLLM has filled its share of GPU memory; the rest is too small for the logits of {requests}."
        ),
    );
    Some(facts)
}

/// Sleep mode maps its memory again, and the trainer on the same GPU has taken it.
pub(super) fn read_sleep_mode(mut facts: Facts, passage: &Passage<'_>) -> Option<Facts> {
    let mut onward = passage.onward().take(12);
    let is_shortage = onward.any(|line| line.contains("CUDA Error: o"));
    let is_waking = passage.all().any(|line| line.contains("wake_up"));
    if is_waking {
        facts.lead(
            Cause::CacheHeldByFramework,
            "On waking up, vLLM could not map its memory again: the trainer on the same GPU holds that memory, live or cached.",
        );
    }
    is_shortage.then_some(facts)
}

pub(super) fn read_swap(mut facts: Facts, text: &str) -> Facts {
    facts.resource = Resource::Host;
    let summary = match SWAP.captures(text).map(|found| (captured_size(&found, 1), captured_size(&found, 3)))
    {
        Some((Some(space), Some(total))) => {
            format!("The CPU swap space of {space} does not fit in the machine's {total} of RAM.")
        }
        _ => "The CPU swap space for preempted requests is full.".to_owned(),
    };
    facts.state(Cause::HostMemory, Certainty::Likely, summary);
    facts
}

/// Memory became free while vLLM measured.
pub(super) fn read_profiling(mut facts: Facts, text: &str) -> Option<Facts> {
    let found = PROFILING.captures(text)?;
    let summary = format!(
        "Another process released memory while vLLM measured its own: {} GiB was free before, {} GiB after.",
        &found[1], &found[2]
    );
    facts.state(Cause::OtherProcesses, Certainty::Likely, summary);
    Some(facts)
}

/// vLLM reserved its KV cache, and then a small request of PyTorch's failed.
pub(super) fn read_filled_budget(mut facts: Facts, passage: &Passage<'_>) -> Option<Facts> {
    let error: Vec<&str> =
        passage.onward().skip_while(|line| !line.contains("Tried to allocate")).take(6).collect();
    (*error.first()?).clone_into(&mut facts.quote);
    let error = error.join(" ");
    let budget = Budget::around(passage);
    let (request, free) = (find_size(&REQUEST, &error)?, find_size(&FREE, &error)?);
    let total = find_size(&TOTAL, &error).or(budget.total)?;
    facts.device = DEVICE.captures(&error).and_then(|found| captured_number(&found, 1)).map(DeviceIndex);
    (facts.request, facts.free, facts.total) = (Some(request), Some(free), Some(total));
    (facts.live, facts.cached) = (find_size(&LIVE, &error), find_size(&CACHED, &error));
    if request.share_of(total) > 0.02 || free > request {
        return None;
    }
    let limit = budget.limit.map_or(String::new(), |limit| format!(", {limit} of {total}"));
    let summary = format!(
        "vLLM filled its share of GPU memory{limit}. The rest is too small for CUDA graphs, NCCL and contexts: {request} failed with {free} free."
    );
    facts.state(Cause::NonFrameworkOverhead, Certainty::Likely, summary);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::super::vllm::tests::conclusion;
    use super::*;
    use crate::facts::Severity;
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn a_share_that_leaves_nothing_for_the_rest() {
        let text = "(RayWorkerWrapper pid=7, ip=node) INFO 03-27 10:29:01 [worker.py:267] the current vLLM instance can use total_gpu_memory (48.00GiB) x gpu_memory_utilization (0.98) = 47.04GiB [repeated 3x across cluster]\n(RayWorkerWrapper pid=8, ip=node) loading\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 6 has a total capacity of 48.00 GiB of which 1024.00 KiB is free.";
        assert_eq!(conclusion(text), (Cause::NonFrameworkOverhead, Certainty::Likely));
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.device, facts.request), (Some(DeviceIndex(6)), Some(Bytes::mib(2))));
        let large = text.replace("2.00 MiB", "9.00 GiB");
        assert_eq!(facts_in(&large).unwrap().framework_id(), "pytorch");
    }

    #[test]
    fn the_sampler_and_the_sleep_mode() {
        let text = "(VllmWorker rank=0 pid=10) ERROR 03-16 06:12:38 [multiproc_executor.py:375] RuntimeError: CUDA out of memory occurred when warming up sampler with 256 dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine.";
        assert_eq!(conclusion(text), (Cause::LiveDataFillsDevice, Certainty::Possible));
        assert_eq!(facts_in(text).unwrap().batch, Some(256));
        let text = "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62";
        assert_eq!(conclusion(text), (Cause::Undetermined, Certainty::Undetermined));
    }

    #[test]
    fn host_memory_profiling_and_preemption() {
        let text = "RuntimeError: Too large swap space. 16.00 GiB out of the 15.40 GiB total CPU memory is allocated for the swap space.";
        assert_eq!(conclusion(text), (Cause::HostMemory, Certainty::Likely));
        let text = "AssertionError: Error in memory profiling. Initial free memory 20.10 GiB, current free memory 22.30 GiB. This happens when other processes sharing the same container release GPU memory while vLLM is profiling during initialization.";
        assert_eq!(conclusion(text), (Cause::OtherProcesses, Certainty::Likely));
        let text = "WARNING Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space.";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
    }

    #[test]
    fn a_trainer_that_holds_the_memory_of_a_sleeping_engine() {
        let text = "  File \"vllm/device_allocator/cumem.py\", line 207, in wake_up\n    create_and_map(handle)\nRuntimeError: CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62";
        assert_eq!(conclusion(text), (Cause::CacheHeldByFramework, Certainty::Possible));
    }
}
