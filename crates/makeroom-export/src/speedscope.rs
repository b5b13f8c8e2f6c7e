//! Live memory by stack for speedscope: one profile for each failed allocation, for the peak and for the end of each
//! device. Weights are bytes and add up to the live memory. Groups are outermost frames.

use std::collections::BTreeMap;
use std::io::Write;

use makeroom_core::{Action, FastMap, FrameId, StackId, Trace};
use makeroom_explain::By;
use serde_json::{Value, json};

use crate::ExportError;
use crate::groups::Groups;
use crate::history::{History, Names};

/// Maximum number of failed allocations with a profile, per device.
const MOST_REFUSALS: usize = 8;
pub(crate) const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

pub(crate) fn write(trace: &Trace, by: Option<By>, mut to: impl Write) -> Result<(), ExportError> {
    let names = Names::new(trace);
    let mut frames =
        Frames { names, numbers: FastMap::default(), groups: FastMap::default(), list: Vec::new() };
    let mut profiles = Vec::new();
    for device in &trace.devices {
        let history = History::new(device);
        let groups = by.map(|by| Groups::new(trace, &history, by));
        for (name, position) in moments(&history) {
            let name = format!("GPU {}, {name}", device.device);
            profiles.push(profile(&history, groups.as_ref(), &mut frames, &name, position));
        }
    }
    let file = json!({
        "$schema": SCHEMA,
        "exporter": concat!("makeroom ", env!("CARGO_PKG_VERSION")),
        "name": "live GPU memory",
        "activeProfileIndex": 0,
        "shared": { "frames": frames.list },
        "profiles": profiles,
    });
    serde_json::to_writer(&mut to, &file)?;
    Ok(to.flush()?)
}

/// The moments that get a profile, most relevant first.
fn moments(history: &History<'_>) -> Vec<(String, usize)> {
    let actions = history.device.events.actions().iter().enumerate();
    let refusals = actions.filter(|(_, action)| **action == Action::OutOfMemory).take(MOST_REFUSALS);
    let mut moments: Vec<(String, usize)> =
        refusals.map(|(event, _)| (format!("live when event {event} failed"), event)).collect();
    moments.push(("live at the peak".to_owned(), history.allocations.peak.0));
    moments.push(("live at the end".to_owned(), history.device.events.len()));
    moments
}

fn profile(
    history: &History<'_>,
    groups: Option<&Groups>,
    frames: &mut Frames<'_>,
    name: &str,
    position: usize,
) -> Value {
    let mut by_stack: BTreeMap<(Option<&str>, StackId), u64> = BTreeMap::new();
    for (number, allocation) in history.live_at(position) {
        let group = groups.and_then(|groups| groups.names.get(groups.of(number))).map(String::as_str);
        let held = by_stack.entry((group, allocation.stack)).or_default();
        *held = held.saturating_add(allocation.requested);
    }
    let samples: Vec<Vec<usize>> =
        by_stack.keys().map(|&(group, stack)| frames.indices(group, stack)).collect();
    let weights: Vec<u64> = by_stack.values().copied().collect();
    json!({
        "type": "sampled",
        "name": name,
        "unit": "bytes",
        "startValue": 0,
        "endValue": weights.iter().fold(0_u64, |sum, weight| sum.saturating_add(*weight)),
        "samples": samples,
        "weights": weights,
    })
}

struct Frames<'trace> {
    names: Names<'trace>,
    numbers: FastMap<Option<FrameId>, usize>,
    groups: FastMap<String, usize>,
    list: Vec<Value>,
}

impl Frames<'_> {
    /// The indices of a group and of a stack's frames, outermost first. An empty stack gets a frame of its own.
    fn indices(&mut self, group: Option<&str>, stack: StackId) -> Vec<usize> {
        let mut indices: Vec<usize> = group.map(|group| self.of_group(group)).into_iter().collect();
        let frames: Vec<FrameId> = self.names.frames(stack).collect();
        if frames.is_empty() {
            indices.push(self.number(None));
        }
        indices.extend(frames.into_iter().map(|frame| self.number(Some(frame))));
        indices
    }

    fn of_group(&mut self, group: &str) -> usize {
        if let Some(&number) = self.groups.get(group) {
            return number;
        }
        self.list.push(json!({ "name": group }));
        self.groups.insert(group.to_owned(), self.list.len() - 1);
        self.list.len() - 1
    }

    fn number(&mut self, frame: Option<FrameId>) -> usize {
        if let Some(&number) = self.numbers.get(&frame) {
            return number;
        }
        let row = match frame {
            None => json!({ "name": "no stack recorded" }),
            Some(id) => {
                let (name, file) = self.names.of_frame(id);
                match self.names.line(id) {
                    0 => json!({ "name": name, "file": file }),
                    line => json!({ "name": name, "file": file, "line": line }),
                }
            }
        };
        self.list.push(row);
        self.numbers.insert(frame, self.list.len() - 1);
        self.list.len() - 1
    }
}
