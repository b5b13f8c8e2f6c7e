//! An explanation as JSON. Field names are a contract; fields are only ever added.

use makeroom_core::Bytes;
use makeroom_explain::{Explanation, Finding, Fix, Growth, Health, Ledger, LedgerLine, Site};
use serde_json::{Value, json};

use crate::run_json::run;

/// The result of `makeroom why` as JSON.
pub fn explanation_json(explanation: &Explanation) -> Value {
    json!({
        "input": {
            "kind": explanation.input.kind.name(),
            "framework": explanation.input.framework.id(),
        },
        "request": explanation.request.as_ref().map(|request| json!({
            "bytes": bytes(request.bytes),
            "device": request.device.map(|device| device.0),
            "site": request.site,
        })),
        "verdict": {
            "cause": explanation.verdict.cause.name(),
            "title": crate::text::title(explanation),
            "certainty": explanation.verdict.certainty.name(),
            "summary": explanation.verdict.summary,
        },
        "causes": list(&explanation.causes, finding),
        "ledger": explanation.ledger.as_ref().map(ledger),
        "sites": list(&explanation.sites, site),
        "other_sites_bytes": explanation.other_sites.get(),
        "growth": explanation.growth.as_ref().map(growth),
        "growth_summary": explanation.growth_sentence(),
        "health": health(&explanation.health()),
        "hidden_limit": explanation.hidden_limit.map(|(least, most)| json!({
            "least_bytes": least.get(),
            "most_bytes": most.get(),
        })),
        "run": explanation.run.as_ref().map(run),
        "alternatives": list(&explanation.alternatives, |alternative| json!({
            "settings": alternative.settings,
            "needs_bytes": alternative.needs.get(),
            "fits": alternative.fits,
            "exact": alternative.is_exact,
        })),
        "will_not_help": explanation.wont_help,
        "next": list(&explanation.next, fix),
        "notes": explanation.notes,
    })
}

/// The items as a JSON array. This loop compiles faster than collecting an iterator at each of forty places.
pub(crate) fn list<Item>(items: &[Item], value: impl Fn(&Item) -> Value) -> Value {
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        values.push(value(item));
    }
    Value::Array(values)
}

fn bytes(bytes: Option<Bytes>) -> Option<u64> {
    bytes.map(Bytes::get)
}

fn finding(finding: &Finding) -> Value {
    json!({
        "cause": finding.cause.name(),
        "title": finding.cause.title(),
        "certainty": finding.certainty.name(),
        "bytes": bytes(finding.bytes),
        "summary": finding.summary,
        "evidence": finding.evidence,
        "check": finding.check.as_ref().map(fix),
        "fixes": list(&finding.fixes, fix),
    })
}

fn fix(fix: &Fix) -> Value {
    json!({ "do": fix.action, "command": fix.command, "frees_bytes": bytes(fix.frees) })
}

fn ledger(ledger: &Ledger) -> Value {
    json!({
        "device": ledger.device().map(|device| device.0),
        "name": ledger.name(),
        "total_bytes": bytes(ledger.total()),
        "lines": list(ledger.lines(), line),
        "unaccounted_bytes": ledger.unaccounted(),
    })
}

fn line(ledger_line: &LedgerLine) -> Value {
    json!({
        "what": ledger_line.what(),
        "bytes": ledger_line.bytes().get(),
        "note": ledger_line.remark(),
        "lines": list(ledger_line.parts(), line),
    })
}

pub(crate) fn site(place: &Site) -> Value {
    json!({
        "site": place.place,
        "own": place.is_own,
        "caller": place.caller,
        "through": place.through,
        "bytes": place.bytes.get(),
        "blocks": place.blocks,
        "calls": list(&place.callees, site),
    })
}

fn health(health: &Health) -> Value {
    json!({ "state": health.state.name(), "because": health.because })
}

fn growth(growth: &Growth) -> Value {
    json!({
        "steps": growth.steps,
        "parts": growth.parts,
        "measured_by": growth.measured_by,
        "first_bytes": growth.first.get(),
        "last_bytes": growth.last.get(),
        "per_step_bytes": growth.per_step.get(),
        "in_steps": growth.is_in_steps,
        "leaking": list(&growth.leaking, site),
        "kinds": list(&growth.kinds, |(kind, rule, bytes)| json!({
            "kind": kind.id(), "rule": rule.id(), "bytes": bytes.get()
        })),
    })
}
