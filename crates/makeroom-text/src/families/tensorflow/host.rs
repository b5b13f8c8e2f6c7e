//! TensorFlow and XLA asking for pinned host memory.
//!
//! | line | wording |
//! |---|---|
//! | the driver's | `failed to alloc 8192 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory` |
//! | the allocator's | `could not allocate pinned host memory of size: 8192` |
//!
//! The code decides: only an out-of-memory code is about memory. Any other code is a broken context that fails
//! every call, and this one was merely the first.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use super::bfc_dump::framework;
use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["bytes on host:", "could not allocate pinned host memory"], read };

/// The two lines stand next to each other, in either order.
const PAIR_LINES: usize = 3;

static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"failed to alloc(?:ate)? (\d+) bytes on host|pinned host memory of size: ?(\d+)")
});
static CODE: LazyLock<Regex> = LazyLock::new(|| pattern(r"bytes on host: (\w+)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = REQUEST.captures(passage.line())?;
    let mut facts = Facts {
        request: captured_number(&found, 1).or_else(|| captured_number(&found, 2)).map(Bytes::new),
        ..Facts::new(framework(passage), Resource::Host, passage)
    };
    let asked = facts.request.unwrap_or(Bytes::ZERO);
    let mut lines = passage.onward().take(PAIR_LINES).chain(passage.before().take(PAIR_LINES));
    let code = lines.find_map(|line| CODE.captures(line)).map(|found| found[1].to_owned());
    let (certainty, summary) = match code.as_deref() {
        Some("CUDA_ERROR_OUT_OF_MEMORY" | "HIP_ERROR_OutOfMemory" | "hipErrorOutOfMemory") => (
            Certainty::Certain,
            format!("Allocating {asked} of pinned host memory failed. The GPU's memory is not involved."),
        ),
        Some(code) => (
            Certainty::Possible,
            format!(
                "Allocating {asked} of pinned host memory failed with {code}, which can have causes other than a lack of memory."
            ),
        ),
        None => (Certainty::Likely, format!("Allocating {asked} of pinned host memory failed.")),
    };
    facts.state(Cause::HostMemory, certainty, summary);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use makeroom_core::Bytes;
    use makeroom_explain::{Cause, Certainty};

    use crate::find::facts_in;

    fn pair(code: &str) -> String {
        format!(
            "2020-01-01 00:00:00.1: W ./tensorflow/core/common_runtime/gpu/gpu_host_allocator.h:44] could not allocate pinned host memory of size: 8000000\n2020-01-01 00:00:00.2: E tensorflow/stream_executor/cuda/cuda_driver.cc:890] failed to alloc 8000000 bytes on host: {code}\n"
        )
    }

    #[test]
    fn the_code_decides_how_sure_it_is() {
        for (code, certainty) in [
            ("CUDA_ERROR_OUT_OF_MEMORY: out of memory", Certainty::Certain),
            ("CUDA_ERROR_UNKNOWN", Certainty::Possible),
        ] {
            let facts = facts_in(&pair(code)).unwrap();
            assert_eq!(facts.request, Some(Bytes::new(8_000_000)));
            assert_eq!(
                (facts.statements[0].cause, facts.statements[0].certainty),
                (Cause::HostMemory, certainty)
            );
        }
    }

    #[test]
    fn device_memory_is_not_taken() {
        let text = "failed to allocate 1.00G (1073741824 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY";
        assert!(
            facts_in(text).unwrap().statements.iter().all(|statement| statement.cause != Cause::HostMemory)
        );
    }
}
