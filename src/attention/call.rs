//! Host-side execution state of a layer call: the contents of its tensors before and after every
//! graph.

use crate::attention::data::SequenceAxis;
use crate::attention::descriptor::AttentionDescriptor;
use crate::attention::extent::AttentionExtent;
use crate::attention::layer::{AttentionLayer, AttentionPlace, AttentionStage};
use crate::attention::pass::AttentionPass;
use crate::attention::random;
use crate::attention::role::AttentionRole;
use crate::attention::weights::{AttentionWeightKind, AttentionWeightSlice};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::frontend::{FrontEnd, Values};
use crate::graph::OperationGraph;
use crate::tensor::TensorDesc;

/// A layer call, for all time steps or a single one, or for training.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttentionCall {
    /// The layer for the call's extent.
    pub layer: AttentionLayer,
    /// The backward passes that follow.
    pub backward: Vec<AttentionLayer>,
    step: i32,
}

/// The gradients of a call, each of a caller's tensor.
const GRADIENTS: [AttentionRole; 3] =
    [AttentionRole::QueryGradients, AttentionRole::KeyGradients, AttentionRole::ValueGradients];

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
            true => Ok(AttentionCall { layer, backward: Vec::new(), step }),
            false => {
                let text = format!("attention layer: step {step} of {} steps", extent.queries);
                Err(Error::bad_param(text))
            }
        }
    }

    /// A call in training, for all time steps, followed by the backward passes.
    ///
    /// # Errors
    /// As [`AttentionDescriptor::lowered`].
    pub fn with_gradients(
        descriptor: &AttentionDescriptor,
        extent: AttentionExtent,
    ) -> Result<AttentionCall> {
        let extent = AttentionExtent { training: true, ..extent };
        let call = AttentionCall::new(descriptor, extent, -1)?;
        let extent = AttentionExtent { residuals: false, ..extent };
        let passes = [AttentionPass::BackwardData, AttentionPass::BackwardWeights];
        let backward = passes.map(|pass| descriptor.lowered(pass, extent));
        Ok(AttentionCall { backward: backward.into_iter().collect::<Result<_>>()?, ..call })
    }

    /// The graphs of all passes in execution order.
    fn stages(&self) -> impl Iterator<Item = &AttentionStage> {
        let passes = std::iter::once(&self.layer).chain(&self.backward);
        passes.flat_map(|pass| &pass.stages)
    }

    fn stage(&self, graph: usize) -> &AttentionStage {
        self.stages().nth(graph).expect("the call has the graph")
    }

    /// The weights of the layer.
    fn weights(&self) -> impl Iterator<Item = (AttentionWeightKind, AttentionWeightSlice)> {
        let kinds = AttentionWeightKind::ALL.into_iter();
        kinds.filter_map(|kind| Some((kind, self.layer.weights.slice(kind)?)))
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
        use AttentionRole::{
            HighWindow, KeyGradients, KeyLengths, Keys, LowWindow, QueryLengths, ValueGradients,
            Values,
        };
        let AttentionExtent { batch, beams, queries, keys, order, .. } = self.layer.extent;
        let (beams, steps) = match role {
            Keys | Values | KeyLengths | KeyGradients | ValueGradients => {
                (self.layer.kv_beams(), keys)
            }
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
        self.stages().map(|stage| &stage.graph).collect()
    }

    /// Vectors in their layout, each weight matrix and bias as `[heads, output elements, input
    /// elements]`, lengths and windows. Uids are indices.
    fn named_inputs(&self) -> Vec<TensorDesc> {
        use AttentionRole::{
            HighWindow, KeyLengths, Keys, LowWindow, OutputGradient, Queries, QueryLengths,
            Residuals, Values,
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
        for (kind, slice) in self.weights() {
            add(kind.name(), self.layer.descriptor.get().data_type, &slice.dims);
        }
        for role in [QueryLengths, KeyLengths, LowWindow, HighWindow] {
            let (dtype, _) = self.tensor(role);
            add(role.name(), dtype, &self.dims(role));
        }
        if !self.backward.is_empty() {
            let (dtype, _) = self.tensor(OutputGradient);
            add(OutputGradient.name(), dtype, &self.dims(OutputGradient));
        }
        named
    }

    fn named_outputs(&self) -> Vec<TensorDesc> {
        let dtype = self.layer.descriptor.get().data_type;
        let mut named: Vec<(String, Vec<i64>)> = vec![AttentionRole::Output]
            .into_iter()
            .chain(GRADIENTS.into_iter().filter(|_| !self.backward.is_empty()))
            .map(|role| (role.name().to_owned(), self.dims(role)))
            .collect();
        if !self.backward.is_empty() {
            let gradient = |(kind, slice): (AttentionWeightKind, AttentionWeightSlice)| {
                (format!("{}_gradient", kind.name()), slice.dims.to_vec())
            };
            named.extend(self.weights().map(gradient));
        }
        let tensor = |(uid, (name, dims)): (i64, (String, Vec<i64>))| {
            TensorDesc::packed(uid, name, &dims, dtype)
        };
        (0..).zip(named).map(tensor).collect()
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
        memory.entry(AttentionRole::Steps as i64).or_default().fill(steps as f64);
        if self.layer.drops() {
            let settings = self.layer.descriptor.get();
            let seeds = [settings.attn_dropout, settings.post_dropout];
            let seeds = seeds.map(|dropout| dropout.seed() as f64);
            memory.insert(AttentionRole::DropoutSeeds as i64, seeds.to_vec());
            memory.insert(AttentionRole::DropoutPositions as i64, vec![0.0, 1.0]);
            memory.insert(AttentionRole::DropoutCount as i64, vec![seeds.len() as f64]);
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
        let stage = self.stage(graph);
        let values = |tensor: &TensorDesc| {
            let (role, positions) = self.positions(stage, tensor);
            let whole = &state[&(role as i64)];
            (tensor.uid, positions.map(|at| whole[at]).collect())
        };
        stage.graph.inputs().map(values).collect()
    }

    fn store(&self, graph: usize, outputs: &Values, state: &mut Values) {
        let stage = self.stage(graph);
        for tensor in stage.graph.outputs() {
            let (role, positions) = self.positions(stage, tensor);
            let whole = state.entry(role as i64).or_default();
            for (at, value) in positions.zip(&outputs[&tensor.uid]) {
                whole[at] = *value;
            }
        }
    }

    fn named_values(&self, state: &Values) -> Values {
        let whole = |role: AttentionRole| state[&(role as i64)].as_slice();
        let mut named = vec![whole(AttentionRole::Output).to_vec()];
        if !self.backward.is_empty() {
            named.extend(GRADIENTS.map(|role| whole(role).to_vec()));
            let gradients = whole(AttentionRole::WeightGradients);
            for (_, AttentionWeightSlice { offset, dims, strides }) in self.weights() {
                let tensor = TensorDesc::packed(0, "", &dims, DType::F64);
                let slots = TensorDesc { strides: strides.to_vec(), ..tensor };
                let values = slots.offsets().map(|at| gradients[offset as usize + at]);
                named.push(values.collect());
            }
        }
        (0..).zip(named).collect()
    }
}
