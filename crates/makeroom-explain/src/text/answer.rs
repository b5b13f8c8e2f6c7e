//! Puts the answer to an error text together: verdict, account, fixes.

use makeroom_core::Bytes;

use super::context::Context;
use super::facts::{Facts, Resource, Severity};
use super::find;
use super::fixes;
use super::judge::{Account, CONTEXT_CEILING, judge};
use super::log::Log;
use crate::{
    Cause, Certainty, Explanation, Finding, InputKind, InputSummary, Ledger, LedgerLine, Request, Verdict,
};

/// A text that was pasted or wrapped by a terminal is no longer than this; a log file is not wrapped.
const LONGEST_UNWRAPPED: usize = 4 << 20;

/// Explains an error text: a message, or a whole log with one in it.
pub fn explain_text(text: &str) -> Explanation {
    let mut log = Log::new(text);
    let mut found = find::failures(&log);
    // A terminal may have cut the deciding words in two. Joining lines is a guess, so it replaces the plain
    // reading only where it reads more.
    let weight = |found: &Option<find::Found>| found.as_ref().map_or(0, |found| 1 + found.first.weight());
    if text.len() <= LONGEST_UNWRAPPED
        && let Some(unwrapped) = log.unwrapped()
    {
        let joined = find::failures(&unwrapped);
        if weight(&joined) > weight(&found) {
            (log, found) = (unwrapped, joined);
        }
    }
    let lines = log.len();
    answer(&log, found, lines)
}

/// Explains a condensed log: `lines` is the length of the whole input, `left_out` the number of failures that the
/// condensed log does not have.
pub(super) fn explain_condensed(log: &Log, lines: usize, left_out: usize) -> Explanation {
    let mut found = find::failures(log);
    if let Some(found) = &mut found {
        found.later += left_out;
    }
    answer(log, found, lines)
}

fn answer(log: &Log, found: Option<find::Found>, lines: usize) -> Explanation {
    let Some(found) = found else { return nothing_found(lines) };
    let facts = found.first;
    let context = Context::read(log, found.index);
    let mut causes = judge(&facts, &context);
    for finding in &mut causes {
        finding.evidence.extend(facts.evidence.iter().cloned());
        finding.evidence.push(format!("line {}: {}", facts.line, shortened(&facts.quote)));
    }
    fixes::attach(&mut causes, &facts, &context);
    let cause = causes[0].cause;
    let mut notes = Vec::new();
    if found.later > 0 {
        let plural = if found.later == 1 { "" } else { "s" };
        notes.push(format!(
            "{} more failure{plural} follow{} in this text; the first one, in line {}, decides",
            found.later,
            if found.later == 1 { "s" } else { "" },
            facts.line
        ));
    }
    Explanation {
        input: InputSummary {
            kind: InputKind::ErrorText,
            framework: Some(facts.framework).filter(|framework| !framework.is_empty()),
        },
        request: (facts.severity != Severity::Observation).then(|| Request {
            bytes: facts.request,
            device: facts.device,
            site: facts.site.clone().or_else(|| context.site.clone()),
        }),
        verdict: Verdict { cause, certainty: causes[0].certainty, summary: causes[0].summary.clone() },
        ledger: ledger(&facts, cause),
        futile: fixes::futile(cause, &facts, &context),
        next: fixes::next(&causes[0], &facts),
        sites: Vec::new(),
        other_sites: Bytes::ZERO,
        growth: None,
        run: None,
        alternatives: Vec::new(),
        causes,
        notes,
    }
}

/// The account of the device, as far as the text gives figures.
fn ledger(facts: &Facts, cause: Cause) -> Option<Ledger> {
    if facts.resource == Resource::Host || (facts.total.is_none() && facts.live.is_none()) {
        return None;
    }
    let account = Account::new(facts);
    let mut lines = Vec::new();
    if let Some(live) = facts.live {
        let pools = facts.private_pools.unwrap_or(Bytes::ZERO);
        let line = if pools.is_zero() {
            LedgerLine::new("live tensors", live)
        } else {
            let parts = vec![
                LedgerLine::new("in private pools", pools),
                LedgerLine::new("in the common pool", live - pools),
            ];
            LedgerLine::of("live tensors", parts)
        };
        lines.push(line);
    }
    if let Some(cached) = account.cached {
        let mut line = LedgerLine::new(
            if cause == Cause::Fragmentation { "unused, in pieces" } else { "unused, cached" },
            cached,
        );
        if let (Cause::Fragmentation, Some(request)) = (cause, facts.request) {
            line = line.note(format!("the request needed {request} in one piece"));
        }
        lines.push(line);
    }
    if let Some(overhead) = account.overhead() {
        lines.push(LedgerLine::new("context and code", overhead));
    }
    let unclear = account.is_own_process_unclear;
    for process in &account.others {
        let mut line = LedgerLine::new(format!("process {}", process.pid), process.bytes);
        if unclear {
            line = line.note("this process or another: in a container the number does not tell");
        } else if let Some(name) = &process.name {
            line = line.note(name.clone());
        }
        lines.push(line);
    }
    let rest = account.unlisted().filter(|_| account.own.is_none() && !unclear);
    if let Some(rest) = rest.filter(|rest| !rest.is_zero() && facts.live.is_some()) {
        let note = if rest > CONTEXT_CEILING { "more than a context takes" } else { "what a context takes" };
        lines.push(LedgerLine::new("context and others", rest).note(note));
    }
    if let Some(free) = facts.free {
        lines.push(LedgerLine::new("free", free));
    }
    let name = facts.device.map_or_else(|| "GPU".to_owned(), |device| format!("GPU {device}"));
    Some(Ledger::new(name, facts.device, facts.total, lines))
}

fn nothing_found(lines: usize) -> Explanation {
    let summary = format!(
        "No out-of-memory error was recognised in this text of {} line{}.",
        lines,
        if lines == 1 { "" } else { "s" }
    );
    Explanation {
        input: InputSummary { kind: InputKind::ErrorText, framework: None },
        request: None,
        verdict: Verdict {
            cause: Cause::Undetermined,
            certainty: Certainty::Undetermined,
            summary: summary.clone(),
        },
        causes: vec![Finding {
            cause: Cause::Undetermined,
            certainty: Certainty::Undetermined,
            bytes: None,
            summary,
            evidence: Vec::new(),
            fixes: Vec::new(),
        }],
        ledger: None,
        sites: Vec::new(),
        other_sites: Bytes::ZERO,
        growth: None,
        run: None,
        alternatives: Vec::new(),
        futile: Vec::new(),
        next: vec![
            crate::advice::record_run(),
            crate::advice::list_holders(crate::advice::Maker::Nvidia),
        ],
        notes: vec!["pass the lines around the error, or the whole output of the program: PROGRAM 2>&1 | makeroom why -".to_owned()],
    }
}

/// A quote that fits a line of output.
fn shortened(quote: &str) -> String {
    const LONGEST: usize = 300;
    let trimmed = quote.trim();
    match trimmed.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &trimmed[..end]),
        None => trimmed.to_owned(),
    }
}
