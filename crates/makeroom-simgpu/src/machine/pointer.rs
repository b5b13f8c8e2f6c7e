//! Allocations at an address, for `cuPointerGetAttribute` and `cuMemGetAddressRange`.

use super::{BlockKind, ContextId, HostKind, Location, Machine};

/// The allocation at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointed {
    /// Its start.
    pub start: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Its context; virtual memory has none.
    pub context: Option<ContextId>,
    /// Its GPU.
    pub device: usize,
    /// Whether it is in host memory.
    pub on_host: bool,
    /// Whether it is managed.
    pub managed: bool,
    /// Whether it can be shared with `cuIpcGetMemHandle`.
    pub exchangeable: bool,
    /// Its pool, if any.
    pub pool: Option<u64>,
}

impl Machine {
    /// The allocation at an address.
    pub fn pointed(&self, address: u64) -> Option<Pointed> {
        if let Some((start, block)) = self.block_at(address) {
            let pool = if let BlockKind::Ordered(pool) = block.kind { Some(pool.0) } else { None };
            let hidden = matches!(block.kind, BlockKind::Array | BlockKind::Code);
            return (!hidden).then_some(Pointed {
                start,
                bytes: block.bytes,
                context: Some(block.context),
                device: block.device,
                on_host: false,
                managed: false,
                exchangeable: block.kind == BlockKind::Linear,
                pool,
            });
        }
        if let Some((start, mapping)) = self.mapping_at(address) {
            let location = self.handles.get(&mapping.handle)?.location;
            let device = if let Location::Device(device) = location { device } else { 0 };
            return Some(Pointed {
                start,
                bytes: mapping.bytes,
                context: None,
                device,
                on_host: matches!(location, Location::Host(_)),
                managed: false,
                exchangeable: false,
                pool: None,
            });
        }
        let (start, block) = self.host_at(address)?;
        Some(Pointed {
            start,
            bytes: block.bytes,
            context: Some(block.context),
            device: self.context_device(block.context).unwrap_or(0),
            on_host: true,
            managed: block.kind == HostKind::Managed,
            exchangeable: false,
            pool: None,
        })
    }
}
