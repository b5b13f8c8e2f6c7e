//! Puts the answer to an error text together: verdict, account, fixes.

use std::sync::LazyLock;

use makeroom_core::{Bytes, Framework};
use makeroom_explain::thresholds::CONTEXT_CEILING;
use makeroom_explain::{
    Cause, Certainty, Explanation, Finding, InputKind, InputSummary, Ledger, LedgerLine, Request, Verdict,
    advice,
};
use makeroom_search::{Regex, pattern};

use crate::context::Context;
use crate::cured;
use crate::discussion::is_discussion;
use crate::document::Document;
use crate::facts::{Facts, Resource, Severity};
use crate::figures::find_size;
use crate::find::{self, Found};
use crate::fixes;
use crate::gpu_names;
use crate::growth;
use crate::host_told;
use crate::hypotheses;
use crate::job;
use crate::judge::{Account, judge};
use crate::lines::{is_own_failure, is_report, is_told_by_person, says_handled};
use crate::log::Log;
use crate::other_failure::{self, OtherFailure};
use crate::placement;
use crate::searched::Searched;
use crate::situation::Situation;
use crate::told;
use crate::told_sizes;
use crate::undetermined;

/// A text that was pasted or wrapped by a terminal is no longer than this; a log file is not wrapped.
const LONGEST_UNWRAPPED: usize = 4 << 20;
/// More than most hosts have.
const LARGE_FOR_HOST: Bytes = Bytes::gib(128);

/// Explains an error text: a message, or a whole log with one in it.
pub fn explain_text(text: &str) -> Explanation {
    let mut log = Log::new(text);
    let mut found = find::failures(&log);
    // A terminal may have cut the deciding words in two. Joining lines is a guess, so it replaces the plain
    // reading only where it reads more.
    let weight = |found: &Option<Found>| found.as_ref().map_or(0, |found| 1 + found.first.weight());
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

fn answer(log: &Log, found: Option<Found>, lines: usize) -> Explanation {
    let other = other_failure::find(log);
    match found {
        Some(found)
            if found.first.is_failure()
                && !(found.is_prose && found.holders.is_some())
                && counts(log, &found, other.as_ref()) =>
        {
            explain(log, found)
        }
        // A person mentions the failure, and a table shows which processes hold the memory.
        Some(Found {
            first,
            holders: Some(holders),
            index,
            is_prose,
            document: None,
            later,
            survived,
            failures,
        }) if first.is_failure()
            && other.is_none()
            && !is_discussion(log)
            && (is_own_failure(log.line(index)) || is_report(log.line(index))) =>
        {
            let first = Facts { severity: Severity::Failure, ..holders };
            explain(
                log,
                Found { first, holders: None, index, is_prose, document: None, later, survived, failures },
            )
        }
        found => match grown(log, found.as_ref(), other.as_ref()) {
            Some(grown) => explain(log, grown),
            None => nothing_failed(log, found, other, lines),
        },
    }
}

/// A person reports memory that grows or that other processes take, and no program error contradicts it.
fn grown(log: &Log, found: Option<&Found>, other: Option<&OtherFailure>) -> Option<Found> {
    let is_handled = found.is_some_and(|found| !found.is_prose && found.first.severity == Severity::Warning);
    let is_document = found.is_some_and(|found| found.document.is_some());
    if is_handled || is_document || other.is_some() || is_discussion(log) {
        return None;
    }
    let (index, first) = growth::find(log).or_else(|| told::find(log))?;
    Some(Found {
        first,
        index,
        later: 0,
        is_prose: true,
        document: None,
        survived: None,
        holders: None,
        failures: Vec::new(),
    })
}

/// Whether a memory error without figures follows from a kernel that crashed a little above it: the context is gone,
/// and every later call fails.
fn follows(log: &Log, found: &Found, other: Option<&OtherFailure>) -> bool {
    /// The crash stands this near above.
    const LINES_ABOVE: usize = 40;
    /// The program that crashed ended, so the error is another run's.
    static ENDED: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:exit code|exited with|core dumped|SIGABRT|Process finished|terminate called)\b|^\W*Aborted\b|^\W*Traceback \(most",
        )
    });
    let facts = &found.first;
    let has_figures =
        facts.total.is_some() || facts.live.is_some() || facts.free.is_some() || !facts.statements.is_empty();
    other.is_some_and(|other| {
        other.breaks_context()
            && !has_figures
            && other.line < facts.line
            && facts.line - other.line <= LINES_ABOVE
            && !(0..=found.index)
                .rev()
                .take_while(|&index| log.number(index) > other.line)
                .any(|index| ENDED.is_match(log.line(index)))
    })
}

/// Whether a failure counts. An error of a program always does; a person's report of one does where no definite
/// other failure stands in the text, and other talk about memory never does.
fn counts(log: &Log, found: &Found, other: Option<&OtherFailure>) -> bool {
    found.document.is_none()
        && !follows(log, found, other)
        && (!found.is_prose || (other.is_none() && !is_discussion(log) && is_report(log.line(found.index))))
}

fn explain(log: &Log, found: Found) -> Explanation {
    let searched = Searched::around(log.text(), log.offset(found.index));
    let mut facts = found.first.without_wrapped_figures();
    placement::settle(&mut facts, searched);
    if facts.request.is_none() && facts.resource == Resource::Device && facts.live.is_none() {
        facts.request = request_nearby(log, found.index);
    }
    if facts.request.is_none() && facts.resource == Resource::Unknown && facts.statements.is_empty() {
        facts.request = told_sizes::request_in_bytes(&facts.quote);
    }
    gpu_names::add_total(&mut facts, searched);
    host_told::add(&mut facts, searched);
    told_sizes::compare(&mut facts, gpu_names::told(searched), searched);
    let context = Context::read(log, found.index);
    let situation = Situation::new(log, found.index, &facts, &context);
    let mut causes = judge(&facts, &situation.account, &context);
    let is_led = context.is_growth_reported
        || context.growth.is_some()
        || context.is_pile_up_told
        || facts.statements.iter().any(|statement| statement.leads);
    if causes.iter().all(|finding| finding.certainty < Certainty::Likely)
        && !causes.first().is_some_and(|finding| finding.cause == Cause::Undetermined)
        && !is_led
    {
        causes.insert(0, undetermined::finding(&facts, &situation));
    }
    for finding in &mut causes {
        finding.evidence.extend(facts.evidence.iter().cloned());
        finding.evidence.push(format!("line {}: {}", facts.line, shortened(&facts.quote)));
    }
    fixes::attach(&mut causes, &situation);
    if causes.first().is_some_and(|finding| finding.certainty <= Certainty::Possible) {
        hypotheses::add(&mut causes, &situation);
    }
    cured::lead(&mut causes, &situation);
    let deciding = causes[0].clone();
    let (sentence, ranks) = job::note(log, &found.failures).unzip();
    let mut notes: Vec<String> = sentence.into_iter().collect();
    if found.later > ranks.unwrap_or(0) {
        let plural = if found.later == 1 { "" } else { "s" };
        notes
            .push(format!("{} more failure{plural} after the first one on line {}", found.later, facts.line));
    }
    notes.extend(found.survived.map(|line| {
        format!("an earlier out-of-memory error on line {line} was caught, and the program continued")
    }));
    let framework = facts.framework;
    let request = Request {
        bytes: facts.request,
        device: facts.device,
        site: facts.site.clone().or_else(|| context.site.clone()),
    };
    Explanation {
        request: Some(request),
        ledger: ledger(&facts, deciding.cause),
        wont_help: fixes::wont_help(deciding.cause, &situation),
        next: fixes::next(&deciding, &situation),
        causes,
        notes,
        ..empty(framework, deciding.cause, deciding.certainty, deciding.summary)
    }
}

/// The request that a program prints on a separate line near its error.
fn request_nearby(log: &Log, index: usize) -> Option<Bytes> {
    /// Such a line is this near.
    const LINES_NEAR: usize = 4;
    static REQUEST: LazyLock<Regex> = LazyLock::new(|| {
        pattern(
            r"(?i)\b(?:failed|unable|cannot|can't|could not|couldn't|tried|trying|attempted) (?:to )?(?:alloc\w*|reserve) (?:a buffer of |memory of |of )?(?:size )?([\d.,]+) ?([KMGT]i?B|bytes)\b",
        )
    });
    let end = (index + LINES_NEAR + 1).min(log.len());
    // A line that says that its own request was no failure is not about this error.
    let mut requests = (index.saturating_sub(LINES_NEAR)..end)
        .map(|near| log.line(near))
        .filter(|line| !says_handled(line))
        .filter_map(|line| find_size(&REQUEST, line).or_else(|| told_sizes::request_in_bytes(line)));
    let request = requests.next()?;
    requests.all(|other| other == request).then_some(request)
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
            LedgerLine::sum("live tensors", parts)
        };
        lines.push(line);
    }
    if let Some(cached) = account.cached {
        let mut line = LedgerLine::new(
            if cause == Cause::Fragmentation { "cached, fragmented" } else { "cached" },
            cached,
        );
        if let (Cause::Fragmentation, Some(request)) = (cause, facts.request) {
            line = line.note(format!("the request needs one block of {request}"));
        }
        lines.push(line);
    }
    if let Some(overhead) = account.overhead() {
        let is_large = overhead > CONTEXT_CEILING;
        lines.push(LedgerLine::new(
            if is_large { "outside the framework" } else { "context and code" },
            overhead,
        ));
    }
    let unclear = account.is_own_process_unclear;
    for process in &account.others {
        let mut line = LedgerLine::new(format!("process {}", process.pid), process.bytes);
        if unclear {
            line = line.note("this process or another one: a container hides the PID");
        } else if let Some(name) = &process.name {
            line = line.note(name.clone());
        }
        lines.push(line);
    }
    let rest = account.unlisted().filter(|_| account.own.is_none() && !unclear);
    if let Some(rest) = rest.filter(|rest| !rest.is_zero() && facts.live.is_some()) {
        let note = if rest > CONTEXT_CEILING {
            "larger than a typical context"
        } else {
            "typical size of a context"
        };
        lines.push(LedgerLine::new("context and other", rest).note(note));
    }
    if let Some(free) = facts.free {
        lines.push(LedgerLine::new("free", free));
    }
    // A card of which nothing is known to be used has no account.
    if lines.iter().all(|line| line.bytes().is_zero()) && facts.free.is_none() {
        return None;
    }
    let name = facts.device.map_or_else(|| "GPU".to_owned(), |device| format!("GPU {device}"));
    Some(Ledger::new(name, facts.device, facts.total, lines))
}

/// Nothing in the text ran out of memory: another failure, a handled one, a table, or no failure at all.
fn nothing_failed(log: &Log, found: Option<Found>, other: Option<OtherFailure>, lines: usize) -> Explanation {
    let plural = if lines == 1 { "" } else { "s" };
    if let Some((found, document)) = found.as_ref().and_then(|found| Some((found, found.document?)))
        && (document != Document::Template || other.is_none())
    {
        return in_document(&found.first, document.summary(found.first.line));
    }
    if let Some(found) = found.as_ref().filter(|found| found.first.is_failure() && found.is_prose)
        && other.is_none()
        && is_discussion(log)
    {
        let summary = format!(
            "This text discusses an out-of-memory error (line {}); it is not a log of one.",
            found.first.line
        );
        return in_document(&found.first, summary);
    }
    let is_handled = found.as_ref().is_some_and(|found| found.first.severity == Severity::Warning);
    // A table or a text without any memory error may still show a failure that follows from another.
    let other = other.or_else(|| if is_handled { None } else { other_failure::minor(log) });
    if let Some(other) = other {
        let summary = format!("This is not an out-of-memory error: {} on line {}.", other.what, other.line);
        let certainty = if other.is_reason_open { Certainty::Likely } else { Certainty::Certain };
        let mut explanation = none(Framework::Unknown, certainty, summary);
        explanation.causes[0].fixes = other.fixes;
        explanation.causes[0].evidence.push(format!("line {}: {}", other.line, shortened(&other.quote)));
        return explanation;
    }
    let Some(found) = found else {
        let mut explanation = none(
            Framework::Unknown,
            Certainty::Likely,
            format!("No out-of-memory error found in this input ({lines} line{plural})."),
        );
        explanation.notes.push(
            "pass the lines around the error, or the whole output of the program: PROGRAM 2>&1 | makeroom why"
                .to_owned(),
        );
        explanation.next.push(advice::record_run());
        return explanation;
    };
    let facts = found.first;
    let framework = facts.framework;
    let summary = match (facts.severity, &facts.aftermath) {
        (Severity::Warning, Some(aftermath)) => aftermath.summary.clone(),
        (Severity::Warning, None) => {
            let request = facts.request.map_or(String::new(), |request| format!(" of {request}"));
            format!(
                "An allocation{request} failed on line {} and the program handled it; nothing else failed.",
                facts.line
            )
        }
        (Severity::Observation, _) => facts.statements.first().map_or_else(
            || "This output shows which processes hold GPU memory; nothing in it failed.".to_owned(),
            |statement| format!("{} Nothing in this log failed.", statement.summary),
        ),
        (Severity::Failure, _) => {
            "The log mentions running out of memory, but contains no error message from a program.".to_owned()
        }
    };
    let is_certain = !found.is_prose && !is_large_for_host(&facts);
    let certainty = if is_certain { Certainty::Certain } else { Certainty::Likely };
    let mut explanation = none(framework, certainty, summary);
    if let Some(aftermath) = facts.aftermath.as_ref().filter(|_| is_handled) {
        explanation.causes[0].fixes.clone_from(&aftermath.fixes);
    }
    // A list of processes alone is pasted to ask who holds the memory, and answers it.
    if let Some(holder) = facts.statements.first().filter(|statement| {
        facts.severity == Severity::Observation
            && facts.total.is_none()
            && statement.certainty >= Certainty::Likely
            && !is_told_by_person(log)
    }) {
        explanation.verdict = Verdict {
            cause: holder.cause,
            certainty: holder.certainty,
            summary: explanation.verdict.summary,
        };
        explanation.causes.clear();
    }
    for finding in &mut explanation.causes {
        finding.evidence.push(format!("line {}: {}", facts.line, shortened(&facts.quote)));
    }
    explanation.ledger = ledger(&facts, Cause::None);
    let context = Context::read(log, found.index);
    let situation = Situation::new(log, found.index, &facts, &context);
    if facts.severity == Severity::Observation {
        // Who holds the memory is the question behind a pasted table.
        let shown: Vec<Finding> = facts
            .statements
            .iter()
            .filter(|statement| !matches!(statement.cause, Cause::None | Cause::Undetermined))
            .map(|statement| Finding {
                bytes: statement.bytes,
                fixes: fixes::for_cause(statement.cause, &situation),
                ..Finding::new(statement.cause, statement.certainty, statement.summary.clone())
            })
            .collect();
        explanation.causes.extend(shown);
    } else if facts.severity == Severity::Failure {
        explanation.notes.push("pass the program's own output: PROGRAM 2>&1 | makeroom why".to_owned());
    }
    explanation
}

/// The answer to a text that only describes an error.
fn in_document(facts: &Facts, summary: String) -> Explanation {
    let framework = facts.framework;
    let mut explanation = none(framework, Certainty::Likely, summary);
    explanation.causes[0].evidence.push(format!("line {}: {}", facts.line, shortened(&facts.quote)));
    explanation.notes.push(
        "to explain a failure of your own, pass the program's output: PROGRAM 2>&1 | makeroom why".to_owned(),
    );
    explanation.next.push(advice::record_run());
    explanation
}

/// Whether a host allocation that a program survived is so large that the ordinary memory used instead may run out too.
fn is_large_for_host(facts: &Facts) -> bool {
    facts.resource == Resource::Host && facts.request.is_some_and(|request| request >= LARGE_FOR_HOST)
}

/// An answer that says that nothing failed.
fn none(framework: Framework, certainty: Certainty, summary: String) -> Explanation {
    Explanation {
        causes: vec![Finding::new(Cause::None, certainty, summary.clone())],
        ..empty(framework, Cause::None, certainty, summary)
    }
}

/// An answer with a verdict and nothing else.
fn empty(framework: Framework, cause: Cause, certainty: Certainty, summary: String) -> Explanation {
    let input = InputSummary { kind: InputKind::ErrorText, framework };
    Explanation::new(input, Verdict { cause, certainty, summary })
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
