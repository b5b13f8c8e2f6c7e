//! LightGBM on the GPU, through OpenCL and through CUDA.
//!
//! | back end | wording |
//! |---|---|
//! | OpenCL | `LightGBMError: Out of Host Memory`, `Memory Object Allocation Failure`, `Out of Resources` |
//! | CUDA | `[LightGBM] [Fatal] [CUDA] out of memory /path/cuda_column_data.cpp 67` |
//!
//! No figures. OpenCL reports "out of host memory" also for resources of the driver, and one buffer may have at
//! most a part of the card, so its words decide nothing by themselves.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::pattern;
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "Out of Host Memory",
        "Memory Object Allocation Failure",
        "[CUDA] out of memory",
        "Out of Resources",
    ],
    read,
};

static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)Out of (?:Host Memory|Resources)|(Memory Object Allocation Failure)|(\[CUDA\] out of memory)",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = WORDS.captures(passage.line())?;
    let is_ours =
        |line: &str| line.to_ascii_lowercase().contains("lightgbm") || line.contains("boost::compute");
    if !passage.all().any(is_ours) {
        return None;
    }
    let mut facts = Facts::new("lightgbm", Resource::Unknown, passage);
    if found.get(1).is_some() {
        facts.resource = Resource::Device;
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Possible,
            "OpenCL refused a buffer. One buffer may have only a part of the card, often a quarter, however much is free.",
        );
    } else if found.get(2).is_some() {
        facts.resource = Resource::Device;
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn nothing_is_more_than_possible() {
        assert!(facts_in("[LightGBM] [Fatal] Out of Host Memory").unwrap().statements.is_empty());
        for text in [
            "[LightGBM] [Fatal] Out of Host Memory",
            "terminate called after throwing an instance of 'boost::wrapexcept<boost::compute::opencl_error>'\n  what():  Memory Object Allocation Failure",
            "[LightGBM] [Fatal] [CUDA] out of memory /src/cuda_column_data.cpp 67",
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(facts.framework, "lightgbm", "{text}");
            assert!(facts.statements.iter().all(|statement| statement.certainty <= Certainty::Possible));
        }
    }

    #[test]
    fn other_programs_are_not_taken() {
        assert_ne!(
            facts_in("clEnqueueNDRangeKernel: Out of Resources, out of memory").unwrap().framework,
            "lightgbm"
        );
    }
}
