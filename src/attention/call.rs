//! Host-side execution state of a layer call: the contents of its tensors before and after every
//! graph.

use std::collections::HashMap;

use crate::attention::data::SequenceAxis;
use crate::attention::descriptor::AttentionDescriptor;
use crate::attention::extent::AttentionExtent;
use crate::attention::layer::{AttentionLayer, AttentionPlace, AttentionStage};
use crate::attention::role::AttentionRole;
use crate::attention::weights::AttentionWeightKind;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::TensorDesc;

/// Tensor contents by role, in memory order.
pub type Memory = HashMap<i64, Vec<f64>>;

/// A layer call, for all time steps or a single one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionCall {
    /// The layer for the call's extent.
    pub layer: AttentionLayer,
    step: i32,
}

impl AttentionCall {
    /// A call for all time steps, or for time step `step` if it is not negative and the extent has
    /// one step.
    ///
    /// # Errors
    /// `BadParam` for a step out of range; as [`AttentionDescriptor::layer`].
    pub fn new(
        descriptor: &AttentionDescriptor,
        extent: AttentionExtent,
        step: i32,
    ) -> Result<AttentionCall> {
        let layer = descriptor.layer(extent)?;
        let steps = if extent.one_step { 0..extent.queries } else { -1..0 };
        match steps.contains(&i64::from(step)) {
            true => Ok(AttentionCall { layer, step }),
            false => {
                let text = format!("attention layer: step {step} of {} steps", extent.queries);
                Err(Error::bad_param(text))
            }
        }
    }

    /// Descriptors of the caller's inputs: vectors in their layout, each weight matrix and bias as
    /// `[heads, output elements, input elements]`, lengths and windows. Uids are indices.
    pub fn named_inputs(&self) -> Vec<TensorDesc> {
        use AttentionRole::{
            HighWindow, KeyLengths, Keys, LowWindow, Queries, QueryLengths, Residuals, Values,
        };
        let mut named = Vec::new();
        let mut add = |name: &str, dtype, dims: &[i64]| {
            named.push(TensorDesc::packed(named.len() as i64, name, dims, dtype));
        };
        let vectors = [Queries, Residuals, Keys, Values];
        for role in vectors.into_iter().filter(|role| self.count(*role) > 0) {
            let (dtype, _) = self.tensor(role);
            add(role.name(), dtype, &self.dims(role));
        }
        let weights = AttentionWeightKind::ALL.into_iter();
        for (kind, slice) in
            weights.filter_map(|kind| Some((kind, self.layer.weights.slice(kind)?)))
        {
            add(kind.name(), self.layer.descriptor.get().data_type, &slice.dims);
        }
        for role in [QueryLengths, KeyLengths, LowWindow, HighWindow] {
            let (dtype, _) = self.tensor(role);
            add(role.name(), dtype, &self.dims(role));
        }
        named
    }

    /// Descriptors of the caller's outputs, as for [`AttentionCall::named_inputs`].
    pub fn named_outputs(&self) -> Vec<TensorDesc> {
        let role = AttentionRole::Output;
        vec![TensorDesc::packed(0, role.name(), &self.dims(role), self.tensor(role).0)]
    }

    /// Initial contents of all tensors from values of [`AttentionCall::named_inputs`]; outputs are
    /// 0.
    ///
    /// # Errors
    /// `BadParam` when values are missing or their number is wrong; `Driver` when host memory is
    /// exhausted.
    pub fn memory(&self, named: &HashMap<i64, Vec<f64>>) -> Result<Memory> {
        let mut memory = Memory::new();
        for role in AttentionRole::ALL {
            let (count, mut values) = (self.count(role), Vec::new());
            values.try_reserve_exact(count).map_err(|_| {
                let name = role.name();
                Error::io(format!("failed to allocate {count} values on the host for `{name}`"))
            })?;
            values.resize(count, 0.0);
            memory.insert(role as i64, values);
        }
        let steps = if self.step < 0 { 0 } else { i64::from(self.step) };
        let counted = memory.entry(AttentionRole::Steps as i64).or_default();
        for (at, value) in counted.iter_mut().enumerate() {
            *value = steps as f64 + at as f64;
        }
        for tensor in self.named_inputs() {
            let (name, wanted) = (&tensor.name, tensor.elements().unwrap_or(i64::MAX));
            let given = named.get(&tensor.uid).map_or(&[][..], Vec::as_slice);
            if given.len() as i64 != wanted {
                let count = given.len();
                let text =
                    format!("attention layer: {count} values of `{name}`, expected {wanted}");
                return Err(Error::bad_param(text));
            }
            let values = given.to_vec();
            let role = AttentionRole::ALL.into_iter().find(|role| role.name() == tensor.name);
            if let Some(role) = role {
                memory.insert(role as i64, values);
                continue;
            }
            let mut kinds = AttentionWeightKind::ALL.into_iter();
            let kind = kinds.find(|kind| kind.name() == tensor.name);
            let slice = kind.and_then(|kind| self.layer.weights.slice(kind));
            let slice = slice.expect("what has no role is a weight");
            let slots = TensorDesc { strides: slice.strides.to_vec(), ..tensor };
            let weights = memory.entry(AttentionRole::Weights as i64).or_default();
            for (at, value) in slots.offsets().zip(values) {
                weights[slice.offset as usize + at] = value;
            }
        }
        Ok(memory)
    }

    /// Values of a graph's inputs, by uid.
    pub fn inputs(&self, stage: &AttentionStage, memory: &Memory) -> HashMap<i64, Vec<f64>> {
        let values = |tensor: &TensorDesc| {
            let (role, positions) = self.positions(stage, tensor);
            let whole = &memory[&(role as i64)];
            (tensor.uid, positions.map(|at| whole[at]).collect())
        };
        stage.graph.inputs().map(values).collect()
    }

    /// Stores a graph's outputs in memory.
    pub fn store(
        &self,
        stage: &AttentionStage,
        outputs: &HashMap<i64, Vec<f64>>,
        memory: &mut Memory,
    ) {
        for tensor in stage.graph.outputs() {
            let (role, positions) = self.positions(stage, tensor);
            let whole = memory.entry(role as i64).or_default();
            for (at, value) in positions.zip(&outputs[&tensor.uid]) {
                whole[at] = *value;
            }
        }
    }

    /// Values of [`AttentionCall::named_outputs`].
    pub fn named_values(&self, memory: &Memory) -> HashMap<i64, Vec<f64>> {
        HashMap::from([(0, memory[&(AttentionRole::Output as i64)].clone())])
    }

    /// Maps the elements of a graph tensor to positions in memory.
    fn positions<'a>(
        &self,
        stage: &AttentionStage,
        tensor: &'a TensorDesc,
    ) -> (AttentionRole, impl Iterator<Item = usize> + use<'a>) {
        let place = stage.places.iter().find(|place| place.uid == tensor.uid);
        let AttentionPlace { role, offset, .. } = *place.expect("every tensor has a place");
        let step = match role {
            AttentionRole::Queries | AttentionRole::Residuals | AttentionRole::Output => {
                i64::from(self.step.max(0)) * self.layer.step_stride(role)
            }
            _ => 0,
        };
        let first = (offset + step) as usize;
        (role, tensor.offsets().map(move |at| first + at))
    }

    fn tensor(&self, role: AttentionRole) -> (DType, i64) {
        self.layer.tensor(role).expect("the layer was checked")
    }

    fn count(&self, role: AttentionRole) -> usize {
        self.tensor(role).1 as usize
    }

    /// Dimensions of a caller's tensor, in the caller's layout.
    fn dims(&self, role: AttentionRole) -> Vec<i64> {
        use AttentionRole::{HighWindow, KeyLengths, Keys, LowWindow, QueryLengths, Values};
        let AttentionExtent { batch, beams, queries, keys, order, .. } = self.layer.extent;
        let (beams, steps) = match role {
            Keys | Values | KeyLengths => (self.layer.kv_beams(), keys),
            _ => (beams, queries),
        };
        let vectors = batch * beams * steps;
        match role {
            QueryLengths | KeyLengths => vec![batch, beams],
            LowWindow | HighWindow => vec![self.layer.extent.steps()],
            _ => order
                .map(|axis| match axis {
                    SequenceAxis::Batch => batch,
                    SequenceAxis::Beam => beams,
                    _ => steps,
                })
                .into_iter()
                .chain([self.tensor(role).1 / vectors])
                .collect(),
        }
    }
}
