//! The Triton compiler: a kernel that needs more of a multiprocessor than there is.
//!
//! | versions | wording |
//! |---|---|
//! | 2.0 – | `OutOfResources: out of resource: shared memory, Required: 196608, Hardware limit: 101376. Reducing block sizes or num_stages may help.` |
//! | 3.0 – | the same with `threads`, 3.3 – with `tensor memory` |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource, Statement};
use crate::family::Family;
use crate::figures::captured_number;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family { anchors: &["out of resource: ", "OutOfResources: "], read };

static RESOURCE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"out of resource: ([a-z ]+?), Required: (\d+)[, ]+Hardware limit(?:ation)?: (\d+)")
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let mut facts = Facts::new(Framework::Triton, Resource::Kernel, passage);
    let mut statement = Statement::new(
        Cause::SharedMemoryOrKernelResource,
        Certainty::Certain,
        "A kernel needs more shared memory or registers than a multiprocessor has. The GPU's memory is not involved.",
    );
    if let Some(found) = RESOURCE.captures(&passage.flat) {
        let what = &found[1];
        let (required, limit): (u64, u64) = (captured_number(&found, 2)?, captured_number(&found, 3)?);
        let is_bytes = what.ends_with("memory");
        let amount = |count: u64| if is_bytes { Bytes::new(count).to_string() } else { count.to_string() };
        statement.bytes = is_bytes.then(|| Bytes::new(required));
        statement.summary = format!(
            "A kernel needs {} of {what}; the hardware has {}. The GPU's memory is not involved.",
            amount(required),
            amount(limit)
        );
    }
    facts.statements.push(statement);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn resources_of_a_multiprocessor() {
        let text = "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 196608, Hardware\nlimit: 101376. Reducing block sizes or `num_stages` may help.";
        let facts = facts_in(text).unwrap();
        assert_eq!((facts.framework_id(), facts.resource), ("triton", Resource::Kernel));
        let stated = &facts.statements[0];
        assert_eq!(
            (stated.cause, stated.certainty),
            (Cause::SharedMemoryOrKernelResource, Certainty::Certain)
        );
        assert_eq!(stated.bytes, Some(Bytes::kib(192)));
        assert!(stated.summary.contains("99.00 KiB"), "{}", stated.summary);
        let text = "OutOfResources: out of resource: threads, Required: 2048, Hardware limit: 1024. Reducing block sizes or `num_stages` may help.";
        assert!(facts_in(text).unwrap().statements[0].summary.contains("2048 of threads"));
        assert_eq!(
            facts_in("# OutOfResources: shared memory, Required: 2621").unwrap().framework_id(),
            "triton"
        );
    }

    #[test]
    fn other_texts_are_not_taken() {
        assert_ne!(facts_in("RuntimeError: CUDA error: out of memory").unwrap().framework_id(), "triton");
    }
}
