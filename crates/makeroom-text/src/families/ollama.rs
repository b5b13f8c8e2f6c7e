//! Ollama's own words above those of [`super::llama_cpp`]: its check of host memory, and the exit of its runner.
//!
//! | wording | what it gives |
//! |---|---|
//! | `model requires more system memory (18.0 GiB) than is available (11.5 GiB)` | host memory, both figures |
//! | `msg="model request too large for system" requested="18.0 GiB" available="11.5 GiB"` | the same, in its log |
//! | `llama runner process has terminated: cudaMalloc failed: out of memory` | that GPU memory ran out |
//! | `… terminated: signal: killed`, `msg="llama runner terminated" error="signal: killed"` | the kernel's OOM killer, most likely |
//! | `insufficient memory - required allocations: …`, `memory layout cannot be allocated`, `unable to load full model on GPU` | that the model does not fit |
//! | `memory.available="[23.0 GiB]" memory.required.full="…"` | free memory on the first device |

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, contains_folded, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::{captured_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "requires more system memory",
        "model request too large for system",
        "too large for system memory",
        "llama runner process has terminated",
        "llama runner process no longer running",
        "llama runner terminated",
        "memory layout cannot be allocated",
        "insufficient memory - required allocations",
        "unable to load full model on GPU",
    ],
    read,
};

static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)(?:requires more system memory \(|requested="?)([\d.]+) ?([KMGT]iB)(?:\) than is available \(|"? available="?)([\d.]+) ?([KMGT]iB|B)"#,
    )
});
static AVAILABLE: LazyLock<Regex> = LazyLock::new(|| pattern(r#"memory\.available="\[?([\d.]+) ([KMGT]iB)"#));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let has = |words: &str| contains_folded(line, words);
    if has("requires more system memory") || has("too large for system") {
        let mut facts = Facts::new(Framework::Ollama, Resource::Host, passage);
        let found = HOST.captures(text);
        facts.request = found.as_ref().and_then(|found| captured_size(found, 1));
        let available = found.as_ref().and_then(|found| captured_size(found, 3));
        let summary = match (facts.request, available) {
            (Some(request), Some(available)) => {
                format!(
                    "The model needs {request} of RAM, but only {available} is available; the GPU is not the limit."
                )
            }
            _ => "The model needs more RAM than is available; the GPU is not the limit.".to_owned(),
        };
        facts.state(Cause::HostMemory, Certainty::Certain, summary);
        return Some(facts);
    }
    let mut facts = Facts::new(Framework::Ollama, Resource::Device, passage);
    if has("signal: killed") {
        facts.resource = Resource::Host;
        facts.lead(
            Cause::HostMemory,
            "The runner was killed from outside; the Linux OOM killer does this when RAM runs out.",
        );
        return Some(facts);
    }
    facts.free = passage.before().find_map(|line| find_size(&AVAILABLE, line));
    if has("layout cannot be allocated") || has("required allocations") || has("unable to load full model") {
        facts.lead(Cause::LiveDataFillsDevice, "The layers assigned to the GPU do not fit on it.");
        return Some(facts);
    }
    has("out of memory").then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn host_memory_that_does_not_suffice() {
        for text in [
            "Error: model requires more system memory (18.0 GiB) than is available (11.5 GiB)",
            "time=2024-08-16T07:56:25.534Z level=WARN source=server.go:130 msg=\"model request too large for system\" requested=\"18.0 GiB\" available=\"11.5 GiB\" total=\"15.9 GiB\"",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!((facts.framework_id(), facts.resource), ("ollama", Resource::Host));
            assert_eq!(facts.request, Some(Bytes::gib(18)));
            assert_eq!(facts.statements[0].certainty, Certainty::Certain);
            assert!(facts.statements[0].summary.contains("11.50 GiB"));
        }
    }

    #[test]
    fn a_runner_that_exited() {
        let text = "level=INFO msg=offload memory.available=\"[22.5 GiB 22.5 GiB]\" memory.required.full=\"30 GiB\"\nError: llama runner process has terminated: cudaMalloc failed: out of memory";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.free), ("ollama", Some(Bytes::mib(23040))));
        assert!(facts.statements.is_empty());
        assert!(facts_in("Error: llama runner process has terminated: signal: aborted").is_none());
        let killed = "time=2025-06-27T14:42:08.637Z level=ERROR source=server.go:415 msg=\"llama runner terminated\" error=\"signal: killed\"";
        assert_eq!(facts_in(killed).unwrap().statements[0].cause, Cause::HostMemory);
        let layout = "Error: 500 Internal Server Error: memory layout cannot be allocated with num_gpu = 65";
        assert_eq!(facts_in(layout).unwrap().statements[0].cause, Cause::LiveDataFillsDevice);
    }
}
