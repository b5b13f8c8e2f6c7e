//! Physical pages under addresses that another allocator chose, without memory of its own and without unsafe code.
//!
//! PyTorch's expandable segments reserve a range of addresses, map it slot by slot, and place blocks in the slots. Here a
//! slot is only virtual: it is divided into pages, and a page needs physical memory only while a block overlaps it. Free
//! space inside the segments then costs addresses, not memory.
//!
//! ```text
//! policy.rs    slots and blocks come and go               source.rs   where a page gets its memory from
//! slots.rs     ranges and slots, by address               table.rs    all pages
//! idle.rs      pages without a block, oldest first        whole.rs    slots that become one handle
//! pause.rs     waits, which are not the policy's          blocking.rs operations that wait, for the simulator
//! backing.rs   what the policy needs from a device        report.rs   statistics
//! ```
//!
//! Slots of 2 MiB, in which PyTorch places its small blocks, get memory when they are mapped, and keep it.
//!
//! A page without a block is idle. It keeps its memory, so that a block that returns to the same address costs nothing. A page
//! that needs memory gets it from these sources, in order:
//!
//! 1. a new handle, as long as the memory held stays at the highest amount that was live at once (plus an allowance, which
//!    is small at first and grows with the memory that has moved, up to a bound);
//! 2. an idle page's handle, moved, once all work that was submitted before it became idle has finished; if none has, the
//!    policy waits briefly for the oldest;
//! 3. a new handle;
//! 4. if the device is full: any idle page, with a longer wait, and then host memory, idle or new.
//!
//! Invariants: a page with a block has memory, unless its backing failed; a handle is mapped under at most one page; the
//! memory of pinned pages and of exempt ranges never moves; Σ sizes of the handles = `Stats::physical` + `Stats::on_host`.
//!
//! The *commit rule* decides whether the allocator may map another slot: mapped bytes must not exceed the memory held plus
//! what the device can still give plus the quota of host memory. As long as it holds, every slot could be backed at once.

mod backing;
mod blocking;
mod idle;
mod pause;
mod policy;
mod report;
mod slots;
mod source;
mod table;
mod whole;

pub use backing::{Mark, PageBacking, Waiting};
pub use pause::{Attempt, Pause};
pub use policy::{Paged, Settings};
pub use report::{Stats, Unbacked};
pub use slots::Standing;
pub use whole::Whole;
