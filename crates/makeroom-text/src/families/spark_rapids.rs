//! The RAPIDS accelerator for Apache Spark: what its memory handler logs before it gives up.
//!
//! | line | wording |
//! |---|---|
//! | handler | `Device allocation of N bytes failed, device store has M bytes. Total RMM allocated is T bytes.` |
//! | handler | `Device store exhausted, unable to allocate N bytes. Total RMM allocated is T bytes.` |
//! | exception | `GpuSplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry` |
//! | exception | `CpuSplitAndRetryOOM: CPU OutOfMemory: …`, `CpuRetryOOM` |
//!
//! The first line is printed at every attempt and the store spills after it, so alone it is a warning.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource, Severity};
use crate::family::Family;
use crate::figures::{captured_size, find_size};
use crate::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["Total RMM allocated is", "RetryOOM", "PU OutOfMemory: could not split"], read };

static HANDLER: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?:allocation of|unable to allocate) (\d+) (bytes).*?Total RMM allocated is (\d+) (bytes)")
});
static LAST_REQUEST: LazyLock<Regex> = LazyLock::new(|| pattern(r"allocation of (\d+) (bytes) failed"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let line = passage.line();
    let mut facts = Facts::new(Framework::SparkRapids, Resource::Device, passage);
    if let Some(found) = HANDLER.captures(&passage.flat) {
        (facts.request, facts.live) = (captured_size(&found, 1), captured_size(&found, 3));
        if !line.contains("Device store exhausted") {
            facts.severity = Severity::Warning;
        }
        lead_by_live(&mut facts);
    } else if line.contains("CPU OutOfMemory")
        || line.contains("CpuRetryOOM")
        || line.contains("CpuSplitAndRetryOOM")
    {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "Spark's limit on off-heap host memory was reached. The GPU is not involved.",
        );
    } else if line.contains("OOM") {
        facts.request = passage.before().find_map(|line| find_size(&LAST_REQUEST, line));
        facts.live = passage.before().find_map(|line| captured_size(&HANDLER.captures(line)?, 3));
        lead_by_live(&mut facts);
    } else {
        return None;
    }
    Some(facts)
}

/// The handler spills all it can before it gives up, so what RMM still holds is the query's own working set.
fn lead_by_live(facts: &mut Facts) {
    if let (Some(request), Some(live)) = (facts.request, facts.live.filter(|live| !live.is_zero())) {
        let summary =
            format!("The query holds {live} of GPU memory after spilling, and {request} more does not fit.");
        facts.lead(Cause::LiveDataFillsDevice, summary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn the_handler_gives_request_and_what_is_in_use() {
        let facts = facts_in("24/01/02 10:00:00 WARN DeviceMemoryEventHandler: Device store exhausted, unable to allocate 1048576 bytes. Total RMM allocated is 8388608 bytes.").unwrap();
        assert_eq!(
            (facts.framework_id(), facts.request, facts.live),
            ("spark-rapids", Some(Bytes::mib(1)), Some(Bytes::mib(8)))
        );
    }

    #[test]
    fn a_spill_is_a_warning_and_a_split_that_fails_is_not() {
        let spill = "Device allocation of 1048576 bytes failed, device store has 4194304 bytes. Total RMM allocated is 8388608 bytes.";
        assert_eq!(facts_in(spill).unwrap().severity, Severity::Warning);
        let text = format!(
            "{spill}\ncom.nvidia.spark.rapids.jni.GpuSplitAndRetryOOM: GPU OutOfMemory: could not split inputs and retry"
        );
        let facts = facts_in(&text).unwrap();
        assert_eq!((facts.severity, facts.request), (Severity::Failure, Some(Bytes::mib(1))));
    }

    #[test]
    fn the_cpu_is_host_memory() {
        let facts = facts_in("com.nvidia.spark.rapids.jni.CpuSplitAndRetryOOM: CPU OutOfMemory: could not split inputs and retry").unwrap();
        assert_eq!(facts.statements[0].cause, Cause::HostMemory);
    }
}
