//! Memory of other owners, and views of other memory: memory of other APIs, exported pools and blocks, multicast
//! objects, green contexts.
//!
//! Memory of another API is host memory here, reserved and mapped like virtual memory; it uses no GPU memory. A
//! multicast object is a list of the memory bound to it. Writes to it are not simulated, so it cannot be mapped.

use makeroom_ordered::OrderedMap;
use makeroom_simcard::PAGE;

use super::{
    Access, Block, BlockKind, ContextId, ExternalId, GreenId, HandleId, Location, Machine, MulticastId,
    PoolId,
};
use crate::status::{Result, Status};

/// A multicast object.
#[derive(Debug, Default)]
pub(super) struct Multicast {
    bytes: u64,
    /// Number of GPUs in its team.
    team: usize,
    devices: Vec<usize>,
    /// Bound memory: GPU and offset, and its size.
    bound: OrderedMap<(usize, u64), u64>,
}

/// All such objects.
#[derive(Debug, Default)]
pub(super) struct Interop {
    /// Imported memory of other APIs, and its size.
    externals: OrderedMap<ExternalId, u64>,
    /// Its mappings: reserved bytes, and the handle behind them.
    buffers: OrderedMap<u64, (u64, HandleId)>,
    multicasts: OrderedMap<MulticastId, Multicast>,
    /// Green contexts and their GPUs.
    greens: OrderedMap<GreenId, usize>,
}

impl Machine {
    /// `cuImportExternalMemory`.
    pub fn import_external(&mut self, bytes: u64) -> Result<ExternalId> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let external = self.identities.fresh();
        self.interop.externals.insert(external, bytes);
        Ok(external)
    }

    /// `cuDestroyExternalMemory`: mapped buffers exist until they are freed.
    pub fn destroy_external(&mut self, external: ExternalId) -> Result<()> {
        self.interop.externals.remove(&external).map(|_| ()).ok_or(Status::INVALID_HANDLE)
    }

    /// `cuExternalMemoryGetMappedBuffer`.
    pub fn map_external(&mut self, external: ExternalId, offset: u64, bytes: u64) -> Result<u64> {
        let whole = *self.interop.externals.get(&external).ok_or(Status::INVALID_HANDLE)?;
        if bytes == 0 || offset.checked_add(bytes).is_none_or(|end| end > whole) {
            return Err(Status::INVALID_VALUE);
        }
        let reserved = bytes.next_multiple_of(PAGE);
        let handle = self.create_handle(reserved, Location::Host(0))?;
        let address = self.reserve(reserved, 0, 0)?;
        self.map(address, reserved, 0, handle)?;
        let everyone: Vec<_> =
            (0..self.devices()).map(|device| (Location::Device(device), Access::ReadWrite)).collect();
        self.set_access(address, reserved, &everyone)?;
        self.interop.buffers.insert(address, (reserved, handle));
        Ok(address)
    }

    /// Frees a mapped buffer. Returns whether the address was one.
    pub(super) fn free_external(&mut self, address: u64) -> Result<bool> {
        let Some((reserved, handle)) = self.interop.buffers.remove(&address) else { return Ok(false) };
        self.unmap(address, reserved)?;
        self.unreserve(address, reserved)?;
        self.release_handle(handle)?;
        Ok(true)
    }

    /// Adds a reference to a handle, for an import.
    pub fn share_handle(&mut self, handle: HandleId) -> Result<()> {
        self.handle_location(handle)?;
        self.handles.get_mut(&handle).ok_or(Status::INVALID_VALUE)?.hold();
        Ok(())
    }

    /// `cuMemPoolImportFromShareableHandle`: a pool from which nothing is allocated.
    pub fn import_pool(&mut self, original: PoolId) -> Result<PoolId> {
        let device = self.pool_ref(original)?.device;
        Ok(self.create_pool(device, 0))
    }

    /// `cuMemPoolExportPointer`: the start of a stream-ordered block.
    pub fn ordered_block(&self, address: u64) -> Result<u64> {
        match self.block_at(address) {
            Some((start, Block { kind: BlockKind::Ordered(_), .. })) => Ok(start),
            _ => Err(Status::INVALID_VALUE),
        }
    }

    /// `cuMemPoolImportPointer`.
    pub fn import_ordered(&mut self, context: ContextId, pool: PoolId, original: u64) -> Result<u64> {
        self.pool_ref(pool)?;
        self.ordered_block(original)?;
        self.open_import(context, original)
    }

    /// Whether a block was imported from another pool, so that freeing it closes it.
    pub(super) fn is_imported_ordered(&self, address: u64) -> bool {
        let Some(Block { kind: BlockKind::Imported(original), .. }) = self.blocks.get(&address) else {
            return false;
        };
        self.ordered_block(*original).is_ok()
    }

    /// `cuMulticastCreate`.
    pub fn create_multicast(&mut self, team: usize, bytes: u64) -> Result<MulticastId> {
        if team == 0 || team > self.devices() || bytes == 0 || !bytes.is_multiple_of(PAGE) {
            return Err(Status::INVALID_VALUE);
        }
        let multicast = self.identities.fresh();
        self.interop.multicasts.insert(multicast, Multicast { bytes, team, ..Multicast::default() });
        Ok(multicast)
    }

    /// `cuMulticastAddDevice`.
    pub fn add_to_multicast(&mut self, multicast: MulticastId, device: usize) -> Result<()> {
        let found = self.interop.multicasts.get_mut(&multicast).ok_or(Status::INVALID_VALUE)?;
        if found.devices.contains(&device) || found.devices.len() == found.team {
            return Err(Status::INVALID_VALUE);
        }
        found.devices.push(device);
        Ok(())
    }

    /// `cuMulticastBindMem`: memory of a GPU in the team, once the team is complete.
    pub fn bind_multicast(
        &mut self,
        multicast: MulticastId,
        offset: u64,
        device: usize,
        bytes: u64,
    ) -> Result<()> {
        let found = self.interop.multicasts.get_mut(&multicast).ok_or(Status::INVALID_VALUE)?;
        let is_whole = offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE) && bytes > 0;
        let fits = offset.checked_add(bytes).is_some_and(|end| end <= found.bytes);
        if !is_whole || !fits || !found.devices.contains(&device) {
            return Err(Status::INVALID_VALUE);
        }
        if found.devices.len() < found.team {
            return Err(Status::NOT_READY);
        }
        found.bound.insert((device, offset), bytes);
        Ok(())
    }

    /// `cuMulticastUnbind`.
    pub fn unbind_multicast(
        &mut self,
        multicast: MulticastId,
        device: usize,
        offset: u64,
        bytes: u64,
    ) -> Result<()> {
        let found = self.interop.multicasts.get_mut(&multicast).ok_or(Status::INVALID_VALUE)?;
        if found.bound.get(&(device, offset)) != Some(&bytes) {
            return Err(Status::INVALID_VALUE);
        }
        found.bound.remove(&(device, offset));
        Ok(())
    }

    /// `cuMemRelease` of a multicast object. Returns whether the handle was one.
    pub fn release_multicast(&mut self, handle: u64) -> bool {
        self.interop.multicasts.remove(&MulticastId(handle)).is_some()
    }

    /// `cuGreenCtxCreate`: a share of the primary context, which it retains.
    pub fn create_green(&mut self, device: usize) -> Result<GreenId> {
        self.retain_primary(device)?;
        let green = self.identities.fresh();
        self.interop.greens.insert(green, device);
        Ok(green)
    }

    /// `cuCtxFromGreenCtx`.
    pub fn green_context(&mut self, green: GreenId) -> Result<ContextId> {
        let device = *self.interop.greens.get(&green).ok_or(Status::INVALID_VALUE)?;
        let context = self.retain_primary(device)?;
        self.release_primary(device)?;
        Ok(context)
    }

    /// `cuGreenCtxDestroy`.
    pub fn destroy_green(&mut self, green: GreenId) -> Result<()> {
        let device = self.interop.greens.remove(&green).ok_or(Status::INVALID_VALUE)?;
        self.release_primary(device)
    }
}
