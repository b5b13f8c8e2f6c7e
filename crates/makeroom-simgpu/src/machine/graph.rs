//! Graphs: creation, instantiation, launch. Allocation nodes get their address immediately and their memory at
//! launch.
//!
//! Measured on an H200: a graph's memory is allocated in chunks of 32 MiB at the first launch and counts as used from
//! then on. It stays reserved when it is freed, and is released by a trim. A graph whose memory is not freed cannot
//! be launched again.

use makeroom_simcard::PAGE;

use super::pages::Region;
use super::transfer::{Copy, Fill};
use super::{
    Block, BlockKind, CHUNK, CaptureId, ContextId, ExecutableId, FunctionId, GraphId, Machine, NodeId,
    StreamId, Submitted,
};
use crate::status::{Result, Status};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An empty node.
    Nothing,
    /// A kernel, which is not run.
    Kernel(FunctionId),
    /// A copy.
    Copy(Copy),
    /// A fill.
    Fill(Fill),
    /// Allocates memory of a graph.
    Allocate {
        /// Its address.
        address: u64,
        /// Its bytes.
        bytes: u64,
        /// Its card.
        device: usize,
    },
    /// Frees memory of a graph.
    Free {
        /// Its address.
        address: u64,
    },
}

/// A graph: nodes in topological order.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    nodes: Vec<(NodeId, Operation)>,
}

impl Graph {
    pub(super) fn push(&mut self, node: NodeId, operation: Operation) {
        self.nodes.push((node, operation));
    }

    fn allocates(&self, wanted: u64) -> bool {
        self.nodes
            .iter()
            .any(|(_, node)| matches!(node, Operation::Allocate { address, .. } if *address == wanted))
    }

    fn frees(&self, wanted: u64) -> bool {
        self.nodes.iter().any(|(_, node)| *node == Operation::Free { address: wanted })
    }
}

/// An instantiated graph.
#[derive(Debug)]
pub(super) struct Executable {
    graph: Graph,
    free_on_launch: bool,
}

/// The address range of an allocation node.
#[derive(Debug)]
pub(super) struct GraphRange {
    device: usize,
    bytes: u64,
}

/// Attributes of a GPU's graph memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphMemory {
    /// Bytes reserved.
    Current,
    /// High-water mark of reserved bytes.
    High,
}

impl Machine {
    fn graph_mut(&mut self, graph: GraphId) -> Result<&mut Graph> {
        self.graphs.get_mut(&graph).ok_or(Status::INVALID_VALUE)
    }

    /// `cuGraphCreate`.
    pub fn create_graph(&mut self) -> GraphId {
        let graph = self.identities.fresh();
        self.graphs.insert(graph, Graph::default());
        graph
    }

    /// `cuGraphDestroy`.
    pub fn destroy_graph(&mut self, graph: GraphId) -> Result<()> {
        self.graphs.remove(&graph).ok_or(Status::INVALID_VALUE)?;
        self.retire_graph_ranges();
        Ok(())
    }

    /// Adds a node after its dependencies, which must be in the graph.
    pub fn add_node(&mut self, graph: GraphId, after: &[NodeId], operation: Operation) -> Result<NodeId> {
        let node = self.identities.fresh();
        let graph = self.graph_mut(graph)?;
        if after.iter().any(|wanted| graph.nodes.iter().all(|(node, _)| node != wanted)) {
            return Err(Status::INVALID_VALUE);
        }
        graph.push(node, operation);
        Ok(node)
    }

    /// `cuGraphAddMemAllocNode`: returns the node and the address.
    pub fn add_allocation(
        &mut self,
        graph: GraphId,
        after: &[NodeId],
        device: usize,
        bytes: u64,
    ) -> Result<(NodeId, u64)> {
        self.graph_mut(graph)?;
        let operation = self.graph_range(device, bytes)?;
        let Operation::Allocate { address, .. } = operation else { return Err(Status::UNKNOWN) };
        let node = self.add_node(graph, after, operation);
        if node.is_err() {
            self.retire_graph_ranges();
        }
        Ok((node?, address))
    }

    fn graph_range(&mut self, device: usize, bytes: u64) -> Result<Operation> {
        if bytes == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let size = bytes.checked_next_multiple_of(CHUNK).ok_or(Status::OUT_OF_MEMORY)?;
        let address = self.space.take(size).ok_or(Status::OUT_OF_MEMORY)?;
        self.graph_ranges.insert(address, GraphRange { device, bytes: size });
        Ok(Operation::Allocate { address, bytes, device })
    }

    /// `cuGraphAddMemFreeNode`: only for memory that the same graph allocates, and once.
    pub fn add_free(&mut self, graph: GraphId, after: &[NodeId], address: u64) -> Result<NodeId> {
        let found = self.graph_mut(graph)?;
        if !found.allocates(address) || found.frees(address) {
            return Err(Status::INVALID_VALUE);
        }
        self.add_node(graph, after, Operation::Free { address })
    }

    /// `cuMemAllocAsync` on a captured stream.
    pub fn capture_allocation(&mut self, stream: StreamId, device: usize, bytes: u64) -> Result<u64> {
        let operation = self.graph_range(device, bytes)?;
        let Operation::Allocate { address, .. } = operation else { return Err(Status::UNKNOWN) };
        if let Err(status) = self.submit(stream, operation, 0) {
            self.retire_graph_ranges();
            return Err(status);
        }
        Ok(address)
    }

    /// `cuMemFreeAsync` on a captured stream: only for memory that the capture allocated.
    pub fn capture_free(&mut self, stream: StreamId, capture: CaptureId, address: u64) -> Result<()> {
        let graph = &self.captures.get(&capture).ok_or(Status::ILLEGAL_STATE)?.graph;
        if !graph.allocates(address) || graph.frees(address) {
            return Err(Status::INVALID_VALUE);
        }
        self.submit(stream, Operation::Free { address }, 0).map(|_| ())
    }

    /// The nodes of a graph.
    pub fn graph_nodes(&self, graph: GraphId) -> Result<Vec<NodeId>> {
        let graph = self.graphs.get(&graph).ok_or(Status::INVALID_VALUE)?;
        Ok(graph.nodes.iter().map(|(node, _)| *node).collect())
    }

    /// `cuGraphInstantiate`.
    pub fn instantiate(&mut self, graph: GraphId, free_on_launch: bool) -> Result<ExecutableId> {
        let graph = self.graph_mut(graph)?.clone();
        let executable = self.identities.fresh();
        self.executables.insert(executable, Executable { graph, free_on_launch });
        Ok(executable)
    }

    /// Checks that an instantiated graph exists.
    pub fn has_executable(&self, executable: ExecutableId) -> Result<()> {
        self.executables.get(&executable).map(|_| ()).ok_or(Status::INVALID_VALUE)
    }

    /// `cuGraphExecDestroy`.
    pub fn destroy_executable(&mut self, executable: ExecutableId) -> Result<()> {
        self.executables.remove(&executable).ok_or(Status::INVALID_VALUE)?;
        self.retire_graph_ranges();
        Ok(())
    }

    /// `cuGraphLaunch`: returns the operations in order, to be executed by [`Machine::run_operation`] or, for copies
    /// and fills, by the caller. On a captured stream, the graph becomes part of the captured one, and there are
    /// none.
    pub fn launch_graph(&mut self, executable: ExecutableId, stream: StreamId) -> Result<Vec<Operation>> {
        let found = self.executables.get(&executable).ok_or(Status::INVALID_VALUE)?;
        let operations: Vec<_> = found.graph.nodes.iter().map(|(_, operation)| *operation).collect();
        let allocated = operations.iter().filter_map(|operation| match operation {
            Operation::Allocate { address, .. } if self.blocks.contains_key(address) => Some(*address),
            _ => None,
        });
        let allocated: Vec<_> = allocated.collect();
        if !allocated.is_empty() && !found.free_on_launch {
            return Err(Status::INVALID_VALUE);
        }
        let kernels = operations.iter().filter(|operation| matches!(operation, Operation::Kernel(_))).count();
        let nanoseconds = self.description.kernel.saturating_mul(kernels as u64);
        if self.submit(stream, Operation::Nothing, nanoseconds)? == Submitted::Captured {
            for operation in operations {
                self.submit(stream, operation, 0)?;
            }
            return Ok(Vec::new());
        }
        for address in allocated {
            self.blocks.remove(&address);
        }
        Ok(operations)
    }

    /// Does the bookkeeping of an operation.
    pub fn run_operation(&mut self, context: ContextId, operation: Operation) -> Result<()> {
        match operation {
            Operation::Allocate { address, bytes, device } => {
                if !self.regions.contains_key(&address) {
                    self.map_graph_range(address, bytes, device)?;
                }
                self.blocks.insert(address, Block { bytes, context, device, kind: BlockKind::Graph });
            }
            Operation::Free { address } => {
                self.blocks.remove(&address);
            }
            _ => {}
        }
        Ok(())
    }

    fn map_graph_range(&mut self, address: u64, bytes: u64, device: usize) -> Result<()> {
        let whole = self.graph_ranges.get(&address).ok_or(Status::INVALID_VALUE)?.bytes;
        let frames = self
            .take_frames(device, whole / PAGE)
            .or_else(|_| self.take_frames(device, bytes.div_ceil(PAGE)))?;
        self.regions.insert(address, Region { device, frames });
        let held = self.graph_memory(device, GraphMemory::Current);
        self.graph_high[device] = self.graph_high[device].max(held);
        Ok(())
    }

    /// Memory of a GPU's graphs.
    pub fn graph_memory(&self, device: usize, which: GraphMemory) -> u64 {
        let ranges = self.graph_ranges.iter().filter(|(_, range)| range.device == device);
        let held = ranges.filter_map(|(address, _)| self.regions.get(address)).map(Region::bytes).sum();
        if which == GraphMemory::Current { held } else { self.graph_high[device].max(held) }
    }

    /// Resets the high-water mark of a GPU's graphs.
    pub fn reset_graph_high(&mut self, device: usize) {
        self.graph_high[device] = self.graph_memory(device, GraphMemory::Current);
    }

    /// `cuDeviceGraphMemTrim`: releases unused graph memory.
    pub fn trim_graph_memory(&mut self, device: usize) {
        let ranges = self.graph_ranges.iter().filter(|(_, range)| range.device == device);
        let unused = ranges.filter(|(address, _)| !self.blocks.contains_key(address));
        let unused: Vec<_> = unused.map(|(address, _)| *address).collect();
        for address in unused {
            self.release_region(address);
        }
        self.retire_graph_ranges();
    }

    /// Frees the addresses that no graph refers to any more.
    pub(super) fn retire_graph_ranges(&mut self) {
        let executables = self.executables.values().map(|executable| &executable.graph);
        let captures = self.captures.values().map(|capture| &capture.graph);
        let graphs: Vec<_> = self.graphs.values().chain(executables).chain(captures).collect();
        let retired = self.graph_ranges.keys().filter(|address| {
            let named = graphs.iter().any(|graph| graph.allocates(**address));
            !named && !self.blocks.contains_key(address) && !self.regions.contains_key(address)
        });
        let retired: Vec<_> = retired.copied().collect();
        for address in retired {
            if let Some(range) = self.graph_ranges.remove(&address) {
                self.space.insert(address, range.bytes);
            }
        }
    }

    /// Bytes of graph address ranges that have no memory.
    #[cfg(test)]
    pub(super) fn unmapped_graph_bytes(&self) -> u64 {
        let held = |address| self.regions.get(address).map_or(0, Region::bytes);
        self.graph_ranges.iter().map(|(address, range)| range.bytes - held(address)).sum()
    }
}
