//! CUDA.jl and its forerunners.
//!
//! | versions | wording |
//! |---|---|
//! | all | `Out of GPU memory trying to allocate 1.000 GiB` |
//! | all | `Out of dynamic GPU memory (trying to allocate 8 bytes)`: the heap inside kernels |
//! | all | `Effective GPU memory usage: 99.55% (11.688 GiB/11.741 GiB)` |
//! | 1 – 3.4 | `CUDA allocator usage: 13.984 GiB (capped at 14.000 GiB)`, `binned usage: 1.492 GiB (1.2 GiB allocated, 0.3 GiB cached)` |
//! | 3.5 – | `Memory pool usage: 8.505 GiB (10.406 GiB reserved)` |
//! | 4 – | `Memory limit: soft = 4.000 GiB, hard = 6.000 GiB` |
//! | driver | `CUDA error: out of memory (code #2, ERROR_OUT_OF_MEMORY)`, `CUDA error: out of memory (code 2, ERROR_OUT_OF_MEMORY)` |

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::{captured_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Out of GPU memory",
        "Out of dynamic GPU memory",
        "ERROR_OUT_OF_MEMORY)",
        "OutOfGPUMemoryError",
    ],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Out of GPU memory(?: trying to allocate ([\d.]+) ?([KMGT]?i?B|bytes))?"));
static USAGE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Effective GPU memory usage: [\d.]+ ?% \(([\d.]+) ?([KMGT]?i?B|bytes) ?/ ?([\d.]+) ?([KMGT]?i?B|bytes)\)",
    )
});
static POOL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"Memory pool usage: ([\d.]+) ?([KMGT]?i?B|bytes) \(([\d.]+) ?([KMGT]?i?B|bytes) reserved\)")
});
static OLD_POOL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"usage: [\d.]+ ?\w+ \(([\d.]+) ?([KMGT]?i?B|bytes) allocated, ([\d.]+) ?([KMGT]?i?B|bytes) cached\)",
    )
});
static LIMIT: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:\(capped at |Memory limit: .*?hard = )([\d.]+) ?([KMGT]?i?B|bytes)"));
/// Words of Julia around an error that others print too.
static SPEAKER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"CuArray|CUDA\.jl|CUDAnative|\.jl\b|\bJulia\b|LoadError|Effective GPU memory usage|OutOfGPUMemoryError|Memory pool usage:|CUDA allocator usage|Memory limit: soft",
    )
});
static DRIVER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"CUDA error: out of memory \(code #?2, ERROR_OUT_OF_MEMORY\)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let facts = Facts::new(Framework::Julia, Resource::Device, passage);
    if DRIVER.is_match(text) {
        return Some(facts);
    }
    if passage.line().contains("dynamic GPU memory") {
        let mut facts = Facts { resource: Resource::Kernel, ..facts };
        facts.state(
            Cause::SharedMemoryOrKernelResource,
            Certainty::Certain,
            "The in-kernel heap ran out. A kernel uses it when it boxes a value or is type-unstable; the GPU's memory need not be full.",
        );
        return Some(facts);
    }
    let request = REQUEST.captures(text)?;
    let is_sized = captured_size(&request, 1).is_some();
    if !is_sized && !passage.all().any(|line| SPEAKER.is_match(line)) {
        return None;
    }
    let usage = USAGE.captures(text);
    let total = usage.as_ref().and_then(|found| captured_size(found, 3));
    let used = usage.as_ref().and_then(|found| captured_size(found, 1));
    let (pool, old_pool) = (POOL.captures(text), OLD_POOL.captures(text));
    Some(Facts {
        request: captured_size(&request, 1),
        total,
        free: total.zip(used).map(|(total, used)| total - used),
        live: pool.as_ref().or(old_pool.as_ref()).and_then(|found| captured_size(found, 1)),
        reserved: pool.as_ref().and_then(|found| captured_size(found, 3)),
        cached: old_pool.as_ref().filter(|_| pool.is_none()).and_then(|found| captured_size(found, 3)),
        limit: find_size(&LIMIT, text),
        ..facts
    })
}

#[cfg(test)]
mod tests {
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn the_status_after_the_error_is_read() {
        let facts = facts_in("ERROR: LoadError: Out of GPU memory trying to allocate 1.000 GiB\nEffective GPU memory usage: 93.75% (15.000 GiB/16.000 GiB)\nMemory pool usage: 10.000 GiB (14.000 GiB reserved)\n").unwrap();
        assert_eq!(facts.framework_id(), "julia");
        assert_eq!(
            (facts.request, facts.total, facts.free),
            (Some(Bytes::gib(1)), Some(Bytes::gib(16)), Some(Bytes::gib(1)))
        );
        assert_eq!(
            (facts.live, facts.reserved, facts.limit),
            (Some(Bytes::gib(10)), Some(Bytes::gib(14)), None)
        );
    }

    #[test]
    fn older_pools_and_limits_are_read() {
        let facts = facts_in("Out of GPU memory trying to allocate 8.000 MiB\nEffective GPU memory usage: 50.00% (8.000 GiB/16.000 GiB)\nCUDA allocator usage: 7.000 GiB (capped at 7.000 GiB)\nbinned usage: 7.000 GiB (6.000 GiB allocated, 1.000 GiB cached)").unwrap();
        assert_eq!(
            (facts.live, facts.cached, facts.limit),
            (Some(Bytes::gib(6)), Some(Bytes::gib(1)), Some(Bytes::gib(7)))
        );
        let limited = facts_in("Out of GPU memory trying to allocate 8.000 MiB\nMemory limit: soft = 4.000 GiB, hard = 6.000 GiB").unwrap();
        assert_eq!(limited.limit, Some(Bytes::gib(6)));
    }

    #[test]
    fn the_drivers_error_has_no_figures() {
        let facts = facts_in("ERROR: CUDA error: out of memory (code #2, ERROR_OUT_OF_MEMORY)").unwrap();
        assert_eq!((facts.framework_id(), facts.request, facts.statements.len()), ("julia", None, 0));
    }

    #[test]
    fn the_words_alone_are_not_julias() {
        assert_ne!(facts_in("Error: Out of GPU memory").unwrap().framework_id(), "julia");
        let facts = facts_in("ERROR: LoadError: Out of GPU memory\nStacktrace:\n [1] CuArray").unwrap();
        assert_eq!(facts.framework_id(), "julia");
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(facts_in("CUDA_ERROR_OUT_OF_MEMORY: out of memory").unwrap().framework_id(), "julia");
    }
}
