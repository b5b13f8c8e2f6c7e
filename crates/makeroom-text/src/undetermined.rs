//! The verdict where the text does not decide: what is known, in one sentence.

use std::sync::LazyLock;

use makeroom_core::Bytes;
use makeroom_explain::advice::Maker;
use makeroom_explain::{Cause, Certainty, Finding};
use makeroom_search::{Regex, pattern};

use crate::environment::Device;
use crate::facts::{Facts, Resource};
use crate::situation::Situation;

/// A request below this fits any GPU that is not full.
const SMALL: Bytes = Bytes::mib(64);

static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d[\d.,]* ?(?:[KMGT]i?B|bytes)\b"));

/// The open verdict of a failure.
pub(crate) fn finding(facts: &Facts, situation: &Situation<'_>) -> Finding {
    let summary = match facts.request {
        Some(request) => {
            let used = facts.live.filter(|live| !live.is_zero());
            let with = match (used, facts.free, facts.total) {
                (Some(live), ..) => format!(" with {live} in use by the program"),
                (None, Some(free), Some(total)) => format!(" with {free} of {total} free"),
                (None, Some(free), None) => format!(" with {free} free"),
                (None, None, Some(total)) => format!(" on a GPU with {total}"),
                (None, None, None) => String::new(),
            };
            let reason = if situation.account.is_contradictory() {
                "the size of the request does not explain the failure"
            } else if used.is_none() && facts.free.is_none() && request < SMALL {
                "a request this small fails only on a GPU that is already full, and the log does not show what holds the memory"
            } else {
                "the log does not show what holds the memory"
            };
            format!("An allocation of {request} failed{with}; {reason}.")
        }
        None => without_request(facts, situation),
    };
    let summary = facts.evidence.iter().fold(summary, |summary, figures| format!("{summary} {figures}."));
    Finding::new(Cause::Undetermined, Certainty::Undetermined, summary)
}

/// Memory ran out and the text does not give the request.
fn without_request(facts: &Facts, situation: &Situation<'_>) -> String {
    let what = match (facts.resource, situation.environment.maker) {
        (Resource::Host, _) => "Host memory",
        (Resource::Device, Maker::Apple) => "Memory for the GPU",
        (Resource::Device, _) if situation.environment.device == Device::Tpu => "TPU memory",
        (Resource::Device, _) if situation.environment.device == Device::Npu => "NPU memory",
        (Resource::Device, _) => "GPU memory",
        _ => "Memory",
    };
    let of_total = facts.total.map_or(String::new(), |total| format!(" of {total}"));
    if let Some(free) = facts.free {
        return format!(
            "{what} ran out with {free}{of_total} free; the log does not give the size of the request."
        );
    }
    if let Some(live) = facts.live.filter(|live| !live.is_zero()) {
        return format!(
            "{what} ran out with {live}{of_total} in use by the program; the log does not give the size of the request."
        );
    }
    let mut sizes: Vec<&str> = SIZE.find_iter(&facts.quote).map(|size| size.as_str()).collect();
    sizes.truncate(4);
    if !sizes.is_empty() {
        return format!(
            "{what} ran out; the log has figures ({}) but does not say which one is the request.",
            sizes.join(", ")
        );
    }
    if facts.resource == Resource::Unknown && !facts.evidence.is_empty() {
        return format!("{what} ran out; the error does not say whether it was the GPU's or the machine's.");
    }
    if facts.resource == Resource::Unknown {
        return format!(
            "{what} ran out; the error does not say how much was requested, or whether it was the GPU's or the machine's."
        );
    }
    if !facts.evidence.is_empty() {
        return format!("{what} ran out.");
    }
    format!("{what} ran out; the error does not say how much was requested or in use.")
}
