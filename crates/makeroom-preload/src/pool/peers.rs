//! Peer access: when the program gives another device access to a device's memory, the pool's memory is included.
//!
//! The program may do so before the pool exists; then it is remembered.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::devices::{self, DevicePool, MOST_DEVICES};
use super::pools;
use crate::driver::place;
use crate::driver::types::{self, CuResult, Handle};
use crate::fields::field;
use crate::notices::{Notice, warn_once};

/// Devices with access to each device's memory, as a bit mask.
static PEERS: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// Devices that fit into a mask.
const BITS: i32 = u64::BITS.cast_signed();

/// `CUmemAccessDesc`: **location**, **flags**.
const ACCESS_BYTES: usize = 12;
const ACCESS_FLAGS: usize = 8;

/// Gives another device access to the memory of `owner`. The driver has just agreed.
fn grant(owner: i32, peer: i32) {
    let Some(peers) = usize::try_from(owner).ok().and_then(|owner| PEERS.get(owner)) else { return };
    if owner != peer && (0..BITS).contains(&peer) {
        peers.fetch_or(1 << peer, Ordering::Relaxed);
        if let Some(pool) = u8::try_from(owner).ok().and_then(devices::known) {
            open(pool, owner);
        }
    }
}

/// Applies all remembered grants to a pool.
pub(super) fn open(pool: &DevicePool, owner: i32) {
    let Some(peers) = usize::try_from(owner).ok().and_then(|owner| PEERS.get(owner)) else { return };
    let wanted = peers.load(Ordering::Relaxed);
    for peer in (0..BITS).filter(|peer| wanted >> peer & 1 == 1) {
        let host = pool.host.as_ref().map_or(Ok(()), |host| host.grant(peer));
        if pool.pool.grant(peer).and(host).is_err() {
            peers.fetch_and(!(1 << peer), Ordering::Relaxed);
            warn_once(Notice::NoPeer);
        }
    }
}

/// The calling thread's device gets access to the memory of the peer context's device; the driver does the rest.
pub(crate) fn enabled(peer_context: Handle) -> Option<CuResult> {
    let owner = place::device_of(peer_context)?;
    grant(owner, i32::from(place::current().device));
    None
}

/// Access to one of the driver's pools was set.
///
/// # Safety
///
/// `access` points to `count` descriptors, or is null.
pub(crate) unsafe fn opened(pool: Handle, access: *const c_void, count: usize) -> Option<CuResult> {
    let owner = pools::device_of(pool)?;
    for index in 0..if access.is_null() { 0 } else { count.min(MOST_DEVICES) } {
        // SAFETY: the caller guarantees `count` descriptors.
        let one = unsafe { access.cast::<u8>().add(index * ACCESS_BYTES) }.cast::<c_void>();
        // SAFETY: as above.
        let (is_open, (is_device, peer)) =
            unsafe { (field::<u32>(one, ACCESS_FLAGS) != 0, types::location(one, 0)) };
        if is_open && is_device {
            grant(owner, peer);
        }
    }
    None
}
