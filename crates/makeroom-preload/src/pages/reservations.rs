//! The address ranges that PyTorch's allocator reserved, and the device of each, which its first memory determines.
//!
//! One lock, held only for a lookup. Calls for other memory also look here; they are rare.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A reserved range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// The device whose memory is mapped there.
    pub(super) device: Option<u8>,
}

impl Reservation {
    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.start) < self.bytes
    }
}

static TABLE: Mutex<Vec<Reservation>> = Mutex::new(Vec::new());

fn table() -> MutexGuard<'static, Vec<Reservation>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(start: u64, bytes: u64) {
    table().push(Reservation { start, bytes, device: None });
}

/// Forgets a range, which is about to be freed.
pub(super) fn remove(start: u64) -> Option<Reservation> {
    let mut table = table();
    let index = table.iter().position(|range| range.start == start)?;
    Some(table.swap_remove(index))
}

/// The range that starts at an address.
pub(super) fn starting_at(start: u64) -> Option<Reservation> {
    table().iter().find(|range| range.start == start).copied()
}

/// The range that contains an address.
pub(super) fn find(address: u64) -> Option<Reservation> {
    table().iter().find(|range| range.contains(address)).copied()
}

/// Whether there is any range.
pub(super) fn is_any() -> bool {
    !table().is_empty()
}

/// Notes whose memory is mapped in a range. Returns the range, unless it has another device's.
pub(super) fn assign(address: u64, device: u8) -> Option<Reservation> {
    let mut table = table();
    let range = table.iter_mut().find(|range| range.contains(address))?;
    let is_own = *range.device.get_or_insert(device) == device;
    is_own.then_some(*range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_belongs_to_the_first_device() {
        add(0x10_0000, 0x1000);
        assert!(is_any());
        assert_eq!(find(0x10_0fff).and_then(|range| range.device), None);
        assert!(assign(0x10_0800, 2).is_some() && assign(0x10_0900, 3).is_none());
        assert_eq!((find(0x10_1000), find(0xf_ffff)), (None, None));
        assert!(starting_at(0x10_0000).is_some() && starting_at(0x10_0800).is_none());
        assert_eq!(remove(0x10_0000), Some(Reservation { start: 0x10_0000, bytes: 0x1000, device: Some(2) }));
        assert_eq!(remove(0x10_0000), None);
    }
}
