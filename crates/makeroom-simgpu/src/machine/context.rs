//! Contexts: their memory, the objects that end with them, and primary contexts.

use makeroom_ordered::OrderedMap;
use makeroom_simcard::PAGE;

use super::limits::Limits;
use super::ranges::Ranges;
use super::stream::Stream;
use super::{BlockKind, ContextId, HostKind, Machine, StreamId};
use crate::status::{Result, Status};

/// A context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) device: usize,
    pub(super) flags: u32,
    pub(super) primary: bool,
    /// The context's own memory.
    pub(super) frames: Vec<u32>,
    /// The additional memory for raised limits.
    pub(super) limit_frames: Vec<u32>,
    pub(super) limits: Limits,
    /// Free ranges in the pages that small blocks share.
    pub(super) heap: Ranges,
    pub(super) legacy: StreamId,
    pub(super) per_thread: OrderedMap<u64, StreamId>,
    /// Contexts whose memory this one can access.
    pub(super) peers: Vec<ContextId>,
}

/// A card's primary context.
#[derive(Clone, Debug, Default)]
pub(super) struct Primary {
    context: Option<ContextId>,
    retained: u64,
    flags: u32,
}

/// Flags that a context can have: scheduling, host mapping, local memory, core dumps, ordered copies.
const CONTEXT_FLAGS: u32 = 0xff;

impl Machine {
    pub(super) fn context(&self, context: ContextId) -> Result<&Context> {
        self.contexts.get(&context).ok_or_else(|| self.why_no_context(context))
    }

    pub(super) fn context_mut(&mut self, context: ContextId) -> Result<&mut Context> {
        let why = self.why_no_context(context);
        self.contexts.get_mut(&context).ok_or(why)
    }

    fn why_no_context(&self, context: ContextId) -> Status {
        let destroyed = self.destroyed.contains_key(&context);
        if destroyed { Status::CONTEXT_IS_DESTROYED } else { Status::INVALID_CONTEXT }
    }

    /// The GPU of a context that exists or existed: a destroyed one can still be made current and queried for its
    /// GPU.
    pub fn any_context_device(&self, context: ContextId) -> Result<usize> {
        let destroyed = self.destroyed.get(&context).copied();
        destroyed.map_or_else(|| self.context_device(context), Ok)
    }

    /// The GPU of an existing context.
    pub fn context_device(&self, context: ContextId) -> Result<usize> {
        Ok(self.context(context)?.device)
    }

    /// The flags of a context.
    pub fn context_flags(&self, context: ContextId) -> Result<u32> {
        Ok(self.context(context)?.flags)
    }

    /// Changes the flags of a context.
    pub fn set_context_flags(&mut self, context: ContextId, flags: u32) -> Result<()> {
        if flags & !CONTEXT_FLAGS != 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.context_mut(context)?.flags = flags;
        Ok(())
    }

    /// `cuCtxCreate`.
    pub fn create_context(&mut self, device: usize, flags: u32) -> Result<ContextId> {
        self.make_context(device, flags, false)
    }

    fn make_context(&mut self, device: usize, flags: u32, primary: bool) -> Result<ContextId> {
        if flags & !CONTEXT_FLAGS != 0 {
            return Err(Status::INVALID_VALUE);
        }
        let frames = self.take_frames(device, self.description.context.div_ceil(PAGE))?;
        let context: ContextId = self.identities.fresh();
        let legacy: StreamId = self.identities.fresh();
        self.streams.insert(legacy, Stream::new(context, true, 0));
        let made = Context {
            device,
            flags,
            primary,
            frames,
            limit_frames: Vec::new(),
            limits: Limits::default(),
            heap: Ranges::with_walls(PAGE),
            legacy,
            per_thread: OrderedMap::new(),
            peers: Vec::new(),
        };
        self.contexts.insert(context, made);
        self.member.add_context(device);
        Ok(context)
    }

    /// `cuCtxDestroy`: not for primary contexts.
    pub fn destroy_context(&mut self, context: ContextId) -> Result<()> {
        if self.context(context)?.primary {
            return Err(Status::INVALID_CONTEXT);
        }
        self.remove_context(context);
        Ok(())
    }

    /// Removes a context and everything that belongs to it: blocks, streams, events, code, arrays, registrations.
    fn remove_context(&mut self, context: ContextId) {
        self.settle_deferred_of(context);
        self.arrays.retain(|_, array| array.context != context);
        self.modules.retain(|_, module| module.context != context);
        self.functions.retain(|_, function| function.context != context);
        self.kernels.values_mut().for_each(|kernel| kernel.forget(context));
        self.libraries.values_mut().for_each(|library| library.forget(context));
        let blocks: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, block)| block.context == context)
            .map(|(address, block)| (*address, *block))
            .collect();
        for (address, block) in blocks {
            match block.kind {
                BlockKind::Linear | BlockKind::Array | BlockKind::Code => {
                    self.blocks.remove(&address);
                    self.free_linear(address, block);
                }
                BlockKind::Imported(_) => self.forget_import(address, block.bytes),
                BlockKind::Ordered(_) | BlockKind::Graph => {}
            }
        }
        self.host_blocks.retain(|_, block| block.context != context || block.kind != HostKind::Registered);
        self.captures.retain(|_, capture| capture.context != context);
        self.streams.retain(|_, stream| stream.context != context);
        self.events.retain(|_, event| event.context != context);
        let Some(gone) = self.contexts.remove(&context) else { return };
        self.destroyed.insert(context, gone.device);
        self.give_frames(gone.device, &gone.frames);
        self.give_frames(gone.device, &gone.limit_frames);
        self.member.remove_context(gone.device);
        if self.contexts.values().all(|other| other.device != gone.device) {
            self.empty_pools(gone.device);
        }
    }

    /// `cuDevicePrimaryCtxRetain`.
    pub fn retain_primary(&mut self, device: usize) -> Result<ContextId> {
        let context = match self.primaries[device].context {
            Some(context) => context,
            None => self.make_context(device, self.primaries[device].flags, true)?,
        };
        let primary = &mut self.primaries[device];
        primary.context = Some(context);
        primary.retained += 1;
        Ok(context)
    }

    /// `cuDevicePrimaryCtxRelease`.
    pub fn release_primary(&mut self, device: usize) -> Result<()> {
        let primary = &mut self.primaries[device];
        primary.retained = primary.retained.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
        if primary.retained == 0 {
            self.reset_primary(device);
        }
        Ok(())
    }

    /// `cuDevicePrimaryCtxReset`: removes the context; callers that retained it still have to release it.
    pub fn reset_primary(&mut self, device: usize) {
        if let Some(context) = self.primaries[device].context.take() {
            self.remove_context(context);
        }
    }

    /// Flags of a GPU's primary context, and whether it exists.
    pub fn primary_state(&self, device: usize) -> (u32, bool) {
        let primary = &self.primaries[device];
        let flags = primary.context.and_then(|context| self.context_flags(context).ok());
        (flags.unwrap_or(primary.flags), primary.context.is_some())
    }

    /// `cuDevicePrimaryCtxSetFlags`.
    pub fn set_primary_flags(&mut self, device: usize, flags: u32) -> Result<()> {
        if let Some(context) = self.primaries[device].context {
            self.set_context_flags(context, flags)?;
        } else if flags & !CONTEXT_FLAGS != 0 {
            return Err(Status::INVALID_VALUE);
        }
        self.primaries[device].flags = flags;
        Ok(())
    }

    /// `cuCtxEnablePeerAccess`.
    pub fn enable_peer(&mut self, context: ContextId, peer: ContextId) -> Result<()> {
        if self.context(context)?.device == self.context(peer)?.device {
            return Err(Status::INVALID_DEVICE);
        }
        let peers = &mut self.context_mut(context)?.peers;
        if peers.contains(&peer) {
            return Err(Status::PEER_ACCESS_ALREADY_ENABLED);
        }
        peers.push(peer);
        Ok(())
    }

    /// `cuCtxDisablePeerAccess`.
    pub fn disable_peer(&mut self, context: ContextId, peer: ContextId) -> Result<()> {
        let peers = &mut self.context_mut(context)?.peers;
        let position = peers.iter().position(|known| *known == peer);
        peers.remove(position.ok_or(Status::PEER_ACCESS_NOT_ENABLED)?);
        Ok(())
    }
}
