//! Multi-head attention on a device (`mcdnnMultiHeadAttnForward`, section 6.2.1.35): checks of the
//! arguments, and plans by extent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;

use crate::attention::{
    AttentionDescriptor, AttentionExtent, AttentionLayer, AttentionPlace, AttentionRole,
    SequenceDataDescriptor,
};
use crate::device::{Buffer, Stream};
use crate::error::{Error, Result};
use crate::expr::Real;
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::tensor::TensorDesc;

/// Arguments of `mcdnnMultiHeadAttnForward`; `None` is the document's NULL.
#[derive(Debug, Clone, Copy)]
pub struct AttentionForward<'a> {
    /// The time step to compute; negative: all.
    pub curr_idx: i32,
    /// First key of each step's window. With one step, only its element is read.
    pub lo_win_idx: &'a [i32],
    /// End of each step's window, exclusive; an end beyond the sequence means the end of the
    /// sequence.
    pub hi_win_idx: &'a [i32],
    /// The lengths of `q_desc` in device memory, `i32`. They are not compared with `q_desc`.
    pub seq_lengths_qo: &'a Buffer,
    /// The lengths of `k_desc` in device memory, `i32`. They are not compared with `k_desc`.
    pub seq_lengths_kv: &'a Buffer,
    /// Descriptor of `queries` and `residuals`.
    pub q_desc: &'a SequenceDataDescriptor,
    /// The queries.
    pub queries: &'a Buffer,
    /// Residuals, which are added to the outputs.
    pub residuals: Option<&'a Buffer>,
    /// Descriptor of `keys`.
    pub k_desc: &'a SequenceDataDescriptor,
    /// The keys.
    pub keys: &'a Buffer,
    /// Descriptor of `values`.
    pub v_desc: &'a SequenceDataDescriptor,
    /// The values.
    pub values: &'a Buffer,
    /// Descriptor of `out`.
    pub o_desc: &'a SequenceDataDescriptor,
    /// The outputs. Those of steps beyond the end of a sequence, which the document leaves
    /// undefined, are bias plus residual; with one step, all other steps are left unchanged.
    pub out: &'a Buffer,
    /// The weight buffer.
    pub weights: &'a Buffer,
    /// The workspace; `None` if its size is 0.
    pub workspace: Option<&'a Buffer>,
    /// The reserve space; a call with one is a training call.
    pub reserve: Option<&'a Buffer>,
}

/// An attention layer on one device.
///
/// Plans are kept for every extent that has been used. They do not depend on windows, lengths, or
/// the step of an incremental call, which are data. Calls share the layer's own memory and must run
/// one after the other, as on one stream.
pub struct MultiHeadAttention {
    kiln: Kiln,
    descriptor: AttentionDescriptor,
    built: HashMap<AttentionExtent, Built>,
    /// Workspace of the plans.
    scratch: Buffer,
}

/// The plans of a layer for one extent.
struct Built {
    layer: AttentionLayer,
    stages: Vec<BuiltStage>,
    windows: Windows,
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

fn bad<T>(rule: String) -> Result<T> {
    Err(Error::bad_param(format!("attention forward: {rule}")))
}

impl Kiln {
    /// Creates an attention layer on this device. Kernels are compiled, or found in a cache, by the
    /// first call for an extent.
    ///
    /// # Errors
    /// `Driver` when the device rejects an allocation.
    pub fn multi_head_attention(
        &self,
        descriptor: &AttentionDescriptor,
    ) -> Result<MultiHeadAttention> {
        Ok(MultiHeadAttention {
            kiln: self.clone(),
            descriptor: *descriptor,
            built: HashMap::new(),
            scratch: self.device().alloc(0)?,
        })
    }
}

impl MultiHeadAttention {
    /// The layer's descriptor.
    pub fn descriptor(&self) -> &AttentionDescriptor {
        &self.descriptor
    }

    /// Launches a forward pass on a stream. If the windows of a call for all steps differ from
    /// those of the last such call, they are copied to the device on this stream first, and the
    /// call waits for the copy.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::extent`] and [`AttentionDescriptor::layer`]; `BadParam` for a step
    /// out of range, windows that are missing or end before they start, one step with a reserve
    /// space, a buffer that is too small, and inference without a workspace; `NotSupported` for
    /// dropout in training; as [`Kiln::plan`] and [`ExecutionPlan::execute`].
    pub fn forward(&mut self, stream: &Stream, call: &AttentionForward<'_>) -> Result<()> {
        let extent = self.extent(call)?;
        let MultiHeadAttention { kiln, descriptor, built, scratch } = self;
        let built = find(built, kiln, descriptor, extent)?;
        built.check(call)?;
        built.windows.set(stream, call, extent)?;
        let plans = built.stages.iter().map(|stage| stage.plan.workspace_bytes());
        let needed = plans.max().unwrap_or(0);
        if needed > scratch.bytes() {
            stream.synchronize()?;
            *scratch = kiln.device().alloc(needed)?;
        }
        built.launch(stream, call, scratch)
    }

    /// The plans for an extent, in execution order.
    ///
    /// # Errors
    /// As [`MultiHeadAttention::forward`].
    pub fn plans(&mut self, extent: AttentionExtent) -> Result<Vec<&ExecutionPlan>> {
        let built = find(&mut self.built, &self.kiln, &self.descriptor, extent)?;
        Ok(built.stages.iter().map(|stage| &stage.plan).collect())
    }

    /// Checks a call and returns its extent.
    fn extent(&self, call: &AttentionForward<'_>) -> Result<AttentionExtent> {
        let AttentionForward { curr_idx, reserve, .. } = *call;
        let extent = self.descriptor.extent(call.q_desc, call.k_desc, call.v_desc, call.o_desc)?;
        let one_step = curr_idx >= 0;
        if i64::from(curr_idx) >= extent.queries {
            return bad(format!("step {curr_idx} of {} steps", extent.queries));
        }
        if one_step && reserve.is_some() {
            return bad(format!(
                "step {curr_idx} alone with a reserve space, which is for training"
            ));
        }
        for step in steps(curr_idx, extent) {
            let windows = [("low", call.lo_win_idx), ("high", call.hi_win_idx)];
            for (name, indices) in windows {
                if indices.len() <= step {
                    let count = indices.len();
                    return bad(format!("{count} {name} window indices, step {step} has none"));
                }
            }
            let (low, high) = (call.lo_win_idx[step], call.hi_win_idx[step]);
            if low > high {
                return bad(format!("the window of step {step} is {low} to {high}"));
            }
        }
        let settings = self.descriptor.get();
        let dropouts = [("weights", settings.attn_dropout), ("outputs", settings.post_dropout)];
        let dropped = dropouts.into_iter().find(|(_, dropout)| *dropout != Real::new(0.0));
        if let Some((name, dropout)) = dropped.filter(|_| reserve.is_some()) {
            let text = format!("attention forward: dropout {dropout} of {name} in training");
            return Err(Error::not_supported(text));
        }
        let residuals = call.residuals.is_some();
        Ok(AttentionExtent { residuals, one_step, training: reserve.is_some(), ..extent })
    }
}

impl fmt::Debug for MultiHeadAttention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MultiHeadAttention({:?})", self.descriptor)
    }
}

/// Finds the plans for an extent, or builds them.
fn find<'a>(
    built: &'a mut HashMap<AttentionExtent, Built>,
    kiln: &Kiln,
    descriptor: &AttentionDescriptor,
    extent: AttentionExtent,
) -> Result<&'a mut Built> {
    match built.entry(extent) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(place) => Ok(place.insert(Built::new(kiln, descriptor.layer(extent)?)?)),
    }
}

/// The time steps that a call computes.
fn steps(curr_idx: i32, extent: AttentionExtent) -> std::ops::Range<usize> {
    match usize::try_from(curr_idx) {
        Ok(step) => step..step + 1,
        Err(_) => 0..extent.queries as usize,
    }
}

impl AttentionForward<'_> {
    /// The buffer of a caller's tensor.
    fn buffer(&self, role: AttentionRole) -> Option<&Buffer> {
        match role {
            AttentionRole::Queries => Some(self.queries),
            AttentionRole::Residuals => self.residuals,
            AttentionRole::Keys => Some(self.keys),
            AttentionRole::Values => Some(self.values),
            AttentionRole::Weights => Some(self.weights),
            AttentionRole::QueryLengths => Some(self.seq_lengths_qo),
            AttentionRole::KeyLengths => Some(self.seq_lengths_kv),
            AttentionRole::Output => Some(self.out),
            _ => None,
        }
    }

    /// The name and the buffer of the intermediate tensors.
    fn intermediates(&self) -> (&'static str, Option<&Buffer>) {
        match self.reserve {
            Some(reserve) => ("reserve space", Some(reserve)),
            None => ("workspace", self.workspace),
        }
    }
}

impl Windows {
    /// Allocates the windows of all steps; the window of a single step is passed by value.
    fn new(kiln: &Kiln, extent: AttentionExtent) -> Result<Windows> {
        let count = if extent.one_step { 0 } else { 3 * extent.queries as u64 };
        let buffer = kiln.device().alloc(count * size_of::<i32>() as u64)?;
        Ok(Windows { buffer, values: Vec::new() })
    }

    fn set(
        &mut self,
        stream: &Stream,
        call: &AttentionForward<'_>,
        extent: AttentionExtent,
    ) -> Result<()> {
        if extent.one_step {
            return Ok(());
        }
        let of = extent.queries as usize;
        let windows = [&call.lo_win_idx[..of], &call.hi_win_idx[..of]];
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
        let windows = Windows::new(kiln, layer.extent)?;
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
        Ok(Built { layer, stages, windows })
    }

    /// Checks the sizes of all buffers.
    fn check(&self, call: &AttentionForward<'_>) -> Result<()> {
        for role in AttentionRole::ALL {
            let Some(buffer) = call.buffer(role) else { continue };
            let (bytes, needed) = (buffer.bytes(), self.layer.bytes(role)?);
            if bytes < needed {
                let name = role.name();
                return bad(format!("`{name}` has {bytes} bytes, the layer needs {needed}"));
            }
        }
        let needed = self.layer.intermediate_bytes()?;
        match call.intermediates() {
            (name, None) => {
                bad(format!("the layer needs a {name} of {needed} bytes, there is none"))
            }
            (name, Some(buffer)) if buffer.bytes() < needed => {
                let bytes = buffer.bytes();
                bad(format!("the {name} has {bytes} bytes, the layer needs {needed}"))
            }
            _ => Ok(()),
        }
    }

    fn launch(
        &mut self,
        stream: &Stream,
        call: &AttentionForward<'_>,
        scratch: &Buffer,
    ) -> Result<()> {
        let step = call.curr_idx.max(0);
        for BuiltStage { plan, pack, views } in &mut self.stages {
            for (view, (_, slot)) in views.iter().zip(&mut pack.entries) {
                *slot = match (view.role, &slot) {
                    (AttentionRole::Steps, Slot::Value(_)) => Slot::Value(step.into()),
                    (AttentionRole::LowWindow, Slot::Value(_)) => {
                        Slot::Value(call.lo_win_idx[step as usize].into())
                    }
                    (AttentionRole::HighWindow, Slot::Value(_)) => {
                        Slot::Value(call.hi_win_idx[step as usize].into())
                    }
                    (role, _) => {
                        let intermediates = || call.intermediates().1;
                        let buffer = match WINDOWS.contains(&role) {
                            true => Some(&self.windows.buffer),
                            false => call.buffer(role).or_else(intermediates),
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
        Ok(())
    }
}
