//! Host-side execution state of a layer call: the contents of its tensors before and after every
//! graph.

use crate::attention::data::SequenceAxis;
use crate::attention::descriptor::AttentionDescriptor;
use crate::attention::extent::AttentionExtent;
use crate::attention::layer::{AttentionLayer, AttentionPlace, AttentionStage};
use crate::attention::random;
use crate::attention::role::AttentionRole;
use crate::attention::weights::AttentionWeightKind;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::frontend::{FrontEnd, Values};
use crate::graph::OperationGraph;
use crate::tensor::TensorDesc;

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

impl FrontEnd for AttentionCall {
    fn graphs(&self) -> Vec<&OperationGraph> {
        self.layer.stages.iter().map(|stage| &stage.graph).collect()
    }

    /// Vectors in their layout, each weight matrix and bias as `[heads, output elements, input
    /// elements]`, lengths and windows. Uids are indices.
    fn named_inputs(&self) -> Vec<TensorDesc> {
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

    fn named_outputs(&self) -> Vec<TensorDesc> {
        let role = AttentionRole::Output;
        vec![TensorDesc::packed(0, role.name(), &self.dims(role), self.tensor(role).0)]
    }

    fn random_values(&self, seed: u64) -> Result<Values> {
        random::random_values(&self.named_inputs(), self.layer.extent, seed)
    }

    /// The contents of the layer's tensors in memory order, by role; outputs are 0.
    fn initial_values(&self, mut named: Values) -> Result<Values> {
        let mut memory = Values::new();
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
            let values = named.remove(&tensor.uid).unwrap_or_default();
            if values.len() as i64 != wanted {
                let count = values.len();
                let text =
                    format!("attention layer: {count} values of `{name}`, expected {wanted}");
                return Err(Error::bad_param(text));
            }
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

    fn inputs(&self, graph: usize, state: &Values) -> Values {
        let stage = &self.layer.stages[graph];
        let values = |tensor: &TensorDesc| {
            let (role, positions) = self.positions(stage, tensor);
            let whole = &state[&(role as i64)];
            (tensor.uid, positions.map(|at| whole[at]).collect())
        };
        stage.graph.inputs().map(values).collect()
    }

    fn store(&self, graph: usize, outputs: &Values, state: &mut Values) {
        let stage = &self.layer.stages[graph];
        for tensor in stage.graph.outputs() {
            let (role, positions) = self.positions(stage, tensor);
            let whole = state.entry(role as i64).or_default();
            for (at, value) in positions.zip(&outputs[&tensor.uid]) {
                whole[at] = *value;
            }
        }
    }

    fn named_values(&self, state: &Values) -> Values {
        Values::from([(0, state[&(AttentionRole::Output as i64)].clone())])
    }
}
