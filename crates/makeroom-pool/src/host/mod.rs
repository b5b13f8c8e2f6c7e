//! Host memory that a device reaches: for spilling, and for asynchronous copies.
//!
//! ```text
//! mod.rs     which kind the driver supports      pinned.rs   typed, owned buffers of it
//! slabs.rs   pinned memory, block by block
//! ```

mod pinned;
mod slabs;

use makeroom_core::Bytes;
use makeroom_cuda::{Attribute, Driver};

use crate::allocator::Allocator;
use crate::error::Result;
use crate::pool::{Options, Pool};
pub use pinned::{InFlight, PinnedBuffer, PinnedPool};
use slabs::PinnedSlabs;

/// Host memory for a device, up to a quota: a pool if the driver can map memory of a host node, else pinned blocks.
/// Nothing is allocated in advance.
pub(crate) fn host_memory(
    driver: &'static Driver,
    device: i32,
    quota: Option<Bytes>,
) -> Result<Box<dyn Allocator>> {
    let card = driver.device(device)?;
    // A driver that does not know the attribute does not have the feature.
    let can = |attribute| card.attribute(attribute).unwrap_or(0) > 0;
    if can(Attribute::VirtualMemory) && can(Attribute::HostNodeVirtualMemory) {
        let node = card.attribute(Attribute::HostNode).unwrap_or(0).max(0);
        let options = Options { limit: quota, ..Options::default() };
        return Ok(Box::new(Pool::on_host(driver, device, node, options)?));
    }
    Ok(Box::new(PinnedSlabs::new(driver, device, quota)?))
}
