//! The first lines of the account: what matters most, before the tables that show why.
//!
//! With `--require`, whether that much is free. Then GPUs that do not respond and memory without a listed owner; if there
//! is neither, how full the GPUs are.

use makeroom_core::Bytes;
use makeroom_holders::{Account, Certainty, Device, DeviceMemory, Requirement, UnlistedCause};

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
        lines.push(warning("the driver finds no GPU".to_owned()));
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

/// A GPU and its MIG instances. Memory missing on an instance is missing on its GPU too, and is reported once.
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
            let text = format!("{size} is free on GPU {label} (free: {free})");
            return Line { text, is_warning: false };
        }
        Some((label, free)) if requirement.only.is_some() => {
            format!("{size} is not free: GPU {label} has {free}")
        }
        Some((label, free)) => format!("{size} is not free: GPU {label} has the most, {free}"),
        None => format!("{size} is not free: {}", missing(account, requirement.only)),
    };
    warning(text)
}

/// The text for a missing GPU: all of them, or the requested one.
fn missing(account: &Account, only: Option<u32>) -> String {
    let present: Vec<String> = account.devices.iter().map(|device| device.label.card.to_string()).collect();
    match only {
        Some(only) if present.contains(&only.to_string()) => {
            format!("GPU {only} has no usable MIG instance")
        }
        Some(only) if !present.is_empty() => {
            format!("there is no GPU {only}, only GPU {}", present.join(", "))
        }
        _ => "there is no GPU".to_owned(),
    }
}

fn silent(device: &Device) -> Option<String> {
    let problem = device.problems.first().filter(|_| device.memory.is_none() && device.parts.is_empty())?;
    Some(format!("GPU {} does not respond: {}", device.label, problem.answer))
}

fn unlisted(device: &Device) -> Option<String> {
    let first = device.unlisted.causes.first();
    if !device.unlisted.matters() {
        return None;
    }
    let bytes = Bytes::new(device.unlisted.bytes.unsigned_abs());
    let why = first.map_or(String::new(), |cause| format!("; {}", likely_cause(cause)));
    Some(format!("GPU {}: {bytes} has no listed owner{why}", device.label))
}

/// A cause with its certainty: `likely cause: workers whose parent died`.
pub(super) fn likely_cause(cause: &UnlistedCause) -> String {
    let certainty = match cause.certainty {
        Certainty::Certain => String::new(),
        certainty => format!("{} ", certainty.word()),
    };
    format!("{certainty}cause: {}", cause.cause.words())
}

/// How full the devices are; names the fullest and the emptiest.
fn fullness(devices: &[&Device]) -> Option<String> {
    let known: Vec<(&Device, DeviceMemory)> =
        devices.iter().filter_map(|device| Some((*device, device.memory?))).collect();
    let (fullest, memory) = known.first()?;
    let most = fullest.holders.first().filter(|holder| holder.bytes.is_some());
    let holder = match (most, fullest.holders.len()) {
        (None, 0) => ", no processes".to_owned(),
        (None, _) => String::new(),
        (Some(holder), _) => {
            format!("; process {} holds the most, {}", holder.pid, holder.bytes.unwrap_or_default())
        }
    };
    let fullest = format!("GPU {} has {} of {} free", fullest.label, memory.free, memory.total);
    let emptiest = known.iter().max_by_key(|(_, memory)| memory.free);
    let others = emptiest
        .filter(|(device, other)| device.label != known[0].0.label && other.free > memory.free)
        .map_or(String::new(), |(device, memory)| format!("; GPU {} has {} free", device.label, memory.free));
    Some(format!("{fullest}{holder}{others}"))
}
