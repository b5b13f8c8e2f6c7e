//! SGLang: its static share of the card, and the pool of tokens inside it.
//!
//! | wording | what it means |
//! |---|---|
//! | `Not enough memory. Please try to increase --mem-fraction-static` | weights took the whole static share, no token is left |
//! | `Prefill out of memory. Try to lower your batch size`, `Decode out of memory …` | the pool of tokens is full of live requests |
//! | `The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=…, local_gpu_memory=…` | one card has less free than the others |
//! | `Load weight begin. avail mem=23.00 GB`, `Load weight end. … avail mem=8.00 GB` | what was free before and after the weights |

use std::sync::LazyLock;

use makeroom_core::Bytes;
use regex::Regex;

use crate::text::facts::{Facts, Resource};
use crate::text::family::Family;
use crate::text::figures::{binary_size, pattern};
use crate::text::log::Passage;
use crate::{Cause, Certainty};

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "--mem-fraction-static",
        "Prefill out of memory",
        "Decode out of memory",
        "memory capacity is unbalanced",
        "Not enough memory to allocate KV cache",
    ],
    read,
};

static BEGIN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Load weight begin\..*?avail(?:able)? mem=([\d.]+) ?(GB|MB)"));
static END: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Load weight end\..*?avail(?:able)? mem=([\d.]+) ?(GB|MB)"));
static LEAST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:min_per_gpu_memory|pre_model_load_memory|min_memory)=([\d.]+)"));
static LOCAL: LazyLock<Regex> = LazyLock::new(|| pattern(r"local_gpu_memory=([\d.]+)"));
static TOKENS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"Try to allocate (\d+) tokens\.? (?:Available|Avaliable) tokens: (\d+)"));

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let mut facts = Facts::new("sglang", Resource::Device, passage);
    if line.contains("unbalanced") {
        let gigabytes = |figure: &Regex| figure.captures(text).and_then(|found| binary_size(&found[1], "G"));
        let summary = match (gigabytes(&LEAST), gigabytes(&LOCAL)) {
            (Some(least), Some(local)) => {
                format!(
                    "One of the GPUs has {least} free where this one has {local}: something else runs on it."
                )
            }
            _ => {
                "One of the GPUs has less free memory than the others: something else runs on it.".to_owned()
            }
        };
        facts.state(Cause::OtherProcesses, Certainty::Likely, summary);
    } else if line.contains("Prefill out of memory") || line.contains("Decode out of memory") {
        let (certainty, figures) = match TOKENS.captures(text) {
            Some(found) => {
                (Certainty::Likely, format!(" ({} tokens asked for, {} left)", &found[1], &found[2]))
            }
            None => (Certainty::Possible, String::new()),
        };
        let summary = format!("The requests being served fill the pool of tokens{figures}.");
        facts.state(Cause::LiveDataFillsDevice, certainty, summary);
    } else if line.to_ascii_lowercase().contains("not enough memory") {
        state_static_share(&mut facts, passage);
    } else {
        return None;
    }
    Some(facts)
}

/// Weights took the static share: because it is small, or because the card is.
fn state_static_share(facts: &mut Facts, passage: &Passage<'_>) {
    let last = |figure: &Regex| -> Option<Bytes> {
        passage
            .before()
            .chain(passage.others())
            .find_map(|line| figure.captures(line).and_then(|found| binary_size(&found[1], &found[2])))
    };
    let (Some(before), Some(after)) = (last(&BEGIN), last(&END)) else {
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Possible,
            "The weights took all that --mem-fraction-static allows, and nothing was left for the cache. Whether the card has more is not said.",
        );
        return;
    };
    facts.free = Some(after);
    facts.live = Some(before - after);
    let summary = format!(
        "The weights took {} of the {before} that were free, {after} is left, and --mem-fraction-static gives none of that to the cache.",
        before - after
    );
    let cause =
        if after.share_of(before) >= 0.1 { Cause::ArtificialLimit } else { Cause::LiveDataFillsDevice };
    facts.state(cause, Certainty::Likely, summary);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::find::facts_in;

    fn conclusion(text: &str) -> (Cause, Certainty, String) {
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework, "sglang", "{text}");
        let stated = &facts.statements[0];
        (stated.cause, stated.certainty, stated.summary.clone())
    }

    #[test]
    fn cards_that_are_not_equally_free() {
        let (cause, certainty, summary) = conclusion(
            "[2025-03-10 11:22:33 TP1] Scheduler hit an exception\nValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=31.5, local_gpu_memory=77.0, local_gpu_memory * 0.9=69.3",
        );
        assert_eq!((cause, certainty), (Cause::OtherProcesses, Certainty::Likely));
        assert!(summary.contains("31.50 GiB") && summary.contains("77.00 GiB"), "{summary}");
    }

    #[test]
    fn a_static_share_that_the_weights_fill() {
        let error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.";
        assert_eq!(conclusion(error).1, Certainty::Possible);
        let log = |left: &str| {
            format!(
                "Load weight begin. avail mem=23.00 GB\nLoad weight end. type=X, dtype=torch.bfloat16, avail mem={left} GB\n{error}"
            )
        };
        let (cause, certainty, _) = conclusion(&log("8.00"));
        assert_eq!((cause, certainty), (Cause::ArtificialLimit, Certainty::Likely));
        assert_eq!(facts_in(&log("8.00")).unwrap().live, Some(Bytes::gib(15)));
        assert_eq!(conclusion(&log("0.50")).0, Cause::LiveDataFillsDevice);
    }

    #[test]
    fn a_pool_of_tokens_that_is_full() {
        let text = "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 4096 tokens.\nAvailable tokens: 1020\n";
        let (cause, certainty, summary) = conclusion(text);
        assert_eq!((cause, certainty), (Cause::LiveDataFillsDevice, Certainty::Likely));
        assert!(summary.contains("4096 tokens asked for, 1020 left"), "{summary}");
    }

    #[test]
    fn a_command_line_is_not_a_failure() {
        assert!(facts_in("python -m sglang.launch_server --mem-fraction-static 0.8").is_none());
    }
}
