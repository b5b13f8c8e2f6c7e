//! dlib.
//!
//! | wording |
//! |---|
//! | `Error while calling cudaMalloc(&data, new_size*sizeof(float)) in file …/gpu_data.cpp:218. code: 2, reason: out of memory` |
//! | `Error while calling cudaMallocHost(&data, new_size*sizeof(float)) in file …/gpu_data.cpp:211. code: 2, reason: out of memory` |
//! | `Error while calling cudnnCreate(&handle) in file …/cudnn_dlibapi.cpp:104. code: 4, reason: CUDNN_STATUS_ALLOC_FAILED` |
//!
//! No figures; the name of the call says what kind of memory was refused.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::pattern;
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family { anchors: &["Error while calling cu"], read };

static CALL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Error while calling (cu\w+).*? reason: ?(?:out of memory|\w*ALLOC_FAILED)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = CALL.captures(&passage.flat)?;
    let mut facts = Facts::new("dlib", Resource::Device, passage);
    if found[1].contains("Host") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            format!("{} was refused: it asks for pinned host memory.", &found[1]),
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn the_call_names_the_resource() {
        let device = facts_in("RuntimeError: Error while calling cudaMalloc(&data, n) in file dlib/cuda/cuda_data_ptr.cpp:28. code:\n2, reason: out of memory").unwrap();
        assert_eq!((device.framework, device.statements.len()), ("dlib", 0));
        let host = facts_in("Error while calling cudaMallocHost(&data, new_size*sizeof(float)) in file dlib/cuda/gpu_data.cpp:211. code: 2, reason: out of memory").unwrap();
        assert_eq!(host.statements[0].cause, Cause::HostMemory);
    }

    #[test]
    fn other_errors_are_not_taken() {
        assert!(facts_in("Error while calling cudaMemcpy(dest, src) in file gpu_data.cpp:62. code: 11, reason: invalid argument").is_none());
    }
}
