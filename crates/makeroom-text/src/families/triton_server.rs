//! NVIDIA Triton Inference Server: its own memory pools, which it does without where they are too small.
//!
//! | wording | meaning |
//! |---|---|
//! | `Failed to allocate CUDA memory with byte size 76283904 on GPU 0: CNMEM_STATUS_OUT_OF_MEMORY, falling back to pinned system memory` | a warning: the CUDA pool is too small |
//! | `unable to create backend memory for type: CPU_PINNED …`, `failed to allocate pinned system memory: …` | a warning: the pinned pool is too small or off |
//! | `An error occurred while trying to load GPU buffers in the Python backend stub` below such a line | the Python backend cannot do without |
//! | `failed to allocate CUDA memory …: CNMEM_STATUS_OUT_OF_MEMORY` without a fallback | the CUDA pool is too small |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, contains_folded, pattern};

use crate::facts::{Facts, Resource, Severity};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "allocate CUDA memory with byte size",
        "allocate pinned system memory",
        "unable to create backend memory",
        "load GPU buffers in the Python backend",
    ],
    read,
};

static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)byte size (\d+)(?: on GPU (\d+))?"));

/// The Python backend fails this many lines below the pool that was too small.
const LINES_TO_POOL: usize = 10;

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let has = |words: &str| contains_folded(line, words);
    let is_stub = has("load GPU buffers");
    let above = || passage.before().take(LINES_TO_POOL).find(|line| SIZE.is_match(line));
    let failed = if is_stub { above()? } else { line };
    if !has("failed") && !has("unable") {
        return None;
    }
    let mut facts = Facts::new(Framework::TritonServer, Resource::Device, passage);
    if let Some(found) = SIZE.captures(failed) {
        facts.request = captured_number(&found, 1).map(Bytes::new);
        facts.device = captured_number(&found, 2).map(DeviceIndex);
    }
    let is_pinned = has("pinned") || has("unable to create backend memory");
    if !is_stub && (is_pinned || has("falling back")) {
        facts.severity = Severity::Warning;
    }
    let pool = if is_pinned && !has("CUDA memory") { "pinned memory pool" } else { "CUDA memory pool" };
    facts.state(
        Cause::ArtificialLimit,
        Certainty::Likely,
        format!("Triton's own {pool} is too small for this tensor; the GPU's memory is not the limit."),
    );
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_pool_that_is_too_small_is_a_warning() {
        let text = "Failed to allocate CUDA memory with byte size 134217728 on GPU 1: CNMEM_STATUS_OUT_OF_MEMORY, falling back to pinned system memory";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.severity), ("triton-server", Severity::Warning));
        assert_eq!((facts.request, facts.device), (Some(Bytes::mib(128)), Some(DeviceIndex(1))));
        let text = "  CPU_PINNED: failed to allocate pinned system memory: no pinned memory pool";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
        let stub = "W0410 13:51:44 memory.cc:212] Failed to allocate CUDA memory with byte size 134217728 on GPU 0: CNMEM_STATUS_OUT_OF_MEMORY, falling back to pinned system memory\nE0410 13:51:44 pb_stub.cc:402] An error occurred while trying to load GPU buffers in the Python backend stub: failed to copy data: invalid argument";
        let facts = facts_in(stub).unwrap();
        assert_eq!((facts.severity, facts.request), (Severity::Failure, Some(Bytes::mib(128))));
    }
}
