//! Properties of all devices that the process sees, queried once when its first event is recorded. Devices that it never
//! uses are recorded too: ranks of a job that share one by mistake leave others idle.
//!
//! The query runs on the program's thread: the writer may get to the event only when the program exits, when the
//! driver no longer responds. It needs no context and touches no stream.

use std::fmt::Write as _;
use std::sync::OnceLock;

use super::real;
use super::types::SUCCESS;

/// Maximum number of devices of one machine.
const MOST: usize = 64;
const LONGEST_NAME: i32 = 255;

static KNOWN: [OnceLock<Option<Known>>; MOST] = [const { OnceLock::new() }; MOST];

/// A device's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// The driver's name for it.
    pub(crate) name: Vec<u8>,
    /// Its UUID, if the driver reports it.
    pub(crate) uuid: Option<[u8; 16]>,
    /// Total memory in bytes.
    pub(crate) total: u64,
}

/// Queries the properties of a device and of all others, unless they are known.
#[inline]
pub(crate) fn meet(device: u8) {
    if let Some(place) = KNOWN.get(usize::from(device))
        && place.get().is_none()
    {
        let _ = place.set(ask(device));
        meet_others();
    }
}

/// Devices are numbered without gaps.
#[cold]
fn meet_others() {
    let mut count = 0;
    // SAFETY: the driver's own function with a valid out-parameter.
    let is_known = real::device_count().is_some_and(|ask| unsafe { ask(&raw mut count) } == SUCCESS);
    let count = if is_known { usize::try_from(count).unwrap_or(0) } else { 0 };
    for (device, place) in KNOWN.iter().enumerate().take(count) {
        place.get_or_init(|| ask(device as u8));
    }
}

/// The devices that the process sees.
pub(crate) fn all_known() -> impl Iterator<Item = u8> {
    (0..MOST as u8).take_while(|&device| known(device).is_some())
}

/// A device's properties, if they were queried and the driver responded.
pub(crate) fn known(device: u8) -> Option<&'static Known> {
    KNOWN.get(usize::from(device))?.get()?.as_ref()
}

#[cold]
fn ask(device: u8) -> Option<Known> {
    let index = i32::from(device);
    let mut total = 0_usize;
    let mut name = [0_u8; LONGEST_NAME as usize + 1];
    let mut uuid = [0_u8; 16];
    // SAFETY: the driver's own functions with valid out-parameters of the stated length.
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

/// `GPU-6f0b7f7e-…`, as NVIDIA's tools write it.
pub(crate) fn spell_uuid(uuid: [u8; 16]) -> Vec<u8> {
    let mut text = String::from("GPU");
    for (position, byte) in uuid.iter().enumerate() {
        if matches!(position, 0 | 4 | 6 | 8 | 10) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_spelled_as_the_tools_spell_them() {
        let uuid = *b"\x6f\x0b\x7f\x7e\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c";
        assert_eq!(spell_uuid(uuid), b"GPU-6f0b7f7e-0102-0304-0506-0708090a0b0c");
    }
}
