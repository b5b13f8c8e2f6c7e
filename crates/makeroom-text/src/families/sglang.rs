//! SGLang: its static share of the GPU, and the token pool inside it.
//!
//! | wording | meaning |
//! |---|---|
//! | `Not enough memory. Please try to increase --mem-fraction-static` | weights take the whole static share, no token is left |
//! | `Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.8. Raise … above 0.853` | the same, with the smallest share that works |
//! | `max_total_tokens=131072 is larger than the profiled value -561981` | the same: a token pool below zero |
//! | `Not enough GPU memory for hybrid (mamba/linear-attention) state cache` | the same, for state instead of tokens |
//! | `Prefill out of memory. Try to lower your batch size`, `Decode out of memory …`, `Out of memory. Try to lower …` | the token pool is full of live requests |
//! | `alloc_req_slots runs out of memory. Please set a smaller number for --max-running-requests` | the slots are full |
//! | `The memory capacity is unbalanced. Some GPUs may be occupied by other processes. min_per_gpu_memory=…, local_gpu_memory=…` | one GPU has less free than the others |
//! | `Capture CUDA graph failed: … out of memory` | the static share leaves too little for graphs |
//! | `KV cache pool is full. Retract requests.` | a warning |
//! | `Load weight begin. avail mem=23.00 GB`, `Load weight end. … avail mem=8.00 GB, mem usage=15.0 GB` | free memory before and after the weights |

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::{Cause, Certainty};
use makeroom_search::{Match, Regex, contains_folded, pattern};

use crate::facts::{Facts, Resource, Severity};
use crate::family::Family;
use crate::figures::{binary_size, captured_number};
use crate::log::Passage;

pub(crate) const FAMILY: Family = Family {
    anchors: &[
        "--mem-fraction-static",
        "larger than the profiled value",
        "leave no GPU memory for the KV cache",
        "state cache",
        "Prefill out of memory",
        "Decode out of memory",
        "Try to lower your batch size",
        "alloc_req_slots",
        "memory capacity is unbalanced",
        "Not enough memory to allocate KV cache",
        "Capture cuda graph failed",
        "KV cache pool is full",
    ],
    read,
};

/// The largest static share that leaves room for activations and CUDA graphs.
pub(crate) const LARGEST_SHARE: f64 = 0.95;

/// Weights that leave this share of the GPU fit under a static share that still works.
const LEAST_LEFT: f64 = 0.07;

static LEAST: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?:min_per_gpu_memory|pre_model_load_memory|min_memory)=([\d.]+)"));
static LOCAL: LazyLock<Regex> = LazyLock::new(|| pattern(r"local_gpu_memory=([\d.]+)"));
static TOKENS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)Try to allocate (\d+) tokens\.? (?:Available|Avaliable) tokens: (\d+)"));
static PROFILED: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)profiled value (-?\d+)"));
static LEAST_SHARE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)mem-fraction-static=([\d.]+)\. Raise --mem-fraction-static above ([\d.]+\d)")
});

/// Free memory around the load of the weights, as the log prints it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Loading {
    /// Free before the weights.
    before: Option<Bytes>,
    /// Free after them.
    after: Option<Bytes>,
    /// `--mem-fraction-static`.
    share: Option<f64>,
}

impl Loading {
    /// Reads it from log lines; the memory before the weights is their size plus the rest where it is not printed.
    fn around(passage: &Passage<'_>) -> Self {
        static END: LazyLock<Regex> = LazyLock::new(|| {
            pattern(r"(?i)Load weight end\..*?avail(?:able)? mem=([\d.]+) ?GB(?:.*?mem usage=([\d.]+) ?GB)?")
        });
        static BEGIN: LazyLock<Regex> =
            LazyLock::new(|| pattern(r"(?i)Load weight begin\..*?avail(?:able)? mem=([\d.]+) ?GB"));
        static SHARE: LazyLock<Regex> =
            LazyLock::new(|| pattern(r"(?i)mem[-_]fraction[-_]static'?(?: *[=:] *| +)([\d.]*\d)"));
        let lines: Vec<&str> = passage.all().chain(passage.others()).collect();
        let size = |number: Option<Match<'_>>| number.and_then(|number| binary_size(number.as_str(), "G"));
        let end = lines.iter().find_map(|line| END.captures(line));
        let after = end.as_ref().and_then(|found| size(found.get(1)));
        let used = end.as_ref().and_then(|found| size(found.get(2)));
        let before = lines.iter().find_map(|line| BEGIN.captures(line)).and_then(|found| size(found.get(1)));
        Self {
            before: before.or_else(|| Some(after? + used?)),
            after,
            share: lines.iter().find_map(|line| captured_number(&SHARE.captures(line)?, 1)),
        }
    }
}

fn read(passage: &Passage<'_>) -> Option<Facts> {
    let (line, text) = (passage.line(), passage.flat.as_str());
    let has = |words: &str| contains_folded(line, words);
    let mut facts = Facts::new(Framework::Sglang, Resource::Device, passage);
    if has("unbalanced") {
        read_unbalanced(&mut facts, text);
    } else if has("alloc_req_slots") {
        facts.state(
            Cause::ArtificialLimit,
            Certainty::Likely,
            "More requests run at once than there are slots for: the table of requests has a fixed size (--max-running-requests), and GPU memory need not be full.",
        );
    } else if has("pool is full") {
        facts.severity = Severity::Warning;
    } else if has("out of memory") && (has("Prefill") || has("Decode") || has("lower your batch size")) {
        let (certainty, figures) = match TOKENS.captures(text) {
            Some(found) => {
                (Certainty::Likely, format!(": {} tokens requested, {} left", &found[1], &found[2]))
            }
            None => (Certainty::Possible, String::new()),
        };
        let summary = format!("Running requests fill the token pool{figures}.");
        facts.state(Cause::LiveDataFillsDevice, certainty, summary);
    } else if has("Capture cuda graph failed") {
        // Where PyTorch's figures stand on the line, its reading is the better one.
        if !has("out of memory") && !has("OutOfMemory") || has("Tried to allocate") {
            return None;
        }
        facts.state(
            Cause::NonFrameworkOverhead,
            Certainty::Likely,
            "The weights and the token pool fill the static share, and the rest of the GPU's memory is too small for CUDA graphs.",
        );
    } else if let Some(found) = PROFILED.captures(text).filter(|_| has("profiled value")) {
        let tokens: i64 = captured_number(&found, 1)?;
        if tokens > 0 {
            return None;
        }
        state_static_share(&mut facts, &Loading::around(passage));
    } else if let Some(found) = LEAST_SHARE.captures(text).filter(|_| has("leave no GPU memory")) {
        let summary = format!(
            "The weights take the whole static share: --mem-fraction-static is {} and must be above {}.",
            &found[1], &found[2]
        );
        let is_possible = captured_number(&found, 2).is_some_and(|least: f64| least < LARGEST_SHARE);
        let cause = if is_possible { Cause::ArtificialLimit } else { Cause::LiveDataFillsDevice };
        facts.state(cause, Certainty::Certain, summary);
    } else if has("leave no GPU memory for the KV cache")
        || has("not enough memory")
        || has("not enough GPU memory for hybrid")
        || has("state cache is too small")
    {
        state_static_share(&mut facts, &Loading::around(passage));
    } else {
        return None;
    }
    Some(facts)
}

fn read_unbalanced(facts: &mut Facts, text: &str) {
    let gigabytes = |figure: &Regex| figure.captures(text).and_then(|found| binary_size(&found[1], "G"));
    let summary = match (gigabytes(&LEAST), gigabytes(&LOCAL)) {
        (Some(least), Some(local)) => {
            format!(
                "Another GPU has only {least} free, while this one has {local}: another process is using that GPU."
            )
        }
        _ => "One of the GPUs has less free memory than the others: another process is using it.".to_owned(),
    };
    facts.state(Cause::OtherProcesses, Certainty::Likely, summary);
}

/// Weights take the static share: because it is small, or because the GPU is.
fn state_static_share(facts: &mut Facts, loading: &Loading) {
    let share = loading.share.map_or(String::new(), |share| format!(" {share}"));
    let (Some(before), Some(after)) = (loading.before, loading.after) else {
        let is_largest = loading.share.is_some_and(|share| share >= LARGEST_SHARE);
        let cause = if is_largest { Cause::LiveDataFillsDevice } else { Cause::ArtificialLimit };
        facts.lead(
            cause,
            format!("The weights take everything that --mem-fraction-static{share} allows; nothing is left for the KV cache."),
        );
        return;
    };
    facts.free = Some(after);
    facts.live = Some(before - after);
    let summary = format!(
        "The weights take {} of the {before} that was free. {after} is left, and --mem-fraction-static{share} gives none of it to the KV cache.",
        before - after
    );
    let cause = if after.share_of(before) >= LEAST_LEFT {
        Cause::ArtificialLimit
    } else {
        Cause::LiveDataFillsDevice
    };
    facts.state(cause, Certainty::Likely, summary);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::facts_in;

    fn conclusion(text: &str) -> (Cause, Certainty, String) {
        let facts = facts_in(text).unwrap();
        assert_eq!(facts.framework_id(), "sglang", "{text}");
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
        assert!(summary.contains("4096 tokens requested, 1020 left"), "{summary}");
    }

    #[test]
    fn a_command_line_is_not_a_failure() {
        assert!(facts_in("python -m sglang.launch_server --mem-fraction-static 0.8").is_none());
    }

    #[test]
    fn a_token_pool_below_zero() {
        let text = "[2025-07-02 07:41:58 TP0] Load weight end. type=X, dtype=torch.bfloat16, avail mem=20.00 GB, mem usage=100.00 GB.\n[2025-07-02 07:41:59 TP0] max_total_tokens=65536 is larger than the profiled value -5000. Use the profiled value instead.";
        let (cause, certainty, summary) = conclusion(text);
        assert_eq!((cause, certainty), (Cause::ArtificialLimit, Certainty::Likely));
        assert!(summary.contains("100.00 GiB of the 120.00 GiB"), "{summary}");
        assert!(facts_in("max_total_tokens=65536 is larger than the profiled value 50000. Use the profiled value instead.").is_none());
    }

    #[test]
    fn the_smallest_share_that_works() {
        let text = "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.7. Raise --mem-fraction-static above 0.853 (minimum viable = 1 - available/pre = 0.8524).";
        let (cause, certainty, summary) = conclusion(text);
        assert_eq!((cause, certainty), (Cause::ArtificialLimit, Certainty::Certain));
        assert!(summary.contains("0.7 and must be above 0.853"), "{summary}");
    }

    #[test]
    fn a_message_that_is_cut_before_the_smallest_share() {
        let text = "Load weight end. quant=fp8, avail mem=9.00 GB, mem usage=91.00 GB.\nValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.85.";
        let (cause, certainty, summary) = conclusion(text);
        assert_eq!((cause, certainty), (Cause::ArtificialLimit, Certainty::Likely));
        assert!(summary.contains("91.00 GiB of the 100.00 GiB"), "{summary}");
    }

    #[test]
    fn slots_graphs_and_retractions() {
        let text = "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.";
        assert_eq!(conclusion(text).0, Cause::ArtificialLimit);
        let text = "Exception: Capture cuda graph failed: CUDA out of memory.\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)";
        assert_eq!(conclusion(text).0, Cause::NonFrameworkOverhead);
        let text = "KV cache pool is full. Retract requests. #retracted_reqs: 1";
        assert_eq!(facts_in(text).unwrap().severity, Severity::Warning);
    }
}
