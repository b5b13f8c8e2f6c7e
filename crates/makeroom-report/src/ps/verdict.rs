//! The first lines of the account: what matters most, before the tables that show why.
//!
//! Asked for a size, whether it can be had. Else, and below it, devices that do not answer and memory that nobody listed
//! holds; where there is neither, how full the devices are.

use makeroom_core::Bytes;
use makeroom_holders::{Account, Device, DeviceMemory, Requirement};

use super::by_need;

/// One line of it.
pub(super) struct Line {
    pub(super) text: String,
    /// Whether something is wrong.
    pub(super) is_warning: bool,
}

fn warning(text: String) -> Line {
    Line { text, is_warning: true }
}

/// The verdict: the requirement's line, then the devices'.
pub(super) fn verdict(account: &Account, requirement: Option<&Requirement>) -> Vec<Line> {
    let mut lines: Vec<Line> =
        requirement.map(|requirement| required(account, requirement)).into_iter().collect();
    if account.driver.is_ok() && account.devices.is_empty() {
        lines.push(warning("the driver has no device".to_owned()));
    }
    let devices: Vec<&Device> = by_need(account).into_iter().flat_map(with_parts).collect();
    lines.extend(devices.iter().filter_map(|device| silent(device)).map(warning));
    lines.extend(devices.iter().filter_map(|device| unlisted(device)).map(warning));
    if lines.is_empty()
        && let Some(text) = fullness(&devices)
    {
        lines.push(Line { text, is_warning: false });
    }
    lines
}

/// A device and its parts. What is missing on a part is missing on the card too, and is told once.
fn with_parts(device: &Device) -> Vec<&Device> {
    if device.parts.iter().any(|part| part.unlisted.matters()) {
        return device.parts.iter().collect();
    }
    std::iter::once(device).chain(&device.parts).collect()
}

fn required(account: &Account, requirement: &Requirement) -> Line {
    let size = requirement.size;
    let text = match requirement.best {
        Some((label, free)) if requirement.is_met() => {
            let text = format!("{size} can be had: GPU {label} has {free} free");
            return Line { text, is_warning: false };
        }
        Some((label, free)) if requirement.only.is_some() => {
            format!("{size} cannot be had: GPU {label} has {free} free")
        }
        Some((label, free)) => format!("{size} cannot be had: GPU {label} has most, {free} free"),
        None => format!("{size} cannot be had: {}", missing(account, requirement.only)),
    };
    warning(text)
}

/// What is not there. A card that was asked for may be the only one missing.
fn missing(account: &Account, only: Option<u32>) -> String {
    let present: Vec<String> = account.devices.iter().map(|device| device.label.card.to_string()).collect();
    match only {
        Some(only) if present.contains(&only.to_string()) => {
            format!("GPU {only} has no part that can be used")
        }
        Some(only) if !present.is_empty() => format!("there is no GPU {only}, only {}", present.join(", ")),
        _ => "there is no device".to_owned(),
    }
}

fn silent(device: &Device) -> Option<String> {
    let problem = device.problems.first().filter(|_| device.memory.is_none() && device.parts.is_empty())?;
    Some(format!("GPU {} does not answer: {}", device.label, problem.answer))
}

fn unlisted(device: &Device) -> Option<String> {
    let first = device.unlisted.causes.first();
    if !device.unlisted.matters() {
        return None;
    }
    let bytes = Bytes::new(device.unlisted.bytes.unsigned_abs());
    let why =
        first.map_or(String::new(), |cause| format!(": {}, {}", cause.cause.words(), cause.certainty.word()));
    Some(format!("{bytes} of GPU {} is held by nobody listed{why}", device.label))
}

/// How full the devices are, the fullest and the emptiest by name.
fn fullness(devices: &[&Device]) -> Option<String> {
    let known: Vec<(&Device, DeviceMemory)> =
        devices.iter().filter_map(|device| Some((*device, device.memory?))).collect();
    let (fullest, memory) = known.first()?;
    let most = fullest.holders.first().filter(|holder| holder.bytes.is_some());
    let holder = match (most, fullest.holders.len()) {
        (None, 0) => "; nobody holds any".to_owned(),
        (None, _) => String::new(),
        (Some(holder), _) => {
            format!("; process {} holds most, {}", holder.pid, holder.bytes.unwrap_or_default())
        }
    };
    let fullest = format!("GPU {} has {} of {} free", fullest.label, memory.free, memory.total);
    let emptiest = known.iter().max_by_key(|(_, memory)| memory.free);
    let others = emptiest
        .filter(|(device, other)| device.label != known[0].0.label && other.free > memory.free)
        .map_or(String::new(), |(device, memory)| format!("; GPU {} has {} free", device.label, memory.free));
    Some(format!("{fullest}{holder}{others}"))
}
