//! The answer for a job as one screen of text, and as JSON.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use makeroom_core::{Bytes, SortCompact as _};
use makeroom_job::{Account, AccountLine, Group, JobCause, JobFix, JobReport, LineDifference, RecordingKind};
use serde_json::Value;

use crate::bars::bar;
use crate::run::count;
use crate::text::{COMMAND, DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::{clip, wrap};

/// Maximum length of a bar.
const BAR_COLUMNS: usize = 24;
/// The largest rank ÷ the median from which on ranks differ.
const UNEVEN: f64 = 1.2;

/// How much is shown.
#[derive(Clone, Copy)]
struct Detail {
    /// Ranks in the account; 0 leaves it out.
    account: usize,
    /// Groups, and outliers of each; 0 leaves them out.
    groups: usize,
    /// Lines of code per group.
    lines: usize,
    /// Errors of ranks that are not to blame.
    errors: usize,
    fixes: usize,
    /// Whether imbalance and host memory are shown.
    over_time: bool,
    notes: usize,
}

const WHOLE: Detail = Detail {
    account: usize::MAX,
    groups: usize::MAX,
    lines: 3,
    errors: usize::MAX,
    fixes: usize::MAX,
    over_time: true,
    notes: usize::MAX,
};

/// The least that is shown: the verdict, the consequences, the first fix and the command that shows more.
const LEAST: Detail =
    Detail { account: 0, groups: 0, lines: 0, errors: 1, fixes: 2, over_time: false, notes: 1 };

/// What is added to the least, most useful first, as long as the answer fits on the screen.
const STEPS: [fn(&mut Detail); 16] = [
    |detail| detail.account = 2,
    |detail| detail.errors = 3,
    |detail| (detail.groups, detail.lines) = (2, 1),
    |detail| detail.account = 3,
    |detail| detail.fixes = 3,
    |detail| detail.notes = 2,
    |detail| detail.groups = 3,
    |detail| detail.account = 5,
    |detail| detail.over_time = true,
    |detail| detail.fixes = 4,
    |detail| detail.groups = 4,
    |detail| detail.notes = 4,
    |detail| detail.account = 8,
    |detail| detail.lines = 2,
    |detail| detail.groups = 6,
    |detail| detail.groups = 8,
];

/// The answer as JSON.
pub fn job_json(report: &JobReport) -> Result<Value, serde_json::Error> {
    serde_json::to_value(report)
}

/// The answer for a terminal of `columns` columns. With `rows`, as much of it as fits on that screen.
pub fn job_text(report: &JobReport, columns: usize, rows: Option<usize>) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let whole = detailed(report, columns, WHOLE);
    let Some(rows) = rows.filter(|&rows| whole.lines().count() >= rows) else { return whole };
    let mut detail = LEAST;
    let mut shortened = detailed(report, columns, detail);
    for step in STEPS {
        let mut more = detail;
        step(&mut more);
        let text = detailed(report, columns, more);
        // The last row is the prompt's.
        if text.lines().count() < rows {
            (detail, shortened) = (more, text);
        }
    }
    shortened
}

fn detailed(report: &JobReport, columns: usize, detail: Detail) -> String {
    let mut out = String::new();
    verdict(&mut out, report, columns);
    if let Some(account) = report.account.as_ref().filter(|_| detail.account > 0) {
        card(&mut out, account, columns, detail.account);
    }
    groups(&mut out, report, columns, detail);
    if detail.over_time {
        over_time(&mut out, report, columns);
    }
    consequences(&mut out, report, columns);
    errors(&mut out, report, columns, detail.errors);
    fixes(&mut out, &report.fixes, columns, detail.fixes, report.verdict.cause.is_failure());
    based_on(&mut out, report, columns, detail.notes);
    out
}

fn verdict(out: &mut String, report: &JobReport, columns: usize) {
    let verdict = &report.verdict;
    let color = match verdict.cause {
        JobCause::None | JobCause::Caught => AnsiColor::Green,
        JobCause::Undetermined => AnsiColor::Yellow,
        _ => AnsiColor::Red,
    };
    let style = color.on_default().bold();
    let says_it = !verdict.cause.is_failure() || verdict.cause == JobCause::Undetermined;
    let certainty = if says_it { String::new() } else { format!(" ({})", verdict.certainty) };
    let _ = writeln!(out, "\n{MARGIN}{style}{}{style:#}{certainty}", clip(&verdict.title, columns - 14));
    paragraph(out, &verdict.summary, columns, Style::new());
}

fn paragraph(out: &mut String, text: &str, columns: usize, style: Style) {
    for line in wrap(text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{style}{line}{style:#}");
    }
}

/// Memory of the GPU that ran out, by rank.
fn card(out: &mut String, account: &Account, columns: usize, most: usize) {
    let _ = writeln!(out, "\n{MARGIN}{TITLE}{}, {}{TITLE:#}", account.name, size(account.total_bytes));
    let (mut ranks, others): (Vec<&AccountLine>, Vec<&AccountLine>) =
        account.lines.iter().partition(|line| line.is_rank);
    // The rank whose request failed is always there.
    ranks.sort_compact_by_key(|line| line.remark.is_empty());
    let rest = ranks.split_off(ranks.len().min(most));
    ranks.sort_compact_by_key(|line| std::cmp::Reverse(line.bytes));
    let row = |line: &&AccountLine| (line.what.clone(), line.bytes, line.remark.clone());
    let mut rows: Vec<(String, u64, String)> = ranks.iter().map(row).collect();
    match rest.as_slice() {
        [] => {}
        [only] => rows.push(row(only)),
        rest => {
            let bytes = rest.iter().map(|line| line.bytes).fold(0, u64::saturating_add);
            rows.push(("other ranks".to_owned(), bytes, String::new()));
        }
    }
    rows.extend(others.iter().map(row));
    if account.unaccounted_bytes > 0 {
        rows.push(("unaccounted".to_owned(), account.unaccounted_bytes.unsigned_abs(), String::new()));
    }
    let name_width = rows.iter().map(|row| row.0.chars().count()).max().unwrap_or(0).min(30);
    let size_width = rows.iter().map(|row| size(row.1).chars().count()).max().unwrap_or(0);
    for (name, bytes, remark) in rows {
        let drawn = bar(Bytes::new(bytes).share_of(Bytes::new(account.total_bytes)), BAR_COLUMNS);
        let used = name_width + size_width + drawn.chars().count() + 10;
        let remark = if remark.is_empty() || used + 12 > columns {
            String::new()
        } else {
            format!("  {DIM}{}{DIM:#}", clip(&remark, columns - used))
        };
        let name = clip(&name, name_width);
        let _ = writeln!(
            out,
            "{MARGIN}  {name:<name_width$}  {:>size_width$}  {}{remark}",
            size(bytes),
            drawn.trim_end()
        );
    }
}

/// The groups of ranks, each with its outliers and largest lines.
fn groups(out: &mut String, report: &JobReport, columns: usize, detail: Detail) {
    let has_outliers = report.groups.iter().any(|group| !group.outliers.is_empty());
    if detail.groups == 0 || report.groups.len() < 2 && !has_outliers {
        return;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}Ranks by memory{TITLE:#}");
    // Those with a rank to blame first.
    let is_blamed = |group: &Group| {
        let is_member = |label: &String| report.culprits.iter().any(|culprit| culprit.label == *label);
        !group.outliers.is_empty() || group.ranks.iter().any(is_member)
    };
    let mut shown: Vec<&Group> = report.groups.iter().collect();
    shown.sort_compact_by_key(|group| !is_blamed(group));
    shown.truncate(detail.groups);
    let width = shown.iter().map(|group| group.words.chars().count()).max().unwrap_or(0).clamp(8, 36);
    for &group in &shown {
        row(
            out,
            &format!("{}  {}", group.name, clip(&group.words, width)),
            width + 3,
            group.typical_bytes,
            &lines(&group.lines, detail.lines),
            columns,
        );
        let named = group.outliers.iter().take(detail.groups.min(4));
        for outlier in named {
            let more = differences(&outlier.lines, detail.lines.max(1));
            row(
                out,
                &format!("   {}", clip(&outlier.label, width)),
                width + 3,
                outlier.bytes,
                &more,
                columns,
            );
        }
        rest(out, group, detail);
    }
    let hidden = report.groups.len() - shown.len();
    if hidden > 0 {
        let _ = writeln!(out, "{MARGIN}  {DIM}and {hidden} more (--verbose){DIM:#}");
    }
}

fn rest(out: &mut String, group: &Group, detail: Detail) {
    let hidden = group.outliers.len().saturating_sub(detail.groups.min(4));
    if hidden > 0 {
        let _ = writeln!(out, "{MARGIN}     {DIM}and {hidden} more above the group's typical memory{DIM:#}");
    }
}

fn row(out: &mut String, name: &str, width: usize, bytes: u64, remark: &str, columns: usize) {
    let room = columns.saturating_sub(width + 18);
    let _ =
        writeln!(out, "{MARGIN}  {name:<width$}  {:>10}  {DIM}{}{DIM:#}", size(bytes), clip(remark, room));
}

fn lines(lines: &[LineDifference], most: usize) -> String {
    let line = |line: &LineDifference| format!("{} {}", short(&line.place), size(line.bytes));
    lines.iter().take(most).map(line).collect::<Vec<_>>().join(", ")
}

fn differences(lines: &[LineDifference], most: usize) -> String {
    let line = |line: &LineDifference| {
        format!("+{} at {}", size(line.bytes.saturating_sub(line.typical_bytes)), short(&line.place))
    };
    lines.iter().take(most).map(line).collect::<Vec<_>>().join(", ")
}

/// A line without the function that it calls.
fn short(place: &str) -> &str {
    place.split_once(", through ").map_or(place, |(place, _)| place)
}

/// Imbalance and host memory, where they are worth a line.
fn over_time(out: &mut String, report: &JobReport, columns: usize) {
    let mut lines = Vec::new();
    // Ranks that start at different times differ for a while, and then hold the same.
    let mut peaks: Vec<u64> = report.ranks.iter().map(|rank| rank.peak_bytes).collect();
    peaks.sort_unstable();
    let median = peaks.get(peaks.len() / 2).copied().unwrap_or(0);
    let is_uneven = peaks.last().is_some_and(|&largest| largest as f64 >= median as f64 * UNEVEN);
    if let Some(imbalance) = report.imbalance.as_ref().filter(|imbalance| imbalance.last_ratio >= UNEVEN)
        && let Some(last) = imbalance.points.last().filter(|_| is_uneven)
    {
        lines.push(format!(
            "Imbalance: {} holds {:.1} times the median at the end of the recordings, {:.1} times at the start",
            last.largest, imbalance.last_ratio, imbalance.first_ratio
        ));
    }
    let full = report.hosts.iter().filter(|host| {
        let limit = host.cgroup_limit_bytes.zip(host.cgroup_bytes);
        limit.is_some_and(|(limit, used)| used as f64 >= limit as f64 * 0.8)
    });
    lines.extend(full.take(2).map(|host| {
        format!(
            "Host memory of {}: {} of {}",
            host.host,
            size(host.cgroup_bytes.unwrap_or(0)),
            size(host.cgroup_limit_bytes.unwrap_or(0))
        )
    }));
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        paragraph(out, &line, columns, Style::new());
    }
}

fn consequences(out: &mut String, report: &JobReport, columns: usize) {
    let texts = report.consequences.iter();
    let texts = texts.map(|consequence| format!("{}: {}", consequence.words, consequence.kind.words()));
    list(out, "Consequences", texts.collect(), columns);
}

/// Errors of other ranks that are not about memory.
fn errors(out: &mut String, report: &JobReport, columns: usize, most: usize) {
    let texts = report.errors.iter().map(|found| format!("{}: {}", found.words, found.error));
    let mut texts: Vec<String> = texts.collect();
    let hidden = texts.len().saturating_sub(most);
    texts.truncate(most);
    if hidden > 0 {
        texts.push(format!("and {hidden} more (--verbose)"));
    }
    list(out, "Other errors", texts, columns);
}

fn list(out: &mut String, title: &str, texts: Vec<String>, columns: usize) {
    if texts.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{MARGIN}{TITLE}{title}{TITLE:#}");
    for text in texts {
        for (index, line) in wrap(&text, columns - 6).iter().enumerate() {
            let indent = if index == 0 { "" } else { "  " };
            let _ = writeln!(out, "{MARGIN}  {indent}{line}");
        }
    }
}

fn fixes(out: &mut String, fixes: &[JobFix], columns: usize, most: usize, has_failed: bool) {
    if fixes.is_empty() {
        return;
    }
    let heading = if has_failed { "Fixes, most effective first" } else { "What to do" };
    let _ = writeln!(out, "\n{MARGIN}{TITLE}{heading}{TITLE:#}");
    // The last step shows more, and is always there.
    let kept = fixes.len().min(most);
    let shown = fixes[..kept.saturating_sub(1)].iter().chain(fixes.last());
    for (index, fix) in shown.enumerate() {
        for (line, text) in wrap(&fix.action, columns - 7).iter().enumerate() {
            let label = if line == 0 { format!("{}.", index + 1) } else { String::new() };
            let _ = writeln!(out, "{MARGIN}{label:>4} {text}");
        }
        for line in fix.command.iter().flat_map(|command| command.lines()) {
            let _ = writeln!(out, "{MARGIN}     {COMMAND}{line}{COMMAND:#}");
        }
    }
}

/// The last lines: what the answer is based on.
fn based_on(out: &mut String, report: &JobReport, columns: usize, most: usize) {
    let used = &report.used;
    let logs = report.ranks.iter().filter(|rank| rank.kind == RecordingKind::Log).count();
    let others = used.recordings.saturating_sub(logs);
    let count = |number: usize, noun| count(number as u64, noun);
    let based = match (others, logs) {
        // One log can have lines of several processes.
        (0, logs) if used.files < logs => {
            format!("the lines of {logs} processes in {}", count(used.files, "log"))
        }
        (0, logs) if logs > 0 => count(used.files.max(1), "log"),
        (others, 0) => count(others, "recording"),
        (others, logs) => {
            let logs = count(logs.min(used.files.saturating_sub(others)).max(1), "log");
            format!("{} and {logs}", count(others, "recording"))
        }
    };
    let job = report.job.as_ref().map_or(String::new(), |job| format!(" of job {job}"));
    let attempt = report.attempt.map_or(String::new(), |attempt| format!(", attempt {attempt}"));
    let mut notes = report.notes.clone();
    notes.insert(0, format!("based on {based}{job}{attempt}"));
    let hidden = notes.len().saturating_sub(most);
    // One more is as long as its remark.
    if hidden > 1 {
        notes.truncate(most);
        notes.push(format!("--verbose shows {hidden} more remarks"));
    }
    out.push('\n');
    for note in notes {
        paragraph(out, &format!("note: {note}"), columns, DIM);
    }
}

fn size(bytes: u64) -> String {
    Bytes::new(bytes).to_string()
}
