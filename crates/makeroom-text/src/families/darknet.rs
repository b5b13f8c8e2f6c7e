//! Darknet: what its convolutions wanted, what was there, and its advice to split the batch.
//!
//! ```text
//!  used slow CUDNN algo without Workspace! Need memory: 268435456, available: 134217728
//!  Try to set subdivisions=64 in your cfg-file.
//!  CUDA Error: out of memory
//! darknet: ./src/cuda.c:36: check_error: Assertion `0' failed.
//! ```

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family =
    Family { anchors: &["CUDA Error: out of memory", "Try to set subdivisions"], read };

static WORKSPACE: LazyLock<Regex> = LazyLock::new(|| pattern(r"Need memory: (\d+), available: (\d+)"));
static SPEAKER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"darknet|dark_cuda|subdivisions|CUDNN algo|check_error|filters    size"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let is_spoken_here =
        || passage.onward().take(4).chain(passage.before().take(6)).any(|line| SPEAKER.is_match(line));
    if !is_spoken_here() {
        return None;
    }
    let mut facts = Facts::new(Framework::Darknet, Resource::Device, passage);
    let found = passage.before().take(6).find_map(|line| WORKSPACE.captures(line));
    if let Some(found) = found {
        let (need, available): (Option<u64>, Option<u64>) =
            (captured_number(&found, 1), captured_number(&found, 2));
        (facts.request, facts.free) = (need.map(Bytes::new), available.map(Bytes::new));
        if let (Some(request), Some(free)) = (facts.request, facts.free)
            && request > free
        {
            let summary = format!(
                "After loading the network and its batch, {free} was free; a convolution needed {request} of workspace, and then a layer's allocation failed."
            );
            facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
        }
    } else if passage.all().any(|line| line.contains("Try to set subdivisions")) {
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Possible,
            "Darknet recommends splitting the batch (subdivisions); it gives no figures.",
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn a_workspace_that_does_not_fit_beside_the_network() {
        let text = " used slow CUDNN algo without Workspace! Need memory: 268435456, available: 134217728\n Try to set subdivisions=64 in your cfg-file. \n CUDNN-slow CUDA status Error: file: ./src/dark_cuda.c : () : line: 373\n\n CUDA Error: out of memory\nCUDA Error: out of memory: Resource temporarily unavailable";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.request), ("darknet", Some(Bytes::mib(256))));
        assert_eq!(facts.free, Some(Bytes::mib(128)));
        let stated = &facts.statements[0];
        assert_eq!((stated.cause, stated.certainty), (Cause::LiveDataFillsDevice, Certainty::Likely));
    }

    #[test]
    fn a_bare_error_decides_nothing() {
        let text = "layer     filters    size              input                output\n    0 CUDA Error: out of memory\ndarknet: ./src/cuda.c:36: check_error: Assertion `0' failed.";
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework_id(), "darknet");
        assert!(facts.statements.is_empty());
        assert_ne!(facts_in("CUDA Error: out of memory").unwrap().framework_id(), "darknet");
    }
}
