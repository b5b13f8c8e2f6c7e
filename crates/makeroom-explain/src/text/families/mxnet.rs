//! Apache MXNet.
//!
//! | versions | wording |
//! |---|---|
//! | – 0.8 | `src/storage/./pooled_storage_manager.h:62: Memory allocation failed.` |
//! | 0.9 – 1.x | `src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory`, `cudaMalloc retry failed: out of memory` |
//! | 2.0 | `src/storage/./pooled_storage_manager.h:188: Memory allocation failed out of memory` |
//! | all | `…/pinned_memory_storage.h:50: … CUDA: out of memory`, `Check failed: e == cudaSuccess … CUDA: out of memory` |
//!
//! No figures. MXNet gives its whole pool back before it tries again, so the pool's cache is not the reason.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::pattern;
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family =
    Family { anchors: &["pooled_storage_manager.h", "pinned_memory_storage.h", "CUDA: out of memory"], read };

static REFUSED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:cudaMalloc (?:retry )?failed|CUDA|Memory allocation failed):? ?(?:out of memory|$|\.)")
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let is_ours = line.contains("storage.h") || line.contains("storage_manager.h");
    let is_mentioned = || passage.all().any(|line| line.contains("mxnet") || line.contains("mshadow"));
    if !REFUSED.is_match(line) || !(is_ours || is_mentioned()) {
        return None;
    }
    let mut facts = Facts::new("mxnet", Resource::Device, passage);
    if line.contains("pinned_memory_storage") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "MXNet's storage for pinned host memory was refused.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn every_wording_is_read_and_states_nothing() {
        for text in [
            "[19:03:47] src/storage/./pooled_storage_manager.h:62: Memory allocation failed.",
            "mxnet.base.MXNetError: [11:18:15] src/storage/./pooled_storage_manager.h:157: cudaMalloc failed: out of memory",
            "[11:18:15] src/storage/./pooled_storage_manager.h:130: cudaMalloc retry failed: out of memory",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework, facts.statements.len()), ("mxnet", 0), "{text}");
        }
    }

    #[test]
    fn pinned_memory_is_host_memory() {
        let facts = facts_in("[1:2:3] src/storage/./pinned_memory_storage.h:51: Check failed: e == cudaSuccess CUDA: out of memory").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::HostMemory);
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(facts_in("ggml: cudaMalloc failed: out of memory").unwrap().framework, "mxnet");
    }
}
