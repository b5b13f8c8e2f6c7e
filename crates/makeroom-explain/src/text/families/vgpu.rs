//! Shares of a GPU that a layer in between enforces: `HAMi`, and the vGPU scheduler it grew from.
//!
//! | wording | what it means |
//! |---|---|
//! | `[HAMI-core ERROR (pid:30 … allocator.c:53)]: Device 0 OOM 3221225472 / 2147483648` | what the process would hold, and its share |
//! | `[4pdvGPU ERROR …]: Device 0 OOM 123 / 120` | the same, older |
//! | `[HAMI-core ERROR …]: cuMemoryAllocate failed res=2` | the driver itself failed, within the share |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex};
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{captured_number, pattern};
use crate::text::log::Passage;
use crate::thresholds::ABSURD;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family =
    Family { anchors: &["HAMI-core ERROR", "vGPU ERROR", "cuMemoryAllocate failed res=2"], read };

static SHARE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device (\d+) OOM (\d+) / (\d+)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let mut facts = Facts::new("hami", Resource::Device, passage);
    let Some(found) = SHARE.captures(passage.line()) else {
        return passage.line().contains("cuMemoryAllocate failed res=2").then_some(facts);
    };
    let (wanted, share) =
        (captured_number(&found, 2).map(Bytes::new)?, captured_number(&found, 3).map(Bytes::new)?);
    facts.device = captured_number(&found, 1).map(DeviceIndex);
    facts.limit = Some(share);
    let summary = if wanted >= ABSURD {
        format!(
            "The layer that enforces this share of {share} counts {wanted} in use: its own count went below zero."
        )
    } else {
        format!(
            "The process would hold {wanted}, and its share of the GPU is {share}; the GPU itself may have free memory."
        )
    };
    facts.state(Cause::ArtificialLimit, Certainty::Certain, summary);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn a_share_that_is_used_up() {
        let text = "[HAMI-core ERROR (pid:30 thread=140382094939712 allocator.c:53)]: Device 1 OOM 3221225472 / 2147483648\nRuntimeError: CUDA error: unrecognized error code";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework, facts.device), ("hami", Some(DeviceIndex(1))));
        assert_eq!(facts.limit, Some(Bytes::gib(2)));
        assert_eq!(facts.statements[0].certainty, Certainty::Certain);
    }

    #[test]
    fn the_real_driver_says_no_more() {
        let text =
            "[HAMI-core ERROR (pid:7 thread=140360328144640 allocator.c:115)]: cuMemoryAllocate failed res=2";
        assert!(facts_in(text).unwrap().statements.is_empty());
        assert!(facts_in("[HAMI-core ERROR (pid:77 limit.c:758)]: Limit inconsistency detected").is_none());
    }
}
