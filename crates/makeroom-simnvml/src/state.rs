//! Whether the library is started, and the account it reads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use makeroom_simcard::{Description, Ledger};

use crate::abi::{Failure, Result};

/// The machine as it was described when the library was started.
pub(crate) struct Started {
    pub(crate) description: Description,
    pub(crate) ledger: Ledger,
    times: u64,
}

static STATE: Mutex<Option<Started>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<Started>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the library; each start wants an end.
pub(crate) fn start() -> Result<()> {
    let mut state = state();
    if let Some(started) = state.as_mut() {
        started.times += 1;
        return Ok(());
    }
    let description = Description::from_environment().map_err(|_| Failure::DRIVER_NOT_LOADED)?;
    let ledger = Ledger::open(&description).map_err(|_| Failure::DRIVER_NOT_LOADED)?;
    *state = Some(Started { description, ledger, times: 1 });
    Ok(())
}

/// Ends the library with the last start.
pub(crate) fn end() -> Result<()> {
    let mut state = state();
    let started = state.as_mut().ok_or(Failure::UNINITIALIZED)?;
    started.times -= 1;
    if started.times == 0 {
        *state = None;
    }
    Ok(())
}

/// Looks at the machine.
pub(crate) fn with<T>(look: impl FnOnce(&Started) -> Result<T>) -> Result<T> {
    look(state().as_ref().ok_or(Failure::UNINITIALIZED)?)
}

/// A device handle: the device's number, and never null.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Handle(u64);

impl Handle {
    const TAG: u64 = 0x6e76_6d6c_0000;

    pub(crate) fn of(device: usize) -> Self {
        Self(Self::TAG | device as u64)
    }

    /// The device, if it is one of this machine's.
    pub(crate) fn device(self, started: &Started) -> Result<usize> {
        let device = usize::try_from(self.0 ^ Self::TAG).unwrap_or(usize::MAX);
        if device < started.description.devices { Ok(device) } else { Err(Failure::INVALID_ARGUMENT) }
    }
}
