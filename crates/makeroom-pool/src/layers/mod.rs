//! Layers: allocators over an allocator, each with one task, in any order.
//!
//! ```text
//! limit.rs     no more than so much at once            track.rs       who holds what, and held it at the peak
//! spill.rs     what does not fit goes to the host      heat.rs        … and what should not have to
//! spilled.rs   … and what did                          failure.rs     a function is asked before giving up
//! checked.rs   second frees, foreign addresses,        quarantine.rs  … in memory that is kept back
//!              writes after the free
//! history.rs   the last events, and who holds what
//! ```
//!
//! What stands below a layer is refused or counted by it; what stands above is not. `Limit` over `Spill` limits device
//! and host together, `Spill` over `Limit` spills what the limit refuses.

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

/// The functions of [`Allocator`](crate::Allocator) that a layer hands to the one below as they are.
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
            // SAFETY: passed on to the caller.
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
