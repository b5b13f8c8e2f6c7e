//! The lock-free code of the other crates, compiled from its own files.
//!
//! `.ci/loom` runs the tests under loom, which tries all interleavings and all values that weak memory permits, up to a
//! number of preemptions; `.ci/miri` runs them on miri. The files are the real ones; only what they import besides atomics is
//! replaced by the few lines that they need.
#![allow(dead_code, reason = "only the code under test is used")]

#[path = "../../crates/makeroom-pool-c/src/barrier.rs"]
mod barrier;
#[path = "../../crates/makeroom-pool-c/src/hazard.rs"]
mod hazard;
#[path = "../../crates/makeroom-preload/src/hooks/mark.rs"]
mod mark;
#[path = "../../crates/makeroom-preload/src/record/ring.rs"]
mod ring;
#[cfg(not(loom))]
mod record;
mod sync;

/// An event of two words that belong together.
mod event {
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct RawEvent {
        pub(crate) address: u64,
        pub(crate) size: u64,
    }
}

/// The frames that the ring keeps for walks of Python's stacks.
mod seen {
    #[derive(Debug, Default)]
    pub(crate) struct Frames;

    pub(crate) fn prefetch(_address: usize) {}
}

#[cfg(test)]
mod hazards;
#[cfg(test)]
mod marks;
#[cfg(test)]
mod rings;
#[cfg(test)]
mod run;
