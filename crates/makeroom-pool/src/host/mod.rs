//! Host memory that a device reaches: for what is spilled, and for copies that do not wait.
//!
//! ```text
//! mod.rs     which kind the driver can give      pinned.rs   buffers of it, with types and owners
//! slabs.rs   the older kind, block by block
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

/// Host memory for a device, at most so much of it: a pool where the driver maps memory of a host's node, else blocks of
/// pinned memory. Nothing is taken before it is asked for.
pub(crate) fn host_memory(
    driver: &'static Driver,
    device: i32,
    quota: Option<Bytes>,
) -> Result<Box<dyn Allocator>> {
    let card = driver.device(device)?;
    // A driver that does not know the question cannot do it either.
    let can = |attribute| card.attribute(attribute).unwrap_or(0) > 0;
    if can(Attribute::VirtualMemory) && can(Attribute::HostNodeVirtualMemory) {
        let node = card.attribute(Attribute::HostNode).unwrap_or(0).max(0);
        let options = Options { limit: quota, ..Options::default() };
        return Ok(Box::new(Pool::on_host(driver, device, node, options)?));
    }
    Ok(Box::new(PinnedSlabs::new(driver, device, quota)?))
}
