//! Shared by `diff` and `gate`: the run that a path stands for, and the file it was read from.

use std::path::{Path, PathBuf};

use makeroom_core::{Trace, TraceKind};
use makeroom_diff::{Moment, Profile, Source as Recorder};
use makeroom_gather::find;
use makeroom_trace::Input;

use crate::commands::profile;
use crate::commands::recording;
use crate::failure::Failure;

/// A run.
pub(in crate::commands) struct Source {
    /// Its memory at the chosen moment.
    pub(in crate::commands) profile: Profile,
    /// The file, as messages name it.
    pub(in crate::commands) name: String,
    /// Whether the file was chosen from a directory.
    pub(in crate::commands) is_chosen: bool,
    /// The recording, unless it is a baseline.
    trace: Option<Trace>,
}

impl Source {
    /// Whether it is a recording, not a baseline.
    pub(in crate::commands) fn is_recording(&self) -> bool {
        self.trace.is_some()
    }
}

/// Reads a recording, a baseline, or the recording in a directory that has the highest peak.
pub(in crate::commands) fn read(path: &Path, device: Option<u32>, moment: Moment) -> Result<Source, Failure> {
    if path.is_dir() {
        return fullest(path, device, moment);
    }
    if let Some(profile) = profile::baseline(path)? {
        return Ok(Source { profile, name: recording::name(path), is_chosen: false, trace: None });
    }
    of_trace(recording::read_trace(path)?, path, device, moment)
}

/// Reduces two runs to the memory that the recorders of both see: a PyTorch snapshot contains only the memory of its own
/// allocator, and `makeroom run` records that of all libraries.
pub(in crate::commands) fn narrow(sources: [&mut Source; 2], device: Option<u32>, moment: Moment) {
    let is_snapshot = |source: &Source| source.profile.source == Some(Recorder::TorchSnapshot);
    if !sources.iter().any(|source| is_snapshot(source)) {
        return;
    }
    for source in sources {
        let trace = source.trace.as_ref().filter(|trace| trace.kind == TraceKind::Room);
        if let Some(profile) = trace.and_then(|trace| profile::of_allocator(trace, device, moment)) {
            source.profile = profile;
        }
    }
}

fn of_trace(trace: Trace, path: &Path, device: Option<u32>, moment: Moment) -> Result<Source, Failure> {
    let profile = profile::of_trace(&trace, path, device, moment)?;
    Ok(Source { profile, name: recording::name(path), is_chosen: false, trace: Some(trace) })
}

/// The recording in a directory that has the highest peak: of a job, its fullest rank. Other files are passed over.
fn fullest(directory: &Path, device: Option<u32>, moment: Moment) -> Result<Source, Failure> {
    let found = find(&[PathBuf::from(directory)]).map_err(Failure::Open)?;
    let mut fullest: Option<Source> = None;
    let (mut first, mut has_text) = (None, false);
    for path in found.paths() {
        let source = match makeroom_trace::open(path) {
            Ok(Input::Trace(trace)) => of_trace(trace, path, device, moment),
            Ok(Input::Text(_)) => {
                has_text = true;
                continue;
            }
            Err(error) => Err(Failure::input(&recording::name(path), error)),
        };
        match source {
            Ok(source) => {
                let peak = |source: &Source| source.profile.peak_bytes;
                if fullest.as_ref().is_none_or(|other| peak(&source) > peak(other)) {
                    fullest = Some(Source { is_chosen: true, ..source });
                }
            }
            Err(failure) => first = first.or(Some(failure.to_string())),
        }
    }
    let name = recording::name(directory);
    fullest.ok_or_else(|| match first {
        None if has_text => Failure::OnlyLogs { name },
        first => Failure::NoRecordings { name, is_recorded: false, files: found.len(), first },
    })
}
