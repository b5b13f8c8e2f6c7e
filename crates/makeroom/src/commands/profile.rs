//! Shared by `diff` and `gate`: reduces a recording to its peak, or reads a baseline.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use makeroom_core::{DeviceIndex, Trace};
use makeroom_diff::{BASELINE, Moment, Profile};
use makeroom_kind::Kinds;
use makeroom_sim::Inside;

use crate::commands::recording;
use crate::failure::Failure;

/// The largest baseline that is read. makeroom writes at most 200 lines of code into one.
const LONGEST_BASELINE: u64 = 1 << 20;
/// Reduces a recording.
pub(super) fn of_trace(
    trace: &Trace,
    path: &Path,
    device: Option<u32>,
    moment: Moment,
) -> Result<Profile, Failure> {
    let device = recording::device(trace, path, device)?;
    Ok(Profile::of_run(trace, device, &Kinds::new(trace, device), moment))
}

/// Reduces the memory of the framework's allocator in a recording of a whole process: what a snapshot of the same run
/// contains. `None` if the recording does not show such an allocator.
pub(super) fn of_allocator(trace: &Trace, device: Option<u32>, moment: Moment) -> Option<Profile> {
    let inside = Inside::new(trace.device(device.map(DeviceIndex))?)?;
    let profile = Profile::of_run(trace, &inside.device, &Kinds::new(trace, &inside.device), moment);
    Some(Profile { left_out_bytes: Some(inside.outside), ..profile })
}

/// The content of a baseline; `None` if the file is something else.
pub(super) fn baseline(path: &Path) -> Result<Option<Profile>, Failure> {
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
