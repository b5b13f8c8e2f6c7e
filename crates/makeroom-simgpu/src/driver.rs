//! The one driver of the process: its start, its end, and the lock around it.
//!
//! A child of fork has no driver, not even one it could start, if its parent had one; after exit has begun
//! every call says so. Both are what a real driver does.

use std::io::Write;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use makeroom_simcard::{Description, Ledger, Member};

use crate::backing::{self, Backing};
use crate::machine::Machine;
use crate::status::{Result, Status};

/// The machine and the memory behind it.
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

/// The driver, locked.
pub(crate) struct Session {
    guard: MutexGuard<'static, Driver>,
}

impl Session {
    /// Locks the driver, if it is started.
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

/// Refuses calls after exit has begun, for functions that need nothing else.
pub(crate) fn refuse_after_exit() -> Result<()> {
    if PHASE.load(Ordering::Acquire) == ENDED { Err(Status::DEINITIALIZED) } else { Ok(()) }
}

/// What `cuInit` answers unless it has something to do.
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
    // Not before: in a forked child the lock may be held by a thread that is not there.
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
    // SAFETY: both handlers are functions of this library, which is linked never to be unloaded, and take no
    // arguments.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_forked_child));
    }
    PHASE.store(STARTED, Ordering::Release);
    Ok(())
}

/// Says on stderr why the driver does not start: a number alone would not tell.
fn report(error: &dyn std::fmt::Display, status: Status) -> Status {
    // Where stderr is closed nobody can be told.
    let _ = writeln!(std::io::stderr(), "makeroom-simgpu: {error}");
    status
}

extern "C" fn at_exit() {
    if PHASE.compare_exchange(STARTED, ENDED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        // A call under way in another thread may finish first; one that hangs must not hold up the exit.
        let _last = DRIVER.get().map(Mutex::try_lock);
        if let Some(member) = MEMBER.get() {
            member.leave();
        }
    }
}

extern "C" fn in_forked_child() {
    let _ = PHASE.compare_exchange(STARTED, FORKED, Ordering::AcqRel, Ordering::Acquire);
}
