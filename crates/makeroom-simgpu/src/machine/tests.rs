//! Random calls preserve the machine's invariants, and allocations fail exactly when there is no memory.

use std::sync::Arc;

use makeroom_ordered::OrderedSet;
use makeroom_simcard::{Description, Ledger, PAGE};
use proptest::prelude::*;

use super::*;

const STREAMS: usize = 3;

/// One call; its numbers select among existing objects.
#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    Free(usize),
    AllocateOrdered(u64, usize),
    FreeOrdered(usize, usize),
    Busy(usize, u64),
    Wait(usize, usize),
    Advance(u64),
    Synchronize(usize),
    Trim(u64),
    Map(u64),
    Unmap(usize),
    Array(u64),
    Limit(u64),
    Graph(u64),
    DropGraph,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = || prop_oneof![1u64..4096, 1u64..3 * PAGE, (1u64..8).prop_map(|pages| pages * PAGE)];
    let which = || 0usize..1000;
    let step = prop_oneof![
        4 => size().prop_map(Step::Allocate),
        4 => which().prop_map(Step::Free),
        4 => (size(), which()).prop_map(|(bytes, stream)| Step::AllocateOrdered(bytes, stream)),
        4 => (which(), which()).prop_map(|(block, stream)| Step::FreeOrdered(block, stream)),
        2 => (which(), 0u64..5000).prop_map(|(stream, time)| Step::Busy(stream, time)),
        1 => (which(), which()).prop_map(|(from, to)| Step::Wait(from, to)),
        1 => (0u64..3000).prop_map(Step::Advance),
        1 => which().prop_map(Step::Synchronize),
        1 => (0u64..64 << 20).prop_map(Step::Trim),
        2 => (1u64..6).prop_map(Step::Map),
        2 => which().prop_map(Step::Unmap),
        1 => (1u64..600).prop_map(Step::Array),
        1 => (1u64..4).prop_map(Step::Limit),
        1 => size().prop_map(Step::Graph),
        1 => Just(Step::DropGraph),
    ];
    prop::collection::vec(step, 1..120)
}

struct World {
    machine: Machine,
    context: ContextId,
    streams: Vec<StreamId>,
    reservations: Vec<(u64, u64)>,
    graphs: Vec<(GraphId, ExecutableId)>,
}

impl World {
    fn new() -> Self {
        let description = Description::parse("memory=192MiB,context=20MiB,host=64MiB,module=4096").unwrap();
        let member = Ledger::private(&description).unwrap().join().unwrap();
        let mut machine = Machine::new(description, Arc::new(member), 1 << 40..(1 << 40) + (1 << 30));
        let context = machine.create_context(0, 0).unwrap();
        let streams = (0..STREAMS).map(|_| machine.create_stream(context, 1, 0).unwrap()).collect();
        Self { machine, context, streams, reservations: Vec::new(), graphs: Vec::new() }
    }

    fn stream(&self, which: usize) -> StreamId {
        self.streams[which % STREAMS]
    }

    fn pick(&self, which: usize, ordered: bool) -> Option<u64> {
        let wanted = |block: &Block| match block.kind {
            BlockKind::Linear => !ordered,
            BlockKind::Ordered(_) => ordered,
            _ => false,
        };
        let found: Vec<_> = self.machine.blocks.iter().filter(|(_, block)| wanted(block)).collect();
        found.get(which.checked_rem(found.len())?).map(|(address, _)| **address)
    }

    fn step(&mut self, step: &Step) {
        let free = self.machine.frames[0].free();
        match *step {
            Step::Allocate(bytes) => {
                let holes = self.machine.contexts[&self.context].heap.iter().map(|(_, length)| length).max();
                let fits = bytes < PAGE && holes.is_some_and(|hole| hole >= bytes.next_multiple_of(GRAIN));
                let allocated = self.machine.allocate(self.context, bytes);
                assert_eq!(
                    allocated.is_ok(),
                    fits || bytes.div_ceil(PAGE) <= free,
                    "{bytes} bytes, {free} pages free"
                );
            }
            Step::Free(which) => {
                if let Some(address) = self.pick(which, false) {
                    self.machine.free(address).unwrap();
                    assert_eq!(self.machine.free(address), Err(Status::INVALID_VALUE));
                }
            }
            Step::AllocateOrdered(bytes, which) => {
                let pool = self.machine.default_pool(0);
                let stream = self.stream(which);
                let allocated = self.machine.allocate_ordered(self.context, pool, bytes, stream);
                assert!(allocated.is_ok() || bytes.div_ceil(PAGE) > free, "{bytes} bytes, {free} pages free");
            }
            Step::FreeOrdered(which, stream) => {
                if let Some(address) = self.pick(which, true) {
                    self.machine.free_on_stream(address, self.stream(stream)).unwrap();
                }
            }
            Step::Busy(which, time) => self.machine.enqueue(self.stream(which), time).unwrap(),
            Step::Wait(from, to) => {
                let event = self.machine.create_event(self.context, EventFlags(2)).unwrap();
                self.machine.record_event(event, self.stream(from)).unwrap();
                self.machine.wait_event(self.stream(to), event).unwrap();
                self.machine.destroy_event(event).unwrap();
            }
            Step::Advance(time) => self.machine.advance_to(self.machine.now() + time),
            Step::Synchronize(which) => self.machine.synchronize_stream(self.stream(which)).unwrap(),
            Step::Trim(keep) => self.machine.trim_pool(self.machine.default_pool(0), keep).unwrap(),
            Step::Map(pages) => self.map(pages, free),
            Step::Unmap(which) => {
                if let Some(position) = which.checked_rem(self.reservations.len()) {
                    let (address, bytes) = self.reservations.swap_remove(position);
                    self.machine.unmap(address, bytes).unwrap();
                    self.machine.unreserve(address, bytes).unwrap();
                }
            }
            Step::Array(side) => {
                let shape =
                    ArrayShape { width: side, height: side, depth: 0, format: 0x20, channels: 4, flags: 0 };
                if let Ok(array) = self.machine.create_array(self.context, shape)
                    && side % 2 == 0
                {
                    self.machine.destroy_array(array, false).unwrap();
                }
            }
            Step::Limit(times) => {
                let before = self.machine.limit(self.context, Limit::Stack).unwrap();
                let wanted = 1024 + times * 64;
                if self.machine.set_limit(self.context, Limit::Stack, wanted).is_err() {
                    assert_eq!(self.machine.limit(self.context, Limit::Stack), Ok(before));
                }
            }
            Step::Graph(bytes) => self.graph(bytes),
            Step::DropGraph => {
                if let Some((graph, executable)) = self.graphs.pop() {
                    self.machine.destroy_graph(graph).unwrap();
                    self.machine.destroy_executable(executable).unwrap();
                    self.machine.trim_graph_memory(0);
                }
            }
        }
    }

    fn map(&mut self, pages: u64, free: u64) {
        let bytes = pages * PAGE;
        let handle = self.machine.create_handle(bytes, Location::Device(0));
        assert_eq!(handle.is_ok(), pages <= free);
        let Ok(handle) = handle else { return };
        let address = self.machine.reserve(2 * bytes, 0, 0).unwrap();
        self.machine.map(address, bytes, 0, handle).unwrap();
        self.machine.map(address + bytes, bytes, 0, handle).unwrap();
        self.machine.release_handle(handle).unwrap();
        self.reservations.push((address, 2 * bytes));
    }

    fn graph(&mut self, bytes: u64) {
        let graph = self.machine.create_graph();
        let Ok((node, address)) = self.machine.add_allocation(graph, &[], 0, bytes) else {
            return self.machine.destroy_graph(graph).unwrap();
        };
        if bytes.is_multiple_of(2) {
            self.machine.add_free(graph, &[node], address).unwrap();
        }
        let executable = self.machine.instantiate(graph, false).unwrap();
        for operation in self.machine.launch_graph(executable, self.streams[0]).unwrap() {
            // If the GPU is full, the launch fails halfway; the invariants must still hold.
            let _ = self.machine.run_operation(self.context, operation);
        }
        self.graphs.push((graph, executable));
    }

    /// The invariants at the top of `machine/mod.rs` and next to the structures.
    fn check(&self) {
        let machine = &self.machine;
        let context = &machine.contexts[&self.context];
        let regions = machine.regions.values().flat_map(|region| &region.frames);
        let handles = machine.handles.values().flat_map(|handle| &handle.frames);
        let held: Vec<_> =
            context.frames.iter().chain(&context.limit_frames).chain(regions).chain(handles).collect();
        assert_eq!(held.iter().collect::<OrderedSet<_>>().len(), held.len(), "a frame is held twice");
        let total = machine.description.pages();
        assert_eq!(held.len() as u64 + machine.frames[0].free(), total);
        assert_eq!(machine.member.ledger().used(0), held.len() as u64 * PAGE);
        assert_eq!(machine.memory(0).0, machine.frames[0].free() * PAGE);

        let addresses: u64 = machine.regions.values().map(Region::bytes).sum();
        let reserved: u64 = machine.reservations.values().sum();
        let span = machine.span.end - machine.span.start;
        assert_eq!(machine.space.total() + addresses + reserved + machine.unmapped_graph_bytes(), span);

        let mut last = 0;
        for (start, block) in &machine.blocks {
            assert!(*start >= last, "blocks overlap");
            assert!(start.is_multiple_of(GRAIN));
            last = start + block.bytes;
        }
        self.check_pool();
    }

    fn check_pool(&self) {
        let id = self.machine.default_pool(0);
        let pool = &self.machine.pools[&id];
        let blocks = self.machine.blocks.values().filter(|block| block.kind == BlockKind::Ordered(id));
        let (mut bytes, mut rounded) = (0, 0);
        for block in blocks {
            bytes += block.bytes;
            rounded += block.bytes.next_multiple_of(GRAIN);
        }
        let pending: u64 = self.machine.pending_bytes(id).unwrap();
        assert_eq!(pool.used.current, bytes);
        assert_eq!(pool.reserved.current, pool.chunks.values().sum::<u64>());
        assert_eq!(pool.reserved.current, pool.holes.total() + pending + rounded);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_equations_hold_after_every_call(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        for (graph, executable) in std::mem::take(&mut world.graphs) {
            world.machine.destroy_graph(graph).unwrap();
            world.machine.destroy_executable(executable).unwrap();
        }
        for (address, bytes) in std::mem::take(&mut world.reservations) {
            world.machine.unmap(address, bytes).unwrap();
            world.machine.unreserve(address, bytes).unwrap();
        }
        world.machine.destroy_context(world.context).unwrap();
        let machine = &world.machine;
        prop_assert_eq!(machine.memory(0).0, machine.description.memory, "all pages come back");
        prop_assert_eq!(machine.space.total(), machine.span.end - machine.span.start, "all addresses come back");
    }
}

#[test]
fn freed_memory_is_the_same_streams_at_once_and_others_later() {
    let mut world = World::new();
    let pool = world.machine.default_pool(0);
    let allocate = |world: &mut World, stream: usize| {
        let stream = world.stream(stream);
        world.machine.allocate_ordered(world.context, pool, 30 << 20, stream).unwrap()
    };
    let first = allocate(&mut world, 0);
    world.machine.enqueue(world.streams[0], 1000).unwrap();
    world.machine.free_on_stream(first, world.streams[0]).unwrap();
    let other = allocate(&mut world, 1);
    assert_ne!(other, first, "the free is not complete");
    assert_eq!(allocate(&mut world, 0), first, "its own stream comes after the free");
    world.machine.free_on_stream(first, world.streams[0]).unwrap();
    world.machine.advance_to(1000);
    assert_eq!(allocate(&mut world, 2), first, "the free is complete");
}

#[test]
fn an_event_orders_streams_and_a_full_card_makes_one_wait() {
    let mut world = World::new();
    let pool = world.machine.default_pool(0);
    let allocate = |world: &mut World, bytes: u64, stream: usize| {
        let stream = world.stream(stream);
        world.machine.allocate_ordered(world.context, pool, bytes, stream)
    };
    let first = allocate(&mut world, 30 << 20, 0).unwrap();
    world.machine.enqueue(world.streams[0], 1_000_000).unwrap();
    world.machine.free_on_stream(first, world.streams[0]).unwrap();
    let event = world.machine.create_event(world.context, EventFlags(0)).unwrap();
    world.machine.record_event(event, world.streams[0]).unwrap();
    assert_eq!(world.machine.query_event(event), Err(Status::NOT_READY));
    world.machine.wait_event(world.streams[1], event).unwrap();
    assert_eq!(allocate(&mut world, 30 << 20, 1), Ok(first), "it waited for an event after the free");

    let large = allocate(&mut world, 130 << 20, 0).unwrap();
    world.machine.free_on_stream(large, world.streams[0]).unwrap();
    assert_eq!(allocate(&mut world, 130 << 20, 2), Ok(large), "nothing else is left");
    assert_eq!(world.machine.query_stream(world.streams[2]), Err(Status::NOT_READY));
    world.machine.synchronize_stream(world.streams[2]).unwrap();
    assert_eq!(world.machine.now(), 1_000_000, "it was made to wait for the stream that freed");
}

#[test]
fn a_pool_keeps_its_threshold_when_a_call_waits() {
    let mut world = World::new();
    let pool = world.machine.default_pool(0);
    world.machine.set_pool_attribute(pool, PoolAttribute::Threshold, CHUNK).unwrap();
    let address = world.machine.allocate_ordered(world.context, pool, 3 * CHUNK, world.streams[0]).unwrap();
    world.machine.free_on_stream(address, world.streams[0]).unwrap();
    assert_eq!(world.machine.pool_attribute(pool, PoolAttribute::Reserved), Ok(3 * CHUNK));
    world.machine.synchronize_stream(world.streams[0]).unwrap();
    assert_eq!(world.machine.pool_attribute(pool, PoolAttribute::Reserved), Ok(CHUNK));
    assert_eq!(world.machine.pool_attribute(pool, PoolAttribute::ReservedHigh), Ok(3 * CHUNK));
}

#[test]
fn one_small_block_holds_its_page() {
    let mut world = World::new();
    let blocks: Vec<_> = (0..4096 * 2).map(|_| world.machine.allocate(world.context, 512).unwrap()).collect();
    let free = world.machine.memory(0).0;
    for address in &blocks[1..4096] {
        world.machine.free(*address).unwrap();
    }
    assert_eq!(world.machine.memory(0).0, free, "512 bytes are left in the first page");
    world.machine.free(blocks[0]).unwrap();
    assert_eq!(world.machine.memory(0).0, free + PAGE);
}

#[test]
fn raised_limits_take_memory_and_are_refused_without() {
    let mut world = World::new();
    let free = world.machine.memory(0).0;
    world.machine.set_limit(world.context, Limit::Stack, 1024 + 128).unwrap();
    assert_eq!(free - world.machine.memory(0).0, 34 << 20, "128 bytes for each of 270336 threads");
    assert_eq!(world.machine.set_limit(world.context, Limit::Stack, 4096), Err(Status::OUT_OF_MEMORY));
    assert_eq!(world.machine.limit(world.context, Limit::Stack), Ok(1152));
    world.machine.set_limit(world.context, Limit::Stack, 1024).unwrap();
    assert_eq!(world.machine.memory(0).0, free);
}

#[test]
fn linear_memory_freed_on_a_busy_stream_comes_back_later() {
    let mut world = World::new();
    let free = world.machine.memory(0).0;
    let address = world.machine.allocate(world.context, 10 * PAGE).unwrap();
    world.machine.enqueue(world.streams[0], 500).unwrap();
    world.machine.free_on_stream(address, world.streams[0]).unwrap();
    assert_eq!(world.machine.pieces(address, 1, 0, false), Err(Status::INVALID_VALUE));
    assert_eq!(world.machine.memory(0).0, free - 10 * PAGE);
    world.machine.advance_to(500);
    assert_eq!(world.machine.memory(0).0, free);
}
