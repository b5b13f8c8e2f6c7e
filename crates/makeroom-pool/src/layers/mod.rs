//! Layers: allocators over an allocator, each with one task, in any order.
//!
//! ```text
//! limit.rs     limit on live memory                    track.rs       live memory by site, now and at the peak
//! spill.rs     spilling to host memory                 heat.rs        … which blocks to spill
//! spilled.rs   … and the report about it               failure.rs     callback before a request fails
//! checked.rs   double frees, foreign pointers,         quarantine.rs  … and the freed memory it holds back
//!              use-after-free writes
//! history.rs   the most recent events
//! ```
//!
//! A layer acts on the requests that reach it from above. `Limit` over `Spill` limits device and host together;
//! `Spill` over `Limit` spills what exceeds the limit.

mod checked;
mod failure;
mod heat;
mod history;
mod limit;
mod quarantine;
mod spill;
mod spilled;
mod track;

pub use checked::Checked;
pub use failure::{Answer, Failure, OnFailure};
pub use history::{Happened, History, PastEvent, Recorded};
pub use limit::Limit;
pub use quarantine::{Violation, WrittenAfterFree};
pub use spill::{Spill, SpillOptions};
pub use spilled::{Spilled, SpilledSizes};
pub use track::{SiteFigures, Track, TrackReport};

/// Forwards functions of [`Allocator`](crate::Allocator) unchanged to the upstream allocator.
macro_rules! pass_on {
    ($upstream:ident: $($function:ident)+) => { $(crate::layers::pass_on!(@ $upstream $function);)+ };
    (@ $upstream:ident record_stream) => {
        fn record_stream(&self, address: makeroom_core::Address, stream: makeroom_core::StreamId) -> crate::Result<()> {
            self.$upstream.record_stream(address, stream)
        }
    };
    (@ $upstream:ident retire_stream) => {
        fn retire_stream(&self, stream: makeroom_core::StreamId) {
            self.$upstream.retire_stream(stream);
        }
    };
    (@ $upstream:ident free) => {
        unsafe fn free(
            &self,
            address: makeroom_core::Address,
            stream: makeroom_core::StreamId,
            site: crate::Site,
        ) -> crate::Result<()> {
            // SAFETY: guaranteed by the caller.
            unsafe { self.$upstream.free(address, stream, site) }
        }
    };
    (@ $upstream:ident trim) => {
        fn trim(&self, keep: u64) -> u64 {
            self.$upstream.trim(keep)
        }
    };
    (@ $upstream:ident reaches) => {
        fn reaches(&self, address: makeroom_core::Address) -> bool {
            self.$upstream.reaches(address)
        }
    };
    (@ $upstream:ident stats) => {
        fn stats(&self) -> crate::Stats {
            self.$upstream.stats()
        }
    };
    (@ $upstream:ident driver) => {
        fn driver(&self) -> &'static makeroom_cuda::Driver {
            self.$upstream.driver()
        }
    };
}
pub(crate) use pass_on;
