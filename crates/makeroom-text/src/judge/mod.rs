//! From facts to findings.
//!
//! Each rule words a definition of [`makeroom_explain::thresholds`] (see `rules`). Their order is what overrides what: a
//! wrong size explains everything after it, a limit explains a full program on an empty device, and only when no
//! other holder has the memory is the program's own data the reason.

mod account;
mod rules;

pub(crate) use account::Account;

use makeroom_core::Bytes;
use makeroom_explain::thresholds::{ABSURD, CONTEXT_CEILING};
use makeroom_explain::{Cause, Certainty, Finding};

use super::context::Context;
use super::facts::{Facts, Resource, Statement};

/// All causes that apply, the most convincing first; empty where the text does not decide. The causes that are
/// merely possible come last, and only a format that leads with one makes it the verdict.
pub(crate) fn judge(facts: &Facts, account: &Account<'_>, context: &Context) -> Vec<Finding> {
    let stated = |is_wanted: fn(&Statement) -> bool| {
        facts.statements.iter().filter(move |statement| is_wanted(statement)).map(|statement| Finding {
            bytes: statement.bytes,
            fixes: statement.fixes.clone(),
            ..Finding::new(statement.cause, statement.certainty, with_request(&statement.summary, facts))
        })
    };
    // A size that overflowed makes every other statement about it wrong.
    let wrapped = facts
        .request
        .filter(|&request| request >= ABSURD && facts.resource != Resource::Host)
        .and_then(|_| rules::integer_or_shape_bug(account));
    let mut findings: Vec<Finding> = wrapped.into_iter().collect();
    findings.extend(stated(|statement| statement.certainty >= Certainty::Likely));
    if let Some(bug) = rules::absurd_host_request(facts) {
        findings.retain(|finding| finding.cause != Cause::HostMemory);
        findings.push(bug);
    }
    if matches!(facts.resource, Resource::Device | Resource::Unknown) {
        findings.extend(rules::integer_or_shape_bug(account));
        let sums = by_arithmetic(account);
        findings.extend(
            leak(context)
                .filter(|leak| leak.certainty >= Certainty::Likely)
                .map(|leak| stopped_by_a_limit(leak, &sums)),
        );
        findings.extend(sums);
        if findings.is_empty() && !facts.statements.iter().any(|statement| statement.leads) {
            findings.extend(rules::full_for_unknown_reason(account));
        }
    }
    // A size that overflowed exceeds every device; that is not a second cause.
    if findings
        .iter()
        .any(|finding| finding.cause == Cause::IntegerOrShapeBug && finding.certainty >= Certainty::Likely)
    {
        findings
            .retain(|finding| !matches!(finding.cause, Cause::RequestExceedsDevice | Cause::ArtificialLimit));
    }
    let is_open = findings.iter().all(|finding| finding.certainty < Certainty::Likely);
    if context.is_pile_up_told && is_open && facts.resource != Resource::Host {
        let summary = "The log says that several processes accumulate on this GPU: each holds a context and its own data.";
        findings.insert(0, Finding::new(Cause::OtherProcesses, Certainty::Possible, summary));
    } else if let Some(leak) = leak(context).filter(|_| is_open) {
        findings.insert(0, leak);
    } else if context.is_growth_reported
        && is_open
        && !facts.statements.iter().any(|statement| statement.cause == Cause::Leak)
    {
        let summary =
            "The log says that memory grows during the run: something from every step may stay alive.";
        findings.insert(0, Finding::new(Cause::Leak, Certainty::Possible, summary));
    }
    findings.extend(
        stated(|statement| statement.certainty < Certainty::Likely).filter(|finding| {
            finding.cause != Cause::HostMemory || rules::absurd_host_request(facts).is_none()
        }),
    );
    let mut unique: Vec<Finding> = Vec::new();
    for mut finding in findings {
        // By a size that a person tells, nothing is certain.
        if facts.is_total_told && finding.cause != Cause::IntegerOrShapeBug {
            finding.certainty = finding.certainty.min(Certainty::Likely);
        }
        if unique.iter().all(|known| known.cause != finding.cause) {
            unique.push(finding);
        }
    }
    unique
}

/// A context is needed, and a cache is not: only a context of several times the cache is the reason.
const OUTWEIGHS: u64 = 4;

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
    let exceeds = rules::request_exceeds_device(account);
    if !exceeds.is_empty() {
        return exceeds;
    }
    if let Some(contradiction) = rules::contradiction(account) {
        return vec![contradiction];
    }
    // Cached memory beyond the device's size would not become available by better packing.
    if account.is_oversubscribed() {
        let mut findings: Vec<Finding> = rules::live_data_fills_device(account).into_iter().collect();
        findings.extend(
            rules::fragmentation(account)
                .map(|finding| Finding { certainty: Certainty::Possible, ..finding }),
        );
        return findings;
    }
    let others = rules::other_processes(account);
    let pieces = rules::fragmentation(account);
    // Both can be true; the larger share of the device decides.
    let others_first = match (&others, &pieces) {
        (Some(others), Some(pieces)) => others.bytes.map(|bytes| bytes - CONTEXT_CEILING) > pieces.bytes,
        _ => others.is_some(),
    };
    let mut findings: Vec<Finding> = Vec::new();
    let overhead = rules::non_framework_overhead(account);
    let overhead_first = account.facts.private_pools.is_some()
        || pieces.as_ref().zip(overhead.as_ref()).is_some_and(|(pieces, overhead)| {
            overhead.bytes > pieces.bytes.map(|bytes| Bytes::new(bytes.get().saturating_mul(OUTWEIGHS)))
        });
    if overhead_first {
        findings.extend(overhead.clone());
    }
    if others_first {
        findings.extend(others.clone());
    }
    findings.extend(pieces);
    findings.extend(others);
    findings.extend(overhead);
    findings.extend(rules::live_data_fills_device(account));
    findings
}

/// Memory that grows line by line in the log before the failure.
fn leak(context: &Context) -> Option<Finding> {
    let growth = context.growth.as_ref()?;
    let summary = format!(
        "The log shows memory growing from {} to {} over {} steps, {} per step: something from every step {} alive.",
        growth.first,
        growth.last,
        growth.steps,
        growth.per_step,
        if growth.is_long { "stays" } else { "may stay" },
    );
    let certainty = if growth.is_long { Certainty::Likely } else { Certainty::Possible };
    Some(Finding {
        evidence: vec![format!(
            "{} memory figures before the failure, nearly all increasing",
            growth.steps + 1
        )],
        ..Finding::new(Cause::Leak, certainty, summary).bytes(growth.last - growth.first)
    })
}

/// A leak on a GPU with free memory is hard to believe unless the limit that stopped it is named.
fn stopped_by_a_limit(leak: Finding, others: &[Finding]) -> Finding {
    let limit = others
        .iter()
        .find(|other| other.cause == Cause::ArtificialLimit && other.certainty == Certainty::Certain);
    match limit {
        Some(limit) => Finding { summary: format!("{} {}", leak.summary, limit.summary), ..leak },
        None => leak,
    }
}

/// A statement, with the request where it leaves it out.
fn with_request(summary: &str, facts: &Facts) -> String {
    match facts.request.map(|request| request.to_string()) {
        Some(request) if facts.is_failure() && !summary.contains(&request) => {
            format!("{summary} The request was {request}.")
        }
        _ => summary.to_owned(),
    }
}
