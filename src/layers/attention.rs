//! Multi-head attention on a device: plans by pass and extent, and how they are launched.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::attention::{
    AttentionDescriptor, AttentionExtent, AttentionLayer, AttentionPass, AttentionPlace,
    AttentionRole, DROPOUTS, SequenceAxis,
};
use crate::device::{Buffer, Stream};
use crate::error::{Error, Result};
use crate::layers::dropout::DropoutStates;
use crate::layers::reserves::{Phase, Reserves};
use crate::layers::weight_sum::Sum;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::tensor::TensorDesc;

/// An attention layer on one device.
///
/// Plans are kept for every extent that has been used. They do not depend on windows, lengths, the
/// seeds of dropouts, or the step of an incremental call, which are data. Calls share the layer's
/// own memory and must run one after the other, as on one stream.
pub struct MultiHeadAttention {
    kiln: Kiln,
    descriptor: AttentionDescriptor,
    built: HashMap<(AttentionPass, AttentionExtent), Built>,
    /// Workspace of the plans.
    scratch: Buffer,
    states: DropoutStates,
    /// What the reserve spaces of this layer hold.
    reserves: Reserves<Vectors>,
}

/// The tensors of a call by role, and its windows.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) tensors: [Option<&'a Buffer>; AttentionRole::ALL.len()],
    /// The time step to compute; negative: all.
    pub(super) step: i32,
    /// Windows of all steps; empty in the backward passes.
    pub(super) low: &'a [i32],
    pub(super) high: &'a [i32],
    pub(super) workspace: Option<&'a Buffer>,
    pub(super) reserve: Option<&'a Buffer>,
    /// Whether weight gradients are added to those in memory.
    pub(super) adds: bool,
}

/// The vectors whose data a reserve space holds.
#[derive(Clone, Copy, PartialEq)]
struct Vectors(AttentionExtent);

/// The plans of a pass for one extent.
struct Built {
    layer: AttentionLayer,
    stages: Vec<BuiltStage>,
    windows: Windows,
    /// Of the weights' pass, what adds its results to the gradients in memory.
    sum: Option<Sum>,
}

struct BuiltStage {
    plan: ExecutionPlan,
    /// Its addresses are set at every call; entries are in the order of `views`.
    pack: VariantPack,
    views: Vec<View>,
}

/// The location of a graph tensor.
#[derive(Clone, Copy)]
struct View {
    role: AttentionRole,
    offset_bytes: u64,
    bytes: u64,
    /// Distance of time steps in bytes for tensors of the computed step; otherwise 0.
    step_bytes: u64,
}

/// The steps of a call and their windows in device memory.
struct Windows {
    /// Step indices, window starts and window ends, one array after the other.
    buffer: Buffer,
    /// Contents of the buffer.
    values: Vec<i32>,
}

const WINDOWS: [AttentionRole; 3] =
    [AttentionRole::Steps, AttentionRole::LowWindow, AttentionRole::HighWindow];

pub(super) fn bad<T>(pass: AttentionPass, rule: String) -> Result<T> {
    Err(Error::bad_param(format!("{}: {rule}", pass.name())))
}

impl Kiln {
    /// Creates an attention layer on this device. Kernels are compiled, or found in a cache, by the
    /// first call for an extent.
    ///
    /// # Errors
    /// `OutOfMemory` when the device has no memory left.
    pub fn multi_head_attention(
        &self,
        descriptor: &AttentionDescriptor,
    ) -> Result<MultiHeadAttention> {
        Ok(MultiHeadAttention {
            kiln: self.clone(),
            descriptor: *descriptor,
            built: HashMap::new(),
            scratch: self.device().alloc(0)?,
            states: DropoutStates::new(
                self.device(),
                &[descriptor.get().attn_dropout, descriptor.get().post_dropout],
            )?,
            reserves: Reserves::default(),
        })
    }
}

impl MultiHeadAttention {
    /// The layer's descriptor.
    pub fn descriptor(&self) -> &AttentionDescriptor {
        &self.descriptor
    }

    /// The states of the dropouts, of the softmax and of the outputs.
    pub fn dropout_states(&self) -> &DropoutStates {
        &self.states
    }

    /// The plans of a forward pass for an extent, in execution order.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::forward`].
    pub fn plans(&mut self, extent: AttentionExtent) -> Result<Vec<&ExecutionPlan>> {
        self.plans_of(AttentionPass::Forward, extent)
    }

    /// The plans of a pass for an extent, in execution order.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::lowered`] and [`Kiln::plan`].
    pub fn plans_of(
        &mut self,
        pass: AttentionPass,
        extent: AttentionExtent,
    ) -> Result<Vec<&ExecutionPlan>> {
        let built = find(&mut self.built, &self.kiln, &self.descriptor, (pass, extent))?;
        Ok(built.stages.iter().map(|stage| &stage.plan).collect())
    }

    /// Checks the sizes of a call's buffers and launches the pass.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        pass: AttentionPass,
        extent: AttentionExtent,
        call: &Arguments<'_>,
    ) -> Result<()> {
        let MultiHeadAttention { kiln, descriptor, built, scratch, states, .. } = self;
        let built = find(built, kiln, descriptor, (pass, extent))?;
        built.check(call)?;
        built.windows.set(stream, call, extent)?;
        let plans = built.stages.iter().map(|stage| stage.plan.workspace_bytes());
        let needed = plans.max().unwrap_or(0);
        if needed > scratch.bytes() {
            stream.synchronize()?;
            *scratch = kiln.device().alloc(needed)?;
        }
        let call = call
            .with(AttentionRole::DropoutSeeds, states.memory())
            .with(AttentionRole::DropoutPositions, states.memory());
        built.launch(stream, &call, scratch)
    }

    /// Notes what a reserve space holds.
    pub(super) fn record(&self, reserve: &Buffer, extent: AttentionExtent, phase: Phase) {
        self.reserves.record(reserve.address(), Vectors::new(extent), phase);
    }

    /// Refuses a reserve space that holds something else than a backward pass needs.
    pub(super) fn check_reserve(
        &self,
        pass: AttentionPass,
        reserve: &Buffer,
        extent: AttentionExtent,
    ) -> Result<()> {
        let needed = match pass {
            AttentionPass::BackwardWeights => (Phase::Backward, AttentionPass::BackwardData.name()),
            _ => (Phase::Forward, "a forward pass in training"),
        };
        let vectors = Vectors::new(extent);
        self.reserves.check(pass.name(), reserve.address(), &vectors, needed)
    }
}

impl Vectors {
    fn new(extent: AttentionExtent) -> Vectors {
        Vectors(AttentionExtent { residuals: false, ..extent })
    }
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AttentionExtent { batch, queries, keys, order, .. } = self.0;
        let order = order.map(SequenceAxis::name).join(", ");
        write!(f, "{batch} sequences of {queries} queries and {keys} keys by {order}")
    }
}

impl fmt::Debug for MultiHeadAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiHeadAttention({:?})", self.descriptor)
    }
}

/// Finds the plans of a pass for an extent, or builds them.
fn find<'a>(
    built: &'a mut HashMap<(AttentionPass, AttentionExtent), Built>,
    kiln: &Kiln,
    descriptor: &AttentionDescriptor,
    (pass, extent): (AttentionPass, AttentionExtent),
) -> Result<&'a mut Built> {
    match built.entry((pass, extent)) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(place) => {
            Ok(place.insert(Built::new(kiln, descriptor.lowered(pass, extent)?)?))
        }
    }
}

impl Default for Arguments<'_> {
    fn default() -> Self {
        Arguments {
            tensors: [None; AttentionRole::ALL.len()],
            step: -1,
            low: &[],
            high: &[],
            workspace: None,
            reserve: None,
            adds: false,
        }
    }
}

impl<'a> Arguments<'a> {
    /// Adds a tensor.
    pub(super) fn with(mut self, role: AttentionRole, buffer: &'a Buffer) -> Arguments<'a> {
        self.tensors[role as usize] = Some(buffer);
        self
    }

    /// The buffer of the intermediate tensors that the pass keeps, and its name.
    fn kept(&self) -> (&'static str, Option<&'a Buffer>) {
        match self.reserve {
            Some(reserve) => ("reserve space", Some(reserve)),
            None => ("workspace", self.workspace),
        }
    }

    /// The buffer of a tensor.
    fn buffer(&self, role: AttentionRole) -> Option<&'a Buffer> {
        let is_scratch = role == AttentionRole::WeightGradients && self.adds;
        match role {
            _ if is_scratch || role.is_temporary() => self.workspace,
            _ if role.is_intermediate() => self.kept().1,
            _ => self.tensors[role as usize],
        }
    }
}

impl Windows {
    /// Allocates the windows of all steps if the pass reads them; the window of a single step is
    /// passed by value.
    fn new(kiln: &Kiln, layer: &AttentionLayer) -> Result<Windows> {
        let AttentionExtent { one_step, queries, .. } = layer.extent;
        let reads = layer.pass == AttentionPass::Forward && !one_step;
        let count = if reads { 3 * queries as u64 } else { 0 };
        let buffer = kiln.device().alloc(count * size_of::<i32>() as u64)?;
        Ok(Windows { buffer, values: Vec::new() })
    }

    fn set(
        &mut self,
        stream: &Stream,
        call: &Arguments<'_>,
        extent: AttentionExtent,
    ) -> Result<()> {
        if extent.one_step || call.low.is_empty() {
            return Ok(());
        }
        let of = extent.queries as usize;
        let windows = [&call.low[..of], &call.high[..of]];
        if !self.values.is_empty() && self.values[of..].chunks(of).eq(windows) {
            return Ok(());
        }
        let values: Vec<i32> = (0..of as i32).chain(windows.concat()).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        self.values.clear();
        self.buffer.write_on(stream, 0, &bytes)?;
        self.values = values;
        Ok(())
    }
}

impl View {
    /// The location of a graph tensor.
    fn new(layer: &AttentionLayer, place: &AttentionPlace, tensor: &TensorDesc) -> Result<View> {
        let role = place.role;
        let size = tensor.dtype.bytes() as u64;
        let base = match role {
            _ if role.is_intermediate() => layer.intermediate_offset(role)?,
            AttentionRole::LowWindow => layer.bytes(role)?,
            AttentionRole::HighWindow => 2 * layer.bytes(role)?,
            AttentionRole::DropoutPositions => layer.bytes(AttentionRole::DropoutSeeds)?,
            _ => 0,
        };
        let step_bytes = match role {
            AttentionRole::Queries | AttentionRole::Residuals | AttentionRole::Output => {
                layer.step_stride(role) as u64 * size
            }
            _ => 0,
        };
        let offset_bytes = base + place.offset as u64 * size;
        Ok(View { role, offset_bytes, bytes: tensor.span_bytes()?, step_bytes })
    }
}

impl Built {
    fn new(kiln: &Kiln, layer: AttentionLayer) -> Result<Built> {
        let windows = Windows::new(kiln, &layer)?;
        let mut stages = Vec::new();
        for stage in &layer.stages {
            let plan = kiln.plan(&stage.graph)?;
            let (mut pack, mut views) = (VariantPack::new(), Vec::new());
            for uid in plan.tensors() {
                let place = stage.places.iter().find(|place| place.uid == uid);
                let place = place.expect("every input and output has a place");
                let tensor = stage.graph.tensor(uid)?;
                let view = View::new(&layer, place, tensor)?;
                match tensor.by_value {
                    true => pack.set_value(uid, 0.0),
                    false => pack.place(uid, DeviceMemory { address: 0, bytes: view.bytes }),
                }
                views.push(view);
            }
            stages.push(BuiltStage { plan, pack, views });
        }
        let (dtype, count) = layer.tensor(AttentionRole::WeightGradients)?;
        let adds = layer.pass == AttentionPass::BackwardWeights && count > 0;
        let whole = TensorDesc::packed(0, "weights", &[count], dtype);
        let sum = adds.then(|| Sum::new(kiln, &whole, 0)).transpose()?;
        Ok(Built { layer, stages, windows, sum })
    }

    /// Checks the sizes of all buffers.
    fn check(&self, call: &Arguments<'_>) -> Result<()> {
        let pass = self.layer.pass;
        for (role, buffer) in AttentionRole::ALL.into_iter().zip(call.tensors) {
            let Some(buffer) = buffer else { continue };
            let (bytes, needed) = (buffer.bytes(), self.layer.bytes(role)?);
            if bytes < needed {
                let name = role.name();
                return bad(pass, format!("`{name}` has {bytes} bytes, the layer needs {needed}"));
            }
        }
        let workspace = ("workspace", call.workspace, self.workspace_bytes(call)?);
        let (name, kept) = call.kept();
        for (name, buffer, needed) in [(name, kept, self.layer.intermediate_bytes()?), workspace] {
            let bytes = buffer.map_or(0, Buffer::bytes);
            if bytes < needed {
                let has = match buffer {
                    Some(_) => format!("the {name} has {bytes} bytes, the layer needs {needed}"),
                    None => format!("the layer needs a {name} of {needed} bytes, there is none"),
                };
                return bad(pass, has);
            }
        }
        Ok(())
    }

    /// Bytes of the workspace of a pass of training.
    fn workspace_bytes(&self, call: &Arguments<'_>) -> Result<u64> {
        match self.layer.pass {
            AttentionPass::Forward => Ok(0),
            AttentionPass::BackwardData => self.layer.bytes(AttentionRole::AttendedGradient),
            AttentionPass::BackwardWeights if call.adds => Ok(self.layer.weights.bytes()),
            AttentionPass::BackwardWeights => Ok(0),
        }
    }

    fn launch(&mut self, stream: &Stream, call: &Arguments<'_>, scratch: &Buffer) -> Result<()> {
        let step = call.step.max(0);
        for BuiltStage { plan, pack, views } in &mut self.stages {
            for (view, (_, slot)) in views.iter().zip(&mut pack.entries) {
                *slot = match (view.role, &slot) {
                    (AttentionRole::Steps, Slot::Value(_)) => Slot::Value(step.into()),
                    (AttentionRole::LowWindow, Slot::Value(_)) => {
                        Slot::Value(call.low[step as usize].into())
                    }
                    (AttentionRole::HighWindow, Slot::Value(_)) => {
                        Slot::Value(call.high[step as usize].into())
                    }
                    (AttentionRole::DropoutCount, _) => Slot::Value(DROPOUTS as f64),
                    (role, _) => {
                        let buffer = match WINDOWS.contains(&role) {
                            true => Some(&self.windows.buffer),
                            false => call.buffer(role),
                        };
                        let buffer = buffer.expect("it was checked");
                        let step = step as u64 * view.step_bytes;
                        Slot::Memory {
                            address: buffer.address() + view.offset_bytes + step,
                            bytes: view.bytes,
                            owner: buffer.owner(),
                        }
                    }
                };
            }
            pack.workspace = Some(Slot::of(scratch));
            plan.execute(stream, pack)?;
        }
        let gradients = call.tensors[AttentionRole::WeightGradients as usize];
        if let (Some(sum), Some(gradients), Some(results), true) =
            (&mut self.sum, gradients, call.workspace, call.adds)
        {
            let of = |buffer: &Buffer| (buffer.address(), buffer.owner());
            sum.execute(stream, of(results), of(gradients))?;
        }
        Ok(())
    }
}
