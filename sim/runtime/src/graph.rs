//! Graphs, which are what a stream was captured into, and the objects that they hold.

use std::ffi::{c_uint, c_void};

use crate::context::current;
use crate::driver::*;
use crate::last::runtime;

runtime! {
    fn cudaGraphCreate(graph: *mut u64, flags: c_uint) {
        current()?;
        cuGraphCreate(graph, flags)
    }

    fn cudaGraphClone(clone: *mut u64, graph: u64) {
        current()?;
        cuGraphClone(clone, graph)
    }

    fn cudaGraphInstantiate(exec: *mut u64, graph: u64, flags: u64) {
        current()?;
        cuGraphInstantiateWithFlags(exec, graph, flags)
    }

    fn cudaGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) {
        current()?;
        cuGraphInstantiateWithFlags(exec, graph, flags)
    }

    fn cudaGraphInstantiateWithParams(exec: *mut u64, graph: u64, params: *mut c_void) {
        current()?;
        cuGraphInstantiateWithParams(exec, graph, params)
    }

    fn cudaGraphGetNodes(graph: u64, nodes: *mut u64, count: *mut usize) {
        current()?;
        cuGraphGetNodes(graph, nodes, count)
    }

    fn cudaGraphUpload(exec: u64, stream: u64) {
        current()?;
        cuGraphUpload(exec, stream)
    }

    fn cudaGraphLaunch(exec: u64, stream: u64) {
        current()?;
        cuGraphLaunch(exec, stream)
    }

    fn cudaGraphDestroy(graph: u64) {
        current()?;
        cuGraphDestroy(graph)
    }

    fn cudaGraphExecDestroy(exec: u64) {
        current()?;
        cuGraphExecDestroy(exec)
    }

    fn cudaUserObjectCreate(
        object: *mut u64,
        value: *mut c_void,
        end: HostFunction,
        count: c_uint,
        flags: c_uint,
    ) {
        current()?;
        cuUserObjectCreate(object, value, end, count, flags)
    }

    fn cudaUserObjectRetain(object: u64, count: c_uint) {
        current()?;
        cuUserObjectRetain(object, count)
    }

    fn cudaUserObjectRelease(object: u64, count: c_uint) {
        current()?;
        cuUserObjectRelease(object, count)
    }

    fn cudaGraphRetainUserObject(graph: u64, object: u64, count: c_uint, flags: c_uint) {
        current()?;
        cuGraphRetainUserObject(graph, object, count, flags)
    }

    fn cudaGraphReleaseUserObject(graph: u64, object: u64, count: c_uint) {
        current()?;
        cuGraphReleaseUserObject(graph, object, count)
    }
}
