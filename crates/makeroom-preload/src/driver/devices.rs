//! What the devices are: asked once for each, when its first event is recorded.
//!
//! On the program's own thread, because the writer may come to it only when the program ends, and then the driver does
//! not answer any more. These questions need no context and touch no stream.

use std::sync::OnceLock;

use super::real;
use super::types::SUCCESS;

/// Devices of one machine; there are never more.
const MOST: usize = 64;
const LONGEST_NAME: i32 = 255;

static KNOWN: [OnceLock<Option<Known>>; MOST] = [const { OnceLock::new() }; MOST];

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// What the driver calls it.
    pub(crate) name: Vec<u8>,
    /// Its identity, if the driver tells it.
    pub(crate) uuid: Option<[u8; 16]>,
    /// Its memory.
    pub(crate) total: u64,
}

/// Asks what a device is, unless that is known.
#[inline]
pub(crate) fn meet(device: u8) {
    if let Some(place) = KNOWN.get(usize::from(device))
        && place.get().is_none()
    {
        let _ = place.set(ask(device));
    }
}

/// What a device is, if it was met and the driver answered.
pub(crate) fn known(device: u8) -> Option<&'static Known> {
    KNOWN.get(usize::from(device))?.get()?.as_ref()
}

#[cold]
fn ask(device: u8) -> Option<Known> {
    let index = i32::from(device);
    let mut total = 0_usize;
    let mut name = [0_u8; LONGEST_NAME as usize + 1];
    let mut uuid = [0_u8; 16];
    // SAFETY: the driver's own functions with valid places, of the length that is said, for their answers.
    let (has_total, has_uuid) = unsafe {
        if let Some(ask) = real::device_name() {
            ask(name.as_mut_ptr(), LONGEST_NAME, index);
        }
        (
            real::total_memory().is_some_and(|ask| ask(&raw mut total, index) == SUCCESS),
            real::device_uuid().is_some_and(|ask| ask(&raw mut uuid, index) == SUCCESS),
        )
    };
    has_total.then(|| Known {
        name: name.split(|&byte| byte == 0).next().unwrap_or_default().to_vec(),
        uuid: has_uuid.then_some(uuid),
        total: total as u64,
    })
}
