//! An explanation as one screen of text: the verdict, the ledger as bars, the sites, and fixes.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use makeroom_core::Bytes;
use makeroom_explain::{
    Cause, Certainty, Explanation, Finding, Fix, Growth, HealthState, InputKind, Ledger, LedgerLine,
};

use crate::bars::bar;
use crate::kinds::{kind_name, rule_words};
use crate::run::section;
use crate::tree::tree;
use crate::wrap::{clip, wrap};

/// Indentation.
pub(crate) const MARGIN: &str = "  ";
/// Maximum length of a bar.
const BAR_COLUMNS: usize = 28;
/// What is shown when nothing limits the height.
const WHOLE: Detail = Detail {
    sites: 12,
    fixes: usize::MAX,
    hypothesis_fixes: 3,
    leaks: 4,
    trend: true,
    alternatives: true,
    next: true,
};
/// Lines of the tree and fixes that are shown where not everything fits on the screen, most first.
const SHORTER: [(usize, usize); 9] = [(8, 5), (6, 4), (5, 4), (5, 3), (4, 3), (3, 3), (3, 2), (2, 2), (1, 1)];
/// Kinds of growing memory that are shown.
const MOST_KINDS: usize = 2;
/// Minimum width.
pub(crate) const LEAST_COLUMNS: usize = 60;

pub(crate) const TITLE: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const COMMAND: Style = AnsiColor::Cyan.on_default();

/// How much of an explanation is shown.
#[derive(Clone, Copy)]
struct Detail {
    /// Lines of the tree of sites.
    sites: usize,
    fixes: usize,
    /// Fixes of the most likely hypothesis; each further one gets one less, at least one.
    hypothesis_fixes: usize,
    /// Lines of the tree of growing sites.
    leaks: usize,
    /// Whether memory that does not grow is mentioned.
    trend: bool,
    /// Whether other settings are compared.
    alternatives: bool,
    /// Whether the text ends with what to do to know more.
    next: bool,
}

/// An explanation for a terminal of `columns` columns. With `rows`, as much of it as fits on that screen.
pub fn explanation_text(explanation: &Explanation, columns: usize, rows: Option<usize>) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let whole = detailed(explanation, columns, &WHOLE);
    let Some(rows) = rows.filter(|&rows| whole.lines().count() >= rows) else { return whole };
    let rest = format!("{MARGIN}{DIM}(more with --verbose){DIM:#}\n");
    // After a failure, the lines that hold the memory matter more.
    let trend = explanation.verdict.cause == Cause::None;
    let mut shortened = String::new();
    for (sites, fixes) in SHORTER {
        let hypothesis_fixes = fixes.min(WHOLE.hypothesis_fixes);
        let leaks = sites.min(WHOLE.leaks);
        for (alternatives, next) in [(true, true), (true, false), (false, false)] {
            let detail = Detail { sites, fixes, hypothesis_fixes, leaks, trend, alternatives, next };
            shortened = format!("{}{rest}", detailed(explanation, columns, &detail));
            // The last row is the prompt's.
            if shortened.lines().count() < rows {
                return shortened;
            }
        }
    }
    shortened
}

/// The title of a verdict.
pub(crate) fn title(explanation: &Explanation) -> &'static str {
    match (explanation.verdict.cause, explanation.input.kind) {
        // A text without an out-of-memory error may show another failure.
        (Cause::None, InputKind::ErrorText) => "NO OUT-OF-MEMORY ERROR",
        (cause, _) => cause.title(),
    }
}

fn detailed(explanation: &Explanation, columns: usize, detail: &Detail) -> String {
    let mut out = String::new();
    verdict(&mut out, explanation, columns);
    if let Some(ledger) = &explanation.ledger {
        account(&mut out, ledger, columns);
    }
    sites(&mut out, explanation, columns, detail);
    if let Some(growth) = explanation.growth.as_ref().filter(|growth| growth.is_in_steps) {
        steps(&mut out, growth, columns, detail.leaks);
    }
    if detail.alternatives {
        what_fits(&mut out, explanation);
    }
    section(&mut out, explanation, columns);
    advice(&mut out, explanation, columns, detail);
    for note in &explanation.notes {
        paragraph(&mut out, &format!("note: {note}"), columns, DIM);
    }
    out
}

fn verdict(out: &mut String, explanation: &Explanation, columns: usize) {
    let verdict = &explanation.verdict;
    let colour = match verdict.cause {
        Cause::None => AnsiColor::Green,
        Cause::Undetermined => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    let style = colour.on_default().bold();
    // A run without a failure has a word for its health where others have the certainty.
    let remark = match (verdict.cause, explanation.health().state) {
        (Cause::None, HealthState::Unknown) => None,
        (Cause::None, state) => Some(state.name()),
        _ => verdict.told_certainty().map(Certainty::name),
    };
    let remark = remark.map_or(String::new(), |remark| format!(" ({remark})"));
    let title = title(explanation);
    let _ = writeln!(out, "\n{MARGIN}{style}{title}{style:#}{remark}");
    paragraph(out, &verdict.summary, columns, Style::new());
    if let Some(site) = explanation.request.as_ref().and_then(|request| request.site.as_ref()) {
        let _ = writeln!(out, "{MARGIN}requested at {TITLE}{}{TITLE:#}", clip(site, columns - 16));
    }
}

fn paragraph(out: &mut String, text: &str, columns: usize, style: Style) {
    for line in wrap(text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{style}{line}{style:#}");
    }
}

fn account(out: &mut String, ledger: &Ledger, columns: usize) {
    let mut rows = Vec::new();
    for line in ledger.lines() {
        push_rows(&mut rows, line, 0);
    }
    let unaccounted = ledger.unaccounted();
    let listed: Bytes = ledger.lines().iter().map(LedgerLine::bytes).sum();
    let whole = ledger.total().unwrap_or(listed).max(listed);
    if unaccounted != 0 {
        // Error texts round to two decimals; a remainder that small is rounding, but still shown.
        let remark =
            if unaccounted < 0 { Some("the lines add up to more than the total".to_owned()) } else { None };
        let size = Bytes::new(unaccounted.unsigned_abs());
        let sign = if unaccounted < 0 { "−" } else { "" };
        rows.push(LedgerRow { name: "unaccounted".to_owned(), size, shown: format!("{sign}{size}"), remark });
    }
    let total = ledger.total().map_or(String::new(), |total| format!(", {total}"));
    let _ = writeln!(out, "\n{MARGIN}{TITLE}{}{total}{TITLE:#}", ledger.name());
    let name_width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let size_width = rows.iter().map(|row| row.shown.chars().count()).max().unwrap_or(0);
    let room = columns.saturating_sub(name_width + size_width + 8);
    let bar_columns = BAR_COLUMNS.min(room);
    for row in rows {
        let drawn = bar(row.size.share_of(whole), bar_columns);
        let remark = row.remark.map_or(String::new(), |remark| {
            let left = room.saturating_sub(drawn.chars().count() + 2);
            if left < 12 { String::new() } else { format!("  {DIM}{}{DIM:#}", clip(&remark, left)) }
        });
        let _ = writeln!(
            out,
            "{MARGIN}  {:<name_width$}  {:>size_width$}  {}{remark}",
            row.name,
            row.shown,
            drawn.trim_end()
        );
    }
}

struct LedgerRow {
    name: String,
    size: Bytes,
    shown: String,
    remark: Option<String>,
}

fn push_rows(rows: &mut Vec<LedgerRow>, line: &LedgerLine, depth: usize) {
    let size = line.bytes();
    if size.is_zero() {
        return;
    }
    rows.push(LedgerRow {
        name: format!("{}{}", "  ".repeat(depth), line.what()),
        size,
        shown: size.to_string(),
        remark: line.remark().map(str::to_owned),
    });
    for part in line.parts() {
        push_rows(rows, part, depth + 1);
    }
}

fn sites(out: &mut String, explanation: &Explanation, columns: usize, detail: &Detail) {
    if explanation.sites.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}Live memory, by line of code{TITLE:#}");
    tree(out, &explanation.sites, columns, detail.sites);
    if !explanation.other_sites.is_zero() {
        let _ = writeln!(out, "{MARGIN}{:>12}  {DIM}elsewhere{DIM:#}", explanation.other_sites.to_string());
    }
    // Growth from step to step has a section of its own.
    let has_section = explanation.growth.as_ref().is_some_and(|growth| growth.is_in_steps);
    if detail.trend && !has_section && explanation.is_growth_measured() {
        paragraph(out, &explanation.growth_sentence().unwrap_or_default(), columns, DIM);
    }
}

fn steps(out: &mut String, growth: &Growth, columns: usize, lines: usize) {
    if growth.leaking.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "\n{MARGIN}{TITLE}Growing memory{TITLE:#}, {}{}",
        growth.pace(),
        if growth.parts.is_some() { String::new() } else { format!(" (step: {})", growth.measured_by) }
    );
    tree(out, &growth.leaking, columns, lines);
    for (kind, rule, bytes) in growth.kinds.iter().take(MOST_KINDS) {
        let row = format!("{MARGIN}{:>12}  {}: {}", bytes.to_string(), kind_name(*kind), rule_words(*rule));
        let _ = writeln!(out, "{DIM}{}{DIM:#}", clip(&row, columns));
    }
}

fn what_fits(out: &mut String, explanation: &Explanation) {
    if explanation.alternatives.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}Memory needed{TITLE:#}, including the failed request");
    for alternative in &explanation.alternatives {
        let setting = alternative.settings.unwrap_or("same settings");
        let fits = match alternative.fits {
            Some(true) => ": fits",
            Some(false) => ": does not fit either",
            None => ", without a limit",
        };
        let about = if alternative.is_exact { "" } else { "about " };
        let needs = format!("{about}{}", alternative.needs);
        let _ = writeln!(out, "{MARGIN}{needs:>18}  {setting}{fits}");
    }
}

fn advice(out: &mut String, explanation: &Explanation, columns: usize, detail: &Detail) {
    let first = explanation.causes.first();
    let is_open = first.is_some_and(|finding| finding.cause == Cause::Undetermined);
    // Without a failure, the other findings are about memory in general: which sites hold it, and what grew.
    let is_none = first.is_some_and(|finding| finding.cause == Cause::None);
    let mut with_fixes = explanation.causes.iter().take(if is_none { usize::MAX } else { 1 });
    let fixes = with_fixes.find(|finding| !finding.fixes.is_empty());
    let fixes = fixes.map_or(&[][..], |finding| finding.fixes.as_slice());
    if !fixes.is_empty() {
        let heading = if is_none { "What to do" } else { "Fixes, most effective first" };
        let _ = writeln!(out, "\n{MARGIN}{TITLE}{heading}{TITLE:#}");
        for (index, fix) in fixes.iter().take(detail.fixes).enumerate() {
            numbered(out, index + 1, fix, columns);
        }
    }
    if is_open {
        hypotheses(out, &explanation.causes[1..], columns, detail);
    }
    for line in &explanation.wont_help {
        paragraph(out, &format!("Won't help: {line}"), columns, Style::new());
    }
    let others: Vec<String> = explanation
        .causes
        .iter()
        .skip(1)
        .filter(|finding| finding.cause != Cause::None)
        .map(|finding| finding.cause.title().to_lowercase())
        .collect();
    let is_certain = !is_none && explanation.verdict.certainty == Certainty::Certain;
    if !is_open && !is_certain && !others.is_empty() {
        paragraph(out, &format!("\nalso possible: {}", others.join(", ")), columns, DIM);
    }
    if detail.next && !explanation.next.is_empty() {
        let _ = writeln!(out, "\n{MARGIN}{TITLE}To learn more{TITLE:#}");
        for fix in &explanation.next {
            paragraph(out, &fix.action, columns, Style::new());
            if let Some(command) = &fix.command {
                let _ = writeln!(out, "{MARGIN}  {COMMAND}{command}{COMMAND:#}");
            }
        }
    }
}

/// The hypotheses of an undecided case, each with the check that decides it and its first fixes.
fn hypotheses(out: &mut String, findings: &[Finding], columns: usize, detail: &Detail) {
    if findings.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}Possible causes, most likely first{TITLE:#}");
    for (index, finding) in findings.iter().enumerate() {
        for (line, text) in wrap(&finding.summary, columns.saturating_sub(7)).iter().enumerate() {
            let label = if line == 0 { format!("{}.", index + 1) } else { String::new() };
            let _ = writeln!(out, "{MARGIN}{label:>4} {text}");
        }
        if let Some(check) = &finding.check {
            labeled(out, "check", &check.action, columns);
            command(out, check.command.as_deref());
        }
        // The most likely cause gets most of the screen.
        for fix in finding.fixes.iter().take(detail.hypothesis_fixes.saturating_sub(index).max(1)) {
            labeled(out, "fix", &fix.action, columns);
            command(out, fix.command.as_deref());
        }
    }
}

/// A paragraph after a label of up to five letters.
fn labeled(out: &mut String, label: &str, text: &str, columns: usize) {
    for (index, line) in wrap(text, columns.saturating_sub(15)).iter().enumerate() {
        let label = if index == 0 { format!("{label}:") } else { String::new() };
        let _ = writeln!(out, "{MARGIN}     {label:<6} {line}");
    }
}

fn command(out: &mut String, command: Option<&str>) {
    for line in command.into_iter().flat_map(str::lines) {
        let _ = writeln!(out, "{MARGIN}            {COMMAND}{line}{COMMAND:#}");
    }
}

fn numbered(out: &mut String, number: usize, fix: &Fix, columns: usize) {
    let is_said = |bytes: Bytes| fix.action.contains(&bytes.to_string());
    let frees = fix
        .frees
        .filter(|&bytes| !bytes.is_zero() && !is_said(bytes))
        .map_or(String::new(), |bytes| format!(" (frees up to {bytes})"));
    let lines = wrap(&format!("{}{frees}", fix.action), columns - 7);
    for (index, line) in lines.iter().enumerate() {
        let label = if index == 0 { format!("{number}.") } else { String::new() };
        let _ = writeln!(out, "{MARGIN}{label:>4} {line}");
    }
    for line in fix.command.iter().flat_map(|command| command.lines()) {
        let _ = writeln!(out, "{MARGIN}     {COMMAND}{line}{COMMAND:#}");
    }
}
