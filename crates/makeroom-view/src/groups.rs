//! Live memory by kind, line, stage and so on at any moment, and the difference between two inputs.

use makeroom_diff::{Profile, compare};
use makeroom_explain::{By, grouped_at, line_of};
use makeroom_report::{diff_json, grouped_json};
use serde_json::Value;

use crate::input::Recording;

/// Live memory in groups at a position; `None` if there is no such device.
pub(crate) fn groups(recording: &Recording, device: usize, by: By, position: usize) -> Option<Value> {
    let timeline = recording.devices.get(device)?;
    let kinds = recording.kinds(device)?;
    let trace = &recording.trace;
    let mut value = grouped_json(&grouped_at(trace, timeline.device(trace), kinds, by, position));
    if let Some(fields) = value.as_object_mut() {
        // The page chose the moment.
        fields.remove("moment");
    }
    Some(value)
}

/// What changed from the peak of one device to that of another.
pub(crate) fn difference(before: (&Recording, usize), after: (&Recording, usize)) -> Option<Value> {
    let profile = |(recording, device): (&Recording, usize)| {
        let (trace, timeline) = (&recording.trace, recording.devices.get(device)?);
        Some(Profile::of_kinds(timeline.device(trace), recording.kinds(device)?, |stack| {
            line_of(trace, stack)
        }))
    };
    Some(diff_json(&compare(&profile(before)?, &profile(after)?)))
}
