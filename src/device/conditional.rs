//! Conditional nodes of CUDA graphs: what a captured stream does if, or while, a byte in memory is
//! not 0.

#![expect(unsafe_code, reason = "the CUDA driver is a C library")]

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::{DriverError, result, sys};

use crate::device::captured::Captured;
use crate::device::context::{Call, Primary};
use crate::device::driver::{Branching, Conditional};
use crate::error::Result;

/// The kernel that decides on a node.
const SET_CONDITION: &str = include_str!("set_condition.ptx");

/// What makes conditional nodes on one GPU.
#[derive(Debug)]
pub(super) struct Conditionals {
    primary: Arc<Primary>,
    set: OnceLock<sys::CUfunction>,
}

// SAFETY: function handles may be used on any thread on which their context is current.
unsafe impl Send for Conditionals {}
// SAFETY: as above.
unsafe impl Sync for Conditionals {}

/// A new stream that is captured into a graph, which lives as long as its node.
fn captured_into(body: sys::CUgraph) -> Result<sys::CUstream, DriverError> {
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let own = result::stream::create(result::stream::StreamKind::NonBlocking)?;
    let (none, edges) = (ptr::null(), ptr::null());
    // SAFETY: the stream is new, the graph alive.
    let begun = unsafe { sys::cuStreamBeginCaptureToGraph(own, body, none, edges, 0, mode) };
    if let Err(error) = begun.result() {
        // SAFETY: created above, destroyed once.
        let _ = unsafe { result::stream::destroy(own) };
        return Err(error);
    }
    Ok(own)
}

/// Ends the capture of a stream whose node is not used, and destroys it.
fn given_up(own: sys::CUstream) {
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is alive and captured, the pointer valid for a write; destroyed once. An
    // error is told already.
    let _ = unsafe {
        let _ended = sys::cuStreamEndCapture(own, &mut graph);
        result::stream::destroy(own)
    };
}

impl Conditionals {
    pub(super) fn new(primary: Arc<Primary>) -> Conditionals {
        Conditionals { primary, set: OnceLock::new() }
    }

    /// Loads what decides on nodes, which must not be done while a stream is captured. It is loaded
    /// as long as the context lives.
    pub(super) fn prepare(&self) -> Result<sys::CUfunction> {
        if let Some(set) = self.set.get() {
            return Ok(*set);
        }
        let call = self.primary.call("load the kernel that decides on conditional nodes")?;
        let (text, name) = [SET_CONDITION, "kiln_set_condition"]
            .map(|text| CString::new(text).expect("it has no NUL"))
            .into();
        // SAFETY: the text ends with NUL and outlives the call, which copies it.
        let module = unsafe { result::module::load_data(text.as_ptr().cast()) }
            .map_err(|error| call.failed(error))?;
        // SAFETY: the module is alive.
        let set = unsafe { result::module::get_function(module, name) };
        let set = set.map_err(|error| call.failed(error))?;
        Ok(*self.set.get_or_init(|| set))
    }

    /// Lets a byte in memory decide on a node, when the stream has come so far.
    pub(super) fn decide(&self, stream: u64, condition: u64, flag: u64) -> Result<()> {
        let set = self.prepare()?;
        let call = self.primary.call("decide on a conditional node")?;
        let mut values = [condition, flag];
        let [condition, flag] = &mut values;
        let mut parameters =
            [condition, flag].map(|value| ptr::from_mut::<u64>(value).cast::<c_void>());
        // SAFETY: the kernel takes two numbers of 8 bytes, which the driver copies.
        let launched = unsafe {
            let (block, extra) = (1, ptr::null_mut());
            let values = parameters.as_mut_ptr();
            sys::cuLaunchKernel(set, 1, 1, 1, block, 1, 1, 0, stream as _, values, extra)
        };
        launched.result().map_err(|error| call.failed(error))
    }

    /// Adds a node, on which a byte in memory decides, to the graph that a stream is captured into,
    /// and begins to capture a stream for each of its bodies.
    pub(super) fn begin(&self, stream: u64, kind: Conditional, flag: u64) -> Result<Branching> {
        let condition = self.handle(stream)?;
        self.decide(stream, condition, flag)?;
        let call = self.primary.call("add a conditional node to a CUDA graph")?;
        let mut streams = Vec::new();
        for body in self.node(stream, kind, condition, &call)? {
            match captured_into(body) {
                Ok(own) => streams.push(own),
                Err(error) => {
                    streams.into_iter().for_each(given_up);
                    return Err(call.failed(error));
                }
            }
        }
        let streams = streams.into_iter().map(|own| own as u64).collect();
        Ok(Branching { condition, streams })
    }

    /// Ends the capture of a body.
    pub(super) fn end(&self, stream: u64) -> Result<()> {
        let call = self.primary.call("end the body of a conditional node")?;
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is alive, the pointer valid for a write.
        unsafe { sys::cuStreamEndCapture(stream as _, &mut graph) }
            .result()
            .map_err(|error| call.failed(error))
    }

    /// A condition of the graph that a stream is captured into.
    fn handle(&self, stream: u64) -> Result<u64> {
        let call = self.primary.call("create the condition of a node")?;
        let mut condition = 0;
        let captured = Captured::required(stream).map_err(|error| call.failed(error))?;
        // SAFETY: the graph is being captured, the context retained, the pointer valid.
        unsafe {
            sys::cuGraphConditionalHandleCreate(
                &mut condition,
                captured.graph,
                self.primary.context,
                0,
                0,
            )
        }
        .result()
        .map_err(|error| call.failed(error))?;
        Ok(condition)
    }

    /// The bodies of a new node, which what the stream is given next comes after.
    fn node(
        &self,
        stream: u64,
        kind: Conditional,
        condition: u64,
        call: &Call<'_>,
    ) -> Result<Vec<sys::CUgraph>> {
        use sys::CUgraphConditionalNodeType as Kind;
        let (type_, size) = match kind {
            Conditional::While => (Kind::CU_GRAPH_COND_TYPE_WHILE, 1),
            Conditional::If => (Kind::CU_GRAPH_COND_TYPE_IF, 2),
        };
        let failed = |error| call.failed(error);
        let captured = Captured::required(stream).map_err(failed)?;
        // SAFETY: numbers and pointers, which may be 0.
        let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
        params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
        params.__bindgen_anon_1.conditional = sys::CUDA_CONDITIONAL_NODE_PARAMS {
            handle: condition,
            type_,
            size,
            phGraph_out: ptr::null_mut(),
            ctx: self.primary.context,
        };
        let mut node = ptr::null_mut();
        let Captured { graph, dependencies, edges, count, .. } = captured;
        // SAFETY: the driver keeps the arrays until the next call with the stream.
        unsafe {
            sys::cuGraphAddNode_v2(&mut node, graph, dependencies, edges, count, &mut params)
        }
        .result()
        .map_err(failed)?;
        let only = sys::CUstreamUpdateCaptureDependencies_flags::CU_STREAM_SET_CAPTURE_DEPENDENCIES;
        // SAFETY: the node is one of the graph that the stream is captured into.
        unsafe {
            sys::cuStreamUpdateCaptureDependencies_v2(
                stream as _,
                &mut node,
                ptr::null(),
                1,
                only as u32,
            )
        }
        .result()
        .map_err(failed)?;
        // SAFETY: the driver has made an array of so many graphs.
        let body = |at| unsafe { *params.__bindgen_anon_1.conditional.phGraph_out.add(at) };
        Ok((0..size as usize).map(body).collect())
    }
}
