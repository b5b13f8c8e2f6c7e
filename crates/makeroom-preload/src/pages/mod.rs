//! `MAKEROOM_POOL=paging`: PyTorch's expandable segments have physical memory only where its tensors are.
//!
//! PyTorch keeps its own allocator, which chooses every address. Its calls for physical memory get tokens, and its
//! reports of tensors (`hooks::reports`) decide which pages have memory. `makeroom_pool::Pages` does the work; here are
//! the calls, and which of them are PyTorch's:
//!
//! ```text
//! calls.rs   cuMemCreate to cuMemRelease      sharing.rs        calls after which memory must not move
//! devices.rs the pages of each device         reservations.rs   address ranges that PyTorch's allocator reserved
//! range.rs   queries about an address         registered.rs     libraries that register memory with other devices
//! ```
//!
//! Memory is created for PyTorch's allocator only if it calls directly: other libraries call through the same pointers.
//! All later calls are recognized by the token or by the address. A recording has the real handles and mappings, and not
//! PyTorch's virtual ones, so it counts physical bytes.
//!
//! A forked child does not page: its calls reach the driver, which does not work there. At exit, the driver frees all.

mod calls;
mod devices;
mod range;
mod registered;
mod reservations;
mod sharing;

pub(crate) use calls::{create, failed, free_range, map, release, report, reserved, set_access, unmap};
pub(crate) use devices::{abandon, figures};
pub(crate) use range::{address_range, range_attribute, range_attributes};
pub(crate) use sharing::{access, bind, export, pin, properties, retain};

use crate::config::config;
use crate::driver::types::CuResult;
use crate::pool;

/// Whether PyTorch's segments are paged.
#[inline]
fn is_on() -> bool {
    config().pages && pool::is_on()
}

/// Serves a call, if it is one for pages. Panics are caught, and `errno` is preserved.
#[inline]
pub(crate) fn serve(call: impl FnOnce() -> Option<CuResult>) -> Option<CuResult> {
    if config().pages { pool::serve(call) } else { None }
}
