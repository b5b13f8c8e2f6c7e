//! Shared by `diff` and `gate`: reduces a recording to its peak, or reads a baseline.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use makeroom_core::Trace;
use makeroom_diff::{BASELINE, Profile};
use makeroom_explain::line_of;
use makeroom_gather::find;
use makeroom_trace::Input;

use crate::commands::recording;
use crate::failure::Failure;

/// The largest baseline that is read. makeroom writes at most 200 lines of code into one.
const LONGEST_BASELINE: u64 = 1 << 20;

/// The peak of a recording, of a baseline, or of the fullest recording in a directory.
pub(super) fn read(path: &Path, device: Option<u32>) -> Result<Profile, Failure> {
    if path.is_dir() {
        return fullest(path, device);
    }
    match baseline(path)? {
        Some(profile) => Ok(profile),
        None => of_trace(&recording::read_trace(path)?, path, device),
    }
}

/// Reduces a recording.
pub(super) fn of_trace(trace: &Trace, path: &Path, device: Option<u32>) -> Result<Profile, Failure> {
    let device = recording::device(trace, path, device)?;
    Ok(Profile::new(trace, device, |stack| line_of(trace, stack)))
}

/// The recording in a directory that has the highest peak: of a job, its fullest rank. Other files are passed over.
fn fullest(directory: &Path, device: Option<u32>) -> Result<Profile, Failure> {
    let found = find(&[PathBuf::from(directory)]).map_err(Failure::Open)?;
    let mut fullest: Option<Profile> = None;
    let mut first = None;
    for path in found.paths() {
        let profile = match makeroom_trace::open(path) {
            Ok(Input::Trace(trace)) => of_trace(&trace, path, device),
            Ok(Input::Text(_)) => continue,
            Err(error) => Err(Failure::input(&recording::name(path), error)),
        };
        match profile {
            Ok(profile) if fullest.as_ref().is_none_or(|other| profile.peak_bytes > other.peak_bytes) => {
                fullest = Some(profile);
            }
            Ok(_) => {}
            Err(failure) => first = first.or(Some(failure.to_string())),
        }
    }
    let name = recording::name(directory);
    fullest.ok_or(Failure::NoRecordings { name, is_recorded: false, files: found.len(), first })
}

/// The content of a baseline; `None` if the file is something else.
fn baseline(path: &Path) -> Result<Option<Profile>, Failure> {
    // Standard input and pipes can be read only once, so they are recordings.
    if !path.is_file() {
        return Ok(None);
    }
    let failed = |error| Failure::Read { name: recording::name(path), error };
    let mut text = Vec::new();
    File::open(path).map_err(failed)?.take(LONGEST_BASELINE + 1).read_to_end(&mut text).map_err(failed)?;
    let is_json = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if !is_json || text.len() as u64 > LONGEST_BASELINE {
        return Ok(None);
    }
    let wrong = |problem: String| Failure::Baseline { name: recording::name(path), problem };
    let profile: Profile = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    if profile.format != BASELINE {
        return Err(wrong(format!("its format is `{}`, not `{BASELINE}`", profile.format)));
    }
    Ok(Some(profile))
}
