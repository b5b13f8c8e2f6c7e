//! From facts to findings.
//!
//! Each rule is a definition in figures (see `rules`). Their order is the order of what overrides what: a wrong
//! size explains everything after it, a limit explains a full program on an empty card, and only when nobody
//! else holds the memory is the program's own data the reason.

mod account;
mod rules;

pub(crate) use account::{Account, CONTEXT_CEILING, CONTEXT_TYPICAL};

use std::sync::LazyLock;

use regex::Regex;

use super::context::Context;
use super::facts::{Facts, Resource, Severity};
use super::figures::pattern;
use crate::{Cause, Certainty, Finding};

/// All causes that apply, the most convincing first. Never empty.
pub(crate) fn judge(facts: &Facts, context: &Context) -> Vec<Finding> {
    let account = Account::new(facts);
    let mut findings: Vec<Finding> = Vec::new();
    let stated = |least: Certainty, most: Certainty| {
        facts.statements.iter().filter(move |statement| (least..=most).contains(&statement.certainty)).map(
            |statement| Finding {
                cause: statement.cause,
                certainty: statement.certainty,
                bytes: statement.bytes,
                summary: with_request(&statement.summary, facts),
                evidence: Vec::new(),
                fixes: statement.fixes.clone(),
            },
        )
    };
    findings.extend(stated(Certainty::Likely, Certainty::Certain));
    if matches!(facts.resource, Resource::Device | Resource::Unknown) {
        findings.extend(rules::integer_or_shape_bug(&account));
        findings.extend(leak(context));
        findings.extend(by_arithmetic(&account));
        if findings.is_empty() {
            findings.extend(rules::full_for_unknown_reason(&account));
        }
    }
    // What is merely consistent with a text does not decide it.
    if findings.is_empty() {
        findings.push(undetermined(facts));
    }
    findings.extend(stated(Certainty::Undetermined, Certainty::Possible));
    let mut unique: Vec<Finding> = Vec::new();
    for finding in findings {
        if unique.iter().all(|known| known.cause != finding.cause) {
            unique.push(finding);
        }
    }
    unique
}

fn by_arithmetic(account: &Account<'_>) -> Vec<Finding> {
    if let Some(limit) = rules::artificial_limit(account) {
        let mut findings = vec![limit];
        // Inside the limit the same questions arise: is it full, or in pieces?
        findings.extend(
            rules::fragmentation(account)
                .map(|finding| Finding { certainty: Certainty::Possible, ..finding }),
        );
        return findings;
    }
    if account.facts.total.is_some_and(|total| account.facts.request.is_some_and(|request| request > total)) {
        return rules::request_exceeds_device(account).into_iter().collect();
    }
    if let Some(contradiction) = rules::contradiction(account) {
        return vec![contradiction];
    }
    let others = rules::other_processes(account);
    let pieces = rules::fragmentation(account);
    // Both can be true; the larger share of the card decides.
    let others_first = match (&others, &pieces) {
        (Some(others), Some(pieces)) => others.bytes.map(|bytes| bytes - CONTEXT_CEILING) > pieces.bytes,
        _ => others.is_some(),
    };
    let mut findings: Vec<Finding> = Vec::new();
    let overhead = rules::non_framework_overhead(account);
    let overhead_first = account.facts.private_pools.is_some()
        || pieces
            .as_ref()
            .zip(overhead.as_ref())
            .is_some_and(|(pieces, overhead)| overhead.bytes > pieces.bytes);
    if overhead_first {
        findings.extend(overhead.clone());
    }
    if others_first {
        findings.extend(others.clone());
    }
    findings.extend(rules::request_exceeds_device(account));
    findings.extend(pieces);
    findings.extend(others);
    findings.extend(overhead);
    findings.extend(rules::live_data_fills_device(account));
    findings.extend(rules::first_request_too_large(account));
    findings
}

/// Memory that grows line by line in the log before the failure.
fn leak(context: &Context) -> Option<Finding> {
    let growth = context.growth.as_ref()?;
    Some(Finding {
        cause: Cause::Leak,
        certainty: Certainty::Likely,
        bytes: Some(growth.last - growth.first),
        summary: format!(
            "The log shows memory growing from {} to {} over {} steps, {} a step, without a pause: something is kept from every step.",
            growth.first, growth.last, growth.steps, growth.per_step
        ),
        evidence: vec![format!(
            "{} memory figures before the failure, hardly one smaller than the one before it",
            growth.steps + 1
        )],
        fixes: Vec::new(),
    })
}

/// What a format states, with what was asked for where the statement leaves it out.
fn with_request(summary: &str, facts: &Facts) -> String {
    match facts.request.map(|request| request.to_string()) {
        Some(request) if facts.severity == Severity::Failure && !summary.contains(&request) => {
            format!("{summary} {request} was asked for.")
        }
        _ => summary.to_owned(),
    }
}

/// Memory ran out and the text does not say how much was asked for; what figures it has are named.
fn without_request(facts: &Facts, resource: Resource) -> String {
    static SIZE: LazyLock<Regex> = LazyLock::new(|| pattern(r"\b\d[\d.,]* ?(?:[KMGT]i?B|bytes)\b"));
    let what = if resource == Resource::Device { "Device memory" } else { "Memory" };
    let of_total = facts.total.map_or(String::new(), |total| format!(" of {total}"));
    if let Some(free) = facts.free {
        return format!(
            "{what} ran out with {free}{of_total} free; the text does not say how much was asked for."
        );
    }
    if let Some(live) = facts.live.filter(|live| !live.is_zero()) {
        return format!(
            "{what} ran out with {live}{of_total} in use by the program; the text does not say how much was asked for."
        );
    }
    let mut sizes: Vec<&str> = SIZE.find_iter(&facts.quote).map(|size| size.as_str()).collect();
    sizes.truncate(4);
    match (sizes.is_empty(), resource) {
        (false, _) => format!(
            "{what} ran out; the text has figures ({}) and does not say what was asked for and what was free.",
            sizes.join(", ")
        ),
        (true, Resource::Device) => format!("{what} ran out; the error gives no sizes."),
        (true, _) => {
            format!("{what} ran out; the error gives no sizes and does not say whose memory it was.")
        }
    }
}

fn undetermined(facts: &Facts) -> Finding {
    let summary = match (facts.severity, facts.request, facts.resource) {
        (Severity::Observation, ..) => {
            "This shows who holds memory; nothing in it failed, and it does not say what was asked for."
                .to_owned()
        }
        (_, Some(request), _) => {
            let with = match (facts.free, facts.total) {
                (Some(free), _) => format!(" with {free} free"),
                (None, Some(total)) => format!(" on a device of {total}"),
                (None, None) => String::new(),
            };
            format!("{request} was refused{with}; the text does not say what held the rest of the memory.")
        }
        (_, None, resource) => without_request(facts, resource),
    };
    let summary = facts.evidence.iter().fold(summary, |summary, figures| format!("{summary} {figures}."));
    Finding {
        cause: Cause::Undetermined,
        certainty: Certainty::Undetermined,
        bytes: None,
        summary,
        evidence: Vec::new(),
        fixes: Vec::new(),
    }
}
