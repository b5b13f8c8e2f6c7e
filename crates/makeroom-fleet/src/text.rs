//! The answer as one screen of text: the verdict first, then tables, each as long as the screen allows.
//!
//! Not in `makeroom-report`, because the page of `web/` and the Python module link that crate, and neither needs this.

use anstyle::{AnsiColor, Style};
use makeroom_core::{Bytes, shell_word};
use makeroom_explain::Cause;
use makeroom_report::wrap;

use crate::answer::{FleetReport, Share};

const TITLE: Style = Style::new().bold();
const FAILED: Style = AnsiColor::Red.on_default().bold();
const DIM: Style = Style::new().dimmed();
const COMMAND: Style = AnsiColor::Cyan.on_default();
/// The longest bar of a week.
const BAR: usize = 20;
/// The narrowest first column.
const LEAST_FIRST: usize = 20;
/// The longest word that is left out whole where a text is cut.
const LONGEST_WORD: usize = 12;

/// A table: its title, headings and cells. The first column is text.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) headings: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The verdict in one or two sentences.
pub(crate) fn verdict(report: &FleetReport) -> String {
    if report.recordings == 0 {
        return "There are no recordings in this part of the index.".to_owned();
    }
    if report.failed_jobs == 0 {
        return format!("None of {} ran out of memory.", jobs(report.jobs));
    }
    let mut text = format!("{} of {} ran out of memory", report.failed_jobs, jobs(report.jobs));
    if report.failed_gpu_hours >= 0.005 {
        text.push_str(&format!(
            " and lost {} of {} GPU-hours",
            figure(report.failed_gpu_hours),
            figure(report.gpu_hours)
        ));
    }
    text.push('.');
    if let Some(cause) = report.causes.first() {
        text.push_str(&format!(" The main cause: {} ({}).", title(&cause.name), jobs(cause.failed_jobs)));
    }
    text
}

/// Memory that was held without use.
pub(crate) fn waste(report: &FleetReport) -> Option<String> {
    let waste = report.waste;
    (waste.held >= 0.005).then(|| {
        let share = |part: f64| format!("{:.0}\u{a0}%", 100.0 * part / waste.held);
        format!(
            "Of {} GB-hours of GPU memory, {} were cached and unused ({}), of which {} were fragmented ({}).",
            figure(waste.held),
            figure(waste.cached),
            share(waste.cached),
            figure(waste.fragmented),
            share(waste.fragmented)
        )
    })
}

/// The tables, most important first.
pub(crate) fn tables(report: &FleetReport) -> Vec<Table> {
    let shares =
        |title: &'static str, first: &'static str, shares: &[Share], name: fn(&str) -> String| Table {
            title,
            headings: vec![first, "jobs", "GPU-hours", "largest request"],
            rows: shares
                .iter()
                .map(|share| {
                    let largest = share
                        .largest_failed_bytes
                        .map_or_else(String::new, |size| Bytes::new(size).to_string());
                    vec![
                        name(&share.name),
                        share.failed_jobs.to_string(),
                        hours(share.failed_gpu_hours),
                        largest,
                    ]
                })
                .collect(),
        };
    let fixes = report.fixes.iter().map(|fix| {
        let command = fix.command.as_ref().map_or_else(String::new, |command| format!(": {command}"));
        vec![format!("{}{command}", fix.fix), fix.failed_jobs.to_string(), hours(fix.failed_gpu_hours)]
    });
    let by_job = report.by_job.iter().map(|job| {
        let ranks = format!("{} of {}", job.failed_recordings, job.recordings);
        let model = job.model.clone().unwrap_or_default();
        vec![job.job.clone(), ranks, hours(job.failed_gpu_hours), title(&job.cause), model]
    });
    let most = report.weeks.iter().map(|week| week.failed_jobs).max().unwrap_or(0).max(1);
    let weeks = report.weeks.iter().rev().map(|week| {
        let bar = "█".repeat((week.failed_jobs * BAR).div_ceil(most));
        let failed = format!("{} of {}", week.failed_jobs, week.jobs);
        let cached = hours(week.waste.cached);
        vec![week.monday.clone(), failed, hours(week.failed_gpu_hours), cached, bar]
    });
    let tables = vec![
        shares("Causes", "", &report.causes, title),
        Table {
            title: "Fixes that would save most",
            headings: vec!["", "jobs", "GPU-hours"],
            rows: fixes.collect(),
        },
        Table {
            title: "Jobs",
            headings: vec!["", "failed", "GPU-hours", "cause", "model"],
            rows: by_job.collect(),
        },
        shares("Models", "", &report.models, str::to_owned),
        shares("Lines", "", &report.lines, str::to_owned),
        Table {
            title: "Weeks",
            headings: vec!["", "failed", "GPU-hours", "cached GB-hours", ""],
            rows: weeks.collect(),
        },
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// The answer in `columns` × `rows`; all of it if `rows` is `None`.
pub(crate) fn text(report: &FleetReport, index: &str, columns: usize, rows: Option<usize>) -> String {
    let mut head = String::new();
    let style = if report.failed_jobs > 0 { FAILED } else { TITLE };
    let period = match (&report.from, &report.to) {
        (Some(from), Some(to)) if from == to => format!(", {from}"),
        (Some(from), Some(to)) => format!(", {from} to {to}"),
        _ => String::new(),
    };
    wrapped(&mut head, &verdict(report), columns, style);
    wrapped(&mut head, &format!("{}{period}", recordings(report.recordings)), columns, DIM);
    if let Some(waste) = waste(report) {
        head.push('\n');
        wrapped(&mut head, &waste, columns, Style::new());
    }
    let mut foot = String::new();
    if report.unreadable > 0 {
        let objects = if report.unreadable == 1 {
            "1 object".to_owned()
        } else {
            format!("{} objects", report.unreadable)
        };
        wrapped(&mut foot, &format!("{objects} could not be read: see the column unreadable."), columns, DIM);
    }
    if let Some(job) = report.by_job.first() {
        foot.push_str(&format!(
            "{COMMAND}makeroom job {index} --job {}{COMMAND:#}  explains the first job\n",
            shell_word(&job.job)
        ));
    }
    let tables = tables(report);
    let lengths = lengths(&tables, rows.map(|rows| rows.saturating_sub(lines(&head) + lines(&foot) + 2)));
    let mut out = head;
    for (table, length) in tables.iter().zip(lengths) {
        if length > 0 {
            out.push('\n');
            draw(&mut out, table, length, columns);
        }
    }
    out.push('\n');
    out.push_str(&foot);
    out
}

fn lines(text: &str) -> usize {
    text.lines().count()
}

/// How many rows of each table are shown. Each table needs two more lines: an empty one and its headings.
fn lengths(tables: &[Table], room: Option<usize>) -> Vec<usize> {
    let Some(mut room) = room else { return tables.iter().map(|table| table.rows.len()).collect() };
    let mut lengths = vec![0; tables.len()];
    loop {
        let before = room;
        for (table, length) in tables.iter().zip(&mut lengths) {
            let cost = if *length == 0 { 3 } else { 1 };
            if *length < table.rows.len() && cost <= room {
                *length += 1;
                room -= cost;
            }
        }
        if room == before {
            return lengths;
        }
    }
}

fn draw(out: &mut String, table: &Table, length: usize, columns: usize) {
    let rows = &table.rows[..length.min(table.rows.len())];
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        let heading = if column == 0 { table.title } else { table.headings[column] };
        cells.chain([heading.chars().count()]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..table.headings.len()).map(width).collect();
    let total: usize = widths.iter().map(|width| width + 2).sum();
    if let Some(first) = widths.first_mut() {
        *first = first.saturating_sub(total.saturating_sub(columns)).max(LEAST_FIRST.min(*first));
    }
    let is_text = |column: usize| column == 0 || matches!(table.headings[column], "cause" | "model" | "");
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells = widths.iter().enumerate().map(|(column, &width)| {
            let cell = clipped(&cell(column), width);
            if is_text(column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        clipped(cells.collect::<Vec<_>>().join("  ").trim_end(), columns)
    };
    let heading = line(&|column| if column == 0 { table.title } else { table.headings[column] }.to_owned());
    out.push_str(&format!("{DIM}{heading}{DIM:#}\n"));
    for row in rows {
        out.push_str(&line(&|column| row.get(column).cloned().unwrap_or_default()));
        out.push('\n');
    }
}

/// A text in at most this many columns.
fn clipped(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let start: String = text.chars().take(columns.saturating_sub(1)).collect();
    // Whole words, unless the last one is long: a path, for example.
    let end = start.rfind(' ').filter(|end| start.len() - end <= LONGEST_WORD).unwrap_or(start.len());
    format!("{}…", start[..end].trim_end())
}

fn wrapped(out: &mut String, text: &str, columns: usize, style: Style) {
    for line in wrap(text, columns) {
        out.push_str(&format!("{style}{line}{style:#}\n"));
    }
}

/// A cause as a person reads it.
pub(crate) fn title(cause: &str) -> String {
    Cause::named(cause).map_or_else(|| cause.replace('_', " "), |known| known.title().to_lowercase())
}

fn jobs(count: usize) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}

fn recordings(count: usize) -> String {
    if count == 1 { "1 recording".to_owned() } else { format!("{count} recordings") }
}

/// Two digits are enough.
fn figure(value: f64) -> String {
    let decimals = if value >= 10.0 { 0 } else { usize::from(value < 1.0) + 1 };
    format!("{value:.decimals$}")
}

/// Nothing for no time: snapshots and logs have none.
fn hours(value: f64) -> String {
    if value < 0.005 { String::new() } else { figure(value) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::answer;
    use crate::rows::Row;

    fn failed(job: &str) -> Row {
        Row {
            job: job.to_owned(),
            model: Some("llama".to_owned()),
            began_us: Some(1_794_873_600_000_000),
            duration_seconds: 3600,
            gpus: 8,
            ran_out: true,
            cause: "live_data_fills_device".to_owned(),
            failed_bytes: Some(144 << 20),
            failed_at: Some("train.py:25 forward".to_owned()),
            fix: Some("use gradient checkpointing".to_owned()),
            held_byte_seconds: 3_600_000_000_000,
            cached_byte_seconds: 1_800_000_000_000,
            ..Row::default()
        }
    }

    #[test]
    fn the_answer_fits_on_a_screen() {
        let rows: Vec<Row> = (0..200).map(|job| failed(&format!("job {job}"))).collect();
        let report = answer(&rows);
        for (columns, height) in [(80, 25), (100, 40), (110, 60)] {
            let text =
                anstream::adapter::strip_str(&text(&report, "index", columns, Some(height))).to_string();
            assert!(text.lines().count() < height, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= columns), "{text}");
            assert!(
                text.starts_with("200 of 200 jobs ran out of memory and lost 1600 of 1600 GPU-hours."),
                "{text}"
            );
            assert!(text.contains("live data fills the memory"), "{text}");
            assert!(text.contains("--job 'job 0'"), "{text}");
        }
    }

    #[test]
    fn a_fleet_without_failures() {
        let row = Row { ran_out: false, cause: "none".to_owned(), ..failed("7") };
        assert_eq!(verdict(&answer(&[row])), "None of 1 job ran out of memory.");
        assert_eq!(verdict(&answer(&[])), "There are no recordings in this part of the index.");
    }
}
