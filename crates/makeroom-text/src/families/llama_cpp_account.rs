//! The account of a device in the lines above a failure of llama.cpp's.
//!
//! | wording | what it gives |
//! |---|---|
//! | `Device 0: …, VRAM: 24576 MiB` | the device's memory |
//! | `using device CUDA0 (…) - 23552 MiB free`, Ollama's `memory.available="[23.0 GiB]"` | free memory at the start |
//! | `CUDA0 model buffer size = 20480.00 MiB`, `… KV buffer size`, `… compute buffer size` | live memory |
//! | `KV self size = 5540.25 MiB`, `offloaded 33/33 layers to GPU` | that weights and KV cache are loaded |

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::thresholds::LARGEST_GPU;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::Facts;
use crate::figures::{captured_number, captured_size};
use crate::log::Passage;

/// Few GPUs have more; a buffer of this size is rather a mistake in the options.
const LARGE: Bytes = Bytes::gib(80);
/// Only the largest GPUs on sale have more.
const LARGER_THAN_NEARLY_ALL: Bytes = Bytes::gib(180);

static TOTAL: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)Device (\d+): .*VRAM: ([\d.]+) ?(MiB)"));
static FREE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)using device (?:CUDA|ROCm|Vulkan|SYCL)(\d+) .* - ([\d.]+) ?(MiB) free"));
static OLLAMA_FREE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"memory\.available="\[?([\d.]+) ([KMGT]iB)"#));
static BUFFER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:CUDA|ROCm|Vulkan|SYCL)(\d+)(?: [A-Za-z]+)? buffer size *= *([\d.]+) ?(MiB)")
});
static LOADED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)model buffer size|KV buffer size|KV self size|offloaded \d+/\d+ layers"));
static COMPUTE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)failed to allocate compute|failed to allocate buffer for kv|kv_cache_init: failed|failed to reserve|gallocr_reserve|graph_reserve|sched_reserve",
    )
});

/// Fills in size, free and live memory of the failing device.
pub(super) fn read_account(facts: &mut Facts, passage: &Passage<'_>) {
    let device = facts.device.map_or(0, |device| device.0);
    let is_here = |number: Option<u32>| number == Some(device);
    let sized = |figure: &Regex, line: &str| {
        let found = figure.captures(line)?;
        is_here(captured_number(&found, 1)).then(|| captured_size(&found, 2)).flatten()
    };
    facts.total = passage.before().find_map(|line| sized(&TOTAL, line));
    let live: Bytes = passage.before().filter_map(|line| sized(&BUFFER, line)).sum();
    let at_start = passage.before().find_map(|line| sized(&FREE, line)).or_else(|| {
        let found = passage.before().find_map(|line| OLLAMA_FREE.captures(line))?;
        captured_size(&found, 1).filter(|_| device == 0)
    });
    if !live.is_zero() {
        facts.live = Some(live);
        facts.cached = Some(Bytes::ZERO);
    }
    let Some(at_start) = at_start else { return };
    // The free memory at the start is the only such figure; the buffers were taken from it.
    facts.free = Some(at_start - live);
    let Some(request) = facts.request.filter(|&request| live + request > at_start) else { return };
    if live.is_zero() {
        let summary =
            format!("One buffer of {request} failed; {at_start} was free before anything was loaded.");
        facts.state(Cause::RequestExceedsDevice, Certainty::Likely, summary);
    } else {
        let summary = format!(
            "{live} is loaded; together with the {request} request, that exceeds the {at_start} that was free."
        );
        facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
    }
}

/// Which buffer failed: compute buffers and the KV cache are allocated after the weights, so the weights are loaded.
pub(super) fn state_buffer(facts: &mut Facts, passage: &Passage<'_>) {
    if !facts.statements.is_empty() {
        return;
    }
    let live = facts.live.unwrap_or(Bytes::ZERO);
    if let Some(request) = facts.request.filter(|&request| request >= LARGE && facts.total.is_none()) {
        let is_out_of_proportion = live.is_zero() || request.share_of(live) > 10.0;
        let who = if request > LARGEST_GPU { "no GPU has" } else { "only the largest GPUs have" };
        let summary =
            format!("A single buffer of {request} was requested on one device: {who} that much memory.");
        if request >= LARGER_THAN_NEARLY_ALL && is_out_of_proportion {
            facts.state(Cause::RequestExceedsDevice, Certainty::Likely, summary);
            return;
        }
        if is_out_of_proportion {
            facts.lead(Cause::RequestExceedsDevice, summary);
            return;
        }
    }
    let is_late = passage.onward().take(4).any(|line| COMPUTE.is_match(line));
    if !is_late {
        return;
    }
    let is_loaded = passage.before().any(|line| LOADED.is_match(line));
    let buffer =
        facts.request.map_or("The next buffer".to_owned(), |request| format!("A buffer of {request}"));
    if is_loaded {
        let loaded = facts.live.map_or("Weights and KV cache are".to_owned(), |live| {
            format!("{live} of weights and KV cache is")
        });
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Likely,
            format!("{loaded} loaded on this GPU. {buffer} does not fit in the remaining memory."),
        );
    } else {
        facts.lead(
            Cause::LiveDataFillsDevice,
            format!("{buffer} does not fit: compute buffers are allocated last, after the weights and the KV cache."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    const COMPUTE_BUFFER: &str = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 2: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA2 buffer of size 536870912\nllama_new_context_with_model: failed to allocate compute buffers";

    #[test]
    fn a_compute_buffer_comes_after_the_weights() {
        let facts = facts_in(COMPUTE_BUFFER).unwrap();
        assert_eq!(facts.statements[0].cause, Cause::LiveDataFillsDevice);
        assert!(facts.statements[0].leads);
        let loaded = format!(
            "llama_new_context_with_model: KV self size  = 4096.00 MiB, K (f16): 2048.00 MiB\n{COMPUTE_BUFFER}"
        );
        assert_eq!(facts_in(&loaded).unwrap().statements[0].certainty, Certainty::Likely);
        let listed =
            format!("llama_kv_cache_init:      CUDA2 KV buffer size =  2048.00 MiB\n{COMPUTE_BUFFER}");
        let facts = facts_in(&listed).unwrap();
        assert_eq!(facts.live, Some(Bytes::gib(2)));
        assert!(
            facts.statements[0].summary.contains("2.00 GiB of weights and KV cache"),
            "{}",
            facts.statements[0].summary
        );
    }

    #[test]
    fn a_buffer_larger_than_nearly_every_gpu() {
        let text = |mib: &str| {
            format!(
                "llama_kv_cache_init: CUDA0 KV buffer size = 400.00 MiB\nggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib} MiB on device 0: cudaMalloc failed: out of memory\nllama_new_context_with_model: failed to allocate compute buffers"
            )
        };
        let stated = |mib: &str| facts_in(&text(mib)).unwrap().statements[0].clone();
        assert_eq!(
            (stated("250000.00").cause, stated("250000.00").certainty),
            (Cause::RequestExceedsDevice, Certainty::Likely)
        );
        assert_eq!(stated("120000.00").cause, Cause::RequestExceedsDevice);
        assert_eq!(stated("6000.00").cause, Cause::LiveDataFillsDevice);
    }
}
