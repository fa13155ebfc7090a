//! Graphs, which are what a stream was captured into.

use std::ffi::{c_uint, c_ulonglong};

use cudarc::driver::sys::cudaError_enum::*;

use crate::conditional::{defaults, resolved, set};
use crate::machine::{MACHINE, driver};
use crate::outcome::Outcome;
use crate::pointer::{Call, Out};
use crate::user_object::{drop_all, share};

fn instantiate(exec: Out<u64>, graph: u64) -> Outcome {
    let mut state = MACHINE.current()?;
    let nodes = state.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?.clone();
    let nodes = resolved(&state.graphs, &nodes)?;
    let handle = state.handle();
    state.graphs.insert(handle, nodes);
    share(&mut state, graph, handle);
    exec.put(handle)
}

fn destroy(graph: u64) -> Outcome {
    let mut state = MACHINE.current()?;
    state.graphs.remove(&graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let ended = drop_all(&mut state, graph);
    drop(state);
    ended.into_iter().for_each(Call::run);
    Ok(())
}

driver! {
    fn cuGraphCreate(graph: Out<u64>, flags: c_uint) {
        if flags != 0 || graph.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = MACHINE.current()?;
        let handle = state.handle();
        state.graphs.insert(handle, Vec::new().into());
        graph.put(handle)
    }

    fn cuGraphClone(clone: Out<u64>, graph: u64) {
        instantiate(clone, graph)
    }

    fn cuGraphInstantiateWithFlags(exec: Out<u64>, graph: u64, _flags: c_ulonglong) {
        instantiate(exec, graph)
    }

    fn cuGraphInstantiateWithParams(exec: Out<u64>, graph: u64, params: Out<[u64; 4]>) {
        let [flags, upload, _, _] = params.get()?;
        instantiate(exec, graph)?;
        // No node failed.
        params.put([flags, upload, 0, 0])
    }

    fn cuGraphGetNodes(graph: u64, nodes: Out<u64>, count: Out<usize>) {
        let state = MACHINE.current()?;
        let known = state.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if !nodes.is_null() {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        count.put(known.len())
    }

    fn cuGraphUpload(exec: u64, stream: u64) {
        let state = MACHINE.current()?;
        state.streams.get(stream)?;
        state.graphs.get(&exec).map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    fn cuGraphLaunch(exec: u64, stream: u64) {
        let mut state = MACHINE.current()?;
        let nodes = state.graphs.get(&exec).ok_or(CUDA_ERROR_INVALID_HANDLE)?.clone();
        if let Some(capture) = state.streams.captured(stream)? {
            capture.nodes.extend(nodes.iter().cloned());
            return Ok(());
        }
        state.streams.uncaptured(stream)?;
        let conditions = defaults(&state.conditions, &nodes);
        drop(state);
        for (condition, value) in conditions {
            set(&MACHINE.device, condition, value)?;
        }
        MACHINE.run(&nodes)
    }

    fn cuGraphDestroy(graph: u64) {
        destroy(graph)
    }

    fn cuGraphExecDestroy(exec: u64) {
        destroy(exec)
    }

}
