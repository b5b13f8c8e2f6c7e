//! RMM, the memory manager of RAPIDS (cuDF, cuML, cuGraph), its pools and adaptors.
//!
//! | resource | wording |
//! |---|---|
//! | driver, – 24 | `std::bad_alloc: CUDA error at: …/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory` |
//! | driver, 25 – | `std::bad_alloc: out_of_memory: CUDA error (failed to allocate 8589934592 bytes) at: …` |
//! | pool, – 24 | `std::bad_alloc: out_of_memory: RMM failure at: …/pool_memory_resource.hpp:196: Maximum pool size exceeded` |
//! | pool, 25 – | `… Maximum pool size exceeded (failed to allocate 2.0 GiB): Not enough room to grow, current/max/try size = 6.0 GiB, 7.0 GiB, 2.0 GiB` |
//! | pool's log | `[A][Stream 0x1][Upstream 4096B][FAILURE maximum pool size exceeded: …]` |
//! | limiting adaptor | `… Exceeded memory limit (failed to allocate 38.1 MiB)` |
//!
//! The pool says "maximum pool size exceeded" also where it has no maximum and the driver failed; only the
//! figures after it, or the adaptor, show a limit.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::thresholds::ABSURD;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::{captured_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "RMM failure",
        "maximum pool size exceeded",
        "Exceeded memory limit",
        "cudaErrorMemoryAllocation",
        "out_of_memory",
        "RMM_ERROR",
    ],
    read,
};

static OUR_WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)RMM failure at|maximum pool size exceeded|Exceeded memory limit \(failed|/rmm/\S+:\d+: ?cudaErrorMemoryAllocation|RMM_ERROR_OUT_OF_MEMORY|rmm::(?:bad_alloc|out_of_memory)|out_of_memory: CUDA error",
    )
});
static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)failed to allocate ([\d.]+) ?([KMGTP]?i?B|bytes)|\[Upstream (\d+)(B)\]"));
/// Spark's check of the pool that it is about to create.
static INITIAL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)Initial RMM allocation ?\(([\d.]+) ?(MB|MiB)\) is larger than free memory ?\(([\d.]+) ?(MB|MiB)\)",
    )
});
static SIZES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"current/max/try size = ([\d.]+) ?([KMGTPE]?i?B), ([\d.]+) ?([KMGTPE]?i?B), ([\d.]+) ?([KMGTPE]?i?B)",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    if !OUR_WORDS.is_match(passage.line()) && !OUR_WORDS.is_match(text) {
        return None;
    }
    let mut facts = Facts {
        request: find_size(&REQUEST, text).or_else(|| captured_size(&REQUEST.captures(text)?, 3)),
        ..Facts::new(Framework::Rmm, Resource::Device, passage)
    };
    if text.contains("pinned_host_memory_resource") || text.contains("pinned_memory_resource") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "RMM could not allocate pinned host memory. The GPU's memory is not involved.",
        );
        return Some(facts);
    }
    if let Some(found) = passage.before().find_map(|line| INITIAL.captures(line))
        && let (Some(pool), Some(free)) = (captured_size(&found, 1), captured_size(&found, 3))
        && free < pool
    {
        (facts.request, facts.free) = (Some(pool), Some(free));
        let summary = format!(
            "RMM's pool of {pool} does not fit: only {free} was free when the process started, so another process holds the GPU's memory."
        );
        facts.state(
            Cause::OtherProcesses,
            if free.share_of(pool) < 0.5 { Certainty::Likely } else { Certainty::Possible },
            summary,
        );
        return Some(facts);
    }
    let words = text.to_ascii_lowercase();
    if let Some(found) = SIZES.captures(text) {
        let limit = captured_size(&found, 3).filter(|&limit| limit < ABSURD);
        (facts.reserved, facts.limit) = (captured_size(&found, 1), limit);
        facts.request = facts.request.or_else(|| captured_size(&found, 5));
        if let (Some(limit), Some(current)) = (limit, facts.reserved) {
            facts.state(
                Cause::ArtificialLimit,
                Certainty::Likely,
                format!("RMM's pool holds {current} and may grow to {limit}; the request does not fit below that maximum."),
            );
        }
    } else if words.contains("exceeded memory limit") {
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Certain,
            "The request exceeds the limit of RMM's limiting adaptor; the driver was not called.",
        );
    } else if words.contains("maximum pool size exceeded") && !words.contains("cudaerrormemoryallocation") {
        facts.lead(
            Cause::ArtificialLimit,
            "RMM's pool could not grow: it reached its maximum size, or the GPU is full; RMM prints the same message for both.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn a_pool_with_a_maximum_has_a_limit() {
        let facts = facts_in("MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/include/rmm/mr/device/pool_memory_resource.hpp:254: Maximum pool size exceeded (failed to allocate 2.000000 GiB): Not enough room to grow, current/max/try size = 6.000000 GiB, 7.000000 GiB, 2.000000 GiB").unwrap();
        assert_eq!(facts.framework_id(), "rmm");
        assert_eq!(
            (facts.request, facts.reserved, facts.limit),
            (Some(Bytes::gib(2)), Some(Bytes::gib(6)), Some(Bytes::gib(7)))
        );
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::ArtificialLimit, Certainty::Likely)
        );
    }

    #[test]
    fn the_words_alone_are_not_a_limit() {
        let facts = facts_in("MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/include/rmm/mr/device/pool_memory_resource.hpp:196: Maximum pool size exceeded").unwrap();
        assert_eq!(facts.statements[0].certainty, Certainty::Possible);
    }

    #[test]
    fn a_pool_that_does_not_fit_next_to_another_process() {
        let facts = facts_in("WARN GpuDeviceManager: Initial RMM allocation(12000.5 MB) is larger than free memory(90.5 MB)\nERROR GpuDeviceManager: Could not initialize RMM\nai.rapids.cudf.CudfException: RMM failure at: pool_memory_resource.hpp:100: Initial pool size exceeds the maximum pool size!").unwrap();
        let stated = &facts.statements[0];
        assert_eq!((stated.cause, stated.certainty), (Cause::OtherProcesses, Certainty::Likely));
    }

    #[test]
    fn a_failure_of_the_driver_states_nothing() {
        for (text, request) in [
            (
                "MemoryError: std::bad_alloc: CUDA error at: /opt/conda/include/rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory",
                None,
            ),
            (
                "MemoryError: std::bad_alloc: out_of_memory: CUDA error (failed to allocate 4096 bytes) at: /rmm/cuda_memory_resource.hpp:62: cudaErrorMemoryAllocation out of memory",
                Some(Bytes::kib(4)),
            ),
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(
                (facts.framework_id(), facts.request, facts.statements.len()),
                ("rmm", request, 0),
                "{text}"
            );
        }
    }

    #[test]
    fn the_limiting_adaptor_and_pinned_memory_are_certain() {
        let limited = facts_in("rmm::out_of_memory: RMM failure at: limiting_resource_adaptor.hpp:141: Exceeded memory limit (failed to allocate 38.0 MiB)").unwrap();
        assert_eq!(
            (limited.request, limited.statements[0].certainty),
            (Some(Bytes::mib(38)), Certainty::Certain)
        );
        let pinned = facts_in("std::bad_alloc: out_of_memory: CUDA error at: /rmm/mr/pinned_host_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory").unwrap();
        assert_eq!(pinned.statements[0].cause, Cause::HostMemory);
    }

    #[test]
    fn programming_terms_are_not_taken() {
        assert_ne!(facts_in("programming error: out of memory").unwrap().framework_id(), "rmm");
    }
}
