//! Reads, explains and renders a recording when its program has ended or an allocation has failed.

use std::path::Path;
use std::time::Duration;

use makeroom_core::identity::JobIdentity;
use makeroom_core::{Action, Bytes, ProcessEnd, Trace};
use makeroom_explain::{
    By, Cause, Explanation, Grouped, TraceQuestion, explain_running, explain_trace, grouped,
};
use makeroom_report::{
    EarlyStop, explanation_json, explanation_text, grouped_json, grouped_text, lost_recording_text,
    missing_reason, nothing_recorded_text, others_text, refused_text, run_summary_text, sanitized_child_text,
    stepped_aside_text, still_recorded_text, switched_off_text, unrecorded_text,
};
use makeroom_trace::Input;
use makeroom_trace::room::Reader;
use serde_json::{Value, json};

use super::lines;
use super::listener::{Heard, Recorded};
use crate::commands::{looking, recording};
use crate::failure::Failure;
use crate::output;

/// The line for a program that used no GPU memory, that ran without the recorder, or whose recorder could not write.
pub(crate) fn nothing(program: &str, is_off: bool, heard: &Heard) -> String {
    match (heard.unrecorded.first(), &heard.sanitizer) {
        (Some((_, reason)), _) => unrecorded_text(reason),
        (None, Some(name)) => sanitized_child_text(program, name, true),
        (None, None) if is_off => switched_off_text(program),
        (None, None) => nothing_recorded_text(program),
    }
}

/// The line for a run whose file another run is using.
pub(crate) fn stepped_aside(taken: &Path, pattern: &Path) -> String {
    stepped_aside_text(&taken.display().to_string(), &pattern.display().to_string().replace("%p", "PID"))
}

/// The text for a failed allocation. With a recording of this run, it names the rank and, if wanted, includes the
/// explanation, whose cause is returned.
pub(crate) fn refusal(
    bytes: Bytes,
    device: Option<u32>,
    recording: Option<(&Path, &str)>,
    is_explained: bool,
) -> (String, Option<Cause>) {
    let rank = recording.and_then(|(file, run)| place_in_job(file, run)?.name());
    let mut text = refused_text(bytes, device, rank.as_deref());
    let mut explained = None;
    let trace = recording.filter(|_| is_explained).and_then(|(file, run)| read(file, run).ok());
    if let Some(trace) = trace {
        let explanation = explain_running(&trace, &TraceQuestion::default());
        // The recording does not contain the failure, or not yet: draw no conclusion.
        if explanation.verdict.cause == Cause::None {
            return (text, None);
        }
        explained = Some(explanation.verdict.cause);
        text.push_str(&explanation_text(&explanation, output::remark_columns(), None));
        if explanation.causes.iter().any(|finding| finding.cause == Cause::OtherProcesses) {
            text.push_str(&others(&trace, device));
        }
    }
    (text, explained)
}

/// Reads a recording of this run. The name came over the socket, so the file may be anything.
pub(super) fn read(path: &Path, run: &str) -> Result<Trace, Failure> {
    let name = || path.display().to_string();
    let file = makeroom_gather::open_plain(path).map_err(|error| Failure::Write { name: name(), error })?;
    let input = makeroom_trace::read(file).map_err(|error| Failure::input(&name(), error))?;
    let Input::Trace(trace) = input else { return Err(Failure::NotARecording { name: name() }) };
    let is_own = trace.process.as_ref().is_some_and(|process| hexadecimal(&process.identity.run) == run);
    if is_own { Ok(trace) } else { Err(Failure::OfAnotherRun { name: name() }) }
}

/// The place in a job of the process that writes a recording of this run.
pub(super) fn place_in_job(path: &Path, run: &str) -> Option<JobIdentity> {
    let reader = Reader::new(makeroom_gather::open_plain(path).ok()?).ok()?;
    let is_own = hexadecimal(&reader.header().run) == run;
    if is_own { reader.place_in_job().ok() } else { None }
}

fn hexadecimal(bytes: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*bytes))
}

/// Other processes that hold memory of the device now, if the driver reports them.
fn others(trace: &Trace, device: Option<u32>) -> String {
    let process = trace.process.as_ref();
    let known = process.iter().flat_map(|process| &process.devices);
    let Some(known) = known.into_iter().find(|known| Some(known.device.0) == device) else {
        return String::new();
    };
    let own = process.map_or(0, |process| process.identity.pid);
    looking::shortly().map_or(String::new(), |mut watcher| {
        others_text(&watcher.look(), &known.uuid, own, output::remark_columns())
    })
}

/// Whether PyTorch allocated segments of fixed size.
fn takes_fixed_segments(trace: &Trace) -> bool {
    trace.process.as_ref().is_some_and(|process| process.sees_tensors)
        && trace.devices.iter().any(|device| device.events.actions().contains(&Action::SegmentAlloc))
}

/// The failures that a process reported and that its recording lacks, because the file is damaged or has no end.
fn lost(recorded: &Recorded, explanation: &Result<Explanation, Failure>) -> Option<EarlyStop> {
    let (after, reason, found) = match explanation {
        Ok(explanation) => {
            let run = explanation.run.as_ref()?;
            let after = Duration::from_micros(run.recorded_us);
            (after, missing_reason(run.missing?), run.reported)
        }
        Err(failure) => (Duration::ZERO, failure.to_string(), 0),
    };
    let refused = recorded.refused.checked_sub(found).filter(|refused| *refused > 0)?;
    // With others in the recording, the first of those that are not is unknown.
    let first_refused = recorded.first_refused.filter(|_| found == 0);
    Some(EarlyStop { after, reason, refused, first_refused })
}

/// A recording whose program has ended.
pub(crate) struct Ended {
    file: String,
    stop: Option<EarlyStop>,
    /// The cause that was explained when its failure happened.
    explained: Option<Cause>,
    /// Whether its process is still running, such as a server that the program started.
    still_runs: bool,
    explanation: Result<Explanation, Failure>,
    /// Its live memory in groups, if requested.
    grouped: Option<Grouped>,
    /// Its rank, or its file.
    label: String,
    /// Whether all of PyTorch's tensors were in segments of fixed size.
    has_fixed_segments: bool,
}

impl Ended {
    /// Reads and explains a recording of this run, and groups its live memory.
    pub(crate) fn read(recorded: &Recorded, run: &str, by: Option<By>) -> Self {
        let path = &recorded.file;
        let (mut still_runs, mut has_fixed_segments) = (false, false);
        let mut in_groups = None;
        let mut label = path.display().to_string();
        let explanation = read(path, run).map(|trace| {
            still_runs = recording::is_running(&trace, path);
            has_fixed_segments = takes_fixed_segments(&trace);
            let has_exited = trace
                .process
                .as_ref()
                .is_some_and(|process| matches!(process.end, Some(ProcessEnd::Exited(_))));
            // Without line numbers, the recording is still complete on this machine.
            if has_exited {
                let _ = lines::keep(path);
            }
            in_groups = by.and_then(|by| grouped(&trace, None, by));
            if let Some(rank) = trace.process.as_ref().and_then(|process| process.identity.job.name()) {
                label = rank;
            }
            let explanation = explain_trace(&trace, &TraceQuestion::default());
            // Paged segments are expandable ones.
            has_fixed_segments &= explanation
                .run
                .as_ref()
                .is_some_and(|run| run.pages.is_empty() && run.expandable.iter().all(|torch| !torch.is_on));
            explanation
        });
        Self {
            file: path.display().to_string(),
            stop: recorded.stop.clone().or_else(|| lost(recorded, &explanation)),
            explained: recorded.explained,
            still_runs,
            explanation,
            grouped: in_groups,
            label,
            has_fixed_segments,
        }
    }

    /// Whether PyTorch allocated and none of it was in expandable segments.
    pub(crate) fn lacks_expandable_segments(&self) -> bool {
        self.has_fixed_segments
    }

    /// Whether the process used no GPU memory and there is nothing to report about it.
    pub(crate) fn is_idle(&self) -> bool {
        let Ok(Explanation { run: Some(run), verdict, .. }) = &self.explanation else { return false };
        let used_nothing = run.peaks.iter().all(|(_, bytes)| bytes.is_zero()) && run.pinned_peak.is_zero();
        used_nothing
            && verdict.cause == Cause::None
            && run.is_clean()
            && run.missing.is_none()
            && run.remarks.is_empty()
            && self.stop.is_none()
            && !self.still_runs
    }

    /// Its live memory in groups, with its name.
    pub(crate) fn grouped(&self) -> Option<(String, Grouped)> {
        Some((self.label.clone(), self.grouped.clone()?))
    }

    /// The summary as text, with the groups.
    pub(crate) fn text(&self) -> String {
        let groups =
            self.grouped.as_ref().map(|grouped| grouped_text(grouped, output::remark_columns(), false));
        self.summary() + &groups.unwrap_or_default()
    }

    fn summary(&self) -> String {
        let (stop, columns) = (self.stop.as_ref(), output::remark_columns());
        match &self.explanation {
            Ok(Explanation { run: Some(run), .. }) if self.still_runs => {
                still_recorded_text(&run.program, run.pid, &self.file)
            }
            Ok(explanation) => run_summary_text(explanation, &self.file, stop, self.explained, columns),
            Err(failure) => lost_recording_text(&self.file, failure, stop, columns),
        }
    }

    /// The summary as JSON.
    pub(crate) fn json(&self) -> Value {
        let incomplete = self.stop.as_ref().map(EarlyStop::json);
        match &self.explanation {
            Ok(explanation) => json!({
                "file": self.file,
                "incomplete": incomplete,
                "running": self.still_runs,
                "explanation": explanation_json(explanation),
                "groups": self.grouped.as_ref().map(grouped_json),
            }),
            Err(failure) => {
                json!({ "file": self.file, "incomplete": incomplete, "error": failure.to_string() })
            }
        }
    }
}
