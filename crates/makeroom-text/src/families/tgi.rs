//! Text Generation Inference: its warm-up, which runs the largest batch that the options allow.
//!
//! | wording | meaning |
//! |---|---|
//! | `Not enough memory to handle 4096 prefill tokens. You need to decrease --max-batch-prefill-tokens` | a prefill of that size does not fit |
//! | `Not enough memory to handle 16000 total tokens with 4096 prefill tokens. You need to decrease --max-batch-total-tokens` | the KV cache of that size does not fit (before 1.0) |
//! | ``Not enough memory to handle `max_total_tokens=4096` `` | one request of full length does not fit |
//!
//! An error of PyTorch's while it serves is read by [`super::pytorch`].

use std::sync::LazyLock;

use makeroom_core::Framework;
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Regex, pattern};

use crate::facts::{Facts, Resource};
use crate::family::Family;
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family { anchors: &["Not enough memory to handle"], read };

static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)Not enough memory to handle (?:(?P<prefill>\d+) prefill tokens|(?P<batch>\d+) total tokens with (?P<with>\d+) prefill tokens|`?max_total_tokens=(?P<request>\d+))",
    )
});

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let found = TOKENS.captures(&passage.flat)?;
    let mut facts = Facts::new(Framework::Tgi, Resource::Device, passage);
    let summary = if let Some(tokens) = found.name("prefill") {
        format!("The warm-up's prefill of {} tokens does not fit alongside the weights.", tokens.as_str())
    } else if let Some(tokens) = found.name("batch") {
        format!("A KV cache of {} tokens does not fit alongside the weights.", tokens.as_str())
    } else {
        let tokens = found.name("request").map_or("", |tokens| tokens.as_str());
        format!("The memory left after loading the weights is too small for one request of {tokens} tokens.")
    };
    facts.state(Cause::LiveDataFillsDevice, Certainty::Likely, summary);
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    #[test]
    fn the_warm_up_of_each_version() {
        for (text, tokens) in [
            (
                "RuntimeError: Not enough memory to handle 6144 prefill tokens. You need to decrease `--max-batch-prefill-tokens`",
                "6144",
            ),
            (
                "not enough memory to handle 24000 total tokens with 6144 prefill tokens. You need to decrease `--max-batch-total-tokens` or `--max-batch-prefill-tokens`",
                "24000",
            ),
            (
                "Error: Backend(NotEnoughMemory(4096)) Not enough memory to handle `max_total_tokens=4096`",
                "4096",
            ),
        ] {
            let facts = facts_in(text).unwrap();
            assert_eq!(facts.framework_id(), "tgi", "{text}");
            let stated = &facts.statements[0];
            assert_eq!((stated.cause, stated.certainty), (Cause::LiveDataFillsDevice, Certainty::Likely));
            assert!(stated.summary.contains(tokens), "{}", stated.summary);
        }
        assert!(
            facts_in("Not enough memory to handle this")
                .is_none_or(|facts| facts.framework != Framework::Tgi)
        );
    }
}
