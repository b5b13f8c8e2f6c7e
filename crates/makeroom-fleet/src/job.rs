//! One job of an index: the answer of `makeroom job`, from the index instead of the recordings.
//!
//! Only row groups with the job are decoded. A compacted index is sorted by job, so these are few.

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;

use makeroom_index::{Column, Entry, IndexFile};
use makeroom_job::{Rows, answer};
use makeroom_report::{job_json, job_text};

use crate::answer::near;
use crate::cli::Job;
use crate::failure::Failure;
use crate::store::Location;
use crate::{layout, output};

/// Runs `makeroom job INDEX --job ID`.
pub(crate) async fn run(arguments: &Job) -> Result<ExitCode, Failure> {
    let index = Location::open(&arguments.index, false)?;
    let rows = rows(&index, &arguments.id).await?;
    let report = answer(&rows);
    if arguments.json {
        output::json(&job_json(&report)?)?;
    } else {
        let (columns, height) = output::screen();
        output::result(&job_text(&report, columns, (!arguments.verbose).then_some(height)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The rows of a job: of each source, those of its newest version.
async fn rows(index: &Location, job: &str) -> Result<Rows, Failure> {
    let mut jobs = HashSet::new();
    for _ in 0..layout::ATTEMPTS {
        let Some(newest) = newest(index, job, &mut jobs).await? else { continue };
        let mut rows = Rows::default();
        for entry in newest.into_values() {
            rows.extend(of_job(entry, job));
        }
        if rows.recordings.is_empty() {
            let near = near(jobs.iter().map(String::as_str), job);
            return Err(Failure::NoJob { job: job.to_owned(), near });
        }
        return Ok(rows);
    }
    Err(layout::changing(index))
}

/// The objects with recordings of the job, by source. `None` if a file has been deleted since it was listed: without it, the
/// answer would be incomplete.
async fn newest(
    index: &Location,
    job: &str,
    jobs: &mut HashSet<String>,
) -> Result<Option<BTreeMap<String, Entry>>, Failure> {
    let files = layout::existing(index).await?;
    let mut newest: BTreeMap<String, Entry> = BTreeMap::new();
    for path in files.parts.iter().chain(&files.objects) {
        let Some(file) = layout::open(index, path).await? else { return Ok(None) };
        let failed = |error| Failure::Index { name: path.to_string(), error };
        for group in 0..file.groups() {
            if !has_job(&file, group, job, jobs).map_err(failed)? {
                continue;
            }
            for entry in file.entries(group).map_err(failed)? {
                let version = |entry: &Entry| (entry.object.modified_us, entry.object.etag.clone());
                let known = newest.get(&entry.object.source);
                if known.is_none_or(|known| version(known) < version(&entry)) {
                    newest.insert(entry.object.source.clone(), entry);
                }
            }
        }
    }
    Ok(Some(newest))
}

/// Whether a row group has the job. Adds the names of all its jobs.
fn has_job(
    file: &IndexFile,
    group: usize,
    job: &str,
    jobs: &mut HashSet<String>,
) -> Result<bool, makeroom_index::IndexError> {
    let mut columns = file.columns_of(&["job_name"], group..group + 1)?;
    let Some(Column::Texts(names)) = columns.pop() else { return Ok(false) };
    let has_job = names.iter().flatten().any(|name| name == job);
    jobs.extend(names.into_iter().flatten());
    Ok(has_job)
}

/// The rows of an object that belong to the job.
fn of_job(entry: Entry, job: &str) -> Rows {
    let Entry { object, mut rows } = entry;
    rows.recordings.retain(|row| makeroom_index::job_name(row, &object) == job);
    let names: HashSet<String> = rows.recordings.iter().map(|row| row.recording.clone()).collect();
    if names.is_empty() {
        return Rows::default();
    }
    rows.failures.retain(|row| names.contains(&row.recording));
    rows.sites.retain(|row| names.contains(&row.recording));
    rows.steps.retain(|row| names.contains(&row.recording));
    rows.series.retain(|row| names.contains(&row.recording));
    rows
}
