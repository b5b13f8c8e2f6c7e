//! Shares of a GPU that a layer in between enforces: `HAMi`, and the vGPU scheduler it grew from.
//!
//! | wording | what it means |
//! |---|---|
//! | `[HAMI-core ERROR (pid:30 … allocator.c:53)]: Device 0 OOM 3221225472 / 2147483648` | what the process would hold, and its share |
//! | `[4pdvGPU ERROR …]: Device 0 OOM 123 / 120` | the same, older |
//! | `[HAMI-core ERROR …]: cuMemoryAllocate failed res=2` | the driver itself failed, within the share |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex, Framework};
use makeroom_explain::thresholds::ABSURD;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &["HAMI-core ERROR", "vGPU ERROR", "cuMemoryAllocate failed res=2", "device OOM encountered"],
    read,
};

static SHARE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Device (\d+) OOM (\d+) / (\d+)"));

static MONITOR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"device OOM encountered:? usage=(\d+) limit=(\d+)"));
/// What the real driver reports, and what the container holds.
static REAL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"\borig free=(\d+) total=(\d+) limit=(\d+) usage=(\d+)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let mut facts = Facts::new(Framework::Hami, Resource::Device, passage);
    let line = passage.line();
    let figures = |words: &Regex, first: usize| {
        let found = words.captures(line)?;
        Some((
            captured_number(&found, first).map(Bytes::new)?,
            captured_number(&found, first + 1).map(Bytes::new)?,
        ))
    };
    let Some((wanted, share)) = figures(&SHARE, 2).or_else(|| figures(&MONITOR, 1)) else {
        if !line.contains("cuMemoryAllocate failed res=2") {
            return None;
        }
        state_real(passage, &mut facts);
        return Some(facts);
    };
    facts.device = SHARE.captures(line).and_then(|found| captured_number(&found, 1)).map(DeviceIndex);
    facts.limit = Some(share);
    let summary = if wanted >= ABSURD {
        format!(
            "The layer that enforces this share of {share} counts {wanted} in use: its own count went below zero."
        )
    } else {
        format!(
            "The process would hold {wanted}, but its share of GPU memory is {share}; the GPU itself may have free memory."
        )
    };
    facts.state(Cause::ArtificialLimit, Certainty::Certain, summary);
    Some(facts)
}

/// The driver failed although the share has room: the figures above show whether other containers hold the GPU.
fn state_real(passage: &Passage<'_>, facts: &mut Facts) {
    let Some(found) = passage.before().find_map(|line| REAL.captures(line)) else { return };
    let figure = |group| captured_number(&found, group).map(Bytes::new);
    let (Some(free), Some(total), Some(own)) = (figure(1), figure(2), figure(4)) else { return };
    (facts.free, facts.total, facts.this_process) = (Some(free), Some(total), Some(own));
    let others = total - free - own;
    if others > total.scaled(0.5) {
        facts.state(
            Cause::OtherProcesses,
            Certainty::Likely,
            format!("{free} of the GPU's {total} is free and this container holds {own}: others that share the GPU hold {others}."),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_share_that_is_used_up() {
        let text = "[HAMI-core ERROR (pid:30 thread=140382094939712 allocator.c:53)]: Device 1 OOM 3221225472 / 2147483648\nRuntimeError: CUDA error: unrecognized error code";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.device), ("hami", Some(DeviceIndex(1))));
        assert_eq!(facts.limit, Some(Bytes::gib(2)));
        assert_eq!(facts.statements[0].certainty, Certainty::Certain);
    }

    #[test]
    fn the_monitor_of_older_versions_names_the_share_too() {
        let text = "[4pdvGPU ERROR (pid:9 thread=1 multiprocess_memory_limit.c:300)]: device OOM encountered: usage=3221225472 limit=2147483648";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.limit, facts.statements[0].cause), (Some(Bytes::gib(2)), Cause::ArtificialLimit));
    }

    #[test]
    fn others_on_an_oversold_gpu() {
        let text = "[HAMI-core Msg(7:1:memory.c:500)]: orig free=268435456 total=4294967296 limit=8589934592 usage=8388608\n[HAMI-core ERROR (pid:7 thread=1 allocator.c:115)]: cuMemoryAllocate failed res=2";
        assert_eq!(facts_in(text).unwrap().statements[0].cause, Cause::OtherProcesses);
    }

    #[test]
    fn the_real_driver_says_no_more() {
        let text =
            "[HAMI-core ERROR (pid:7 thread=140360328144640 allocator.c:115)]: cuMemoryAllocate failed res=2";
        assert!(facts_in(text).unwrap().statements.is_empty());
        assert!(facts_in("[HAMI-core ERROR (pid:77 limit.c:758)]: Limit inconsistency detected").is_none());
    }
}
