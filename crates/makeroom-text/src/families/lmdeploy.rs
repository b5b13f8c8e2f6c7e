//! `LMDeploy`: its PyTorch engine plans a KV cache, its `TurboMind` engine allocates one.
//!
//! | wording | meaning |
//! |---|---|
//! | `RuntimeError: No enough gpu memory for kv cache.` | weights and runtime leave nothing for the KV cache |
//! | `No enough gpu memory for runtime.`, `… for state cache. Please reduce max_batch_size.` | the same for activations, for state |
//! | `No enough memory. Update max_prefill_token_num=2048` | a warning |
//! | `[TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/memory_utils.cu:32` | TurboMind's allocation failed |

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::contains_folded;

use crate::facts::{Facts, Resource, Severity};
use crate::family::Family;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &["No enough gpu memory", "No enough memory. Update", "[TM][ERROR]", "turbomind"],
    read,
};

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let has = |words: &str| contains_folded(line, words);
    let mut facts = Facts::new(Framework::LmDeploy, Resource::Device, passage);
    if has("No enough gpu memory") {
        let what =
            ["kv cache", "runtime", "state cache"].into_iter().find(|what| has(what)).unwrap_or("kv cache");
        facts.lead(
            Cause::LiveDataFillsDevice,
            format!("After loading the weights, no GPU memory is left for the {}.", what.replace("kv", "KV")),
        );
        return Some(facts);
    }
    if has("No enough memory. Update") {
        facts.severity = Severity::Warning;
        return Some(facts);
    }
    has("out of memory").then(|| {
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Possible,
            "The model's weights and KV cache do not fit on this GPU.",
        );
        facts
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn both_engines() {
        let facts = facts_in("RuntimeError: No enough gpu memory for kv cache.").unwrap();
        assert_eq!(
            (facts.framework_id(), facts.statements[0].cause),
            ("lmdeploy", Cause::LiveDataFillsDevice)
        );
        assert!(facts.statements[0].leads);
        let text = "RuntimeError: [TM][ERROR] CUDA runtime error: out of memory /lmdeploy/src/turbomind/utils/memory_utils.cu:32";
        assert_eq!(facts_in(text).unwrap().framework_id(), "lmdeploy");
        let text = "WARNING No enough memory. Update max_prefill_token_num=2048";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
        assert!(
            facts_in("[TM][ERROR] CUDA runtime error: invalid argument /lmdeploy/src/turbomind/x.cu:3")
                .is_none()
        );
    }
}
