//! MLC LLM's check before it loads: what one GPU may use, against the weights and the temporary buffers.
//!
//! ```text
//! Insufficient GPU memory error: The available single GPU memory is 6000.000 MB, which is less than the sum of model
//! weight size (5000.500 MB) and temporary buffer size (1200.250 MB).
//! ```
//!
//! What is available is already the share that `gpu_memory_utilization` allows. The message also appears where the
//! figures contradict it; then they decide nothing.

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::figures::captured_size;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family { anchors: &["available single GPU memory is"], read };

static CHECK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"available single GPU memory is ([\d.]+) ?(MB|GB), which is less than the sum of model weight size \(([\d.]+) ?(MB|GB)\)(?:,| and) temporary buffer size \(([\d.]+) ?(MB|GB)\)",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = CHECK.captures(&passage.flat)?;
    let (available, weights, buffers) =
        (captured_size(&found, 1)?, captured_size(&found, 3)?, captured_size(&found, 5)?);
    let mut facts = Facts::new(Framework::MlcLlm, Resource::Device, passage);
    let needed = weights + buffers;
    if needed > available {
        facts.state(
            Cause::LiveDataFillsDevice,
            Certainty::Likely,
            format!(
                "The weights ({weights}) and temporary buffers ({buffers}) need {needed}, but only {available} of GPU memory may be used, which is {} too little.",
                needed - available
            ),
        );
    } else {
        facts.state(
            Cause::Undetermined,
            Certainty::Undetermined,
            format!(
                "The message contradicts its own figures: the weights ({weights}) and temporary buffers ({buffers}) fit in the {available} that may be used. The cause is a size that MLC does not print, such as the KV cache, or a bug in its check."
            ),
        );
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    fn checked(available: &str, weights: &str, buffers: &str) -> Cause {
        let text = format!(
            "TVMError: Check failed: (output_res.IsOk()) is false: Insufficient GPU memory error: The available single GPU memory is {available} MB, which is less than the sum of model weight size ({weights} MB) and temporary buffer size ({buffers} MB)."
        );
        facts_in(&text).unwrap().statements[0].cause
    }

    #[test]
    fn the_sum_decides() {
        assert_eq!(checked("6000.000", "5000.500", "1200.250"), Cause::LiveDataFillsDevice);
        assert_eq!(checked("16000.000", "60.500", "120.250"), Cause::Undetermined);
    }
}
