//! Shared by `diff` and `gate`: reduces a recording to its peak, or reads a baseline.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use makeroom_core::Trace;
use makeroom_diff::{BASELINE, GrowingLine, Profile, StepGrowth};
use makeroom_explain::{Grouped, Growing, GrowingLine as ExplainedLine, growing, line_of};
use makeroom_kind::Kinds;

use crate::commands::recording;
use crate::failure::Failure;

/// The largest baseline that is read. makeroom writes at most 200 lines of code into one.
const LONGEST_BASELINE: u64 = 1 << 20;
/// Growing lines that are kept.
const MOST_GROWING: usize = 5;

/// The moment to which a recording is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Its peak.
    Peak,
    /// The failed request that limits the run, or its peak if none does.
    Need,
}

/// Reduces a recording.
pub(super) fn of_trace(
    trace: &Trace,
    path: &Path,
    device: Option<u32>,
    moment: Moment,
) -> Result<Profile, Failure> {
    let device = recording::device(trace, path, device)?;
    let kinds = Kinds::new(trace, device);
    let line = |stack| line_of(trace, stack);
    let profile = match moment {
        Moment::Peak => Profile::of_kinds(device, &kinds, line),
        Moment::Need => Profile::of_need(device, &kinds, Grouped::failure(device, &kinds), line),
    };
    // Equal parts of a recording are not steps: growth from one to the next may be on purpose.
    let growth = growing(trace, device, &kinds).filter(|growing| growing.parts.is_none());
    Ok(Profile { growth: growth.map(step_growth), ..profile })
}

fn step_growth(growing: Growing) -> StepGrowth {
    let line = |line: ExplainedLine| GrowingLine {
        place: line.place,
        kind: line.kind.id().to_owned(),
        bytes: line.bytes.get(),
        keeper: line.keeper,
    };
    let lines = growing.lines.into_iter().take(MOST_GROWING).map(line).collect();
    StepGrowth {
        steps: growing.steps as u64,
        measured_by: growing.measured_by,
        bytes: growing.bytes.get(),
        lines,
    }
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
