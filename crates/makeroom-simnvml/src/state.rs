//! Whether the library is initialized, the ledger it reads, and the scenario.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_simcard::{Description, Ledger};

use crate::abi::{Failure, Result};
use crate::scenario::Scenario;

/// The machine as described when the library was initialized.
pub(crate) struct Started {
    pub(crate) description: Description,
    pub(crate) scenario: &'static Scenario,
    pub(crate) ledger: Ledger,
    /// How often the GPUs were counted, which is the first step of each survey.
    pub(crate) looks: AtomicU64,
    times: u64,
}

static STATE: Mutex<Option<Started>> = Mutex::new(None);

fn state() -> MutexGuard<'static, Option<Started>> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The scenario in the environment, read once; `None` if it is invalid.
pub(crate) fn scenario() -> Option<&'static Scenario> {
    static SCENARIO: OnceLock<Option<Scenario>> = OnceLock::new();
    SCENARIO.get_or_init(Scenario::from_environment).as_ref()
}

/// Initializes the library; calls are counted.
pub(crate) fn start() -> Result<()> {
    let mut state = state();
    if let Some(started) = state.as_mut() {
        started.times += 1;
        return Ok(());
    }
    let description = Description::from_environment().map_err(|_| Failure::DRIVER_NOT_LOADED)?;
    let scenario = scenario().ok_or(Failure::DRIVER_NOT_LOADED)?;
    let ledger = Ledger::open(&description).map_err(|_| Failure::DRIVER_NOT_LOADED)?;
    *state = Some(Started { description, scenario, ledger, looks: AtomicU64::new(0), times: 1 });
    Ok(())
}

/// Shuts the library down with the last user.
pub(crate) fn end() -> Result<()> {
    let mut state = state();
    let started = state.as_mut().ok_or(Failure::UNINITIALIZED)?;
    started.times -= 1;
    if started.times == 0 {
        *state = None;
    }
    Ok(())
}

/// Calls `look` with the machine.
pub(crate) fn with<T>(look: impl FnOnce(&Started) -> Result<T>) -> Result<T> {
    look(state().as_ref().ok_or(Failure::UNINITIALIZED)?)
}

/// A device handle: the GPU's index and, for a MIG instance, its index; never null.
///
/// ```text
/// bits 16..48 the tag    bits 8..16 the MIG instance + 1, or 0    bits 0..8 the GPU
/// ```
#[repr(transparent)]
#[derive(Clone, Copy)]
pub(crate) struct Handle(u64);

impl Handle {
    const TAG: u64 = 0x6e76_6d6c_0000;

    pub(crate) fn for_device(device: usize) -> Self {
        Self(Self::TAG | device as u64)
    }

    pub(crate) fn of_part(device: usize, part: usize) -> Self {
        Self(Self::TAG | (part as u64 + 1) << 8 | device as u64)
    }

    /// The GPU, if it exists on this machine and is not lost.
    pub(crate) fn device(self, started: &Started) -> Result<usize> {
        self.place(started).map(|(device, _)| device)
    }

    /// The GPU and the MIG instance, if they exist on this machine and are not lost.
    pub(crate) fn place(self, started: &Started) -> Result<(usize, Option<usize>)> {
        let number = self.0 ^ Self::TAG;
        let device = (number & 0xff) as usize;
        let part = (number >> 8).checked_sub(1).map(|part| part as usize);
        let is_part = part.is_none_or(|part| part < started.scenario.parts_of(device));
        if device >= started.description.devices || !is_part {
            return Err(Failure::INVALID_ARGUMENT);
        }
        if started.scenario.lost.contains(&device) {
            return Err(Failure::LOST);
        }
        Ok((device, part))
    }

    /// The GPU and the MIG instance, if this user may query their memory.
    pub(crate) fn open_place(self, started: &Started) -> Result<(usize, Option<usize>)> {
        let (device, part) = self.place(started)?;
        if part.is_none() && started.scenario.closed.contains(&device) {
            return Err(Failure::NO_PERMISSION);
        }
        Ok((device, part))
    }
}
