//! The answer about a fleet: which jobs ran out of memory and why, by cause, job, model and line; the trend; wasted memory;
//! and the fixes that would save most.
//!
//! A job counts as failed if one of its recordings ran out of memory. Its GPU-hours are those of all its recordings: when a
//! rank fails, the work of the others is lost too.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::Fleet;
use crate::failure::Failure;
use crate::rows::{self, Row};
use crate::since::{date, now_us, since_us, week_us};
use crate::store::Location;
use crate::{output, page, text};

/// Entries of each list.
const MOST: usize = 10;
/// Weeks of the trend.
const MOST_WEEKS: usize = 26;
/// Number of jobs to suggest if the requested one does not exist.
const MOST_NEAR: usize = 5;

/// The answer. Its fields are a contract: they are never renamed or removed.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct FleetReport {
    pub(crate) recordings: usize,
    pub(crate) unreadable: usize,
    pub(crate) jobs: usize,
    pub(crate) failed_jobs: usize,
    pub(crate) gpu_hours: f64,
    pub(crate) failed_gpu_hours: f64,
    /// The first and last day with a recording.
    pub(crate) from: Option<String>,
    pub(crate) to: Option<String>,
    pub(crate) waste: Waste,
    pub(crate) causes: Vec<Share>,
    pub(crate) models: Vec<Share>,
    pub(crate) lines: Vec<Share>,
    pub(crate) by_job: Vec<JobShare>,
    pub(crate) weeks: Vec<Week>,
    pub(crate) fixes: Vec<FixShare>,
}

/// Failed jobs that have something in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Share {
    pub(crate) name: String,
    pub(crate) failed_jobs: usize,
    pub(crate) failed_recordings: usize,
    pub(crate) failed_gpu_hours: f64,
    /// The largest request that failed.
    pub(crate) largest_failed_bytes: Option<u64>,
}

/// A failed job.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct JobShare {
    pub(crate) job: String,
    pub(crate) model: Option<String>,
    pub(crate) cause: String,
    pub(crate) failed_recordings: usize,
    pub(crate) recordings: usize,
    pub(crate) failed_gpu_hours: f64,
    pub(crate) began: Option<String>,
}

/// A week.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Week {
    /// Its Monday.
    #[serde(rename = "week")]
    pub(crate) monday: String,
    pub(crate) jobs: usize,
    pub(crate) failed_jobs: usize,
    pub(crate) gpu_hours: f64,
    pub(crate) failed_gpu_hours: f64,
    pub(crate) waste: Waste,
}

/// Memory times time, in GB-hours (10⁹ bytes for an hour).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Waste {
    #[serde(rename = "held_gb_hours")]
    pub(crate) held: f64,
    #[serde(rename = "cached_gb_hours")]
    pub(crate) cached: f64,
    #[serde(rename = "fragmented_gb_hours")]
    pub(crate) fragmented: f64,
}

/// A fix that several failed jobs have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct FixShare {
    /// The fix as one of the recordings words it: figures differ.
    pub(crate) fix: String,
    pub(crate) command: Option<String>,
    pub(crate) failed_jobs: usize,
    pub(crate) failed_gpu_hours: f64,
    /// One of the jobs.
    pub(crate) example_job: String,
}

impl Waste {
    fn add(&mut self, row: &Row) {
        let hours = |byte_seconds: u64| byte_seconds as f64 / 1e9 / 3600.0;
        self.held += hours(row.held_byte_seconds);
        self.cached += hours(row.cached_byte_seconds);
        self.fragmented += hours(row.fragmented_byte_seconds);
    }
}

/// Runs `makeroom fleet`.
pub(crate) async fn run(arguments: &Fleet) -> Result<ExitCode, Failure> {
    let index = Location::open(&arguments.index, false)?;
    let since = arguments.since.as_deref().map(|text| since_us(text, now_us())).transpose()?;
    let mut rows = rows::read(&index).await?;
    if let Some(job) = &arguments.job {
        if !rows.iter().any(|row| row.job == *job) {
            return Err(Failure::NoJob {
                job: job.clone(),
                near: near(rows.iter().map(|row| row.job.as_str()), job),
            });
        }
        rows.retain(|row| row.job == *job);
    }
    if let Some(since) = since {
        rows.retain(|row| row.began_us.unwrap_or(row.modified_us) >= since);
    }
    let report = answer(&rows);
    if let Some(path) = &arguments.html {
        let failed = |error| Failure::Write { name: path.display().to_string(), error };
        std::fs::write(path, page::page(&report)).map_err(failed)?;
        output::remark(&format!("wrote {}", path.display()));
    }
    if arguments.json {
        output::json(&report)?;
    } else {
        let (columns, rows) = output::screen();
        output::result(&text::text(
            &report,
            &arguments.index,
            columns,
            (!arguments.verbose).then_some(rows),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Jobs with a similar name, to name in an error.
pub(crate) fn near<'a>(jobs: impl Iterator<Item = &'a str>, wanted: &str) -> Vec<String> {
    let jobs: BTreeSet<&str> = jobs.filter(|job| !job.is_empty()).collect();
    let is_similar = |job: &&&str| job.contains(wanted) || wanted.contains(**job);
    let similar: Vec<&str> = jobs.iter().filter(is_similar).copied().collect();
    let chosen = if similar.is_empty() { jobs.into_iter().collect() } else { similar };
    chosen.into_iter().take(MOST_NEAR).map(str::to_owned).collect()
}

/// A job, while its rows are added up.
#[derive(Default)]
struct Job<'rows> {
    recordings: usize,
    gpu_hours: f64,
    failures: Vec<&'rows Row>,
    first: Option<&'rows Row>,
    began_us: Option<u64>,
}

impl<'rows> Job<'rows> {
    /// The model, else the program.
    fn model(&self) -> Option<&'rows str> {
        self.first.and_then(|row| row.model.as_deref().or(row.program.as_deref()))
    }

    /// The cause that most of its recordings name.
    fn cause(&self) -> &'rows str {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.failures {
            *counts.entry(row.cause.as_str()).or_default() += 1;
        }
        counts
            .into_iter()
            .max_by_key(|&(name, count)| (count, Reverse(name)))
            .map_or("none", |(name, _)| name)
    }
}

/// The answer for these rows.
pub(crate) fn answer(rows: &[Row]) -> FleetReport {
    let mut jobs: HashMap<&str, Job<'_>> = HashMap::new();
    let mut report = FleetReport::default();
    for row in rows {
        if row.unreadable.is_some() {
            report.unreadable += 1;
            continue;
        }
        report.recordings += 1;
        report.waste.add(row);
        let job = jobs.entry(&row.job).or_default();
        job.recordings += 1;
        job.gpu_hours += row.gpu_hours();
        // Of the first source, so that the answer does not depend on the order of the files.
        job.first = job.first.filter(|first| first.source <= row.source).or(Some(row));
        job.began_us = [job.began_us, row.began_us].into_iter().flatten().min();
        if row.ran_out {
            job.failures.push(row);
        }
    }
    // By name, so that sums of hours do not depend on the order of the files.
    let mut jobs: Vec<(&str, Job<'_>)> = jobs.into_iter().collect();
    jobs.sort_by_key(|(name, _)| *name);
    report.jobs = jobs.len();
    report.gpu_hours = jobs.iter().map(|(_, job)| job.gpu_hours).sum();
    let failed: Vec<&(&str, Job<'_>)> = jobs.iter().filter(|(_, job)| !job.failures.is_empty()).collect();
    report.failed_jobs = failed.len();
    report.failed_gpu_hours = failed.iter().map(|(_, job)| job.gpu_hours).sum();
    let times = || rows.iter().filter_map(|row| row.began_us);
    (report.from, report.to) = (times().min().map(date), times().max().map(date));
    report.causes = shares(&failed, |row, _| Some(row.cause.as_str()));
    report.models = shares(&failed, |_, job| job.model());
    report.lines = shares(&failed, |row, _| {
        [&row.failed_at, &row.top_line].into_iter().flatten().map(String::as_str).find(|place| is_line(place))
    });
    report.by_job = by_job(&failed);
    report.fixes = fixes(&failed);
    report.weeks = weeks(rows, &failed);
    report
}

/// Whether a place is more than the name of a thread, which the recorder writes where it finds no line.
fn is_line(place: &str) -> bool {
    !place.starts_with("thread ")
}

/// Failed jobs by a property of their failures; those that cost most first.
fn shares<'rows>(
    failed: &[&(&'rows str, Job<'rows>)],
    name: impl Fn(&'rows Row, &Job<'rows>) -> Option<&'rows str>,
) -> Vec<Share> {
    let mut found: BTreeMap<&str, Share> = BTreeMap::new();
    for (_, job) in failed {
        let mut seen = HashSet::new();
        for row in &job.failures {
            let Some(name) = name(row, job) else { continue };
            let share = found.entry(name).or_default();
            share.failed_recordings += 1;
            share.largest_failed_bytes = share.largest_failed_bytes.max(row.failed_bytes);
            if seen.insert(name) {
                share.failed_jobs += 1;
                share.failed_gpu_hours += job.gpu_hours;
            }
        }
    }
    let named = found.into_iter().map(|(name, share)| Share { name: name.to_owned(), ..share });
    let mut shares: Vec<Share> = named.collect();
    shares.sort_by(|one, two| {
        let cost = |share: &Share| (share.failed_gpu_hours, share.failed_jobs as f64);
        compare(cost(two), cost(one)).then_with(|| one.name.cmp(&two.name))
    });
    shares.truncate(MOST);
    shares
}

fn compare(one: (f64, f64), two: (f64, f64)) -> std::cmp::Ordering {
    one.0.total_cmp(&two.0).then(one.1.total_cmp(&two.1))
}

fn by_job(failed: &[&(&str, Job<'_>)]) -> Vec<JobShare> {
    let share = |(name, job): &&(&str, Job<'_>)| JobShare {
        job: (*name).to_owned(),
        model: job.model().map(str::to_owned),
        cause: job.cause().to_owned(),
        failed_recordings: job.failures.len(),
        recordings: job.recordings,
        failed_gpu_hours: job.gpu_hours,
        began: job.began_us.map(date),
    };
    let mut jobs: Vec<JobShare> = failed.iter().map(share).collect();
    jobs.sort_by(|one, two| {
        let cost = |job: &JobShare| (job.failed_gpu_hours, job.failed_recordings as f64);
        compare(cost(two), cost(one)).then_with(|| one.job.cmp(&two.job))
    });
    jobs.truncate(MOST);
    jobs
}

/// Fixes that differ only in their figures are one fix. Each job counts once per fix.
fn fixes(failed: &[&(&str, Job<'_>)]) -> Vec<FixShare> {
    let mut found: BTreeMap<String, FixShare> = BTreeMap::new();
    for (name, job) in failed {
        let mut seen = HashSet::new();
        for row in &job.failures {
            let Some(fix) = &row.fix else { continue };
            let key = without_figures(fix);
            if !seen.insert(key.clone()) {
                continue;
            }
            let share = found.entry(key).or_insert_with(|| FixShare {
                fix: fix.clone(),
                command: row.fix_command.clone(),
                example_job: (*name).to_owned(),
                ..FixShare::default()
            });
            share.failed_jobs += 1;
            share.failed_gpu_hours += job.gpu_hours;
        }
    }
    let mut fixes: Vec<FixShare> = found.into_values().collect();
    fixes.sort_by(|one, two| {
        let cost = |fix: &FixShare| (fix.failed_gpu_hours, fix.failed_jobs as f64);
        compare(cost(two), cost(one)).then_with(|| one.fix.cmp(&two.fix))
    });
    fixes.truncate(MOST);
    fixes
}

fn without_figures(text: &str) -> String {
    text.split(|letter: char| letter.is_ascii_digit() || letter == '.').collect::<Vec<_>>().join("")
}

fn weeks(rows: &[Row], failed: &[&(&str, Job<'_>)]) -> Vec<Week> {
    let failed: HashMap<&str, f64> = failed.iter().map(|(name, job)| (*name, job.gpu_hours)).collect();
    let mut jobs: BTreeMap<u64, HashSet<&str>> = BTreeMap::new();
    let mut weeks: BTreeMap<u64, Week> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.unreadable.is_none()) {
        let Some(began) = row.began_us else { continue };
        let start = week_us(began);
        let week = weeks.entry(start).or_default();
        let hours = row.gpu_hours();
        week.gpu_hours += hours;
        week.waste.add(row);
        let is_failed = failed.contains_key(row.job.as_str());
        if is_failed {
            week.failed_gpu_hours += hours;
        }
        if jobs.entry(start).or_default().insert(&row.job) {
            week.jobs += 1;
            week.failed_jobs += usize::from(is_failed);
        }
    }
    let skipped = weeks.len().saturating_sub(MOST_WEEKS);
    let named = weeks.into_iter().map(|(start, week)| Week { monday: date(start), ..week });
    named.skip(skipped).collect()
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
