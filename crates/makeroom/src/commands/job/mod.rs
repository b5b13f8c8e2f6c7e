//! `makeroom job`: one answer for all recordings, snapshots and logs of a job.
//!
//! `page` writes the page, and the pages of the most important ranks next to it.

mod page;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use makeroom_core::Trace;
use makeroom_gather::{Watcher, find, read};
use makeroom_job::{JobReport, RecordingRow, Rows, answer};
use makeroom_report::{job_json, job_text};

use crate::cli::Job;
use crate::commands::env::LIBRARY;
use crate::commands::{Kind, companion, groups, place, recording};
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;

/// The height of a screen where stdout is not one.
const ROWS: usize = 25;
/// Fewer files are read too fast for a progress bar.
const SLOW: usize = 50;

/// Runs `makeroom job`.
pub(crate) fn run(arguments: &Job) -> Result<ExitCode, Failure> {
    if let Some(job) = &arguments.id {
        return of_index(arguments, job);
    }
    if let Some(by) = arguments.by {
        let (is_json, is_verbose) = (arguments.json, arguments.verbose);
        groups::of_job(
            &arguments.paths,
            &groups::Options { by: by.into(), device: None, is_json, is_verbose },
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(page) = &arguments.output {
        place::check(page, Kind::JobPage, &arguments.paths)?;
    }
    let rows = rows(&arguments.paths)?;
    let report = answer(&rows);
    print(&report, arguments.json, arguments.verbose)?;
    if let Some(page) = &arguments.output {
        page::write(page, &report, &rows, arguments.pages)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains a job of an index, which another program reads.
fn of_index(arguments: &Job, job: &str) -> Result<ExitCode, Failure> {
    let mut words: Vec<OsString> = arguments.paths.iter().map(|path| path.clone().into_os_string()).collect();
    words.extend(["--job".into(), job.into()]);
    words.extend(arguments.json.then(|| "--json".into()));
    words.extend(arguments.verbose.then(|| "--verbose".into()));
    companion::fleet("job", &words)
}

/// Shows progress while files are read.
struct Reading {
    progress: Option<Progress>,
}

impl Watcher for Reading {
    fn is_running(&self, trace: &Trace, path: &Path) -> bool {
        recording::is_running(trace, path)
    }

    fn on_file(&self, path: &Path) {
        if let Some(progress) = &self.progress {
            progress.step(&recording::name(path));
        }
    }
}

/// The rows of all files under the paths. An error if there are none.
pub(crate) fn rows(paths: &[PathBuf]) -> Result<Rows, Failure> {
    let found = find(paths).map_err(Failure::Open)?;
    let watched = Reading { progress: (found.len() >= SLOW).then(|| Progress::new(found.len() as u64)) };
    let rows = read(&found, &watched);
    if let Some(progress) = watched.progress {
        progress.finish();
    }
    if rows.recordings.is_empty() {
        let first = rows.unread.first().map(|unread| format!("{}: {}", unread.file, unread.reason));
        let name = paths.first().map_or_else(String::new, |path| path.display().to_string());
        let is_recorded = first.is_none() && paths.iter().any(|path| path.join(LIBRARY).is_dir());
        return Err(Failure::NoRecordings { name, is_recorded, files: rows.unread.len(), first });
    }
    if !rows.may_be_a_job() {
        let files: BTreeSet<&str> = rows.recordings.iter().map(RecordingRow::file).collect();
        let first = files.first().copied().unwrap_or_default().to_owned();
        return Err(Failure::NotOneJob { count: files.len(), first });
    }
    Ok(rows)
}

/// Prints an answer.
pub(crate) fn print(report: &JobReport, is_json: bool, is_verbose: bool) -> Result<(), Failure> {
    if is_json {
        return output::json(&job_json(report)?);
    }
    let rows = (!is_verbose).then(|| output::rows().unwrap_or(ROWS));
    output::result(&job_text(report, output::columns(), rows))
}

/// Whether all recordings are different ranks of one job.
pub(crate) fn is_one_job(rows: &Rows, report: &JobReport) -> bool {
    rows.recordings.len() > 1
        && rows.recordings.iter().all(|row| row.rank.is_some())
        && report.used.recordings == rows.recordings.len()
        && report.used.unread.is_empty()
}
