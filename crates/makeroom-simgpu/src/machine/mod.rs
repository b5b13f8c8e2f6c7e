//! The simulated machine as plain data: GPUs, contexts, memory, streams. Safe code, without access to memory.
//!
//! The machine does the bookkeeping: which page frames of which GPU are in use, what is at which address, what work a
//! stream has left. It never accesses the bytes. For a copy it returns their location ([`Piece`]), and `backing.rs`
//! copies them. So everything here can be tested without loading the library.
//!
//! ```text
//! address ── blocks ───── allocations, exact to the byte
//!        └── regions ──── whole pages, and the frames behind them
//!        └── mappings ─── the same for virtual memory, through handles
//! ```
//!
//! Invariants between two calls, tested with random calls in `tests.rs`:
//!
//! ```text
//! frames of a card         = free + context + regions + handles
//! pages in the ledger      = frames of a card − free
//! address space            = free + regions + reservations + graph ranges not mapped
//! ```

#![forbid(unsafe_code)]

mod array;
mod capture;
mod code;
mod context;
mod event;
mod exchange;
mod frames;
mod graph;
mod host;
mod identity;
mod interop;
mod limits;
mod linear;
mod mapping;
mod pages;
mod pointer;
mod pool;
mod ranges;
mod reuse;
mod stream;
#[cfg(test)]
mod tests;
mod transfer;

use std::ops::Range;

use std::sync::Arc;

use makeroom_ordered::OrderedMap;
use makeroom_simcard::{Description, Member};

pub use array::{ArrayShape, Place3d};
pub use capture::{CaptureMode, CaptureStatus, Submitted};
pub use code::Launch;
pub use event::EventFlags;
pub use graph::{GraphMemory, Operation};
pub use host::{HostBlock, HostKind};
pub use identity::{
    ArrayId, CaptureId, ContextId, EventId, ExecutableId, ExternalId, FunctionId, GraphId, GreenId, HandleId,
    KernelId, LibraryId, ModuleId, MulticastId, NodeId, PoolId, StreamId,
};
pub use limits::Limit;
pub use linear::{Block, BlockKind};
pub use mapping::{Access, Location};
pub use pages::Piece;
pub use pointer::Pointed;
pub use pool::{Counter, PoolAttribute};
pub use stream::{DefaultStream, StreamName};
pub use transfer::{Copy, End, Fill, Side};

use crate::status::{Result, Status};
use frames::Frames;
use identity::Identities;
use pages::Region;
use ranges::Ranges;

/// Alignment and minimum size of blocks, in bytes.
pub const GRAIN: u64 = 512;
/// Pools grow and shrink in chunks of this many bytes.
pub const CHUNK: u64 = 32 << 20;

/// The machine of one process.
pub struct Machine {
    description: Description,
    member: Arc<Member>,
    identities: Identities,
    now: u64,
    span: Range<u64>,
    space: Ranges,
    /// The frames of each GPU, then those of the host.
    frames: Vec<Frames>,
    discarded: Vec<(usize, u32)>,
    regions: OrderedMap<u64, Region>,
    blocks: OrderedMap<u64, Block>,
    contexts: OrderedMap<ContextId, context::Context>,
    /// Destroyed contexts and their GPUs.
    destroyed: OrderedMap<ContextId, usize>,
    primaries: Vec<context::Primary>,
    streams: OrderedMap<StreamId, stream::Stream>,
    events: OrderedMap<EventId, event::Event>,
    captures: OrderedMap<CaptureId, capture::Capture>,
    pools: OrderedMap<PoolId, pool::Pool>,
    device_pools: Vec<pool::DevicePools>,
    deferred: Vec<linear::Deferred>,
    handles: OrderedMap<HandleId, mapping::Handle>,
    reservations: OrderedMap<u64, u64>,
    mappings: OrderedMap<u64, mapping::Mapping>,
    host_blocks: OrderedMap<u64, HostBlock>,
    arrays: OrderedMap<ArrayId, array::Array>,
    modules: OrderedMap<ModuleId, code::Module>,
    functions: OrderedMap<FunctionId, code::Function>,
    libraries: OrderedMap<LibraryId, code::Library>,
    kernels: OrderedMap<KernelId, code::Kernel>,
    graphs: OrderedMap<GraphId, graph::Graph>,
    executables: OrderedMap<ExecutableId, graph::Executable>,
    graph_ranges: OrderedMap<u64, graph::GraphRange>,
    graph_high: Vec<u64>,
    interop: interop::Interop,
}

impl Machine {
    /// A machine whose device addresses are in `span`, which consists of whole pages.
    pub fn new(description: Description, member: Arc<Member>, span: Range<u64>) -> Self {
        let mut space = Ranges::default();
        space.insert(span.start, span.end - span.start);
        let mut frames: Vec<_> = (0..description.devices).map(|_| Frames::new(description.pages())).collect();
        frames.push(Frames::new(description.host / makeroom_simcard::PAGE));
        let mut machine = Self {
            member,
            identities: Identities::default(),
            now: 0,
            span,
            space,
            frames,
            discarded: Vec::new(),
            regions: OrderedMap::new(),
            blocks: OrderedMap::new(),
            contexts: OrderedMap::new(),
            destroyed: OrderedMap::new(),
            primaries: vec![context::Primary::default(); description.devices],
            streams: OrderedMap::new(),
            events: OrderedMap::new(),
            captures: OrderedMap::new(),
            pools: OrderedMap::new(),
            device_pools: Vec::new(),
            deferred: Vec::new(),
            handles: OrderedMap::new(),
            reservations: OrderedMap::new(),
            mappings: OrderedMap::new(),
            host_blocks: OrderedMap::new(),
            arrays: OrderedMap::new(),
            modules: OrderedMap::new(),
            functions: OrderedMap::new(),
            libraries: OrderedMap::new(),
            kernels: OrderedMap::new(),
            graphs: OrderedMap::new(),
            executables: OrderedMap::new(),
            graph_ranges: OrderedMap::new(),
            graph_high: vec![0; description.devices],
            interop: interop::Interop::default(),
            description,
        };
        machine.device_pools = (0..machine.devices()).map(|device| machine.first_pool(device)).collect();
        machine
    }

    /// The machine's description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// This process's entry in the ledger.
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Number of cards.
    pub fn devices(&self) -> usize {
        self.description.devices
    }

    /// The GPU with this number.
    pub fn device(&self, number: i32) -> Result<usize> {
        let device = usize::try_from(number).ok().filter(|device| *device < self.devices());
        device.ok_or(Status::INVALID_DEVICE)
    }

    /// Free and total bytes of a GPU, counting all processes.
    pub fn memory(&self, device: usize) -> (u64, u64) {
        let total = self.description.memory;
        (total - self.member.used(device), total)
    }

    /// Simulated nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Whether an address is a device address.
    pub fn is_device_address(&self, address: u64) -> bool {
        self.span.contains(&address)
    }

    /// Written frames that are free now, so that their memory can be released. The host has the index after the last
    /// GPU.
    pub fn take_discarded(&mut self) -> Vec<(usize, u32)> {
        std::mem::take(&mut self.discarded)
    }
}
