//! The rows of the table: filtered, sorted, with their history.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use makeroom_core::{Bytes, SortCompact as _};
use makeroom_holders::{Device, Finding, Holder, Process};

use super::{Order, Screen, usable};
use crate::ps::belonging;

/// A holder on a device.
#[derive(Clone, Debug)]
pub(super) struct HolderRow {
    pub(super) device: String,
    pub(super) pid: u32,
    pub(super) bytes: Option<Bytes>,
    pub(super) user: String,
    pub(super) age: Option<Duration>,
    pub(super) command: String,
    /// Findings about the process, and its container or job, separated by commas.
    pub(super) notes: String,
    pub(super) is_odd: bool,
    pub(super) history: VecDeque<u64>,
    pub(super) recording: Option<PathBuf>,
}

impl HolderRow {
    /// Its growth since the oldest reading.
    pub(super) fn growth(&self) -> i64 {
        match (self.history.front(), self.history.back()) {
            (Some(&first), Some(&last)) => Bytes::new(last).difference(Bytes::new(first)),
            _ => 0,
        }
    }
}

/// All rows of a screen.
pub(super) fn all(screen: &Screen) -> Vec<HolderRow> {
    let Some(account) = &screen.account else { return Vec::new() };
    let mut rows: Vec<HolderRow> = usable(account)
        .flat_map(|device| device.holders.iter().map(|holder| row(screen, device, holder)))
        .filter(|row| matches(row, &screen.filter))
        .collect();
    rows.sort_compact_by(|one, other| match screen.order {
        Order::Memory => other.bytes.cmp(&one.bytes),
        Order::Growth => other.growth().cmp(&one.growth()),
        Order::Age => other.age.cmp(&one.age),
        Order::User => one.user.cmp(&other.user).then(other.bytes.cmp(&one.bytes)),
        Order::Process => one.pid.cmp(&other.pid),
    });
    if screen.is_reversed {
        rows.reverse();
    }
    rows
}

fn row(screen: &Screen, device: &Device, holder: &Holder) -> HolderRow {
    let process = holder.process.as_ref();
    let mut notes: Vec<String> = holder.findings.iter().map(Finding::words).collect();
    notes.extend(process.map(belonging).unwrap_or_default());
    HolderRow {
        device: device.label.to_string(),
        pid: holder.pid,
        bytes: holder.bytes,
        user: process.map_or(String::new(), |process| process.user_name.clone()),
        age: process.and_then(|process| process.age),
        command: process.map_or(String::new(), Process::command_line),
        notes: notes.join(", "),
        is_odd: !holder.findings.is_empty(),
        history: screen.history.get(&(device.uuid.clone(), holder.pid)).cloned().unwrap_or_default(),
        recording: process.and_then(|process| process.files.recording.clone()).map(|(path, _)| path),
    }
}

/// Whether a row contains all words of the filter, in any order and ignoring case.
fn matches(row: &HolderRow, filter: &str) -> bool {
    let text =
        format!("gpu{} {} {} {} {}", row.device, row.pid, row.user, row.notes, row.command).to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| text.contains(word))
}
