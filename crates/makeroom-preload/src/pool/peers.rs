//! Other devices that use a device's memory: what the program opens to them is opened in the pool too.
//!
//! A program may say so before the pool is there; then it is remembered.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use super::devices::{self, DevicePool, MOST_DEVICES};
use super::pools;
use crate::driver::place;
use crate::driver::types::{self, CuResult, Handle, field};
use crate::notices::{Notice, raise_loudly};

/// Which devices may use each device's memory, one bit each.
static PEERS: [AtomicU64; MOST_DEVICES] = [const { AtomicU64::new(0) }; MOST_DEVICES];

/// The devices that a mask has room for.
const BITS: i32 = u64::BITS.cast_signed();

/// `CUmemAccessDesc`: **location**, **flags**.
const ACCESS_BYTES: usize = 12;
const ACCESS_FLAGS: usize = 8;

/// Another device may use the memory of `owner` from now on, as the driver has just agreed.
fn grant(owner: i32, peer: i32) {
    let Some(peers) = usize::try_from(owner).ok().and_then(|owner| PEERS.get(owner)) else { return };
    if owner != peer && (0..BITS).contains(&peer) {
        peers.fetch_or(1 << peer, Ordering::Relaxed);
        if let Some(pool) = u8::try_from(owner).ok().and_then(devices::known) {
            open(pool, owner);
        }
    }
}

/// Opens a pool to everybody it should be open to.
pub(super) fn open(pool: &DevicePool, owner: i32) {
    let Some(peers) = usize::try_from(owner).ok().and_then(|owner| PEERS.get(owner)) else { return };
    let wanted = peers.load(Ordering::Relaxed);
    for peer in (0..BITS).filter(|peer| wanted >> peer & 1 == 1) {
        let host = pool.host.as_ref().map_or(Ok(()), |host| host.grant(peer));
        if pool.pool.grant(peer).and(host).is_err() {
            peers.fetch_and(!(1 << peer), Ordering::Relaxed);
            raise_loudly(Notice::NoPeer);
        }
    }
}

/// The calling thread's device uses the memory of the peer context's; the driver has done the rest.
pub(crate) fn enabled(peer_context: Handle) -> Option<CuResult> {
    let owner = place::device_of(peer_context)?;
    grant(owner, i32::from(place::current().device));
    None
}

/// A pool of the driver's was opened.
///
/// # Safety
///
/// `access` holds so many descriptions, or is null.
pub(crate) unsafe fn opened(pool: Handle, access: *const c_void, count: usize) -> Option<CuResult> {
    let owner = pools::device_of(pool)?;
    for index in 0..if access.is_null() { 0 } else { count.min(MOST_DEVICES) } {
        // SAFETY: so many descriptions are there.
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
