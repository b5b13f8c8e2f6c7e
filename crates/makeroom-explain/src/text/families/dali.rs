//! NVIDIA DALI.
//!
//! | versions | wording |
//! |---|---|
//! | – 0.30 | `Critical error in pipeline: … CUDA allocation failed`, then `Current pipeline object is no longer valid.` |
//! | 0.31 – | `Can't allocate 1073741824 bytes on device 0.`, `Can't allocate 1073741824 bytes on host.` |
//! | all | `CUDA runtime API error cudaErrorMemoryAllocation (2):`, the words `out of memory` on the next line |

use std::sync::LazyLock;

use makeroom_core::DeviceIndex;
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{captured_number, captured_size, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Can't allocate ",
        "CUDA allocation failed",
        "CUDA runtime API error cudaErrorMemoryAllocation",
    ],
    read,
};

static REQUEST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Can't allocate (\d+) (bytes) on (?:device (\d+)|(host))"));
static WITHOUT_FIGURES: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"CUDA allocation failed.*pipeline object|CUDA runtime API error cudaErrorMemoryAllocation")
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let text = passage.flat.as_str();
    let mut facts = Facts::new("dali", Resource::Device, passage);
    let Some(found) = REQUEST.captures(text) else {
        return WITHOUT_FIGURES.is_match(text).then_some(facts);
    };
    facts.request = captured_size(&found, 1);
    facts.device = captured_number(&found, 3).map(DeviceIndex);
    if found.get(4).is_some() {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "DALI was refused host memory; the GPU was not asked.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;
    use makeroom_core::Bytes;

    #[test]
    fn device_and_host_are_told_apart() {
        let device = facts_in("RuntimeError: Critical error in pipeline:\nError when executing Mixed operator decoders__Image encountered:\nCan't allocate 1048576 bytes on device 1.\nCurrent pipeline object is no longer valid.").unwrap();
        assert_eq!(
            (device.framework, device.request, device.device),
            ("dali", Some(Bytes::mib(1)), Some(DeviceIndex(1)))
        );
        let host = facts_in("Can't allocate 1048576 bytes on host.").unwrap();
        assert_eq!(host.statements[0].cause, Cause::HostMemory);
    }

    #[test]
    fn older_errors_have_no_figures() {
        let facts = facts_in("RuntimeError: Critical error in pipeline: CUDA allocation failed\nCurrent pipeline object is no longer valid.").unwrap();
        assert_eq!((facts.framework, facts.statements.len()), ("dali", 0));
    }
}
