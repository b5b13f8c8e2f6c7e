//! Forked children: the driver does not follow them, so a pool must not either.
//!
//! A child has the parent's pools in memory, perhaps with a lock that another thread held, and none of its device
//! memory. Everything asks first whether the process is still the one that made the pool.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};

use crate::error::{PoolError, Result};

/// How often this process's ancestors have forked since the first pool was made.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A process, as told from its forked children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The one that runs now.
    pub(crate) fn this() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the function only adds to a number, which may be done in a forked child of many threads.
            // It fails only without memory; then children are not told apart, as without it.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the one that runs now was forked since the first pool was made.
    pub(crate) fn is_forked() -> bool {
        GENERATION.load(Ordering::Relaxed) > 0
    }

    /// Whether it still is.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A lock that only the process that made it can take: in a forked child another thread may hold it for ever. A child's
/// copy of the value is never dropped: what it refers to is the parent's.
///
/// A panic inside of it left the value between two states at worst in debug builds, whose assertions are the only
/// panics there are.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    process: Process,
    value: ManuallyDrop<Mutex<T>>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: Process::this(), value: ManuallyDrop::new(Mutex::new(value)) }
    }

    /// An error in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.process.is_this() { Ok(()) } else { Err(PoolError::Forked) }
    }

    /// Waits for the value.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        self.check()?;
        Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The value, unless somebody else has it now.
    #[inline]
    pub(crate) fn try_lock(&self) -> Result<Option<MutexGuard<'_, T>>> {
        self.check()?;
        match self.value.try_lock() {
            Ok(guard) => Ok(Some(guard)),
            Err(TryLockError::Poisoned(poisoned)) => Ok(Some(poisoned.into_inner())),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }
}

impl<T> Drop for Lock<T> {
    fn drop(&mut self) {
        if self.process.is_this() {
            // SAFETY: dropped here and nowhere else.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
