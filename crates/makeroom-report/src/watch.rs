//! Watched memory as JSON. Field names are a contract; fields are only ever added. The Python module renders it as
//! text, because it has PyTorch's own figures in the same form.

use makeroom_explain::{Site, TakenLine, Watched, WatchedStep};
use serde_json::{Value, json};

use crate::json::{list, site};

/// The memory of each device while it was watched, as JSON.
pub fn watched_json(devices: &[Watched]) -> Value {
    devices.iter().map(device).collect()
}

fn device(watched: &Watched) -> Value {
    json!({
        "device": watched.device.0,
        "before_bytes": watched.before.get(),
        "peak_bytes": watched.peak.get(),
        "after_bytes": watched.after.get(),
        "allocations": watched.allocations,
        "sites": sites(&watched.sites),
        "taken": list(&watched.taken, taken),
        "left_bytes": watched.left.get(),
        "left_blocks": watched.left_blocks,
        "left_sites": sites(&watched.left_sites),
        "steps": list(&watched.steps, step),
        "leaking": sites(&watched.leaking),
    })
}

fn taken(line: &TakenLine) -> Value {
    json!({ "site": line.place, "bytes": line.bytes.get(), "blocks": line.blocks, "calls": [] })
}

fn step(step: &WatchedStep) -> Value {
    json!({
        "peak_bytes": step.peak.get(),
        "after_bytes": step.after.get(),
        "left_bytes": step.left.get(),
    })
}

fn sites(places: &[Site]) -> Vec<Value> {
    places.iter().map(site).collect()
}
