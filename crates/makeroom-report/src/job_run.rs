//! The end of `makeroom run` in front of a launcher: one summary for all ranks.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use makeroom_core::{Bytes, SortCompact as _, shell_word};
use makeroom_job::{JobCause, JobReport, RankReport};

use crate::run::{count, paragraph};
use crate::text::{COMMAND, LEAST_COLUMNS, MARGIN, TITLE};

/// Maximum number of errors of ranks that are not to blame.
const MOST_ERRORS: usize = 2;
/// Maximum number of remarks about the recordings.
const MOST_NOTES: usize = 2;

/// The summary of a job. `folder` contains its recordings; `stopped` has the reasons why recordings end early.
pub fn job_run_text(
    report: &JobReport,
    program: &str,
    folder: &str,
    stopped: &[&str],
    columns: usize,
) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let _ = writeln!(out, "{TITLE}makeroom{TITLE:#}: {}", headline(report, program));
    let verdict = &report.verdict;
    if verdict.cause == JobCause::None {
        let _ = writeln!(out, "{MARGIN}no rank failed");
    } else {
        let color = match verdict.cause {
            JobCause::Caught => AnsiColor::Green,
            JobCause::Undetermined => AnsiColor::Yellow,
            _ => AnsiColor::Red,
        };
        let style = color.on_default().bold();
        let certainty = if verdict.cause.is_failure() && verdict.cause != JobCause::Undetermined {
            format!(" ({})", verdict.certainty)
        } else {
            String::new()
        };
        let _ = writeln!(out, "{MARGIN}{style}{}{style:#}{certainty}", verdict.title);
        paragraph(&mut out, &verdict.summary, columns);
    }
    for consequence in &report.consequences {
        paragraph(&mut out, &format!("{}: {}", consequence.words, consequence.kind.words()), columns);
    }
    for found in report.errors.iter().take(MOST_ERRORS) {
        paragraph(&mut out, &format!("{}: {}", found.words, found.error), columns);
    }
    if let Some(fix) = report.fixes.first().filter(|_| report.fixes.len() > 1 && verdict.cause.is_failure()) {
        paragraph(&mut out, &format!("fix: {}", fix.action), columns);
        for line in fix.command.iter().flat_map(|command| command.lines()) {
            let _ = writeln!(out, "{MARGIN}  {COMMAND}{line}{COMMAND:#}");
        }
    }
    if let Some(reason) = stopped.first() {
        let recordings = count(stopped.len() as u64, "recording");
        let verb = if stopped.len() == 1 { "ends" } else { "end" };
        paragraph(&mut out, &format!("{recordings} {verb} early: {reason}"), columns);
    }
    for note in report.notes.iter().take(MOST_NOTES) {
        paragraph(&mut out, &format!("note: {note}"), columns);
    }
    let recordings = count(report.used.recordings as u64, "recording");
    let folder = shell_word(folder);
    let _ =
        writeln!(out, "{MARGIN}{recordings} saved; for all ranks: {COMMAND}makeroom job {folder}{COMMAND:#}");
    out
}

/// `16 ranks of ./train used up to 7.50 GiB of GPU memory each (rank 3; the median is 1.50 GiB)`; of two ranks, the other.
fn headline(report: &JobReport, program: &str) -> String {
    let mut ranks: Vec<&RankReport> = report.ranks.iter().collect();
    ranks.sort_compact_by_key(|rank| (std::cmp::Reverse(rank.peak_bytes), rank.rank));
    let number = count(report.ranks.iter().filter(|rank| rank.rank.is_some()).count() as u64, "rank");
    let Some(heaviest) = ranks.first().filter(|rank| rank.peak_bytes > 0) else {
        return format!("{number} of {program} used no GPU memory");
    };
    let others = match ranks.as_slice() {
        [_] => String::new(),
        [_, other] => format!("; {} used {}", other.label, Bytes::new(other.peak_bytes)),
        all => format!("; the median is {}", Bytes::new(all[all.len() / 2].peak_bytes)),
    };
    let most = Bytes::new(heaviest.peak_bytes);
    format!("{number} of {program} used up to {most} of GPU memory each ({}{others})", heaviest.label)
}
