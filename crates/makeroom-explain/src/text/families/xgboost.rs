//! XGBoost on the GPU.
//!
//! | versions | wording |
//! |---|---|
//! | 1.2 – 2.0 | `Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory`, then `- Free memory: 11310923776` and `- Requested memory: 47996` |
//! | 2.1 – | the same with units: `- Free memory: 10.5GB`, meaning 2³⁰ bytes |
//! | 1.0 – 1.1 | `Memory allocation error on worker 0: Caching allocator` |

use std::sync::LazyLock;

use makeroom_core::Bytes;
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{binary_size, pattern};
use crate::text::log::Passage;

pub(crate) const FAMILY: Family = Family { anchors: &["Memory allocation error on worker"], read };

static FREE: LazyLock<Regex> = LazyLock::new(|| pattern(r"- Free memory: ([\d.]+) ?([KMGT]?B?)"));
static REQUEST: LazyLock<Regex> = LazyLock::new(|| pattern(r"- Requested memory: ([\d.]+) ?([KMGT]?B?)"));

#[allow(clippy::unnecessary_wraps, reason = "the list of families asks for this shape")]
fn read(passage: &Passage<'_>) -> Option<Facts> {
    let figure = |regex: &Regex| -> Option<Bytes> {
        let found = regex.captures(&passage.flat)?;
        binary_size(&found[1], &found[2])
    };
    Some(Facts {
        request: figure(&REQUEST),
        free: figure(&FREE),
        ..Facts::new("xgboost", Resource::Device, passage)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn figures_with_and_without_units_are_read() {
        for (free, request) in [("1073741824", "3221225472"), ("1GB", "3GB")] {
            let text = format!(
                "xgboost.core.XGBoostError: [13:55:26] /src/c_api/../common/device_helpers.cuh:414: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: {free}\n- Requested memory: {request}\n"
            );
            let facts = facts_in(&text).unwrap();
            assert_eq!(facts.framework, "xgboost");
            assert_eq!((facts.free, facts.request), (Some(Bytes::gib(1)), Some(Bytes::gib(3))));
            assert!(facts.statements.is_empty());
        }
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(
            facts_in("std::bad_alloc: cudaErrorMemoryAllocation: out of memory").unwrap().framework,
            "xgboost"
        );
    }
}
