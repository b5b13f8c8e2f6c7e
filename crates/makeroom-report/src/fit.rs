//! The result of `makeroom fit`: the batch size first, then the composition of memory and what would raise it.

use std::fmt::Write as _;

use makeroom_core::Bytes;
use makeroom_fit::{Alternative, Answer, Stop};
use serde_json::{Value, json};

use crate::json::list;
use crate::table::{Column, TableRow, table};
use crate::text::{DIM, LEAST_COLUMNS, MARGIN, TITLE};
use crate::wrap::wrap;

/// Ranks whose peaks differ by at most this part of the higher one hold the same.
const LEVEL_SHARE: u64 = 50;

/// One run of the program.
#[derive(Clone, Debug)]
pub struct FitRun {
    /// The batch size.
    pub batch: u64,
    /// Its duration.
    pub seconds: f64,
    /// Number of observed steps; `None` if the run ran out of memory.
    pub steps: Option<usize>,
    /// Peak of live memory.
    pub peak_live: Option<Bytes>,
    /// Failed requests after which the run continued.
    pub refusals: u64,
    /// How it ended.
    pub end: FitEnd,
    /// The ranks, if a launcher started several: the one that the run was judged by first, then the others by peak.
    pub ranks: Vec<FitRank>,
}

/// One rank of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FitRank {
    /// Its number.
    pub rank: u32,
    /// Its peak of live memory, with the request that failed if one did.
    pub peak_live: Bytes,
}

impl FitRun {
    /// The rank that limits the batch in this run.
    fn limiting_rank(&self) -> Option<u32> {
        self.ranks.first().map(|first| first.rank)
    }

    /// A remark on the run, if there is anything to report.
    fn remark(&self) -> String {
        let times = match self.refusals {
            0 => return self.end.remark().to_owned(),
            1 => "once".to_owned(),
            refusals => format!("{refusals} times"),
        };
        let remark =
            if self.end == FitEnd::Shown { "at the limit:" } else { &format!("{};", self.end.remark()) };
        format!("{remark} an allocation failed {times}, and the program continued")
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitEnd {
    /// Enough steps were observed.
    Shown,
    /// The program ended before that.
    ByItself,
    /// The time limit was reached.
    OutOfTime,
    /// It ran out of memory.
    Refused,
}

impl FitEnd {
    /// The name in JSON.
    fn word(self) -> &'static str {
        match self {
            Self::Shown => "shown",
            Self::ByItself => "by_itself",
            Self::OutOfTime => "out_of_time",
            Self::Refused => "refused",
        }
    }

    /// The remark in text output.
    fn remark(self) -> &'static str {
        match self {
            Self::Shown => "",
            Self::ByItself => "exited on its own",
            Self::OutOfTime => "stopped after its time limit (--seconds)",
            Self::Refused => "out of memory",
        }
    }
}

/// The result of a search for the largest batch.
#[derive(Clone, Debug)]
pub struct FitReport {
    /// The answer, if there is one.
    pub answer: Option<Answer>,
    /// Why the search ended.
    pub stop: Stop,
    /// The allocator of the prediction.
    pub allocator: String,
    /// Memory of the target GPU.
    pub card: Option<Bytes>,
    /// All runs.
    pub runs: Vec<FitRun>,
}

impl FitReport {
    fn is_confirmed(&self) -> bool {
        matches!(self.stop, Stop::Found(_))
    }

    /// The run with the largest batch size that did not run out of memory.
    fn largest_run(&self) -> Option<&FitRun> {
        self.runs.iter().filter(|run| run.end != FitEnd::Refused).max_by_key(|run| run.batch)
    }

    /// The smallest batch size that was tried.
    fn smallest(&self) -> u64 {
        self.runs.iter().map(|run| run.batch).min().unwrap_or(0)
    }
}

/// The result as JSON.
pub fn fit_json(report: &FitReport) -> Value {
    let answer = report.answer.as_ref();
    json!({
        "batch": answer.map(|answer| answer.batch),
        "confirmed": answer.is_some() && report.is_confirmed(),
        "reason": reason(report.stop),
        "card_bytes": report.card.map(Bytes::get),
        "allocator": report.allocator,
        "memory": answer.map(|answer| json!({
            "fixed_bytes": answer.composition.fixed.get(),
            "per_unit_bytes": answer.composition.per_unit.get(),
            "unused_bytes": answer.composition.unused.get(),
            "beside_bytes": answer.composition.overhead.get(),
            "margin_bytes": answer.margin.get(),
            "exact_share": answer.composition.exact_share,
            "varies": answer.composition.varies,
        })),
        "sites": answer.map(|answer| list(&answer.composition.sites, |site| json!({
            "place": site.place,
            "per_unit_bytes": site.per_unit.get(),
        }))),
        "limiting_rank": report.largest_run().and_then(FitRun::limiting_rank),
        "alternatives": answer.map(|answer| list(&answer.alternatives, |other| json!({
            "name": other.name,
            "how": other.how,
            "batch": other.batch,
            "is_estimate": other.is_estimate,
        }))),
        "runs": list(&report.runs, |run| json!({
            "batch": run.batch,
            "seconds": run.seconds,
            "steps": run.steps,
            "refused": run.end == FitEnd::Refused,
            "refusals_survived": run.refusals,
            "end": run.end.word(),
            "peak_live_bytes": run.peak_live.map(Bytes::get),
            "ranks": list(&run.ranks, |rank| json!({
                "rank": rank.rank,
                "peak_live_bytes": rank.peak_live.get(),
            })),
        })),
    })
}

fn reason(stop: Stop) -> &'static str {
    match stop {
        Stop::Found(_) => "found",
        Stop::OutOfRuns { .. } => "out_of_runs",
        Stop::Predicted(_) => "predicted",
        Stop::NothingGrows => "nothing_grows",
        Stop::NoLaw => "no_law",
        Stop::NothingFits => "nothing_fits",
        Stop::UnknownCard => "unknown_card",
    }
}

/// The result as text.
pub fn fit_text(report: &FitReport, columns: usize) -> String {
    let columns = columns.max(LEAST_COLUMNS);
    let mut out = String::new();
    let _ = writeln!(out);
    match &report.answer {
        Some(answer) => found(&mut out, report, answer, columns),
        None => nothing(&mut out, report, columns),
    }
    let _ = writeln!(out);
    runs(&mut out, &report.runs, columns);
    out
}

fn found(out: &mut String, report: &FitReport, answer: &Answer, columns: usize) {
    let certainty = match report.stop {
        Stop::OutOfRuns { ran, .. } => {
            format!("predicted; {ran} was confirmed, and no runs were left (--runs)")
        }
        Stop::Predicted(_) => "predicted; this GPU is too small to confirm it".to_owned(),
        _ => "confirmed by a run".to_owned(),
    };
    let _ = writeln!(out, "{MARGIN}{TITLE}LARGEST BATCH SIZE {}{TITLE:#}, {certainty}", answer.batch);
    let parts = &answer.composition;
    let live = Bytes::new(parts.per_unit.get().saturating_mul(answer.batch));
    let mut text = format!(
        "Of {}, {} does not depend on the batch and {} grows with it, {} per unit.",
        answer.card, parts.fixed, live, parts.per_unit
    );
    if !parts.unused.is_zero() {
        let _ = write!(text, " The allocator ({}) caches {} more.", report.allocator, parts.unused);
    }
    let _ = write!(
        text,
        " {} is held outside the allocator, and {} is kept free.",
        parts.overhead, answer.margin
    );
    if parts.varies {
        text.push_str(" Steps differ: longer steps than those observed would need more memory.");
    }
    if parts.exact_share < 0.98 {
        let _ = write!(
            text,
            " {:.0} % of it follows the batch size exactly in every run; the rest is estimated.",
            parts.exact_share * 100.0
        );
    }
    if let Some(words) = report.largest_run().and_then(limit) {
        let _ = write!(text, " {words}");
    }
    for line in wrap(&text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
    let sites: Vec<TableRow> = parts
        .sites
        .iter()
        .filter(|site| !site.place.is_empty())
        .map(|site| TableRow {
            cells: vec![site.place.clone(), site.per_unit.to_string()],
            remark: String::new(),
        })
        .collect();
    if !sites.is_empty() {
        let _ = writeln!(out);
        table(out, &[Column::text("growing memory"), Column::number("per unit")], &sites, columns);
    }
    if !answer.alternatives.is_empty() {
        let _ = writeln!(out);
        let rows: Vec<TableRow> = answer.alternatives.iter().map(row).collect();
        table(out, &[Column::text("change"), Column::number("batch")], &rows, columns);
    }
}

/// Which of several ranks limits the batch, and by how much.
fn limit(run: &FitRun) -> Option<String> {
    let (first, others) = run.ranks.split_first()?;
    let (next, count) = (others.iter().map(|other| other.peak_live).max()?, run.ranks.len());
    let is_level = first.peak_live.get().saturating_sub(next.get()) <= first.peak_live.get() / LEVEL_SHARE;
    Some(if is_level {
        format!("Rank {} of {count} limits it; another rank holds about the same.", first.rank)
    } else {
        format!(
            "Rank {} of {count} limits it: with {}, it peaked at {}, the other ranks at {} or less.",
            first.rank, run.batch, first.peak_live, next
        )
    })
}

fn row(alternative: &Alternative) -> TableRow {
    let batch = alternative.batch.unwrap_or(0);
    let about = if alternative.is_estimate { "about " } else { "" };
    TableRow {
        cells: vec![alternative.name.clone(), format!("{about}{batch}")],
        remark: alternative.how.clone(),
    }
}

fn nothing(out: &mut String, report: &FitReport, columns: usize) {
    let (title, text) = match report.stop {
        Stop::NothingGrows => (
            "MEMORY DOES NOT DEPEND ON THE BATCH SIZE",
            "Runs with different batch sizes used the same memory, within 1 %. Is {} the batch size argument, and is it used before the run is stopped? To observe more steps: --steps 12".to_owned(),
        ),
        Stop::NoLaw => ("NO MODEL FOUND", no_law(&report.runs)),
        Stop::NothingFits => (
            "NO TESTED BATCH SIZE FITS",
            format!(
                "The program ran out of memory with {}, the smallest batch size tested.{} To see what fills the GPU: makeroom run -- PROGRAM",
                report.smallest(),
                if report.smallest() > 1 { " To start smaller: --start 1." } else { "" }
            ),
        ),
        _ => (
            "THE SIZE OF THE GPU IS UNKNOWN",
            "No run reported the size of the GPU. Pass it with --memory, for example --memory 24GiB".to_owned(),
        ),
    };
    let _ = writeln!(out, "{MARGIN}{TITLE}{title}{TITLE:#}");
    for line in wrap(&text, columns - 2) {
        let _ = writeln!(out, "{MARGIN}{line}");
    }
}

/// The text for memory that changes with the batch while allocation sizes do not, so that nothing can be predicted.
fn no_law(runs: &[FitRun]) -> String {
    let mut seen: Vec<(u64, Bytes)> =
        runs.iter().filter_map(|run| Some((run.batch, run.peak_live?))).collect();
    seen.sort_unstable();
    let figures = match (seen.first(), seen.last()) {
        (Some((few, less)), Some((many, more))) => {
            format!("The live peak was {less} with {few} and {more} with {many}")
        }
        _ => "Memory differed from run to run".to_owned(),
    };
    format!(
        "{figures}, but no single allocation grew: there were more of them, or one run was longer. The prediction needs sizes that grow with the batch. To see what one batch size uses: makeroom run -- PROGRAM"
    )
}

fn runs(out: &mut String, runs: &[FitRun], columns: usize) {
    let mut headings = ["run", "steps", "peak live", "time"].map(Column::number).to_vec();
    let has_ranks = runs.iter().any(|run| !run.ranks.is_empty());
    if has_ranks {
        headings.insert(3, Column::number("rank"));
    }
    let rows: Vec<TableRow> = runs
        .iter()
        .map(|run| {
            let mut cells = vec![
                run.batch.to_string(),
                run.steps.map_or(String::new(), |steps| steps.to_string()),
                run.peak_live.map_or(String::new(), |live| live.to_string()),
                format!("{:.0} s", run.seconds.max(1.0)),
            ];
            if has_ranks {
                cells.insert(3, run.limiting_rank().map_or(String::new(), |rank| rank.to_string()));
            }
            TableRow { cells, remark: run.remark() }
        })
        .collect();
    table(out, &headings, &rows, columns);
    let is_shown = |run: &FitRun| run.end == FitEnd::Shown;
    if runs.iter().any(is_shown) {
        let which = if runs.iter().all(is_shown) { "each run" } else { "each other run" };
        let _ = writeln!(out, "{MARGIN}{DIM}  {which} was stopped after enough steps{DIM:#}");
    }
}
