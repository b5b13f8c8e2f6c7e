//! Shared by `job --by`, `why --by` on directories, and `run --by`: live memory in groups, for one recording or for all
//! ranks of a job.

use std::path::PathBuf;

use makeroom_explain::{Across, By, Grouped, across, grouped};
use makeroom_gather::read_recording;
use makeroom_job::{JobReport, RecordingKind, answer};
use makeroom_report::{across_json, across_text};
use makeroom_view::Refusal;

use crate::commands::job;
use crate::failure::Failure;
use crate::output;

/// Prints the groups of all ranks of a job.
pub(crate) fn of_job(paths: &[PathBuf], by: By, is_json: bool, is_verbose: bool) -> Result<(), Failure> {
    let report = answer(&job::rows(paths)?);
    let (across, first) = of_ranks(&report, by);
    let has_only_logs = report.ranks.iter().all(|rank| rank.kind == RecordingKind::Log);
    if has_only_logs && !report.ranks.is_empty() {
        let message = format!("logs do not show memory by {}; pass recordings or snapshots", by.id());
        let hint = "record the ranks of the next run: makeroom run -- torchrun …";
        return Err(Failure::View(Refusal::new(404, message, hint)));
    }
    let name = || paths.first().map_or_else(String::new, |path| path.display().to_string());
    let across = across.ok_or_else(|| Failure::NoRecordings {
        name: name(),
        is_recorded: false,
        files: report.ranks.len(),
        first,
    })?;
    if is_json {
        return output::json(&across_json(&across));
    }
    output::result(&across_text(&across, output::columns(), is_verbose))
}

/// The groups of all ranks with recordings, and why the first one that could not be read could not. Recordings are read
/// one after the other, because each may take as much memory as its file.
fn of_ranks(report: &JobReport, by: By) -> (Option<Across>, Option<String>) {
    let mut all: Vec<(String, Grouped)> = Vec::new();
    let mut first = None;
    for rank in report.ranks.iter().filter(|rank| rank.kind != RecordingKind::Log) {
        let trace = match read_recording(&rank.recording) {
            Ok(Some(trace)) => trace,
            Ok(None) => continue,
            Err(error) => {
                first = first.or(Some(format!("{}: {error}", rank.recording)));
                continue;
            }
        };
        all.extend(grouped(&trace, None, by).map(|grouped| (rank.label.clone(), grouped)));
    }
    (across(&all), first)
}
