//! Nodes of graphs that are executed if, or while, a number says so which kernels set
//! (`cudaGraphSetConditional`). The number's handle is its address on the device.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::Arc;

use cudarc::driver::sys::cudaError_enum::*;
use kiln_sim::Device;

use crate::machine::{MACHINE, Machine, current_context, driver};
use crate::outcome::Outcome;
use crate::pointer::{Host, In, Out};
use crate::task::Task;

/// Kinds of conditional nodes (`CUgraphConditionalNodeType`).
const IF: u32 = 0;
const WHILE: u32 = 1;
const SWITCH: u32 = 2;

/// The number of conditional nodes among node types (`CUgraphNodeType`).
const NODE_CONDITIONAL: u32 = 13;

/// Whether a number has its default at every launch of its graph.
const ASSIGN_DEFAULT: u32 = 1;

#[derive(Clone)]
pub struct Conditional {
    condition: u64,
    kind: u32,
    /// Its graphs by handle, and what they are once the graph around is instantiated.
    graphs: Vec<u64>,
    bodies: Vec<Arc<Vec<Task>>>,
}

impl Conditional {
    fn value(&self, device: &Device) -> Outcome<u32> {
        let mut bytes = [0; 4];
        device.read(self.condition, &mut bytes).map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The body for a value of the number, if there is one.
    fn body(&self, value: u32) -> Option<&Arc<Vec<Task>>> {
        match (self.kind, value) {
            (SWITCH, value) => self.bodies.get(value as usize),
            (IF, 0) => self.bodies.get(1),
            (_, 0) => None,
            _ => self.bodies.first(),
        }
    }

    pub fn run(&self, machine: &Machine) -> Outcome {
        while let Some(body) = self.body(self.value(&machine.device)?) {
            machine.run(body)?;
            if self.kind != WHILE || machine.state().failed.is_some() {
                break;
            }
        }
        Ok(())
    }
}

/// Gives a number its value.
pub fn set(device: &Device, condition: u64, value: u32) -> Outcome {
    device.write(condition, &value.to_le_bytes()).map_err(|_| CUDA_ERROR_INVALID_VALUE)
}

/// The numbers of nodes that have a value at every launch, with that.
pub fn defaults(conditions: &HashMap<u64, Option<u32>>, nodes: &[Task]) -> Vec<(u64, u32)> {
    let mut found = Vec::new();
    for node in nodes {
        if let Task::Conditional(Conditional { condition, bodies, .. }) = node {
            found.extend(conditions.get(condition).copied().flatten().map(|of| (*condition, of)));
            found.extend(bodies.iter().flat_map(|body| defaults(conditions, body)));
        }
    }
    found
}

/// Nodes with the bodies that conditional ones have now, in which functions of the host and events
/// are not allowed.
pub fn resolved(graphs: &HashMap<u64, Arc<Vec<Task>>>, nodes: &[Task]) -> Outcome<Arc<Vec<Task>>> {
    let resolve = |node: &Task| {
        let Task::Conditional(of) = node else { return Ok(node.clone()) };
        let body = |graph: &u64| {
            let nodes = graphs.get(graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
            let refused = |node: &Task| matches!(node, Task::Call(_) | Task::Record(_));
            match nodes.iter().any(refused) {
                true => Err(CUDA_ERROR_INVALID_VALUE),
                false => resolved(graphs, nodes),
            }
        };
        let bodies = of.graphs.iter().map(body).collect::<Outcome<_>>()?;
        Ok(Task::Conditional(Conditional { bodies, ..of.clone() }))
    };
    nodes.iter().map(resolve).collect::<Outcome<Vec<Task>>>().map(Arc::new)
}

/// `CUgraphNodeParams` of a conditional node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NodeParams {
    node_type: u32,
    reserved: [u32; 3],
    handle: u64,
    kind: u32,
    size: u32,
    graphs: Host,
    context: u64,
    rest: [u64; 26],
}

driver! {
    fn cuGraphConditionalHandleCreate(
        handle: Out<u64>,
        graph: u64,
        context: u64,
        value: c_uint,
        flags: c_uint,
    ) {
        let mut state = MACHINE.current()?;
        let known = state.graphs.contains_key(&graph) || state.streams.nodes_of(graph).is_some();
        if !known || handle.is_null() || flags > ASSIGN_DEFAULT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if context != 0 && context != current_context() {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        let word = MACHINE.device.alloc(4).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        set(&MACHINE.device, word, value)?;
        state.conditions.insert(word, (flags == ASSIGN_DEFAULT).then_some(value));
        handle.put(word)
    }

    fn cuGraphAddNode_v2(
        node: Out<u64>,
        graph: u64,
        _dependencies: In<u64>,
        _edges: In<u64>,
        _count: usize,
        params: Out<NodeParams>,
    ) {
        let mut given = params.get()?;
        if given.node_type != NODE_CONDITIONAL {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let mut state = MACHINE.current()?;
        let fits = match given.kind {
            IF => matches!(given.size, 1 | 2),
            WHILE => given.size == 1,
            SWITCH => given.size > 0,
            _ => false,
        };
        if !fits || !state.conditions.contains_key(&given.handle) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let graphs: Vec<u64> = (0..given.size).map(|_| state.handle()).collect();
        let task = Task::Conditional(Conditional {
            condition: given.handle,
            kind: given.kind,
            graphs: graphs.clone(),
            bodies: Vec::new(),
        });
        match state.streams.nodes_of(graph) {
            Some(nodes) => nodes.push(task),
            None => {
                let nodes = state.graphs.get_mut(&graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                Arc::make_mut(nodes).push(task);
            }
        }
        state.graphs.extend(graphs.iter().map(|body| (*body, Arc::default())));
        // The node has them as long as it lives, which is until the process ends.
        let own: &'static mut [u64] = Box::leak(graphs.into_boxed_slice());
        given.graphs = Host::of(own.as_mut_ptr().expose_provenance() as u64);
        params.put(given)?;
        node.put(state.handle())
    }
}
