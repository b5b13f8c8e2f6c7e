//! Atomics for the code that `models/` checks: the standard library's, or loom's under `cfg(loom)`.

#[cfg(loom)]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence},
    thread::yield_now,
};
