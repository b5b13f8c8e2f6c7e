//! The devices that PyTorch uses, by number (created on first use, double-checked under a read-write lock).

use std::ffi::c_int;
use std::sync::{Arc, PoisonError, RwLock};

use super::device::Device;
use crate::failure::{Failure, Result};
use crate::options::Wishes;
use crate::registry;

/// Maximum device number.
const MOST: usize = 1024;

#[derive(Debug, Default)]
struct Devices {
    wishes: Wishes,
    made: Vec<Option<Arc<Device>>>,
}

static DEVICES: RwLock<Devices> =
    RwLock::new(Devices { wishes: Wishes { limit: None, spill: None, history: 0 }, made: Vec::new() });

/// The device with a number, created if new.
#[inline]
pub(super) fn get(device: c_int) -> Result<Arc<Device>> {
    registry::in_parent()?;
    let index = usize::try_from(device).ok().filter(|index| *index < MOST);
    let index = index.ok_or_else(|| Failure::argument(format!("{device} is not a device number")))?;
    {
        let devices = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(device)) = devices.made.get(index) {
            return Ok(device.clone());
        }
    }
    let mut devices = DEVICES.write().unwrap_or_else(PoisonError::into_inner);
    if devices.made.len() <= index {
        devices.made.resize(index + 1, None);
    }
    if let Some(device) = &devices.made[index] {
        return Ok(device.clone());
    }
    let made = Arc::new(Device::new(device, devices.wishes)?);
    devices.made[index] = Some(made.clone());
    Ok(made)
}

/// All devices created so far.
pub(super) fn all() -> Result<Vec<Arc<Device>>> {
    registry::in_parent()?;
    let devices = DEVICES.read().unwrap_or_else(PoisonError::into_inner);
    Ok(devices.made.iter().flatten().cloned().collect())
}

/// Reserves space for this many devices.
pub(super) fn expect(count: c_int) -> Result<()> {
    registry::in_parent()?;
    let count = usize::try_from(count).ok().filter(|count| *count <= MOST);
    let count = count.ok_or_else(|| Failure::argument("the number of devices is invalid".to_owned()))?;
    DEVICES.write().unwrap_or_else(PoisonError::into_inner).made.reserve(count);
    Ok(())
}

/// Sets the options for devices created from now on.
pub(super) fn configure(wishes: Wishes) -> Result<()> {
    registry::in_parent()?;
    let mut devices = DEVICES.write().unwrap_or_else(PoisonError::into_inner);
    if devices.made.iter().any(Option::is_some) {
        let text =
            "memory was already allocated\n\nhint: call makeroom_torch_configure before the first tensor";
        return Err(Failure::argument(text.to_owned()));
    }
    devices.wishes = wishes;
    Ok(())
}
