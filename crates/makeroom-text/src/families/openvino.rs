//! `OpenVINO`'s GPU plugin: OpenCL's cap on a single buffer, and OpenCL's own errors.
//!
//! | wording | meaning |
//! |---|---|
//! | `[GPU] Exceeded max size of memory object allocation: requested 8589934592 bytes, but max alloc size supported by device is 4294959104 bytes` | the driver's cap on one buffer |
//! | `[GPU] CL_OUT_OF_RESOURCES exception`, `… to avoid CL_OUT_OF_RESOURCES exception` | memory, or a fault of the driver |
//! | `[GPU] clCreateBuffer, error code: -4`, `CL_MEM_OBJECT_ALLOCATION_FAILURE`, `CL_OUT_OF_HOST_MEMORY` | memory |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, contains_folded, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &["Exceeded max size of memory", "[GPU] CL_", "to avoid CL_OUT_OF_RESOURCES", "[GPU] cl"],
    read,
};

static CAP: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)requested (\d+) bytes, but max alloc size supported by device is (\d+)"));
/// OpenCL's numbers for memory: object allocation, resources, host memory.
static CODE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)\[GPU\] cl\w+,? error code: -(?:4|5|6)\b"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let has = |words: &str| contains_folded(line, words);
    let mut facts = Facts::new(Framework::OpenVino, Resource::Device, passage);
    if has("Exceeded max size of memory") {
        let sizes = CAP.captures(text).map(|found| (captured_number(&found, 1), captured_number(&found, 2)));
        let summary = match sizes {
            Some((Some(request), Some(cap))) => {
                facts.request = Some(Bytes::new(request));
                format!(
                    "One buffer of {} exceeds the driver's cap of {} on a single allocation; the GPU's memory is not the limit.",
                    Bytes::new(request),
                    Bytes::new(cap)
                )
            }
            _ => "One buffer exceeds the driver's cap on a single allocation; the GPU's memory is not the limit.".to_owned(),
        };
        facts.state(Cause::ArtificialLimit, Certainty::Certain, summary);
        return Some(facts);
    }
    let is_about_memory = CODE.is_match(line)
        || ["CL_OUT_OF_RESOURCES", "CL_MEM_OBJECT_ALLOCATION_FAILURE", "CL_OUT_OF_HOST_MEMORY"]
            .iter()
            .any(|code| has(code));
    if !is_about_memory {
        return None;
    }
    facts.state(
        Cause::LiveDataFillsDevice,
        Certainty::Possible,
        "The model, the batch and the streams may not fit on the GPU; drivers return this code for other shortages too.",
    );
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_buffer_above_the_cap() {
        let text = "RuntimeError: Check '!exceed_allocatable_mem_size' failed at ocl_engine.cpp:142:\n[GPU] Exceeded max size of memory object allocation: requested 8589934592 bytes, but max alloc size supported by device is 4294967296 bytes.Please try to reduce batch size or use lower precision.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("openvino", Some(Bytes::gib(8))));
        let stated = &facts.statements[0];
        assert_eq!((stated.cause, stated.certainty), (Cause::ArtificialLimit, Certainty::Certain));
        assert!(stated.summary.contains("4.00 GiB"), "{}", stated.summary);
    }

    #[test]
    fn codes_about_memory_and_others() {
        assert_eq!(facts_in("[GPU] CL_OUT_OF_RESOURCES exception").unwrap().framework_id(), "openvino");
        assert_eq!(
            facts_in("[GPU] clEnqueueNDRangeKernel, error code: -5").unwrap().framework_id(),
            "openvino"
        );
        assert!(facts_in("[GPU] clEnqueueNDRangeKernel, error code: -54").is_none());
    }
}
