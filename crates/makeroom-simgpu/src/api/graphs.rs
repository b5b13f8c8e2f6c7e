//! Graphs.

use std::ffi::c_char;

use crate::abi::{AllocationNode, In, Instantiation, Node, Out};
use crate::call::{Call, driver_functions};
use crate::driver::Session;
use crate::machine::{ExecutableId, GraphId, GraphMemory, NodeId, Operation};
use crate::status::{Result, Status};

const FREE_ON_LAUNCH: u64 = 1;

fn after(nodes: In<u64>, count: u64) -> Result<Vec<NodeId>> {
    Ok(nodes.list(count as usize)?.into_iter().map(NodeId).collect())
}

fn instantiate(call: Call<'_>, executable: Out<u64>, graph: u64, flags: u64) -> Result<()> {
    let (mut session, _) = call.in_context()?;
    executable.required()?;
    let made = session.machine.instantiate(GraphId(graph), flags & FREE_ON_LAUNCH != 0)?;
    executable.set(made.0)
}

/// Adds a node of any simulated kind.
fn add(node: Out<u64>, graph: u64, nodes: In<u64>, count: u64, parameters: Out<Node>) -> Result<()> {
    const EMPTY: i32 = 5;
    const ALLOCATION: i32 = 10;
    const FREE: i32 = 11;
    let mut session = Session::open()?;
    node.required()?;
    let after = after(nodes, count)?;
    // The structure has the same length for all kinds; only allocations use all of it.
    let mut wanted = parameters.get()?;
    let machine = &mut session.machine;
    let made = match wanted.kind {
        EMPTY => machine.add_node(GraphId(graph), &after, Operation::Nothing)?,
        ALLOCATION => {
            let location = wanted.allocation.pool.location;
            let device = machine.device(location.id).map_err(|_| Status::INVALID_VALUE)?;
            let (made, address) =
                machine.add_allocation(GraphId(graph), &after, device, wanted.allocation.bytes)?;
            wanted.allocation.address = address;
            parameters.set(wanted)?;
            made
        }
        // The address is the first parameter of a free.
        FREE => {
            let pool = wanted.allocation.pool;
            let address =
                u64::from(pool.kind.cast_unsigned()) | u64::from(pool.handle_types.cast_unsigned()) << 32;
            machine.add_free(GraphId(graph), &after, address)?
        }
        _ => return Err(Status::NOT_SUPPORTED),
    };
    node.set(made.0)
}

driver_functions! {
    fn cuGraphCreate(graph: Out<u64>, flags: u32) |_| {
        let mut session = Session::open()?;
        graph.required()?;
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        graph.set(session.machine.create_graph().0)
    }

    fn cuGraphDestroy(graph: u64) |_| { Session::open()?.machine.destroy_graph(GraphId(graph)) }

    fn cuGraphAddEmptyNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: u64) |_| {
        let mut session = Session::open()?;
        let after = after(nodes, count)?;
        node.set(session.machine.add_node(GraphId(graph), &after, Operation::Nothing)?.0)
    }

    fn cuGraphAddMemAllocNode(
        node: Out<u64>, graph: u64, nodes: In<u64>, count: u64, parameters: Out<AllocationNode>,
    ) |_| {
        let mut session = Session::open()?;
        node.required()?;
        let mut wanted = parameters.get()?;
        let device = session.machine.device(wanted.pool.location.id).map_err(|_| Status::INVALID_VALUE)?;
        let after = after(nodes, count)?;
        let (made, address) = session.machine.add_allocation(GraphId(graph), &after, device, wanted.bytes)?;
        wanted.address = address;
        parameters.set(wanted)?;
        node.set(made.0)
    }

    fn cuGraphAddMemFreeNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: u64, address: u64) |_| {
        let mut session = Session::open()?;
        node.required()?;
        let after = after(nodes, count)?;
        node.set(session.machine.add_free(GraphId(graph), &after, address)?.0)
    }

    fn cuGraphAddNode(node: Out<u64>, graph: u64, nodes: In<u64>, count: u64, parameters: Out<Node>) |_| {
        add(node, graph, nodes, count, parameters)
    }

    fn cuGraphAddNode_v2(
        node: Out<u64>, graph: u64, nodes: In<u64>, _edges: In<u64>, count: u64, parameters: Out<Node>,
    ) |_| {
        add(node, graph, nodes, count, parameters)
    }

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<u64>) |_| {
        let session = Session::open()?;
        let all = session.machine.graph_nodes(GraphId(graph))?;
        if nodes.required().is_ok() {
            let room = count.get()? as usize;
            nodes.set_all(all.iter().take(room).map(|node| node.0))?;
        }
        count.set(all.len() as u64)
    }

    fn cuGraphInstantiateWithFlags(executable: Out<u64>, graph: u64, flags: u64) |call| {
        instantiate(call, executable, graph, flags)
    }

    fn cuGraphInstantiate_v2 = cuGraphInstantiate(
        executable: Out<u64>, graph: u64, _node: Out<u64>, log: Out<c_char>, size: u64,
    ) |call| {
        if size > 0 {
            log.set_if_wanted(0);
        }
        instantiate(call, executable, graph, 0)
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz(
        executable: Out<u64>, graph: u64, parameters: Out<Instantiation>,
    ) |call| {
        let wanted = parameters.get()?;
        instantiate(call, executable, graph, wanted.flags)?;
        parameters.set(Instantiation { error_node: 0, result: 0, ..wanted })
    }

    fn cuGraphExecDestroy(executable: u64) |_| {
        Session::open()?.machine.destroy_executable(ExecutableId(executable))
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz(executable: u64, stream: u64) |call| {
        let (mut session, context) = call.in_context()?;
        let stream = session.machine.own_stream(context, call.stream(stream))?;
        for operation in session.machine.launch_graph(ExecutableId(executable), stream)? {
            match operation {
                Operation::Copy(copy) => session.copy(context, &copy)?,
                Operation::Fill(fill) => session.fill(context, &fill)?,
                other => session.machine.run_operation(context, other)?,
            }
        }
        Ok(())
    }

    /// Memory is mapped at launch, so there is nothing to upload.
    fn cuGraphUpload / cuGraphUpload_ptsz(executable: u64, stream: u64) |call| {
        let (mut session, context) = call.in_context()?;
        session.machine.own_stream(context, call.stream(stream))?;
        session.machine.has_executable(ExecutableId(executable))
    }

    fn cuDeviceGraphMemTrim(device: i32) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        session.machine.trim_graph_memory(device);
        Ok(())
    }

    fn cuDeviceGetGraphMemAttribute(device: i32, number: u32, value: Out<u64>) |_| {
        let session = Session::open()?;
        let device = session.machine.device(device)?;
        let which = match number {
            0 | 2 => GraphMemory::Current,
            1 | 3 => GraphMemory::High,
            _ => return Err(Status::INVALID_VALUE),
        };
        value.set(session.machine.graph_memory(device, which))
    }

    /// Only the high-water marks can be reset.
    fn cuDeviceSetGraphMemAttribute(device: i32, number: u32, value: In<u64>) |_| {
        let mut session = Session::open()?;
        let device = session.machine.device(device)?;
        if ![1, 3].contains(&number) || value.get()? != 0 {
            return Err(Status::INVALID_VALUE);
        }
        session.machine.reset_graph_high(device);
        Ok(())
    }
}
