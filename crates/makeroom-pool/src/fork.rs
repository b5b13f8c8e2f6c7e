//! Fork detection: CUDA does not work in a forked child, so a pool must not either.
//!
//! A child has the parent's pools in memory, perhaps with a lock held by a thread that it lacks, but none of their
//! device memory. Every operation first checks that the process is still the one that created the pool.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};

use crate::error::{PoolError, Result};

/// Number of forks between the process that created its first pool and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Identifies a process, as opposed to its forked children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The current process.
    pub(crate) fn this() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(|| {
            // SAFETY: the handler only increments an atomic, which is async-signal-safe in a forked child.
            // Registration fails only without memory; then forks go unnoticed.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        });
        Self(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether the current process was forked since the first pool was created.
    #[cfg(feature = "drop-sites")]
    pub(crate) fn is_forked() -> bool {
        GENERATION.load(Ordering::Relaxed) > 0
    }

    /// Whether this is still the current process.
    #[inline]
    pub(crate) fn is_this(self) -> bool {
        self.0 == GENERATION.load(Ordering::Relaxed)
    }
}

extern "C" fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A mutex that only the process that created it can lock: in a forked child another thread may hold it forever. A
/// child's copy of the value is never dropped, because its resources are the parent's.
///
/// Poisoning is ignored: only debug assertions can panic while it is held, so at worst a debug build sees a
/// half-updated value.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lock<T> {
    process: Process,
    value: ManuallyDrop<Mutex<T>>,
}

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { process: Process::this(), value: ManuallyDrop::new(Mutex::new(value)) }
    }

    /// Fails in a forked child.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.process.is_this() { Ok(()) } else { Err(PoolError::Forked) }
    }

    /// Locks the value, and waits for it.
    #[inline]
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, T>> {
        self.check()?;
        Ok(self.value.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Locks the value, unless another thread holds it.
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
            // SAFETY: the value is dropped only here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
