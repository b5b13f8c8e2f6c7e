//! Live memory by kind, line, stage and so on at any moment, and the difference between two inputs.

use makeroom_diff::{Moment, Profile, compare};
use makeroom_explain::{By, Group, grouped_at};
use makeroom_report::{diff_json, grouped_json, kind_words, rule_words};
use serde_json::Value;

use crate::input::Recording;

/// Live memory in groups at a position; `None` if there is no such device.
pub(crate) fn groups(recording: &Recording, device: usize, by: By, position: usize) -> Option<Value> {
    let timeline = recording.devices.get(device)?;
    let trace = &recording.trace;
    let kinds = timeline.kinds(trace);
    let grouped = grouped_at(trace, timeline.device(trace), kinds, by, position);
    let mut value = grouped_json(&grouped);
    if let Some(fields) = value.as_object_mut() {
        // The page chose the moment.
        fields.remove("moment");
        if by == By::Kind {
            add_titles(fields.get_mut("groups"), "name");
            add_reasons(fields.get_mut("groups"), &grouped.groups);
        }
    }
    Some(value)
}

/// What changed from the peak or the failure of one device to that of another, as `makeroom diff` reports it.
pub(crate) fn difference(before: (&Recording, usize), after: (&Recording, usize)) -> Option<Value> {
    let profile = |(recording, device): (&Recording, usize)| {
        let (trace, timeline) = (&recording.trace, recording.devices.get(device)?);
        Some(Profile::of_run(trace, timeline.device(trace), timeline.kinds(trace), Moment::Need))
    };
    let mut value = diff_json(&compare(&profile(before)?, &profile(after)?));
    add_titles(value.get_mut("kinds"), "kind");
    add_titles(value.get_mut("lines"), "kind");
    Some(value)
}

/// Adds `because` to each kind: why most of its memory has it.
fn add_reasons(rows: Option<&mut Value>, groups: &[Group]) {
    for (row, group) in rows.and_then(Value::as_array_mut).into_iter().flatten().zip(groups) {
        let main = group.rules.first().map(|&(rule, _)| Value::from(rule_words(rule)));
        if let (Some(fields), Some(main)) = (row.as_object_mut(), main) {
            fields.insert("because".to_owned(), main);
        }
    }
}

/// Adds `title` to each row: the name of the kind whose ID is in the field `id`.
fn add_titles(rows: Option<&mut Value>, id: &str) {
    for row in rows.and_then(Value::as_array_mut).into_iter().flatten() {
        let title = row.get(id).and_then(Value::as_str).map(|id| Value::from(kind_words(id)));
        if let (Some(fields), Some(title)) = (row.as_object_mut(), title) {
            fields.insert("title".to_owned(), title);
        }
    }
}
