//! The result of `makeroom ps`: the verdict, one table per GPU, the fullest first, and the causes of memory without a
//! listed owner.

mod json;
mod text;
mod verdict;

use makeroom_core::SortCompact as _;
use makeroom_holders::{Account, Device};

pub use json::ps_json;
pub(crate) use text::belonging;
pub use text::{ps_text, users_text};

/// The devices, the fullest first; those that did not respond before all others.
fn by_need(account: &Account) -> Vec<&Device> {
    let mut devices: Vec<&Device> = account.devices.iter().collect();
    devices.sort_compact_by(|one, other| {
        let free = |device: &Device| device.memory.map_or(-1.0, |memory| memory.free.share_of(memory.total));
        free(one).total_cmp(&free(other)).then(one.label.cmp(&other.label))
    });
    devices
}
