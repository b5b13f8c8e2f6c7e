//! Shared by `job --by`, `why --by` on directories, and `run --by`: live memory in groups, for one recording or for all
//! ranks of a job.

use std::path::{Path, PathBuf};

use makeroom_core::{DeviceIndex, Trace};
use makeroom_explain::{Across, By, Grouped, across, grouped};
use makeroom_gather::read_recording;
use makeroom_job::{JobReport, RecordingKind, answer};
use makeroom_report::{across_json, across_text};
use makeroom_view::Refusal;

use crate::commands::{job, recording};
use crate::failure::Failure;
use crate::output;

/// How groups are chosen and printed.
pub(crate) struct Options {
    /// What to group by.
    pub(crate) by: By,
    /// The GPU; by default, of each recording the one that failed or is fullest.
    pub(crate) device: Option<u32>,
    /// Whether to print JSON.
    pub(crate) is_json: bool,
    /// Whether to print all groups.
    pub(crate) is_verbose: bool,
}

/// Prints the groups of all ranks of a job, and of recordings that are named but are not ranks of it.
pub(crate) fn of_job(paths: &[PathBuf], options: &Options) -> Result<(), Failure> {
    let by = options.by;
    let report = answer(&job::rows(paths)?);
    let mut reader = Reader { options, all: Vec::new(), first: None, present: None };
    reader.ranks(&report);
    reader.files(paths, &report);
    let has_only_logs = report.ranks.iter().all(|rank| rank.kind == RecordingKind::Log);
    if has_only_logs && !report.ranks.is_empty() && reader.all.is_empty() {
        let message = format!("logs do not show memory by {}; pass recordings or snapshots", by.id());
        let hint = "record the ranks of the next run: makeroom run -- torchrun …";
        return Err(Failure::View(Refusal::new(404, message, hint)));
    }
    let across = reader.across().ok_or_else(|| {
        let name = paths.first().map_or_else(String::new, |path| path.display().to_string());
        match (options.device, reader.present) {
            (Some(asked), Some((name, present))) => Failure::NoSuchDevice { name, asked, present },
            _ => Failure::NoRecordings {
                name,
                is_recorded: false,
                files: report.ranks.len(),
                first: reader.first,
            },
        }
    })?;
    if options.is_json {
        return output::json(&across_json(&across));
    }
    output::result(&across_text(&across, output::columns(), options.is_verbose))
}

/// Reads recordings one after the other, because each may take as much memory as its file.
struct Reader<'run> {
    options: &'run Options,
    /// The groups of each recording, by its label.
    all: Vec<(String, Grouped)>,
    /// Why the first recording that could not be read could not.
    first: Option<String>,
    /// The first recording without the requested GPU, and the GPUs it has.
    present: Option<(String, String)>,
}

impl Reader<'_> {
    fn ranks(&mut self, report: &JobReport) {
        for rank in report.ranks.iter().filter(|rank| rank.kind != RecordingKind::Log) {
            match read_recording(&rank.recording) {
                Ok(Some(trace)) => self.add(&rank.label, &trace, &rank.recording),
                Ok(None) => {}
                Err(error) => self.first = self.first.take().or(Some(format!("{}: {error}", rank.recording))),
            }
        }
    }

    /// Adds files that are named themselves and are not among the ranks.
    fn files(&mut self, paths: &[PathBuf], report: &JobReport) {
        let is_rank = |path: &Path| report.ranks.iter().any(|rank| Path::new(&rank.recording) == path);
        for path in paths.iter().filter(|path| path.is_file() && !is_rank(path)) {
            let name = recording::name(path);
            match recording::read_trace(path) {
                Ok(trace) => self.add(&name, &trace, &name),
                Err(Failure::NotARecording { .. }) => {
                    output::remark(&format!("note: {name} is not a recording, so it is not in this table\n"));
                }
                Err(failure) => {
                    output::remark(&format!("warning: {failure}\n"));
                    self.first = self.first.take().or(Some(failure.to_string()));
                }
            }
        }
    }

    fn add(&mut self, label: &str, trace: &Trace, name: &str) {
        match grouped(trace, self.options.device.map(DeviceIndex), self.options.by) {
            Some(grouped) => self.all.push((label.to_owned(), grouped)),
            None if self.present.is_none() && !trace.devices.is_empty() => {
                let devices: Vec<String> =
                    trace.devices.iter().map(|device| device.device.to_string()).collect();
                self.present = Some((name.to_owned(), devices.join(", ")));
            }
            None => {}
        }
    }

    fn across(&self) -> Option<Across> {
        across(&self.all)
    }
}
