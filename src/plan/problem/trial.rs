//! Executing a plan once on host values, for checks, canaries and the command line.

use std::collections::HashMap;
use std::time::Duration;

use kiln_machine::Machine;

#[cfg(feature = "sim")]
use crate::compile::Resources;
use crate::device::{Buffer, Counters, Device};
#[cfg(feature = "sim")]
use crate::device::{Estimate, Launch};
use crate::error::{Error, Result};
use crate::frontend::Values;
use crate::graph::InPlace;
use crate::plan::build::Kiln;
use crate::plan::execute::ExecutionPlan;
use crate::plan::recipe::PlannedKernel;
use crate::plan::variant_pack::{DeviceMemory, VariantPack};
use crate::target::Target;
use crate::tensor::TensorDesc;

/// Result of an execution.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Values of the outputs.
    pub outputs: Values,
    /// Time on the device; on the simulator, time that it took to simulate.
    pub elapsed: Duration,
    /// Counters of each kernel's launch; `None` if it was not launched or the device does not
    /// count.
    pub counters: Vec<Option<Counters>>,
}

/// Uploads a tensor's elements, from `offset` bytes on; all other bytes, or all without values, are
/// `filler`.
pub(in crate::plan) fn upload(
    device: &Device,
    tensor: &TensorDesc,
    values: Option<&Vec<f64>>,
    offset: usize,
    filler: u8,
) -> Result<Buffer> {
    let elements = values.map(|values| (tensor, &values[..], offset));
    upload_pieces(device, tensor, offset, filler, elements.as_slice())
}

/// Uploads memory for a tensor that begins `offset` bytes behind its address. It holds values of
/// tensors, each from so many bytes on; all other bytes are `filler`.
fn upload_pieces(
    device: &Device,
    tensor: &TensorDesc,
    offset: usize,
    filler: u8,
    pieces: &[(&TensorDesc, &[f64], usize)],
) -> Result<Buffer> {
    let span = tensor.span_bytes()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(offset + span as usize).map_err(|_| {
        Error::io(format!("failed to allocate {span} bytes on the host for {tensor}"))
    })?;
    bytes.resize(offset + span as usize, filler);
    for (piece, values, offset) in pieces {
        for (value, element) in values.iter().zip(piece.offsets()) {
            piece.dtype.write(*value, &mut bytes[offset + element * piece.dtype.bytes()..]);
        }
    }
    device.upload(&bytes)
}

/// Downloads the elements of a tensor at an offset of a buffer, in bytes.
pub(in crate::plan) fn download(
    buffer: &Buffer,
    tensor: &TensorDesc,
    offset: usize,
) -> Result<Vec<f64>> {
    let bytes = buffer.to_vec()?;
    let size = tensor.dtype.bytes();
    let element = |at: usize| tensor.dtype.read(&bytes[offset + at * size..]);
    Ok(tensor.offsets().map(element).collect())
}

/// A lower bound of a launch's time on a machine, computed from its counters.
#[cfg(feature = "sim")]
pub fn estimate(
    counters: &Counters,
    machine: &Machine,
    launch: Launch,
    resources: Resources,
) -> Estimate {
    let taken = kiln_sim::Resources {
        registers: resources.registers,
        shared_bytes: resources.shared_bytes + launch.shared_bytes,
    };
    Estimate::of(counters, machine, u64::from(launch.grid), launch.threads, taken)
}

/// The microseconds that a kernel's launch takes on a machine, from its machine code and its
/// counters on a device of `target`; without machine code what [`estimate`] bounds.
#[cfg(feature = "sim")]
pub(in crate::plan) fn estimated_us(
    kernel: &PlannedKernel,
    counters: &Counters,
    target: &Target,
    machine: &Machine,
) -> f64 {
    let bound = || {
        let least = estimate(counters, machine, kernel.launch(), kernel.report().resources);
        least.binds().map_or(0.0, |bound| bound.us)
    };
    kernel.clocks(target, machine, counters).map_or_else(|_| bound(), |(_, of)| of.us)
}

/// Without the simulated device there are no counters.
#[cfg(not(feature = "sim"))]
pub(in crate::plan) fn estimated_us(
    _kernel: &PlannedKernel,
    counters: &Counters,
    _target: &Target,
    _machine: &Machine,
) -> f64 {
    match *counters {}
}

impl Kiln {
    /// Uploads inputs, executes a plan once and downloads its outputs. Memory between strided
    /// elements is zero.
    ///
    /// # Errors
    /// `Io` when host memory is exhausted, `OutOfMemory` when device memory is; `Driver` when a
    /// copy or a launch fails.
    ///
    /// # Panics
    /// When `inputs` lacks a by-value tensor.
    pub fn trial(&self, plan: &ExecutionPlan, inputs: &Values) -> Result<Trial> {
        let graph = plan.graph();
        let (pack, buffers) = self.bound(plan, inputs)?;
        let stream = self.stream();
        let start = stream.record()?;
        let mut counters = vec![None; plan.kernels().len()];
        let device = self.device();
        plan.execute_each(&stream, &pack, |kernel| counters[kernel] = device.counters())?;
        let elapsed = Duration::from_secs_f64(stream.record()?.elapsed_ms(&start)? / 1e3);
        let read = |tensor: &TensorDesc| {
            Ok((tensor.uid, download(&buffers[&Some(tensor.uid)], tensor, 0)?))
        };
        let outputs = graph.outputs().map(read).collect::<Result<_>>()?;
        Ok(Trial { outputs, elapsed, counters })
    }

    /// Executes a plan once without reading its outputs; returns the counters of each kernel's
    /// launch, `None` if it was not launched or the device does not count. With
    /// [`Config::sample`](crate::plan::Config::sample) some blocks are run for all.
    ///
    /// # Errors
    /// As [`Kiln::trial`].
    ///
    /// # Panics
    /// When `inputs` lacks a by-value tensor.
    pub fn count(&self, plan: &ExecutionPlan, inputs: &Values) -> Result<Vec<Option<Counters>>> {
        let (pack, _buffers) = self.bound(plan, inputs)?;
        let mut counters = vec![None; plan.kernels().len()];
        let device = self.device();
        plan.execute_each(&self.stream(), &pack, |kernel| counters[kernel] = device.counters())?;
        Ok(counters)
    }

    /// A variant pack with uploaded inputs and allocated outputs and workspace, and its buffers by
    /// uid; the workspace has the uid `None`.
    pub(in crate::plan) fn bound(
        &self,
        plan: &ExecutionPlan,
        inputs: &Values,
    ) -> Result<(VariantPack, HashMap<Option<i64>, Buffer>)> {
        let graph = plan.graph();
        let mut pack = VariantPack::new();
        let mut buffers = HashMap::new();
        let in_place: Vec<InPlace> = graph.in_place().collect();
        for tensor in graph.inputs().chain(graph.outputs()) {
            let uid = tensor.uid;
            if tensor.by_value {
                pack.set_value(uid, inputs[&uid][0]);
                continue;
            }
            if in_place.iter().any(|piece| piece.uid == uid) {
                continue;
            }
            let mut pieces = Vec::new();
            for InPlace { uid: piece, offset_bytes, .. } in
                in_place.iter().filter(|piece| piece.within == uid)
            {
                let values = inputs.get(piece).map_or(&[][..], Vec::as_slice);
                pieces.push((graph.tensor(*piece)?, values, *offset_bytes as usize));
            }
            pieces.extend(inputs.get(&uid).map(|values| (tensor, &values[..], 0)));
            let buffer = upload_pieces(self.device(), tensor, 0, 0, &pieces)?;
            pack = pack.with(uid, &buffer);
            buffers.insert(Some(uid), buffer);
        }
        for InPlace { uid, within, offset_bytes } in in_place {
            let whole = &buffers[&Some(within)];
            let (address, bytes) =
                (whole.address() + offset_bytes, whole.bytes().saturating_sub(offset_bytes));
            pack.place(uid, DeviceMemory { address, bytes });
        }
        let workspace = self.device().alloc(plan.workspace_bytes())?;
        pack = pack.with_workspace(&workspace);
        buffers.insert(None, workspace);
        Ok((pack, buffers))
    }
}
