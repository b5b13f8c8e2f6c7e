//! Caffe and its many forks.
//!
//! | versions | wording |
//! |---|---|
//! | first | `syncedmem.cpp:45] Check failed: (cudaMalloc(&gpu_ptr_, size_)) == cudaSuccess (2 vs. 0)` |
//! | later | `syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory` |
//! | before it | `net.cpp:299] Memory required for data: 1097870692` |
//!
//! Error 2 is `cudaErrorMemoryAllocation`. The request is not printed; what the network's data needs is, and it is
//! an estimate of what will be live, not a request.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{captured_number, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family { anchors: &["== cudaSuccess (2 vs. 0)"], read };

static NEEDED: LazyLock<Regex> = LazyLock::new(|| pattern(r"Memory required for data: (\d+)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    if !passage.line().contains("Check failed") {
        return None;
    }
    let mut facts = Facts::new("caffe", Resource::Device, passage);
    let needed =
        passage.before().find_map(|line| captured_number(&NEEDED.captures(line)?, 1)).map(Bytes::new);
    if passage.line().contains("cudaMallocHost") || passage.line().contains("cudaHostAlloc") {
        facts.resource = Resource::Host;
        facts.state(
            Cause::HostMemory,
            Certainty::Certain,
            "Caffe was refused pinned host memory; the GPU was not asked.",
        );
    } else if let Some(needed) = needed {
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Possible,
            format!("Caffe said that the network's data needs {needed}; weights, gradients and workspaces come on top."),
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    #[test]
    fn a_failed_check_states_nothing_alone() {
        let facts = facts_in("F0101 12:00:00.000001  4321 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n*** Check failure stack trace: ***").unwrap();
        assert_eq!((facts.framework, facts.statements.len()), ("caffe", 0));
    }

    #[test]
    fn what_the_network_needs_is_a_possible_reason() {
        let facts = facts_in("I0101 12:00:00.0 1 net.cpp:299] Memory required for data: 3221225472\nF0101 12:00:01.0 1 syncedmem.cpp:56] Check failed: error == cudaSuccess (2 vs. 0)  out of memory").unwrap();
        assert_eq!(
            (facts.statements[0].cause, facts.statements[0].certainty),
            (Cause::LiveDataFillsDevice, Certainty::Possible)
        );
        assert!(facts.statements[0].summary.contains("3.00 GiB"));
    }

    #[test]
    fn other_errors_of_the_runtime_are_not_taken() {
        assert!(
            facts_in("syncedmem.cpp:19] Check failed: error == cudaSuccess (29 vs. 0)  driver shutting down")
                .is_none()
        );
    }
}
