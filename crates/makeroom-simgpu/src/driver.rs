//! The driver of this process: initialization, shutdown, and its lock.
//!
//! As with the real driver, a forked child cannot use or initialize it if its parent did, and all calls fail once
//! exit has begun.

use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_simcard::{Description, Ledger, Member};

use crate::backing::{self, Backing};
use crate::machine::Machine;
use crate::status::{Result, Status};

/// The machine and its memory.
pub(crate) struct Driver {
    pub(crate) machine: Machine,
    pub(crate) backing: Backing,
}

const FRESH: u8 = 0;
const STARTED: u8 = 1;
const FORKED: u8 = 2;
const ENDED: u8 = 3;

static PHASE: AtomicU8 = AtomicU8::new(FRESH);
static START: Mutex<()> = Mutex::new(());
static DRIVER: OnceLock<Mutex<Driver>> = OnceLock::new();
static MEMBER: OnceLock<Arc<Member>> = OnceLock::new();

/// The locked driver.
pub(crate) struct Session {
    guard: MutexGuard<'static, Driver>,
}

impl Session {
    /// Locks the driver, if it is initialized.
    pub(crate) fn open() -> Result<Self> {
        let started = match PHASE.load(Ordering::Acquire) {
            STARTED => DRIVER.get(),
            ENDED => return Err(Status::DEINITIALIZED),
            _ => None,
        };
        let driver = started.ok_or(Status::NOT_INITIALIZED)?;
        Ok(Self { guard: driver.lock().unwrap_or_else(PoisonError::into_inner) })
    }
}

impl Deref for Session {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.guard
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.guard
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let discarded = self.guard.machine.take_discarded();
        if !discarded.is_empty() {
            self.guard.backing.discard(&discarded);
        }
    }
}

/// Returns an error once exit has begun, for functions that need nothing else.
pub(crate) fn refuse_after_exit() -> Result<()> {
    if PHASE.load(Ordering::Acquire) == ENDED { Err(Status::DEINITIALIZED) } else { Ok(()) }
}

/// The result of `cuInit` if there is nothing to do.
fn already() -> Option<Result<()>> {
    match PHASE.load(Ordering::Acquire) {
        STARTED => Some(Ok(())),
        FORKED => Some(Err(Status::NOT_INITIALIZED)),
        ENDED => Some(Err(Status::DEINITIALIZED)),
        _ => None,
    }
}

/// `cuInit`.
pub(crate) fn start() -> Result<()> {
    if let Some(known) = already() {
        return known;
    }
    // Not earlier: in a forked child, the lock may be held by a thread that does not exist.
    let _starting = START.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = already() {
        return known;
    }
    let description =
        Description::from_environment().map_err(|error| report(&error, Status::INVALID_VALUE))?;
    let member = Ledger::open(&description).and_then(Ledger::join);
    let member = Arc::new(member.map_err(|error| report(&error, Status::OPERATING_SYSTEM))?);
    let memory = description.memory * description.devices as u64 + description.host;
    let span = backing::reserve_addresses(memory).ok_or(Status::OPERATING_SYSTEM)?;
    let machine = Machine::new(description, Arc::clone(&member), span);
    let backing = Backing::new(backing::lengths(&machine)).ok_or(Status::OPERATING_SYSTEM)?;
    if DRIVER.set(Mutex::new(Driver { machine, backing })).is_err() || MEMBER.set(member).is_err() {
        return Err(Status::UNKNOWN);
    }
    // SAFETY: both handlers are functions of this library, which is never unloaded, and take no arguments.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_forked_child));
    }
    PHASE.store(STARTED, Ordering::Release);
    Ok(())
}

/// Prints why the driver does not start, because an error number is not enough.
fn report(error: &dyn std::fmt::Display, status: Status) -> Status {
    // If stderr is closed, there is nowhere to report it.
    let _ = writeln!(std::io::stderr(), "makeroom-simgpu: {error}");
    status
}

extern "C" fn at_exit() {
    if PHASE.compare_exchange(STARTED, ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // Keep other threads from starting calls, but do not wait for a call in progress: it may hang.
        let _last = DRIVER.get().map(Mutex::try_lock);
        if let Some(member) = MEMBER.get() {
            member.leave();
        }
    }
}

extern "C" fn in_forked_child() {
    let _ = PHASE.compare_exchange(STARTED, FORKED, Ordering::AcqRel, Ordering::Acquire);
}
