//! Deeplearning4j, ND4J and JavaCPP.
//!
//! | memory | wording |
//! |---|---|
//! | device | `Failed to allocate 8843288 bytes from DEVICE [0] memory` |
//! | device | `Out of [DEVICE] memory, host memory will be used instead: deviceId: [0], requested bytes: [8843288]`; it goes on |
//! | host | `Failed to allocate 400 bytes from HOST memory`, `Can't allocate [HOST] memory: 800; threadId: 1` |
//! | off-heap | `Cannot allocate new FloatPointer(1000): totalBytes = 7G, physicalBytes = 15G` |
//! | off-heap | `Physical memory usage is too high: physicalBytes (5G) > maxPhysicalBytes (4G)` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, DeviceIndex};
use regex::Regex;

use crate::text::facts::{Facts, Resource, Severity};
use crate::text::family::Family;
use crate::text::figures::{captured_number, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &["from DEVICE", "[DEVICE] memory", "from HOST memory", "[HOST] memory", "physicalBytes"],
    read,
};

static DEVICE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Failed to allocate \[?(\d+)\]? bytes from DEVICE(?: \[(\d+)\])? memory|Can't allocate \[DEVICE\] memory:? \[?(\d+)",
    )
});
static FALLEN_BACK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Out of \[DEVICE\] memory, host memory will be used instead: deviceId: \[(\d+)\], requested bytes: \[(\d+)\]",
    )
});
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"Failed to allocate \[?\d+\]? bytes from HOST memory|Can't allocate \[HOST\] memory|Cannot allocate new \w+Pointer\(\d+\)|Physical memory usage is too high",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let mut facts = Facts::new("deeplearning4j", Resource::Device, passage);
    if HOST.is_match(passage.line()) {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "Memory of the machine outside the Java heap was refused, by the machine or by JavaCPP's limit for it; the GPU was not asked.",
        );
    } else if let Some(found) = DEVICE.captures(text) {
        facts.request = captured_number(&found, 1).or_else(|| captured_number(&found, 3)).map(Bytes::new);
        facts.device = captured_number(&found, 2).map(DeviceIndex);
    } else {
        let found = FALLEN_BACK.captures(text)?;
        facts.device = captured_number(&found, 1).map(DeviceIndex);
        facts.request = captured_number(&found, 2).map(Bytes::new);
        facts.severity = Severity::Warning;
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn the_device_is_read() {
        let facts =
            facts_in("java.lang.RuntimeException: Failed to allocate 4096 bytes from DEVICE [2] memory")
                .unwrap();
        assert_eq!(
            (facts.framework, facts.request, facts.device),
            ("deeplearning4j", Some(Bytes::kib(4)), Some(DeviceIndex(2)))
        );
        let warning = facts_in("WARN o.n.j.handler.impl.CudaZeroHandler - Out of [DEVICE] memory, host memory will be used instead: deviceId: [0], requested bytes: [4096]").unwrap();
        assert_eq!((warning.request, warning.severity), (Some(Bytes::kib(4)), Severity::Warning));
    }

    #[test]
    fn memory_outside_the_heap_is_host_memory() {
        for text in [
            "java.lang.RuntimeException: Can't allocate [HOST] memory: 800; threadId: 1",
            "java.lang.OutOfMemoryError: Cannot allocate new FloatPointer(100): totalBytes = 2G, physicalBytes = 9G",
            "Caused by: java.lang.OutOfMemoryError: Physical memory usage is too high: physicalBytes (9G) > maxPhysicalBytes (8G)",
        ] {
            assert_eq!(facts_in(text).unwrap().statements[0].cause, Cause::HostMemory, "{text}");
        }
    }
}
