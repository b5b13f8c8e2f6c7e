//! The other processes on a GPU when an allocation failed.

use std::fmt::Write as _;

use makeroom_holders::Account;

use crate::run::count;
use crate::text::{COMMAND, LEAST_COLUMNS, MARGIN};
use crate::wrap::clip;

/// Maximum number of other processes to list.
const MOST_OTHERS: usize = 5;

/// The other processes that the driver lists on the GPU with this UUID; empty if there are none. `own` is the process
/// whose allocation failed.
pub fn others_text(account: &Account, uuid: &str, own: u32, columns: usize) -> String {
    let mut out = String::new();
    let parts = account.devices.iter().flat_map(|device| &device.parts);
    let device = account.devices.iter().chain(parts).find(|device| device.uuid == uuid);
    let others: Vec<_> =
        device.iter().flat_map(|device| &device.holders).filter(|holder| holder.pid != own).collect();
    if others.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\n{MARGIN}Other processes on this GPU now");
    for holder in others.iter().take(MOST_OTHERS) {
        let bytes = holder.bytes.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
        let who = holder.process.as_ref().map_or_else(
            || "not visible from here".to_owned(),
            |process| format!("{}, user {}", process.program(), process.user_name),
        );
        let line = format!("{MARGIN}{bytes:>14}  process {}, {who}", holder.pid);
        let _ = writeln!(out, "{}", clip(&line, columns.max(LEAST_COLUMNS)));
    }
    if let Some(more) = others.len().checked_sub(MOST_OTHERS).filter(|&more| more > 0) {
        let _ = writeln!(out, "{MARGIN}{:>14}  and {}", "", count(more as u64, "other"));
    }
    let _ = writeln!(out, "{MARGIN}to see all processes: {COMMAND}makeroom ps{COMMAND:#}\n");
    out
}
