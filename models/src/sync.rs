//! What the files import as `crate::sync`: the modules of both crates.

#[allow(unused_imports, reason = "both modules have some of them")]
#[path = "../../crates/makeroom-pool-c/src/sync.rs"]
mod of_pool;
#[path = "../../crates/makeroom-preload/src/sync.rs"]
mod of_preload;

pub(crate) use of_pool::{AtomicPtr, fence, yield_now};
pub(crate) use of_preload::{AtomicBool, AtomicU32, AtomicU64, Ordering, UnsafeCell};
