//! Runs a model: every interleaving under loom, a number of rounds elsewhere.

#[cfg(loom)]
pub(crate) use loom::{
    model,
    sync::Arc,
    thread::{spawn, yield_now},
};
#[cfg(not(loom))]
pub(crate) use std::{
    sync::Arc,
    thread::{spawn, yield_now},
};

/// Runs it a few times: miri chooses another interleaving each time.
#[cfg(not(loom))]
pub(crate) fn model(check: impl Fn()) {
    for _ in 0..20 {
        check();
    }
}
