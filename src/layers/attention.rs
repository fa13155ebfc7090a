//! Multi-head attention on a device: plans by pass and extent, and how they are launched.

use std::fmt;
use std::sync::Arc;

use crate::attention::{
    AttentionDescriptor, AttentionExtent, AttentionLayer, AttentionPass, AttentionPlace,
    AttentionRole, DROPOUTS, SequenceAxis,
};
use crate::device::Stream;
use crate::error::{Error, Result};
use crate::layers::attention_windows::WindowWriter;
use crate::layers::bounded::Bounded;
use crate::layers::dropout::DropoutStates;
use crate::layers::reserves::{Phase, Reserves};
use crate::layers::weight_sum::Sum;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Memory, Slot, VariantPack};
use crate::tensor::TensorDesc;

/// An attention layer on one device.
///
/// Plans are kept for the last 32 extents and passes. They do not depend on windows, lengths, the
/// seeds of dropouts, or the step of an incremental call, which are data.
///
/// Calls launch and do nothing else: they wait for nothing, allocate nothing on the device, and
/// compute in the caller's memory, so that they may be captured into a CUDA graph; calls on several
/// streams share the state of the dropouts only. What a call writes may overlap nothing else, but
/// for outputs in the place of residuals in the same layout, and of queries and residuals that are
/// one. Clones share the states of the dropouts and what is known of reserve spaces.
#[derive(Clone)]
pub struct MultiHeadAttention {
    kiln: Kiln,
    descriptor: AttentionDescriptor,
    built: Bounded<(AttentionPass, AttentionExtent), Built>,
    /// Built with the first plans whose windows are in memory.
    windows: Option<WindowWriter>,
    states: Arc<DropoutStates>,
    /// What the reserve spaces of this layer hold.
    reserves: Reserves<Vectors>,
}

/// The tensors of a call by role, and its windows.
#[derive(Clone, Copy)]
pub(super) struct Arguments<'a> {
    pub(super) tensors: [Option<Memory<'a>>; AttentionRole::ALL.len()],
    /// The time step to compute; negative: all.
    pub(super) step: i32,
    /// Windows of all steps; empty in the backward passes.
    pub(super) low: &'a [i32],
    pub(super) high: &'a [i32],
    pub(super) workspace: Option<Memory<'a>>,
    pub(super) reserve: Option<Memory<'a>>,
    /// Whether weight gradients are added to those in memory.
    pub(super) adds: bool,
}

/// The vectors whose data a reserve space holds.
#[derive(Clone, Copy, PartialEq)]
struct Vectors(AttentionExtent);

/// The plans of a pass for one extent.
#[derive(Clone)]
struct Built {
    layer: AttentionLayer,
    sizes: Sizes,
    stages: Vec<BuiltStage>,
    /// Of the weights' pass, what adds its results to the gradients in memory.
    sum: Option<Sum>,
}

/// Sizes of a layer's memory in bytes.
#[derive(Clone, Copy)]
struct Sizes {
    roles: [u64; AttentionRole::ALL.len()],
    /// Of all intermediate tensors.
    intermediate: u64,
    /// Offset of partial results in the workspace, without and with gradients that are added.
    partials_offset: [u64; 2],
    /// Of windows in the workspace, and where they begin.
    windows: u64,
    windows_offset: u64,
}

impl Sizes {
    fn of(layer: &AttentionLayer) -> Result<Sizes> {
        let mut roles = [0; AttentionRole::ALL.len()];
        for (bytes, role) in roles.iter_mut().zip(AttentionRole::ALL) {
            *bytes = layer.bytes(role)?;
        }
        let partials_offset = [layer.partials_offset(false)?, layer.partials_offset(true)?];
        let intermediate = layer.intermediate_bytes()?;
        let (windows, windows_offset) = (layer.windows_bytes(), layer.windows_offset(false)?);
        Ok(Sizes { roles, intermediate, partials_offset, windows, windows_offset })
    }
}

#[derive(Clone)]
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

/// Plans of a layer that are kept, by pass and extent.
const PLANS_MAX: usize = 32;

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
            built: Bounded::new(PLANS_MAX),
            windows: None,
            states: Arc::new(DropoutStates::new(
                self.device(),
                &[descriptor.get().attn_dropout, descriptor.get().post_dropout],
            )?),
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
        let built = self.find(pass, extent)?;
        Ok(built.stages.iter().map(|stage| &stage.plan).collect())
    }

    /// The plans of a pass for an extent, which are built if necessary.
    fn find(&mut self, pass: AttentionPass, extent: AttentionExtent) -> Result<&mut Built> {
        self.ensure(pass, extent)?;
        Ok(self.built.get(&(pass, extent)).expect("it has been built"))
    }

    /// Builds the plans of a pass for an extent, if necessary.
    fn ensure(&mut self, pass: AttentionPass, extent: AttentionExtent) -> Result<()> {
        let key = (pass, extent);
        if !self.built.has(&key) {
            let built = Built::new(&self.kiln, self.descriptor.lowered(pass, extent)?)?;
            if self.windows.is_none() && built.layer.windows_bytes() > 0 {
                self.windows = Some(WindowWriter::new(&self.kiln)?);
            }
            self.built.insert(key, built);
        }
        Ok(())
    }

    /// Checks the sizes of a call's memory and launches the pass.
    pub(super) fn run(
        &mut self,
        stream: &Stream,
        pass: AttentionPass,
        extent: AttentionExtent,
        call: &Arguments<'_>,
    ) -> Result<()> {
        self.ensure(pass, extent)?;
        let MultiHeadAttention { built, windows, states, .. } = self;
        let built = built.get(&(pass, extent)).expect("it has been built");
        built.check(call)?;
        built.check_overlaps(call)?;
        if let (Some(writer), 1..) = (windows, built.sizes.windows) {
            built.write_windows(writer, stream, call)?;
        }
        let call = call
            .with(AttentionRole::DropoutSeeds, states.memory().into())
            .with(AttentionRole::DropoutPositions, states.memory().into());
        built.launch(stream, &call)
    }

    /// Notes what a reserve space holds.
    pub(super) fn record(&self, reserve: Memory<'_>, extent: AttentionExtent, phase: Phase) {
        self.reserves.record(reserve.address(), Vectors::new(extent), phase);
    }

    /// Refuses a reserve space that holds something else than a backward pass needs.
    pub(super) fn check_reserve(
        &self,
        pass: AttentionPass,
        reserve: Memory<'_>,
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
    pub(super) fn with(mut self, role: AttentionRole, memory: Memory<'a>) -> Arguments<'a> {
        self.tensors[role as usize] = Some(memory);
        self
    }

    /// The memory of a tensor.
    fn memory(&self, role: AttentionRole) -> Option<Memory<'a>> {
        let is_result = role == AttentionRole::WeightGradients && self.adds;
        match role {
            AttentionRole::LowWindow | AttentionRole::HighWindow => self.workspace,
            _ if is_result || role.is_temporary() => self.workspace,
            _ if role.is_intermediate() => self.reserve.or(self.workspace),
            _ => self.tensors[role as usize],
        }
    }
}

impl View {
    /// The location of a graph tensor.
    fn new(layer: &AttentionLayer, place: &AttentionPlace, tensor: &TensorDesc) -> Result<View> {
        let role = place.role;
        let size = tensor.dtype.bytes() as u64;
        let base = match role {
            _ if role.is_intermediate() => layer.intermediate_offset(role)?,
            AttentionRole::LowWindow => layer.windows_offset(false)?,
            AttentionRole::HighWindow => layer.windows_offset(false)? + layer.windows_bytes() / 2,
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
        let AttentionLayer { descriptor, pass, extent, .. } = &layer;
        let partials = descriptor.partials_bytes_max(*pass, extent.training)?;
        let mut stages = Vec::new();
        for stage in &layer.stages {
            let plan = kiln.plan_within(&stage.graph, partials)?;
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
        let sum = adds.then(|| Sum::new(kiln, &whole)).transpose()?;
        Ok(Built { sizes: Sizes::of(&layer)?, layer, stages, sum })
    }

    /// Writes the windows of all steps to the workspace.
    fn write_windows(
        &self,
        writer: &mut WindowWriter,
        stream: &Stream,
        call: &Arguments<'_>,
    ) -> Result<()> {
        let (first, steps) = (self.sizes.windows_offset, self.layer.extent.queries);
        let ends = first + self.sizes.windows / 2;
        let workspace = call.workspace.expect("it was checked");
        for (offset, numbers) in [(first, call.low), (ends, call.high)] {
            writer.write(stream, &numbers[..steps as usize], (workspace, offset))?;
        }
        Ok(())
    }

    /// Checks the sizes of all memory.
    fn check(&self, call: &Arguments<'_>) -> Result<()> {
        let pass = self.layer.pass;
        for (role, memory) in AttentionRole::ALL.into_iter().zip(call.tensors) {
            let Some(memory) = memory else { continue };
            let (bytes, needed) = (memory.bytes(), self.sizes.roles[role as usize]);
            if bytes < needed {
                let name = role.name();
                return bad(pass, format!("`{name}` has {bytes} bytes, the layer needs {needed}"));
            }
        }
        let of_reserve = |reserve| ("reserve space", Some(reserve), self.sizes.intermediate);
        let reserve = call.reserve.map(of_reserve);
        let workspace = ("workspace", call.workspace, self.workspace_bytes(call));
        for (name, memory, needed) in reserve.into_iter().chain([workspace]) {
            let bytes = memory.map_or(0, |memory| memory.bytes());
            if bytes < needed {
                let has = match memory {
                    Some(_) => format!("the {name} has {bytes} bytes, the layer needs {needed}"),
                    None => format!("the layer needs a {name} of {needed} bytes, there is none"),
                };
                return bad(pass, has);
            }
        }
        Ok(())
    }

    /// Checks that nothing that is written overlaps anything else, but for outputs in the place of
    /// queries or residuals, which are read before or where they are written.
    fn check_overlaps(&self, call: &Arguments<'_>) -> Result<()> {
        use AttentionRole::{
            KeyGradients, Output, Queries, QueryGradients, Residuals, ValueGradients,
            WeightGradients,
        };
        let written: &[AttentionRole] = match self.layer.pass {
            AttentionPass::Forward => &[Output],
            AttentionPass::BackwardData => &[QueryGradients, KeyGradients, ValueGradients],
            AttentionPass::BackwardWeights => &[WeightGradients],
        };
        let range = |memory: Memory<'_>, bytes: u64| (memory.address(), memory.address() + bytes);
        let meet = |a: (u64, u64), b: (u64, u64)| a.0 < b.1 && b.0 < a.1 && a.0 < a.1 && b.0 < b.1;
        let mut all = [("", None, (0, 0)); AttentionRole::ALL.len() + 2];
        let tensors = AttentionRole::ALL.into_iter().zip(call.tensors).map(|(role, memory)| {
            (role.name(), Some(role), memory, self.sizes.roles[role as usize])
        });
        let of_call = [
            ("workspace", None, call.workspace, self.workspace_bytes(call)),
            ("reserve space", None, call.reserve, self.sizes.intermediate),
        ];
        let there = tensors
            .chain(of_call)
            .filter_map(|(name, role, memory, bytes)| Some((name, role, range(memory?, bytes))));
        let mut count = 0;
        for (place, of) in all.iter_mut().zip(there) {
            *place = of;
            count += 1;
        }
        let all = &all[..count];
        for (at, (name, role, own)) in all.iter().enumerate() {
            if role.is_some_and(|role| !written.contains(&role)) {
                continue;
            }
            for (other_at, (other_name, other, theirs)) in all.iter().enumerate() {
                let in_place = *role == Some(Output)
                    && matches!(other, Some(Queries | Residuals))
                    && own == theirs;
                if at != other_at && meet(*own, *theirs) && !in_place {
                    return bad(
                        self.layer.pass,
                        format!("`{name}` is written but its memory overlaps `{other_name}`"),
                    );
                }
            }
        }
        Ok(())
    }

    /// Bytes of the workspace of a call.
    fn workspace_bytes(&self, call: &Arguments<'_>) -> u64 {
        let plans = self.stages.iter().map(|stage| stage.plan.workspace_bytes());
        self.partials_offset(call) + plans.max().unwrap_or(0)
    }

    fn partials_offset(&self, call: &Arguments<'_>) -> u64 {
        self.sizes.partials_offset[usize::from(call.adds)]
    }

    fn launch(&mut self, stream: &Stream, call: &Arguments<'_>) -> Result<()> {
        let (step, offset) = (call.step.max(0), self.partials_offset(call));
        let behind = |memory: Memory<'_>| {
            let bytes = memory.bytes().checked_sub(offset)?;
            Some(memory.slot().piece(offset, bytes))
        };
        let partials = call.workspace.and_then(behind);
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
                        let memory = call.memory(role).expect("it was checked");
                        let step = step as u64 * view.step_bytes;
                        memory.slot().piece(view.offset_bytes + step, view.bytes)
                    }
                };
            }
            pack.workspace = partials;
            plan.execute(stream, pack)?;
        }
        let gradients = call.tensors[AttentionRole::WeightGradients as usize];
        if let (Some(sum), Some(gradients), Some(results), true) =
            (&mut self.sum, gradients, call.workspace, call.adds)
        {
            sum.execute(stream, results.slot(), gradients.slot())?;
        }
        Ok(())
    }
}
